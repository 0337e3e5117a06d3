//! Any bytes as Address resources that come, change and go: refused or taken in; no index names what is gone, a next hop is
//! never a panic, and what was taken in can be removed again without a trace.
#![no_main]

use bytes::Bytes;
use lateen_config::{Batch, Snapshot, Store, next_hop, resource_kinds};
use lateen_proto::workload::{Address, address::Type};
use libfuzzer_sys::fuzz_target;
use prost::Message;

/// The name under which a resource is not refused for its name.
fn name_of(bytes: &[u8]) -> String {
    match Address::decode(bytes).ok().and_then(|address| address.r#type) {
        Some(Type::Workload(workload)) => workload.uid,
        Some(Type::Service(service)) => format!("{}/{}", service.namespace, service.hostname),
        None => "a".to_owned(),
    }
}

/// Routes from every workload to every address that is known.
fn travel(snapshot: &Snapshot) {
    for source in snapshot.workloads() {
        let services = snapshot.services().flat_map(|service| service.addresses.iter().map(|at| at.address));
        let workloads = snapshot.workloads().flat_map(|workload| workload.addresses.iter().copied());
        for to in services.chain(workloads) {
            for port in [80, 15008] {
                let to = std::net::SocketAddr::new(to, port);
                let _ = next_hop::outbound(snapshot, source, to, &|_| false, &mut |below| below - 1);
                let _ = next_hop::inbound(snapshot, source, to.ip(), &to.to_string());
            }
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let mut store = Store::new("", Some("n1"));
    let batch = |upserts, removals| Batch { upserts, removals, ..Batch::new(&resource_kinds::ADDRESS) };
    let mut names = Vec::new();
    // 0xff stands between resources: it is no part of a field's key.
    for part in data.split(|byte| *byte == 0xff).take(16) {
        let name = name_of(part);
        let bytes = Bytes::copy_from_slice(part);
        // The same resource under another name: it must be refused, not mixed up.
        store.apply(&batch(vec![(name.as_str().into(), bytes.clone()), ("b".into(), bytes)], vec![]));
        names.push(name);
        let snapshot = store.snapshot();
        assert_eq!(snapshot.inconsistency(), None);
        travel(&snapshot);
    }
    names.push("b".to_owned());
    for name in names {
        store.apply(&batch(vec![], vec![name.as_str().into()]));
        assert_eq!(store.snapshot().inconsistency(), None);
    }
    let empty = store.snapshot();
    assert_eq!(empty.workloads().count(), 0, "a removed workload is gone");
    assert_eq!(empty.services().count(), 0, "a removed service is gone");
});
