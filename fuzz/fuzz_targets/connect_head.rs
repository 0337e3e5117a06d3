//! Any text as the headers of a CONNECT: parsers do not panic, and what an authority parses to prints back to itself.
#![no_main]

use lateen_config::next_hop;
use lateen_hbone::{Authority, Baggage, Forwarded, TraceParent};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(authority) = text.parse::<Authority>() {
        let again = authority.to_string().parse::<Authority>().expect("what was printed parses");
        assert_eq!(authority, again);
    }
    if let Some(authority) = next_hop::Authority::parse(text) {
        let again = next_hop::Authority::parse(&authority.to_string());
        assert_eq!(again, Some(authority), "what was printed parses");
    }
    let _ = Baggage::parse(text);
    let _ = Forwarded::parse(text);
    let _ = text.parse::<TraceParent>();
    let _ = text.parse::<lateen_types::Identity>();
});
