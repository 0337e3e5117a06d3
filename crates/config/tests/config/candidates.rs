//! Endpoints that a waypoint looks up once, beside those that it looks up for each connection.

use std::net::SocketAddr;
use std::sync::Arc;

use lateen_config::next_hop::{Candidates, Choice, NextHop, Refusal, outbound_to};
use lateen_config::{ServiceKey, Snapshot, Workload};
use lateen_proto::workload::{
    GatewayAddress, LoadBalancing, NamespacedHostname, TunnelProtocol, gateway_address,
    load_balancing,
};
use proptest::prelude::*;

use super::support::{Mesh, endpoint, pod, service, uid};

/// The waypoint `gate` and the service `web`: a pod of the mesh, another with more weight, a workload in plain text, a hostname,
/// and a workload of another network, whose gateway has two pods.
fn mesh() -> Mesh {
    let web = |name, address| endpoint(name, address, "web", &[]);
    let mut heavy = web("heavy", "10.244.1.2");
    heavy.capacity = Some(2);
    let mut plain = web("plain", "192.0.2.1");
    plain.uid = "Kubernetes/networking.istio.io/WorkloadEntry/default/plain".into();
    plain.tunnel_protocol = TunnelProtocol::None.into();
    let mut named = web("named", "192.0.2.2");
    named.uid = "Kubernetes/networking.istio.io/WorkloadEntry/default/named".into();
    named.tunnel_protocol = TunnelProtocol::None.into();
    named.addresses.clear();
    named.hostname = "named.example".into();
    let mut far = web("far", "10.1.1.1");
    far.network = "west".into();
    far.network_gateway = Some(GatewayAddress {
        destination: Some(gateway_address::Destination::Hostname(NamespacedHostname {
            namespace: "default".into(),
            hostname: "west.default.svc.cluster.local".into(),
        })),
        hbone_mtls_port: 15008,
    });
    let mut of_mesh = service("web", "10.96.0.1", &[(80, 8080)]);
    of_mesh.subject_alt_names = vec!["spiffe://td/ns/x/sa/y".into()];
    let gateway = |name, address| endpoint(name, address, "west", &[(15008, 15008)]);
    Mesh::new()
        .with(pod("gate", "10.244.1.1"))
        .with(of_mesh)
        .with(heavy)
        .with(web("light", "10.244.1.3"))
        .with(plain)
        .with(named)
        .with(far)
        .with(service("west", "10.96.0.2", &[(15008, 15008)]))
        .with(gateway("west-1", "10.244.1.4"))
        .with(gateway("west-2", "10.244.1.5"))
}

fn gate(snapshot: &Snapshot) -> Arc<Workload> {
    snapshot.workload_by_uid(&uid("gate")).unwrap().clone()
}

fn looked_up(snapshot: &Snapshot, to: SocketAddr) -> Option<Candidates> {
    let key = ServiceKey::new("default", "web.default.svc.cluster.local");
    let service = snapshot.service_by_key(&key).unwrap();
    Candidates::of(snapshot, &gate(snapshot), service, to)
}

fn each_time(
    snapshot: &Snapshot,
    to: SocketAddr,
    avoid: &dyn Fn(&Workload) -> bool,
    random: &mut dyn FnMut(u64) -> u64,
) -> Result<Choice, Refusal> {
    let key = ServiceKey::new("default", "web.default.svc.cluster.local");
    let service = snapshot.service_by_key(&key).unwrap();
    outbound_to(snapshot, &gate(snapshot), service, to, avoid, random)
}

/// Numbers as they were drawn, one after the other.
fn drawing(numbers: &[u64]) -> impl FnMut(u64) -> u64 {
    let mut numbers = numbers.iter().copied();
    move |below| numbers.next().unwrap_or_default() % below
}

proptest! {
    /// By the same random numbers both lead the same way, whatever is to be avoided.
    #[test]
    fn candidates_lead_where_a_look_up_for_each_connection_leads(
        numbers in prop::collection::vec(any::<u64>(), 4),
        avoided in prop::collection::vec(any::<bool>(), 7),
    ) {
        let snapshot = mesh().snapshot();
        let to: SocketAddr = "10.96.0.1:80".parse().unwrap();
        let names = ["heavy", "light", "plain", "named", "far", "west-1", "west-2"];
        let avoid = |workload: &Workload| {
            names.iter().zip(&avoided).any(|(name, avoided)| *avoided && *workload.name == **name)
        };
        let expected = each_time(&snapshot, to, &avoid, &mut drawing(&numbers));
        let candidates = looked_up(&snapshot, to).unwrap();
        let random = &mut drawing(&numbers);
        let drawn = candidates.draw(avoid, random).unwrap();
        prop_assert!((drawn.item as usize) < candidates.bound());
        let choice = candidates.reach(&snapshot, &gate(&snapshot), &drawn, &avoid, random);
        prop_assert_eq!(choice, expected);
    }
}

#[test]
fn only_a_way_over_something_in_between_asks_for_more_than_its_endpoint() {
    let snapshot = mesh().snapshot();
    let candidates = looked_up(&snapshot, "10.96.0.1:80".parse().unwrap()).unwrap();
    let mut asking = Vec::new();
    for first in 0..6 {
        let drawn = candidates.draw(|_| false, &mut |_| first).unwrap();
        let mut asks = false;
        let random = &mut |_| {
            asks = true;
            0
        };
        let choice = candidates.reach(&snapshot, &gate(&snapshot), &drawn, &|_| false, random);
        let choice = choice.unwrap();
        if asks {
            let NextHop::Tunnel(tunnel) = &choice.next_hop else {
                panic!("no gateway: {choice:?}")
            };
            asking.push(tunnel.workload.name.to_string());
        }
    }
    assert_eq!(asking, ["west-1"]);
}

#[test]
fn there_are_none_where_nothing_is_to_be_drawn() {
    let snapshot = mesh().snapshot();
    let unknown_port: SocketAddr = "10.96.0.1:81".parse().unwrap();
    assert!(looked_up(&snapshot, unknown_port).is_none());
    let to: SocketAddr = "10.96.0.1:80".parse().unwrap();
    let empty = Mesh::new()
        .with(pod("gate", "10.244.1.1"))
        .with(service("web", "10.96.0.1", &[(80, 8080)]))
        .snapshot();
    assert!(looked_up(&empty, to).is_none());
    let mut passthrough = service("web", "10.96.0.1", &[(80, 8080)]);
    passthrough.load_balancing = Some(LoadBalancing {
        mode: load_balancing::Mode::Passthrough.into(),
        ..Default::default()
    });
    let passthrough = mesh().with(passthrough).snapshot();
    assert!(looked_up(&passthrough, to).is_none());
}
