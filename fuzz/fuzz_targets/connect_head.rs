//! Any text as the headers of a CONNECT: parsers do not panic, and what an authority parses to prints back to itself.
#![no_main]

use lateen_hbone::{Authority, Baggage, Forwarded, TraceParent};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(authority) = text.parse::<Authority>() {
        let again = authority.to_string().parse::<Authority>().expect("what was printed parses");
        assert_eq!(authority, again);
    }
    let _ = Baggage::parse(text);
    let _ = Forwarded::parse(text);
    let _ = text.parse::<TraceParent>();
    let _ = text.parse::<lateen_types::Identity>();
});
