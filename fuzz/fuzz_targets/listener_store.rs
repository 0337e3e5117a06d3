//! Any packet as an answer of the listener store without descriptors: refused or understood, never a panic.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = lateen_listener_store::Answer::decode(data, Vec::new());
});
