//! Any bytes as the first of a client whose protocol nobody names. However they come, the decision is that about all of them. What
//! the HTTP/1 core reads as a request is one, unless empty lines stand before it, and the preface of HTTP/2 alone is HTTP/2.
//!
//! Parsers: HTTP/1
//! Files: crates/http/src crates/h1/src :!crates/h1/src/output.rs :!crates/h1/src/encode.rs
#![no_main]

use bytes::Bytes;
use lateen_h1::{Config, ServerConnection, ServerEvent};
use lateen_http::{Detected, Detector, detect};
use libfuzzer_sys::fuzz_target;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The longest method that counts as one.
const METHOD: usize = 64;

fuzz_target!(|bytes: &[u8]| {
    let whole = detect(bytes);
    assert_eq!(whole == Detected::Http2, bytes.starts_with(PREFACE));
    let (mut detector, mut judged) = (Detector::default(), Detected::Undecided);
    // Cuts of long inputs are tried here and there.
    for cut in (0..bytes.len()).step_by(bytes.len() / 64 + 1) {
        let part = detect(&bytes[..cut]);
        assert!(part == Detected::Undecided || part == whole, "{part:?} at {cut}, then {whole:?}");
        if judged == Detected::Undecided {
            judged = detector.judge(&bytes[..cut]);
        }
        assert_eq!(judged, part, "in pieces, at {cut}");
    }
    let mut server = ServerConnection::new(Config::default());
    let mut input = Bytes::copy_from_slice(bytes);
    if let Ok(Some(ServerEvent::Request { head, .. })) = server.receive(&mut input)
        && bytes.starts_with(head.method())
        && head.method().len() <= METHOD
    {
        assert_eq!(whole, Detected::Http1);
    }
});
