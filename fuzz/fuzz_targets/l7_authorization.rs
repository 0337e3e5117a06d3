//! Any bytes as a policy of requests: refused or taken in, never a panic, nor when it decides. Refused, it denies unless its targets
//! can be read and are others.
#![no_main]

use std::net::IpAddr;

use bytes::Bytes;
use lateen_config::{Batch, ServiceKey, Store, l7};
use lateen_http::FieldName;
use lateen_policy::request::{PeerFacts, RequestFacts};
use lateen_proto::l7::{Authorization, target::Target};
use libfuzzer_sys::fuzz_target;
use prost::Message;

const GATEWAY: &str = "shop/gateway";
const SERVICE: &str = "shop/web";

struct Request;

impl RequestFacts for Request {
    fn authority(&self) -> &[u8] {
        b"Web.example:80"
    }

    fn method(&self) -> &[u8] {
        b"GET"
    }

    fn path(&self) -> &[u8] {
        b"/a/x/b/\xff"
    }

    fn target(&self) -> &[u8] {
        b"/a/x/b/\xff?c"
    }

    fn scheme(&self) -> &[u8] {
        b"http"
    }

    fn fields<'a>(&'a self, _: &'a FieldName) -> impl Iterator<Item = &'a [u8]> {
        [&b"a"[..], b"b"].into_iter()
    }

    fn remote_ip(&self) -> IpAddr {
        [203, 0, 113, 9].into()
    }

    fn token_present(&self) -> bool {
        true
    }
}

/// Whether the resource names requests that are none of this proxy's for the service.
fn is_for_others(data: &[u8]) -> bool {
    let targets = Authorization::decode(data).map(|read| read.targets).unwrap_or_default();
    let other = |target: &Option<Target>| match target {
        Some(Target::Gateway(name)) => name != GATEWAY,
        Some(Target::Service(name)) => name != SERVICE,
        None => false,
    };
    !targets.is_empty() && targets.iter().all(|target| other(&target.target))
}

fuzz_target!(|data: &[u8]| {
    let mut store = Store::new("", None).of_gateway(GATEWAY.parse().expect("a name"));
    let name = Authorization::decode(data).map(|read| format!("{}/{}", read.namespace, read.name));
    let name = name.unwrap_or_else(|_| "shop/p".to_owned());
    let refused = store.apply(&Batch {
        upserts: vec![(name.as_str().into(), Bytes::copy_from_slice(data))],
        ..Batch::new(&l7::AUTHORIZATION)
    });
    let service: ServiceKey = SERVICE.parse().expect("a key");
    let allows = |store: &mut Store| {
        let snapshot = store.snapshot();
        let policies = &snapshot.request_rules(Some(&service)).policies;
        let peer = policies.peer(&PeerFacts {
            peer: None,
            source_ip: [10, 0, 0, 1].into(),
            destination: ([10, 96, 0, 1], 8080).into(),
            sni: Some(b"web.example"),
        });
        let _ = policies.reports(&peer, &Request);
        policies.decide(&peer, &Request).is_allow()
    };
    let is_allowed = allows(&mut store);
    assert!(refused.is_empty() || !is_allowed || is_for_others(data), "what could not be read may be a DENY");
    store.apply(&Batch { removals: vec![name.as_str().into()], ..Batch::new(&l7::AUTHORIZATION) });
    assert!(allows(&mut store), "a removed policy decides nothing");
});
