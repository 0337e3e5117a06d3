//! Any bytes as a Binding: refused or taken in, never a panic; taken in, it can be looked up and removed.
#![no_main]

use bytes::Bytes;
use lateen_config::{Batch, Store, l7};
use lateen_proto::l7::{Binding, binding::Destination};
use libfuzzer_sys::fuzz_target;
use prost::Message;

fuzz_target!(|data: &[u8]| {
    let mut store = Store::new("", None).of_gateway("shop/gateway".parse().expect("a name"));
    let name = match Binding::decode(data).ok().and_then(|read| read.destination) {
        Some(Destination::Service(name) | Destination::Workload(name)) => name,
        None => "shop/p".to_owned(),
    };
    let refused = store.apply(&Batch {
        upserts: vec![(name.as_str().into(), Bytes::copy_from_slice(data))],
        ..Batch::new(&l7::BINDING)
    });
    let is_kept = |store: &mut Store| {
        let snapshot = store.snapshot();
        snapshot.resource::<l7::Binding>(&l7::BINDING, &name).is_some()
    };
    assert_eq!(is_kept(&mut store), refused.is_empty());
    store.apply(&Batch { removals: vec![name.as_str().into()], ..Batch::new(&l7::BINDING) });
    assert!(!is_kept(&mut store), "it is gone");
});
