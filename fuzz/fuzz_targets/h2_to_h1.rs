//! Any bytes as what a client of HTTP/2 sends to a proxy whose endpoints speak HTTP/1.1, through `lateen_h2`, `lateen_http`,
//! `lateen_exchange` and `lateen_h1`. What leaves is read by parsers of others as the same requests, one after the other, with nothing
//! left over; of a refused request nothing leaves. The first byte says how requests pass, and whether the rest is the text of
//! `passage::written` or bytes of frames. The proxy in memory is in crates/exchange/tests/passage.
//!
//! Parsers: HTTP/2, HPACK, message-heads
#![no_main]

#[path = "../../crates/exchange/tests/passage/mod.rs"]
mod passage;

use lateen_exchange::Protocol;
use libfuzzer_sys::fuzz_target;
use passage::{Course, check, written};

fuzz_target!(|data: &[u8]| {
    let Some((&how, rest)) = data.split_first() else { return };
    let frames = match how & 64 {
        0 => written::frames(rest),
        _ => rest.to_vec(),
    };
    check(Course::of(how, Protocol::Http2), &[written::PREFACE, &frames].concat());
});
