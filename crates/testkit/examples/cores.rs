//! The pure cores of a connection, each run alone a fixed number of times, for counting their instructions:
//! `tests/bench/instructions.sh` runs this under callgrind and compares with the committed baseline.
#![forbid(unsafe_code)]

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use bytes::Bytes;
use lateen_config::{Batch, Snapshot, Store, next_hop, resource_kinds};
use lateen_hbone::{Authority, Baggage, Forwarded, TraceParent};
use lateen_policy::{Connection, decide};
use lateen_proto::security::Action;
use lateen_testkit::wds;
use lateen_types::{Identity, VerifiedPeer};
use prost::Message;

const ROUNDS: u32 = 100;
const SERVICES: u8 = 100;
const PODS_PER_SERVICE: u8 = 10;
const POLICIES: usize = 20;

fn main() {
    let name = std::env::args().nth(1).unwrap_or_default();
    let resources = resources();
    match name.as_str() {
        "parse" => measured_parse(&resources),
        "route" => measured_route(&loaded(&resources)),
        "policy" => measured_policy(&loaded(&resources)),
        "head" => measured_head(),
        other => {
            eprintln!("unknown core {other:?}: use parse, route, policy or head");
            std::process::exit(64);
        }
    }
}

/// A mesh of a thousand workloads and a hundred services; the first workload is covered by twenty policies.
fn resources() -> (Batch, Batch) {
    let mut upserts = Vec::new();
    for s in 0..SERVICES {
        let name = format!("svc{s}");
        let service = wds::service(&name, IpAddr::V4(Ipv4Addr::new(10, 96, 0, s)), 80, 8080);
        let resource = wds::service_resource(service).encode_to_vec();
        upserts.push((
            wds::service_name("default", &name).into(),
            Bytes::from(resource),
        ));
        for p in 0..PODS_PER_SERVICE {
            let ip = IpAddr::V4(Ipv4Addr::new(10, 244, s, p));
            let mut workload = wds::serving(
                wds::workload(&format!("{name}-{p}"), "n1", ip),
                &name,
                80,
                8080,
            );
            if (s, p) == (0, 0) {
                workload.authorization_policies = (0..POLICIES)
                    .map(|n| format!("default/policy{n}"))
                    .collect();
            }
            let uid = workload.uid.clone();
            let resource = wds::workload_resource(workload).encode_to_vec();
            upserts.push((uid.into(), Bytes::from(resource)));
        }
    }
    let policies = (0..POLICIES).map(|n| {
        // The last of them admits the peer, so that all are looked at.
        let principals = [format!("cluster.local/ns/default/sa/svc{n}-0")];
        let principals: Vec<&str> = principals.iter().map(String::as_str).collect();
        let policy = wds::policy(&format!("policy{n}"), Action::Allow, &principals);
        (
            format!("default/policy{n}").into(),
            Bytes::from(policy.encode_to_vec()),
        )
    });
    let policies = Batch {
        upserts: policies.collect(),
        ..Batch::new(&resource_kinds::AUTHORIZATION)
    };
    (
        policies,
        Batch {
            upserts,
            ..Batch::new(&resource_kinds::ADDRESS)
        },
    )
}

fn loaded(resources: &(Batch, Batch)) -> std::sync::Arc<Snapshot> {
    let mut store = Store::new("", Some("n1"));
    for batch in [&resources.0, &resources.1] {
        assert!(store.apply(batch).is_empty(), "the resources are good");
    }
    store.snapshot()
}

fn pod(snapshot: &Snapshot, service: u8, pod: u8) -> std::sync::Arc<lateen_config::Workload> {
    let ip = IpAddr::V4(Ipv4Addr::new(10, 244, service, pod));
    snapshot
        .workload("", ip)
        .expect("the pod was loaded")
        .clone()
}

#[inline(never)]
fn measured_parse(resources: &(Batch, Batch)) {
    black_box(loaded(resources));
}

#[inline(never)]
fn measured_route(snapshot: &Snapshot) {
    let source = pod(snapshot, 1, 0);
    for n in 0..ROUNDS {
        let vip = Ipv4Addr::new(10, 96, 0, (n % u32::from(SERVICES)) as u8);
        let destination = SocketAddr::from((vip, 80));
        let mut random = |bound: u64| u64::from(n) % bound;
        let next_hop = next_hop::outbound(snapshot, &source, destination, &|_| false, &mut random);
        black_box(next_hop.expect("the service has endpoints"));
    }
}

#[inline(never)]
fn measured_policy(snapshot: &Snapshot) {
    let workload = pod(snapshot, 0, 0);
    let last = format!("svc{}-0", POLICIES - 1);
    let identity = Identity::new("cluster.local", "default", &last).expect("a good name");
    let peer = VerifiedPeer::by_certificate(identity);
    for _ in 0..ROUNDS {
        let connection = Connection {
            peer: Some(&peer),
            source_ip: IpAddr::V4(Ipv4Addr::new(10, 244, 19, 0)),
            destination: SocketAddr::from((Ipv4Addr::new(10, 244, 0, 0), 8080)),
        };
        let decision = decide(snapshot.policies_for(&workload), &connection);
        assert!(
            black_box(decision).is_allow(),
            "the last policy admits the peer"
        );
    }
}

#[inline(never)]
fn measured_head() {
    for _ in 0..ROUNDS {
        black_box(
            "10.244.2.3:9080"
                .parse::<Authority>()
                .expect("an authority"),
        );
        black_box(Baggage::parse(
            "k8s.cluster.name=Kubernetes,k8s.namespace.name=default,k8s.deployment.name=client,service.name=client,service.version=v1",
        ));
        black_box(Forwarded::parse(
            "for=\"10.244.1.2:40000\";host=details.default.svc.cluster.local",
        ));
        let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";
        black_box(trace.parse::<TraceParent>().expect("a traceparent"));
    }
}
