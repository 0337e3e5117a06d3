//! Owner of an address that a Kubernetes Service has and a pod, a node or a ServiceEntry claims as well. A kubelet writes the
//! addresses of its pods itself, so a hostile kubelet may write a Service's.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use lateen_config::next_hop::{Choice, NextHop, Refusal, inbound, outbound};
use lateen_config::{Snapshot, Workload};
use lateen_proto::workload::{
    IpFamilies, NetworkMode, Service, TunnelProtocol, Workload as Wire, service,
};

use super::support::{self, Mesh, at, endpoint, pod, uid};

const WEB: &str = "10.96.0.1";

/// `client`, and the Service `web` of one mesh pod. Its address is 10.96.0.1, its port 8080.
fn mesh() -> Mesh {
    Mesh::new()
        .with(pod("client", "10.244.1.1"))
        .with(support::service("web", WEB, &[(8080, 9090)]))
        .with(endpoint("web-1", "10.244.2.1", "web", &[(8080, 9090)]))
}

/// A pod whose status claims an address: captured or not, with a network of its own or its node's.
fn forged(address: &str, tunnel: TunnelProtocol, mode: NetworkMode) -> Wire {
    let mut forged = pod("a-forged", address);
    forged.tunnel_protocol = tunnel.into();
    forged.network_mode = mode.into();
    forged
}

fn every_forgery() -> impl Iterator<Item = Wire> {
    [TunnelProtocol::None, TunnelProtocol::Hbone]
        .into_iter()
        .flat_map(|tunnel| {
            [NetworkMode::Standard, NetworkMode::HostNetwork].map(|mode| forged(WEB, tunnel, mode))
        })
}

fn source(snapshot: &Snapshot) -> Arc<Workload> {
    snapshot.workload_by_uid(&uid("client")).unwrap().clone()
}

fn dial(snapshot: &Snapshot, to: &str) -> Result<Choice, Refusal> {
    let to: SocketAddr = to.parse().unwrap();
    outbound(snapshot, &source(snapshot), to, &|_| false, &mut |_| 0)
}

fn ip(address: &str) -> IpAddr {
    address.parse().unwrap()
}

/// The connection goes through a tunnel to the Service's own pod.
fn leads_to_web(choice: Result<Choice, Refusal>) {
    let NextHop::Tunnel(tunnel) = choice.as_ref().unwrap().next_hop.clone() else {
        panic!("{choice:?}");
    };
    assert_eq!(tunnel.hbone, "10.244.2.1:15008".parse().unwrap());
    assert_eq!(tunnel.workload.uid.as_str(), uid("web-1"));
    assert_eq!(&*tunnel.service.unwrap().name, "web");
}

#[test]
fn a_pod_or_node_that_claims_a_services_address_takes_no_connection() {
    for forged in every_forgery() {
        let after = mesh().with(forged.clone()).snapshot();
        let before = Mesh::new().with(forged.clone());
        let before = before
            .with(pod("client", "10.244.1.1"))
            .with(endpoint("web-1", "10.244.2.1", "web", &[(8080, 9090)]))
            .with(support::service("web", WEB, &[(8080, 9090)]))
            .snapshot();
        for snapshot in [&after, &before] {
            leads_to_web(dial(snapshot, "10.96.0.1:8080"));
            assert!(snapshot.workload("", ip(WEB)).is_none());
            assert!(!snapshot.is_nodes("", ip(WEB)));
            // A port that the Service has not is refused as without the forgery.
            assert_eq!(
                dial(snapshot, "10.96.0.1:9").unwrap_err().to_string(),
                dial(&mesh().snapshot(), "10.96.0.1:9")
                    .unwrap_err()
                    .to_string()
            );
        }
    }
}

#[test]
fn the_address_is_the_pods_while_no_service_has_it() {
    let mut mesh = mesh().with(forged(WEB, TunnelProtocol::Hbone, NetworkMode::Standard));
    mesh.0.remove(&support::key("web"));
    let snapshot = mesh.0.snapshot();
    let found = snapshot.workload("", ip(WEB)).unwrap();
    assert_eq!(found.uid.as_str(), uid("a-forged"));
}

#[test]
fn a_service_that_the_client_may_not_see_keeps_its_address_too() {
    for forged in every_forgery() {
        let mut hidden = support::service("hidden", WEB, &[(8080, 9090)]);
        hidden.namespace = "attic".into();
        hidden.hostname = "hidden.attic.svc.cluster.local".into();
        hidden.visibility = service::Visibility::Namespace.into();
        let snapshot = Mesh::new()
            .with(pod("client", "10.244.1.1"))
            .with(hidden)
            .with(forged)
            .snapshot();
        let choice = dial(&snapshot, "10.96.0.1:8080").unwrap();
        assert!(
            matches!(choice.next_hop, NextHop::Passthrough { service: None, .. }),
            "{choice:?}"
        );
    }
}

#[test]
fn an_endpoint_at_a_services_address_is_that_service_whatever_pod_claims_it() {
    for forged in every_forgery() {
        // Named by an endpoint outside the mesh, as of an EndpointSlice.
        let mut outside = endpoint("outside", WEB, "alias", &[(80, 8080)]);
        outside.uid = "Kubernetes/discovery.k8s.io/EndpointSlice/default/alias/10.96.0.1".into();
        outside.tunnel_protocol = TunnelProtocol::None.into();
        outside.network_mode = NetworkMode::HostNetwork.into();
        let alias = support::service("alias", "10.96.0.2", &[(80, 8080)]);
        let snapshot = mesh()
            .with(alias.clone())
            .with(outside)
            .with(forged.clone())
            .snapshot();
        leads_to_web(dial(&snapshot, "10.96.0.2:80"));
        // And the forged pod as an endpoint itself.
        let mut forged = forged;
        forged.services = endpoint("x", WEB, "alias", &[(80, 8080)]).services;
        let is_plain = forged.tunnel_protocol == i32::from(TunnelProtocol::None);
        let snapshot = mesh().with(alias).with(forged).snapshot();
        let choice = dial(&snapshot, "10.96.0.2:80").unwrap();
        match &choice.next_hop {
            NextHop::Tunnel(_) if is_plain => leads_to_web(Ok(choice)),
            // It must prove to be the pod, which nobody at the Service's address can.
            NextHop::Tunnel(tunnel) => {
                assert_eq!(&**tunnel.identities[0].service_account(), "a-forged");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_waypoint_is_found_by_its_services_address_whatever_pod_claims_it() {
    for forged in every_forgery() {
        let mut bound = support::service("bound", "10.96.0.7", &[(80, 8080)]);
        bound.waypoint = support::waypoint(WEB);
        let mut way = endpoint("way", "10.244.3.3", "web", &[(15008, 15008)]);
        way.node = "n2".into();
        let snapshot = Mesh::new()
            .with(pod("client", "10.244.1.1"))
            .with(support::service("web", WEB, &[(15008, 15008)]))
            .with(bound)
            .with(way)
            .with(forged)
            .snapshot();
        let choice = dial(&snapshot, "10.96.0.7:80").unwrap();
        assert_eq!(choice.next_hop.workload().unwrap().uid.as_str(), uid("way"));
        // The waypoint takes what is meant for the service that it stands before.
        let way = snapshot.workload_by_uid(&uid("way")).unwrap();
        inbound(&snapshot, way, ip("10.244.3.3"), "10.96.0.7:80").unwrap();
        let client = snapshot.workload_by_uid(&uid("client")).unwrap();
        inbound(&snapshot, client, ip("10.244.1.1"), "10.96.0.7:80").unwrap_err();
    }
}

/// The service of an entry as a control plane sends it that does not say what comes of an entry.
fn unmarked_entry(namespace: &str, name: &str, host: &str, address: &str) -> Service {
    Service {
        name: name.into(),
        namespace: namespace.into(),
        hostname: host.into(),
        addresses: vec![at("", address)],
        ports: support::ports(&[(8080, 8080)]),
        canonical: true,
        ..Default::default()
    }
}

#[test]
fn an_entry_takes_no_pods_address_by_looking_like_a_service() {
    let posing = unmarked_entry("attic", "web", "web.attic.svc.cluster.local", "10.244.2.1");
    let snapshot = mesh().with(posing).snapshot();
    let choice = dial(&snapshot, "10.244.2.1:9090").unwrap();
    assert_eq!(
        choice.next_hop.workload().unwrap().uid.as_str(),
        uid("web-1")
    );
    assert_eq!(choice.next_hop.service(), None);
    let found = snapshot.workload("", ip("10.244.2.1")).unwrap();
    assert_eq!(found.uid.as_str(), uid("web-1"));
    assert!(
        snapshot
            .service_exactly("attic", "", ip("10.244.2.1"))
            .is_none()
    );
}

#[test]
fn an_entry_that_says_when_it_was_created_is_no_service() {
    let mut entry = support::service("web", "10.244.2.1", &[(8080, 8080)]);
    entry.namespace = "attic".into();
    entry.hostname = "web.attic.svc.cluster.local".into();
    entry.extensions = vec![lateen_proto::workload::Extension {
        name: "lateen.entry-created".into(),
        config: Some(prost_types::Any::default()),
    }];
    let snapshot = mesh().with(entry).snapshot();
    let found = snapshot.workload("", ip("10.244.2.1")).unwrap();
    assert_eq!(found.uid.as_str(), uid("web-1"));
}

#[test]
fn a_service_comes_before_entries_under_a_control_plane_that_does_not_mark_entries() {
    // By owner, namespace and name the entry would come first.
    let entry = unmarked_entry("attic", "a", "a.example", WEB);
    let snapshot = mesh().with(entry).snapshot();
    leads_to_web(dial(&snapshot, "10.96.0.1:8080"));
    // At a forged pod's address as well, also for a client of the entry's namespace: there an entry does not count.
    for forged in every_forgery() {
        let entry = unmarked_entry("attic", "a", "a.example", WEB);
        let snapshot = mesh().with(entry).with(forged).snapshot();
        for namespace in ["default", "attic", "third"] {
            let found = snapshot.service_exactly(namespace, "", ip(WEB)).unwrap();
            assert_eq!(&*found.name, "web", "{namespace}");
        }
    }
}

#[test]
fn the_same_address_in_another_network_is_somebody_elses() {
    let mut far = pod("far", WEB);
    far.network = "far".into();
    let snapshot = mesh().with(far).snapshot();
    leads_to_web(dial(&snapshot, "10.96.0.1:8080"));
    let found = snapshot.workload("far", ip(WEB)).unwrap();
    assert_eq!(found.uid.as_str(), uid("far"));
}

#[test]
fn both_addresses_of_a_dual_stack_service_are_its_own() {
    let mut web = support::service("web", WEB, &[(8080, 9090)]);
    web.addresses.push(at("", "fd00:96::1"));
    web.ip_families = IpFamilies::Dual.into();
    for address in [WEB, "fd00:96::1"] {
        for mode in [NetworkMode::Standard, NetworkMode::HostNetwork] {
            let snapshot = mesh()
                .with(web.clone())
                .with(forged(address, TunnelProtocol::None, mode))
                .snapshot();
            assert!(snapshot.workload("", ip(address)).is_none());
            let to = SocketAddr::new(ip(address), 8080);
            leads_to_web(dial(&snapshot, &to.to_string()));
        }
    }
}
