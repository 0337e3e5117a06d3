//! Any bytes as token rules: refused or taken in, never a panic; taken in, they leave nothing behind when they go.
#![no_main]

use bytes::Bytes;
use lateen_config::{Batch, Store, l7};
use lateen_proto::l7::Authentication;
use libfuzzer_sys::fuzz_target;
use prost::Message;

fuzz_target!(|data: &[u8]| {
    let mut store = Store::new("", None).of_gateway("shop/gateway".parse().expect("a name"));
    let name = Authentication::decode(data).map(|read| format!("{}/{}", read.namespace, read.name));
    let name = name.unwrap_or_else(|_| "shop/p".to_owned());
    let refused = store.apply(&Batch {
        upserts: vec![(name.as_str().into(), Bytes::copy_from_slice(data))],
        ..Batch::new(&l7::AUTHENTICATION)
    });
    let snapshot = store.snapshot();
    let is_kept = snapshot.resource::<l7::Authentication>(&l7::AUTHENTICATION, &name).is_some();
    assert_eq!(is_kept, refused.is_empty());
    let rules = snapshot.request_rules(None);
    assert!(!rules.tokens.is_none(), "conditions on tokens always have places");
    store.apply(&Batch { removals: vec![name.as_str().into()], ..Batch::new(&l7::AUTHENTICATION) });
    let rules = store.snapshot().request_rules(None).clone();
    assert!(!rules.refuses_tokens && rules.policies.is_empty());
});
