//! A request through a waypoint in memory, for tests/bench/instructions.sh: a request of ten fields from a client, to one of two
//! endpoints, an answer of 1 KiB back. The waypoint alone is counted, a thousand times: reading, admission by policies, the choice of
//! an endpoint, forwarding, counters and the line of the access log. Tunnels and sockets are not.
//!
//! | argument | policies |
//! |---|---|
//! | `waypoint_request` | none |
//! | `waypoint_request_allowed` | an ALLOW policy by principal and path, which matches |
//! | `waypoint_request_many` | a thousand DENY policies of all kinds, none of which matches |
#![forbid(unsafe_code)]

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use lateen_config::{Batch, Kind, Snapshot, Store, l7 as kinds};
use lateen_proto::l7::{
    Action, Authorization, Condition, Gateway, MeshSettings, Operation, PathMatch, Rule, Source,
    StringMatch, Target, Value, condition, path_match, string_match, target, value,
};
use lateen_proto::workload::gateway_address::Destination;
use lateen_proto::workload::{AppProtocol, GatewayAddress, NamespacedHostname};
use lateen_proxy::measured::{Asked, Connections, Own, run};
use lateen_telemetry::log;
use lateen_testkit::{identity, verified_peer, wds};
use lateen_types::{NamespacedName, WorkloadUid};
use prost::Message as _;

const RUNS: usize = 1000;
/// Exchanges before the count begins: buffers, tables and counters are there by then.
const WARM: usize = 50;
const POLICIES: usize = 1000;

const REQUEST: &str = "GET /productpage?u=normal HTTP/1.1\r\n\
    host: details.default.svc.cluster.local:9080\r\n\
    user-agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0)\r\n\
    accept: text/html,application/xhtml+xml,*/*;q=0.8\r\n\
    accept-encoding: gzip, deflate, br\r\n\
    accept-language: en-US,en;q=0.5\r\n\
    cookie: session=eyJ1c2VyIjoibm9ybWFsIn0\r\n\
    x-forwarded-for: 10.244.1.2\r\n\
    x-forwarded-proto: http\r\n\
    x-request-id: 5b7f3c1e-8a5b-4f53-9c0e-0e2ab1a0d5f3\r\n\
    traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\n\r\n";
const ANSWER: &str = "HTTP/1.1 200 OK\r\n\
    content-type: text/html; charset=utf-8\r\n\
    server: gunicorn/19.9.0\r\n\
    date: Fri, 20 Nov 2026 10:00:00 GMT\r\n\
    content-length: 1024\r\n\r\n";

fn main() {
    let core = std::env::args().nth(1).unwrap_or_default();
    let (policies, measured): (_, fn(&mut Connections)) = match core.as_str() {
        "waypoint_request" => (Vec::new(), measured_waypoint_request),
        "waypoint_request_allowed" => (vec![allow()], measured_waypoint_request_allowed),
        "waypoint_request_many" => {
            let many = (0..POLICIES).map(deny).collect();
            (many, measured_waypoint_request_many)
        }
        other => {
            eprintln!(
                "unknown core {other:?}: waypoint_request, waypoint_request_allowed or waypoint_request_many"
            );
            std::process::exit(64);
        }
    };
    log::init(log::Format::Plain, "").expect("the levels are the default");
    let own = Own {
        gateway: NamespacedName::new("default", "gate"),
        pod: "gate".into(),
        uid: WorkloadUid(wds::uid("default", "gate").as_str().into()),
        identity: identity("gate"),
    };
    let asked = Asked {
        client: verified_peer("client"),
        source: SocketAddr::new(ip(2), 40_000),
        service: SocketAddr::new(ip(96), 9080),
    };
    run(own, snapshot(&policies), &asked, |mut connections| {
        exchanges(&mut connections, measured);
    });
    log::flush();
}

/// One turn of the waypoint, without policies.
#[inline(never)]
fn measured_waypoint_request(connections: &mut Connections) {
    black_box("waypoint_request");
    connections.turn();
}

/// The same with a policy that matches.
#[inline(never)]
fn measured_waypoint_request_allowed(connections: &mut Connections) {
    black_box("waypoint_request_allowed");
    connections.turn();
}

/// The same with policies that do not.
#[inline(never)]
fn measured_waypoint_request_many(connections: &mut Connections) {
    black_box("waypoint_request_many");
    connections.turn();
}

fn exchanges(connections: &mut Connections, measured: fn(&mut Connections)) {
    let answer = format!("{ANSWER}{}", "x".repeat(1024));
    let turn = |connections: &mut Connections, run: usize| match run < WARM {
        true => connections.turn(),
        false => measured(connections),
    };
    for run in 0..WARM + RUNS {
        connections.client.give(REQUEST.as_bytes());
        turn(connections, run);
        let mut asked = 0;
        for endpoint in &connections.endpoints {
            if endpoint.take().ends_with(b"\r\n\r\n") {
                asked += 1;
                endpoint.give(answer.as_bytes());
            }
        }
        assert_eq!(asked, 1, "one endpoint got the request");
        turn(connections, run);
        let answered = connections.client.take();
        assert!(answered.starts_with(b"HTTP/1.1 200") && answered.ends_with(b"xxxx"));
    }
}

fn ip(last: u8) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, last).into()
}

/// The waypoint `gate`, the client, and the service `details` with two endpoints in the mesh.
fn snapshot(policies: &[Authorization]) -> Arc<Snapshot> {
    let name = NamespacedName::new("default", "gate");
    let mut store = Store::new("", None).of_gateway(name);
    let gateway = Gateway {
        namespace: "default".to_owned(),
        name: "gate".to_owned(),
        identity: "default/gate".to_owned(),
        settings: Some(MeshSettings {
            trust_domain: "cluster.local".to_owned(),
            ..MeshSettings::default()
        }),
        ..Gateway::default()
    };
    put(
        &mut store,
        &kinds::GATEWAY,
        "default/gate",
        gateway.encode_to_vec(),
    );
    for policy in policies {
        let name = format!("{}/{}", policy.namespace, policy.name);
        put(
            &mut store,
            &kinds::AUTHORIZATION,
            &name,
            policy.encode_to_vec(),
        );
    }
    let gate = wds::workload("gate", "n1", ip(1));
    let endpoint = |name, last| {
        let workload = wds::workload(name, "n2", ip(last));
        wds::serving(workload, "details", 9080, 9080)
    };
    for workload in [
        wds::serving(gate, "gate", 15008, 15008),
        wds::workload("client", "n1", ip(2)),
        endpoint("details-1", 3),
        endpoint("details-2", 4),
    ] {
        let name = workload.uid.clone();
        let stored = store.upsert(&name, wds::workload_resource(workload));
        stored.expect("the workload is good");
    }
    let mut details = wds::service("details", ip(96), 9080, 9080);
    details.ports[0].app_protocol = AppProtocol::Http11.into();
    details.waypoint = Some(GatewayAddress {
        destination: Some(Destination::Hostname(NamespacedHostname {
            namespace: "default".to_owned(),
            hostname: "gate.default.svc.cluster.local".to_owned(),
        })),
        hbone_mtls_port: 15008,
    });
    for service in [wds::service("gate", ip(97), 15008, 15008), details] {
        let name = wds::service_name("default", &service.name);
        let stored = store.upsert(&name, wds::service_resource(service));
        stored.expect("the service is good");
    }
    store.snapshot()
}

fn put(store: &mut Store, kind: &'static Kind, name: &str, bytes: Vec<u8>) {
    let refused = store.apply(&Batch {
        upserts: vec![(name.into(), bytes.into())],
        ..Batch::new(kind)
    });
    assert!(refused.is_empty(), "{refused:?}");
}

fn policy(name: String, action: Action, rule: Rule) -> Authorization {
    let service = wds::service_name("default", "details");
    Authorization {
        namespace: "default".to_owned(),
        name,
        targets: vec![Target {
            target: Some(target::Target::Service(service)),
        }],
        action: action.into(),
        rules: vec![rule],
        ..Authorization::default()
    }
}

fn text(form: string_match::Match) -> StringMatch {
    StringMatch {
        r#match: Some(form),
    }
}

fn exact(one: String) -> StringMatch {
    text(string_match::Match::Exact(one))
}

fn of_path(form: path_match::Match) -> Operation {
    Operation {
        paths: vec![PathMatch {
            r#match: Some(form),
        }],
        ..Operation::default()
    }
}

fn from(principal: String) -> Source {
    Source {
        principals: vec![exact(principal)],
        ..Source::default()
    }
}

/// The policy that admits the client.
fn allow() -> Authorization {
    let prefix = string_match::Match::Prefix("/productpage".to_owned());
    let rule = Rule {
        from: vec![from("cluster.local/ns/default/sa/client".to_owned())],
        to: vec![of_path(path_match::Match::Text(text(prefix)))],
        ..Rule::default()
    };
    policy("clients".to_owned(), Action::Allow, rule)
}

/// A policy that does not match: by path, template, host, header, method or principal.
fn deny(n: usize) -> Authorization {
    use path_match::Match::{Template, Text};
    use string_match::Match::{Exact, Prefix, Suffix};
    let mut rule = Rule::default();
    match n % 8 {
        0 => rule.to = vec![of_path(Text(text(Exact(format!("/admin/{n}")))))],
        1 => rule.to = vec![of_path(Text(text(Prefix(format!("/reviews/{n}")))))],
        2 => rule.to = vec![of_path(Text(text(Suffix(format!(".{n}")))))],
        3 => rule.to = vec![of_path(Template(format!("/api/{n}/{{*}}/items")))],
        4 => {
            rule.to = vec![Operation {
                hosts: vec![exact(format!("host{n}.example"))],
                ..Operation::default()
            }];
        }
        5 => {
            rule.when = vec![Condition {
                attribute: Some(condition::Attribute::Header("x-tenant".to_owned())),
                values: vec![Value {
                    value: Some(value::Value::Text(exact(format!("tenant{n}")))),
                }],
                ..Condition::default()
            }];
        }
        6 => {
            rule.to = vec![Operation {
                methods: vec![exact(format!("METHOD{n}"))],
                ..Operation::default()
            }];
        }
        _ => rule.from = vec![from(format!("cluster.local/ns/default/sa/other{n}"))],
    }
    policy(format!("policy{n}"), Action::Deny, rule)
}
