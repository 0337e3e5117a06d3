//! Any bytes as an Address resource: refused or taken in, and what was taken in can be removed again without a trace.
#![no_main]

use lateen_config::{Batch, Kind, Store};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut store = Store::new("", Some("n1"));
    let batch = |upserts, removals| Batch { upserts, removals, ..Batch::new(Kind::Address) };
    // The same resource under two names: addresses that collide must be refused, not mixed up.
    let bytes = bytes::Bytes::copy_from_slice(data);
    store.apply(&batch(vec![("a".into(), bytes.clone()), ("b".into(), bytes)], vec![]));
    let _ = store.snapshot();
    store.apply(&batch(vec![], vec!["a".into(), "b".into()]));
    let empty = store.snapshot();
    assert_eq!(empty.workloads().count(), 0, "a removed workload is gone");
    assert_eq!(empty.services().count(), 0, "a removed service is gone");
});
