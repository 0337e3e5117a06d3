//! Any message from a pod and any from a resolver: answered, refused, forwarded or dropped, never a panic; a reply is to
//! the question, and no longer than the client takes.
#![no_main]

use std::sync::{Arc, OnceLock};

use lateen_config::{Batch, Snapshot, Store, resource_kinds};
use lateen_dns::{Answer, Family, Transport, Unusable, View, answer, find, fit, matches, read, serv_fail};
use lateen_proto::workload::{Address, NetworkAddress, Service, address};
use libfuzzer_sys::fuzz_target;
use prost::Message as _;

fn mesh() -> &'static Arc<Snapshot> {
    static MESH: OnceLock<Arc<Snapshot>> = OnceLock::new();
    MESH.get_or_init(|| {
        let service = |hostname: &str, count: u8| {
            let at = |i| NetworkAddress { address: vec![10, 0, 0, i].into(), ..Default::default() };
            let service = Service {
                name: "s".into(),
                namespace: "a".into(),
                hostname: hostname.into(),
                addresses: (0..count).map(at).collect(),
                ..Default::default()
            };
            let resource = Address { r#type: Some(address::Type::Service(service)) };
            (format!("a/{hostname}").into(), resource.encode_to_vec().into())
        };
        let mut store = Store::new("", Some("n1"));
        let upserts = vec![service("w.a.svc.cluster.local", 1), service("*.x", 200), service("h.a.svc.cluster.local", 0)];
        let refused = store.apply(&Batch { upserts, ..Batch::new(&resource_kinds::ADDRESS) });
        assert!(refused.is_empty(), "{refused:?}");
        store.snapshot()
    })
}

fuzz_target!(|data: &[u8]| {
    // What a resolver replies follows the first 0xff, which no valid name or type needs.
    let (question, response) = match data.iter().position(|byte| *byte == 0xff) {
        Some(at) => (&data[..at], &data[at + 1..]),
        None => (data, data),
    };
    let view = View { snapshot: mesh(), namespace: "a", network: "", preferred: None, domain: "cluster.local", ipv6: true };
    for transport in [Transport::Udp, Transport::Tcp] {
        match read(question, transport) {
            Ok(query) => {
                if let Answer::Reply { message, .. } = answer(&query, &view, |_| {}) {
                    assert!(message.len() <= query.limit());
                    assert!(matches(question, &message));
                }
                assert!(matches(question, &serv_fail(&query, question)));
                assert!(fit(&query, question, response.to_vec()).len() <= query.limit());
            }
            Err(Unusable::Refused { reply, .. }) => assert_eq!(reply[..2], question[..2]),
            Err(Unusable::Ignored) => {}
        }
    }
    let _ = (matches(question, response), find(response, Family::V4), find(response, Family::V6));
});
