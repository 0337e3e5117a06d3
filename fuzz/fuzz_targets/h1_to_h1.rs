//! Any bytes as what a client of HTTP/1 sends to a proxy whose endpoints speak HTTP/1.1, through `lateen_http`, `lateen_exchange` and
//! `lateen_h1`: as for `h2_to_h1`, with the proxy of crates/exchange/tests/passage. The first byte says how requests pass.
//!
//! Parsers: HTTP/1, message-heads
#![no_main]

#[path = "../../crates/exchange/tests/passage/mod.rs"]
#[allow(dead_code)] // The text of frames is for HTTP/2.
mod passage;

use lateen_exchange::Protocol;
use libfuzzer_sys::fuzz_target;
use passage::{Course, check};

fuzz_target!(|data: &[u8]| {
    let Some((&how, rest)) = data.split_first() else { return };
    check(Course::of(how, Protocol::Http1), rest);
});
