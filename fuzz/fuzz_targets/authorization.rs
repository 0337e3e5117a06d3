//! Any bytes as an Authorization resource: refused or taken in, never a panic.
#![no_main]

use lateen_config::{Batch, Kind, Store};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut store = Store::new("", None);
    store.apply(&Batch {
        upserts: vec![("ns/policy".into(), bytes::Bytes::copy_from_slice(data))],
        ..Batch::new(Kind::Authorization)
    });
    let _ = store.snapshot();
});
