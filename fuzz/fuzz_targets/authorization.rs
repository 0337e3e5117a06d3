//! Any bytes as an Authorization resource: refused or taken in, never a panic, nor when it decides; refused, it denies.
#![no_main]

use bytes::Bytes;
use lateen_config::{Batch, Store, resource_kinds};
use lateen_policy::{Connection, decide, dry_run};
use lateen_proto::workload::{Address, Workload, address::Type};
use libfuzzer_sys::fuzz_target;

const POLICY: &str = "ns/policy";

fuzz_target!(|data: &[u8]| {
    let mut store = Store::new("", None);
    let workload = Workload {
        uid: "w".into(),
        namespace: "ns".into(),
        authorization_policies: vec![POLICY.into()],
        ..Workload::default()
    };
    let address = Address { r#type: Some(Type::Workload(workload)) };
    store.upsert("w", address).expect("a good workload");
    let refused = store.apply(&Batch {
        upserts: vec![(POLICY.into(), Bytes::copy_from_slice(data))],
        ..Batch::new(&resource_kinds::AUTHORIZATION)
    });
    let snapshot = store.snapshot();
    let workload = snapshot.workload_by_uid("w").expect("it was taken in");
    let connection = Connection {
        peer: None,
        source_ip: [10, 0, 0, 1].into(),
        destination: ([10, 0, 0, 2], 80).into(),
    };
    let decision = decide(snapshot.policies_for(workload), &connection);
    let _ = dry_run(snapshot.policies_for(workload), &connection);
    assert!(refused.is_empty() || !decision.is_allow(), "what could not be read may be a DENY");
});
