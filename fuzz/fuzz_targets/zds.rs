//! Any packet as a ZDS request without descriptors: refused or understood, never a panic.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    for lost in [false, true] {
        let _ = lateen_zds::Request::decode(data, Vec::new(), lost);
    }
});
