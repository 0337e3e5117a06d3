//! Any bytes as a Gateway: refused or taken in, never a panic; taken in, it can be looked up and removed.
#![no_main]

use bytes::Bytes;
use lateen_config::{Batch, Store, l7};
use lateen_proto::l7::Gateway;
use libfuzzer_sys::fuzz_target;
use prost::Message;

fuzz_target!(|data: &[u8]| {
    let mut store = Store::new("", None).of_gateway("shop/gateway".parse().expect("a name"));
    let name = Gateway::decode(data).map(|read| format!("{}/{}", read.namespace, read.name));
    let name = name.unwrap_or_else(|_| "shop/p".to_owned());
    let refused = store.apply(&Batch {
        upserts: vec![(name.as_str().into(), Bytes::copy_from_slice(data))],
        ..Batch::new(&l7::GATEWAY)
    });
    let is_kept = |store: &mut Store| {
        let snapshot = store.snapshot();
        snapshot.resource::<l7::Gateway>(&l7::GATEWAY, &name).is_some()
    };
    assert_eq!(is_kept(&mut store), refused.is_empty());
    store.apply(&Batch { removals: vec![name.as_str().into()], ..Batch::new(&l7::GATEWAY) });
    assert!(!is_kept(&mut store), "it is gone");
});
