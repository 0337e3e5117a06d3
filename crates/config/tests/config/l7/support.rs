//! Short ways to write resources of proxies that read requests.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use lateen_config::{Batch, Kind, Refused, Snapshot, Store};
use lateen_http::FieldName;
use lateen_policy::request::{PeerFacts, RequestDecision, RequestFacts};
use lateen_proto::l7 as proto;
use lateen_types::NamespacedName;
use prost::Message;

/// A store of a proxy of the Gateway `shop/gateway`.
pub fn store() -> Store {
    Store::new("", None).of_gateway(NamespacedName::new("shop", "gateway"))
}

/// Puts one resource and returns why it was refused.
pub fn put(store: &mut Store, kind: &'static Kind, name: &str, bytes: Vec<u8>) -> Option<String> {
    let refused: Vec<Refused> = store.apply(&Batch {
        upserts: vec![(name.into(), Bytes::from(bytes))],
        ..Batch::new(kind)
    });
    refused.first().map(ToString::to_string)
}

pub fn remove(store: &mut Store, kind: &'static Kind, name: &str) {
    store.apply(&Batch {
        removals: vec![name.into()],
        ..Batch::new(kind)
    });
}

pub fn to_gateway(name: &str) -> proto::Target {
    proto::Target {
        target: Some(proto::target::Target::Gateway(name.into())),
    }
}

/// A service of the namespace `shop`.
pub fn to_service(name: &str) -> proto::Target {
    proto::Target {
        target: Some(proto::target::Target::Service(format!("shop/{name}"))),
    }
}

pub fn exact(text: &str) -> proto::StringMatch {
    proto::StringMatch {
        r#match: Some(proto::string_match::Match::Exact(text.into())),
    }
}

/// A rule for requests with this method.
pub fn method(method: &str) -> proto::Rule {
    proto::Rule {
        to: vec![proto::Operation {
            methods: vec![exact(method)],
            ..Default::default()
        }],
        ..Default::default()
    }
}

/// A policy `shop/name` about requests with this method.
pub fn policy(
    name: &str,
    action: proto::Action,
    targets: Vec<proto::Target>,
    of: &str,
) -> proto::Authorization {
    proto::Authorization {
        namespace: "shop".into(),
        name: name.into(),
        targets,
        action: action.into(),
        rules: vec![method(of)],
        ..Default::default()
    }
}

pub fn put_policy(store: &mut Store, policy: &proto::Authorization) {
    let name = format!("{}/{}", policy.namespace, policy.name);
    let refused = put(
        store,
        &lateen_config::l7::AUTHORIZATION,
        &name,
        policy.encode_to_vec(),
    );
    assert_eq!(refused, None);
}

/// A message with a field that nobody knows.
pub fn with_unknown(message: &impl Message) -> Vec<u8> {
    // Field 1000, a varint.
    [message.encode_to_vec(), vec![0xc0, 0x3e, 1]].concat()
}

/// A request with a method and nothing else.
pub struct Request(pub &'static str);

impl RequestFacts for Request {
    fn authority(&self) -> &[u8] {
        b"web.example"
    }

    fn method(&self) -> &[u8] {
        self.0.as_bytes()
    }

    fn path(&self) -> &[u8] {
        b"/"
    }

    fn target(&self) -> &[u8] {
        b"/"
    }

    fn scheme(&self) -> &[u8] {
        b"http"
    }

    fn fields<'a>(&'a self, _: &'a FieldName) -> impl Iterator<Item = &'a [u8]> {
        std::iter::empty()
    }

    fn remote_ip(&self) -> IpAddr {
        [10, 0, 0, 9].into()
    }

    fn token_present(&self) -> bool {
        false
    }
}

/// The decision about a request for a service of the namespace `shop`, in words.
pub fn decision(snapshot: &Arc<Snapshot>, service: &str, request: &'static str) -> String {
    let service = NamespacedName::new("shop", service);
    let policies = &snapshot.request_rules(Some(&service)).policies;
    let facts = PeerFacts {
        peer: None,
        source_ip: [10, 0, 0, 1].into(),
        destination: ([10, 96, 0, 1], 80).into(),
        sni: None,
    };
    match policies.decide(&policies.peer(&facts), &Request(request)) {
        RequestDecision::Allow { .. } => "allow".to_owned(),
        RequestDecision::Deny { by } => by.to_string(),
    }
}

pub fn allows(store: &mut Store, service: &str, request: &'static str) -> bool {
    decision(&store.snapshot(), service, request) == "allow"
}
