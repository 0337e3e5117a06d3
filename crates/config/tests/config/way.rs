//! Ways that lead over something in between: waypoints, other networks' gateways, hostnames.

use std::net::SocketAddr;
use std::sync::Arc;

use lateen_config::next_hop::{Choice, NextHop, Refusal, Resolve, Tunnel, Via, outbound};
use lateen_config::{Snapshot, Store, Want, Workload};
use lateen_proto::workload as proto;
use lateen_proto::workload::{
    ApplicationTunnel, GatewayAddress, NamespacedHostname, Service, gateway_address,
};

use super::support::{self, Mesh, Resource, at, endpoint, key, pod, uid};

fn by_host(name: &str) -> Option<GatewayAddress> {
    Some(GatewayAddress {
        destination: Some(gateway_address::Destination::Hostname(NamespacedHostname {
            namespace: "default".into(),
            hostname: format!("{name}.default.svc.cluster.local"),
        })),
        hbone_mtls_port: 15008,
    })
}

fn choose(
    snapshot: &Snapshot,
    from: &str,
    to: &str,
    avoid: &dyn Fn(&Workload) -> bool,
    random: u64,
) -> Result<Choice, Refusal> {
    let source: Arc<Workload> = snapshot.workload_by_uid(&uid(from)).unwrap().clone();
    let to: SocketAddr = to.parse().unwrap();
    outbound(snapshot, &source, to, avoid, &mut |below| random % below)
}

fn go(snapshot: &Snapshot, from: &str, to: &str) -> Result<NextHop, Refusal> {
    choose(snapshot, from, to, &|_| false, 0).map(|choice| choice.next_hop)
}

fn tunnel(next_hop: Result<NextHop, Refusal>) -> Tunnel {
    match next_hop {
        Ok(NextHop::Tunnel(tunnel)) => tunnel,
        other => panic!("no tunnel: {other:?}"),
    }
}

fn resolve(next_hop: Result<NextHop, Refusal>) -> Resolve {
    match next_hop {
        Ok(NextHop::Resolve(resolve)) => resolve,
        other => panic!("nothing to resolve: {other:?}"),
    }
}

/// What is at an address that a hostname resolves to, dialled by `client`.
fn at_answer(resolve: &Resolve, snapshot: &Snapshot, address: &str) -> Result<Choice, Refusal> {
    let source = snapshot.workload_by_uid(&uid("client")).unwrap().clone();
    let address = address.parse().unwrap();
    resolve.at(snapshot, &source, address, &|_| false, &mut |_| 0)
}

fn names(identities: &[lateen_types::Identity]) -> Vec<String> {
    identities
        .iter()
        .map(|id| id.service_account().to_string())
        .collect()
}

/// `client`, a service `web` with one endpoint behind the waypoint service `way`, which has two.
fn mesh(change: impl FnOnce(&mut Service)) -> Mesh {
    let mut web = support::service("web", "10.96.0.1", &[(80, 8080)]);
    web.waypoint = by_host("way");
    change(&mut web);
    let mut way = support::service("way", "10.96.0.9", &[(15008, 15008)]);
    way.subject_alt_names = vec!["spiffe://cluster.local/ns/default/sa/way-service".into()];
    Mesh::new()
        .with(pod("client", "10.244.1.1"))
        .with(web)
        .with(endpoint("web-1", "10.244.2.2", "web", &[(80, 8080)]))
        .with(way)
        .with(endpoint("way-1", "10.244.3.1", "way", &[(15008, 15008)]))
        .with(endpoint("way-2", "10.244.3.2", "way", &[(15008, 15009)]))
}

#[test]
fn a_service_behind_a_waypoint_is_asked_of_the_waypoint_by_the_address_that_was_dialled() {
    for waypoint in [by_host("way"), support::waypoint("10.96.0.9")] {
        let reference = waypoint.clone();
        let snapshot = mesh(|web| web.waypoint = reference).snapshot();
        let through = tunnel(go(&snapshot, "client", "10.96.0.1:80"));
        assert_eq!(through.hbone, "10.244.3.1:15008".parse().unwrap());
        assert_eq!(through.authority.to_string(), "10.96.0.1:80");
        assert_eq!(names(&through.identities), ["way-service", "way-1"]);
        assert_eq!(
            through.service.unwrap().key.to_string(),
            key("web"),
            "what the client meant"
        );
        assert!(matches!(through.via, Via::Waypoint(_)), "{waypoint:?}");
    }
    let snapshot = mesh(|_| ()).snapshot();
    let second = choose(&snapshot, "client", "10.96.0.1:80", &|_| false, 1).unwrap();
    assert_eq!(second.others, 1);
    assert_eq!(
        tunnel(Ok(second.next_hop)).hbone,
        "10.244.3.2:15009".parse().unwrap()
    );
}

#[test]
fn a_waypoint_that_cannot_serve_is_never_passed_by() {
    let mesh = || mesh(|web| web.waypoint = by_host("gone"));
    let refusal = go(&mesh().snapshot(), "client", "10.96.0.1:80").unwrap_err();
    assert!(
        matches!(refusal, Refusal::UnknownWaypoint { .. }),
        "{refusal}"
    );
    let empty = mesh().with(support::service("gone", "10.96.0.8", &[(15008, 15008)]));
    let refusal = go(&empty.snapshot(), "client", "10.96.0.1:80").unwrap_err();
    assert!(
        matches!(&refusal, Refusal::Waypoint { why, .. } if matches!(**why, Refusal::NoHealthyEndpoint { .. })),
        "{refusal}"
    );
    assert!(
        refusal.to_string().contains("default/gone.default"),
        "{refusal}"
    );
}

#[test]
fn a_waypoint_goes_on_to_what_is_behind_it() {
    let direct = |snapshot: &Snapshot, from| {
        let onward = tunnel(go(snapshot, from, "10.96.0.1:80"));
        assert_eq!((onward.via, &*onward.workload.name), (Via::Direct, "web-1"));
    };
    direct(&mesh(|_| ()).snapshot(), "way-2");
    let weighted = mesh(|web| {
        web.waypoint = None;
        web.weighted_waypoints = vec![proto::WeightedWaypoint {
            destination: by_host("way"),
            weight: 1,
        }];
    });
    direct(&weighted.snapshot(), "way-1");
}

#[test]
fn several_waypoints_share_connections_by_weight() {
    let weighted = |weights: [u32; 2]| {
        mesh(|web| {
            web.weighted_waypoints = ["way", "canary"]
                .iter()
                .zip(weights)
                .map(|(name, weight)| proto::WeightedWaypoint {
                    destination: by_host(name),
                    weight,
                })
                .collect();
        })
        .with(support::service("canary", "10.96.0.10", &[(15008, 15008)]))
        .with(endpoint(
            "canary-1",
            "10.244.3.3",
            "canary",
            &[(15008, 15008)],
        ))
        .snapshot()
    };
    let share = |snapshot: &Snapshot| {
        let picks =
            (0..10).map(|random| choose(snapshot, "client", "10.96.0.1:80", &|_| false, random));
        picks
            .filter(|c| {
                c.as_ref()
                    .unwrap()
                    .next_hop
                    .workload()
                    .unwrap()
                    .name
                    .starts_with("canary")
            })
            .count()
    };
    assert_eq!(share(&weighted([7, 3])), 3);
    assert_eq!(share(&weighted([0, 1])), 10);
    assert_eq!(
        share(&weighted([0, 0])),
        0,
        "weights that say nothing leave the single waypoint"
    );
}

#[test]
fn a_waypoint_with_an_application_tunnel_need_not_list_its_tunnel_port() {
    let mut sandwiched = endpoint("bare-1", "10.244.3.4", "bare", &[]);
    sandwiched.application_tunnel = Some(ApplicationTunnel {
        protocol: 1,
        port: 15088,
    });
    let mut with_port = mesh(|web| web.waypoint = by_host("bare"))
        .with(support::service("bare", "10.96.0.11", &[(80, 80)]))
        .with(sandwiched.clone())
        .snapshot();
    let through = tunnel(go(&with_port, "client", "10.96.0.1:80"));
    assert_eq!(through.hbone, "10.244.3.4:15008".parse().unwrap());
    sandwiched.application_tunnel = None;
    with_port = mesh(|web| web.waypoint = by_host("bare"))
        .with(support::service("bare", "10.96.0.11", &[(80, 80)]))
        .with(sandwiched)
        .snapshot();
    assert!(matches!(
        go(&with_port, "client", "10.96.0.1:80"),
        Err(Refusal::Waypoint { .. })
    ));
    // A client's own connection to such a port is still to a port that the service lacks.
    let to_itself = go(&with_port, "client", "10.96.0.11:15008");
    assert!(
        matches!(to_itself, Err(Refusal::UnknownPort { .. })),
        "{to_itself:?}"
    );
}

/// `client`, a service `web` with its only endpoint on the network `far` behind the gateway service `gate`.
fn far(change: impl FnOnce(&mut proto::Workload)) -> Mesh {
    let mut web = support::service("web", "10.96.0.1", &[(80, 8080)]);
    web.subject_alt_names = vec!["spiffe://cluster.local/ns/default/sa/web".into()];
    let mut remote = endpoint("remote", "10.244.1.1", "web", &[(80, 8080)]);
    remote.network = "far".into();
    remote.network_gateway = by_host("gate");
    change(&mut remote);
    Mesh::new()
        .with(pod("client", "10.244.1.1"))
        .with(web)
        .with(remote)
        .with(support::service("gate", "10.96.0.20", &[(15008, 15008)]))
        .with(endpoint("gate-1", "10.244.4.1", "gate", &[(15008, 15008)]))
}

#[test]
fn another_network_is_reached_by_a_tunnel_in_a_tunnel_through_its_gateway() {
    for change in [
        |_: &mut proto::Workload| (),
        |remote: &mut proto::Workload| remote.addresses.clear(),
    ] {
        let outer = tunnel(go(&far(change).snapshot(), "client", "10.96.0.1:80"));
        assert_eq!(outer.hbone, "10.244.4.1:15008".parse().unwrap());
        assert_eq!(
            names(&outer.identities),
            ["gate-1"],
            "the gateway proves to be the gateway"
        );
        assert_eq!(
            outer.authority.to_string(),
            "web.default.svc.cluster.local:80"
        );
        let Via::Gateway(inner) = outer.via else {
            panic!("not through a gateway: {:?}", outer.via)
        };
        assert_eq!(inner.authority, outer.authority);
        assert_eq!(
            names(&inner.identities),
            ["web"],
            "the service's identities, not one endpoint's"
        );
        assert_eq!(&*inner.network, "");
        assert_eq!(&*inner.workload.name, "remote");
    }
}

/// A control plane describes a gateway to a network under that network's name, at the address by which others dial it.
#[test]
fn a_gateway_may_be_described_under_the_network_that_it_leads_to() {
    let by_address = proto::GatewayAddress {
        destination: Some(proto::gateway_address::Destination::Address(
            proto::NetworkAddress {
                network: "far".into(),
                address: vec![10, 244, 4, 9].into(),
                length: None,
            },
        )),
        hbone_mtls_port: 15009,
    };
    let mut gateway = pod("gate-2", "10.244.4.9");
    gateway.network = "far".into();
    let mesh =
        |gateway| far(|remote| remote.network_gateway = Some(by_address.clone())).with(gateway);
    let outer = tunnel(go(
        &mesh(gateway.clone()).snapshot(),
        "client",
        "10.96.0.1:80",
    ));
    assert_eq!(outer.hbone, "10.244.4.9:15009".parse().unwrap());
    assert_eq!(names(&outer.identities), ["gate-2"]);
    gateway.network_gateway = by_host("gate");
    assert!(
        matches!(
            go(&mesh(gateway).snapshot(), "client", "10.96.0.1:80"),
            Err(Refusal::UnknownGateway { .. })
        ),
        "a gateway behind a gateway"
    );
}

#[test]
fn a_network_without_a_way_there_is_refused_with_what_is_missing() {
    let without = far(|remote| remote.network_gateway = None).snapshot();
    assert!(matches!(
        go(&without, "client", "10.96.0.1:80"),
        Err(Refusal::NoHealthyEndpoint { unreachable: 1, .. })
    ));
    let unknown = far(|remote| remote.network_gateway = by_host("gone")).snapshot();
    assert!(matches!(
        go(&unknown, "client", "10.96.0.1:80"),
        Err(Refusal::UnknownGateway { .. })
    ));
    let mut nameless = support::service("web", "10.96.0.1", &[(80, 8080)]);
    nameless.subject_alt_names.clear();
    let nameless = far(|_| ()).with(nameless).snapshot();
    let refusal = go(&nameless, "client", "10.96.0.1:80").unwrap_err();
    assert!(
        matches!(refusal, Refusal::NoIdentities { .. }),
        "nobody could be verified: {refusal}"
    );
}

#[test]
fn a_workload_of_another_network_is_not_found_by_an_address_of_ours() {
    // The remote workload's address is the client's own.
    let snapshot = far(|remote| remote.addresses = vec![support::bytes("10.244.7.7")]).snapshot();
    let next_hop = go(&snapshot, "client", "10.244.7.7:80");
    assert!(
        matches!(next_hop, Ok(NextHop::Passthrough { .. })),
        "{next_hop:?}"
    );
}

#[test]
fn a_hostname_is_resolved_and_then_reached_as_an_address_would_be() {
    let mut external = endpoint("external", "10.0.0.1", "web", &[(80, 8443)]);
    external.addresses.clear();
    external.hostname = "db.example".into();
    let mesh = |protocol: proto::TunnelProtocol| {
        let mut external = external.clone();
        external.tunnel_protocol = protocol.into();
        let mut web = support::service("web", "10.96.0.1", &[(80, 8080)]);
        web.addresses.push(at("", "fd00::1"));
        Mesh::new()
            .with(pod("client", "10.244.1.1"))
            .with(web)
            .with(external)
            .snapshot()
    };
    let plain = mesh(proto::TunnelProtocol::None);
    let wanted = resolve(go(&plain, "client", "10.96.0.1:80"));
    assert_eq!(
        (&*wanted.hostname, wanted.port, wanted.prefers_ipv6),
        ("db.example", 8443, false)
    );
    assert!(resolve(go(&plain, "client", "[fd00::1]:80")).prefers_ipv6);
    let answers = ["2001:db8::1".parse().unwrap(), "192.0.2.7".parse().unwrap()];
    let address = wanted.pick(&answers, &mut |_| 0).unwrap();
    assert_eq!(address, answers[1], "the client's family");
    assert_eq!(
        wanted.pick(&answers[..1], &mut |_| 0),
        Some(answers[0]),
        "rather than none"
    );
    assert_eq!(wanted.pick(&[], &mut |_| 0), None);
    let NextHop::Plain { target, .. } = at_answer(&wanted, &plain, "192.0.2.7").unwrap().next_hop
    else {
        panic!("not plain")
    };
    assert_eq!(target, "192.0.2.7:8443".parse().unwrap());

    let hbone = mesh(proto::TunnelProtocol::Hbone);
    let meshed = resolve(go(&hbone, "client", "10.96.0.1:80"));
    let through = tunnel(at_answer(&meshed, &hbone, "192.0.2.7").map(|choice| choice.next_hop));
    assert_eq!(through.hbone, "192.0.2.7:15008".parse().unwrap());
    assert_eq!(through.authority.to_string(), "192.0.2.7:8443");
}

/// Whoever writes a ServiceEntry may name any endpoint. One that is a mesh pod's address, written down or as the answer to a
/// name, leads into that pod's tunnel and to nobody but that pod.
#[test]
fn an_endpoint_that_is_a_mesh_pod_is_reached_through_its_tunnel() {
    let mut written = endpoint("entry", "10.244.2.2", "web", &[(80, 8080)]);
    written.uid = "Kubernetes/networking.istio.io/ServiceEntry/attic/e/10.244.2.2".into();
    written.tunnel_protocol = proto::TunnelProtocol::None.into();
    let mut named = written.clone();
    named.addresses.clear();
    named.hostname = "db.example".into();
    let mesh = |endpoint: proto::Workload| {
        let mut web = support::service("web", "10.96.0.1", &[(80, 8080)]);
        web.subject_alt_names = vec!["spiffe://cluster.local/ns/attic/sa/thief".into()];
        Mesh::new()
            .with(pod("client", "10.244.1.1"))
            .with(pod("victim", "10.244.2.2"))
            .with(web)
            .with(endpoint)
            .snapshot()
    };
    let (written, named) = (mesh(written), mesh(named));
    let asked = resolve(go(&named, "client", "10.96.0.1:80"));
    for next_hop in [
        go(&written, "client", "10.96.0.1:80"),
        at_answer(&asked, &named, "10.244.2.2").map(|choice| choice.next_hop),
    ] {
        let through = tunnel(next_hop);
        assert_eq!(through.hbone, "10.244.2.2:15008".parse().unwrap());
        assert_eq!(names(&through.identities), ["victim"]);
        assert_eq!(&*through.workload.name, "victim");
        assert!(
            through.service.is_some(),
            "telemetry knows what was dialled"
        );
    }
}

#[test]
fn a_passthrough_service_takes_no_mesh_pod_out_of_its_tunnel() {
    let mut entry = support::service("web", "10.244.2.2", &[(80, 8080)]);
    entry.ip_families = proto::IpFamilies::Automatic.into(); // those of entries are not said
    entry.load_balancing = Some(proto::LoadBalancing {
        mode: proto::load_balancing::Mode::Passthrough.into(),
        ..Default::default()
    });
    entry.addresses.push(at("", "10.244.2.3"));
    let mut plain = pod("plain", "10.244.2.3");
    plain.tunnel_protocol = proto::TunnelProtocol::None.into();
    let snapshot = Mesh::new()
        .with(pod("client", "10.244.1.1"))
        .with(pod("victim", "10.244.2.2"))
        .with(plain)
        .with(entry)
        .snapshot();
    let through = tunnel(go(&snapshot, "client", "10.244.2.2:80"));
    assert_eq!(names(&through.identities), ["victim"]);
    let next_hop = go(&snapshot, "client", "10.244.2.3:80").unwrap();
    assert!(next_hop.service().is_none(), "{next_hop:?}");
    let target = "10.244.2.3:80".parse().unwrap();
    assert!(
        matches!(next_hop, NextHop::Plain { target: at, .. } if at == target),
        "{next_hop:?}"
    );
}

#[test]
fn a_retry_leaves_out_what_failed_and_falls_to_the_next_rank_only_when_it_must() {
    let placed = |name: &str, address: &str, zone: &str| {
        let mut workload = endpoint(name, address, "web", &[(80, 8080)]);
        workload.locality = Some(proto::Locality {
            zone: zone.into(),
            ..Default::default()
        });
        workload
    };
    let mut client = pod("client", "10.244.1.1");
    client.locality = Some(proto::Locality {
        zone: "near".into(),
        ..Default::default()
    });
    let mut web = support::service("web", "10.96.0.1", &[(80, 8080)]);
    web.load_balancing = Some(proto::LoadBalancing {
        routing_preference: vec![proto::load_balancing::Scope::Zone.into()],
        mode: proto::load_balancing::Mode::Failover.into(),
        ..Default::default()
    });
    let snapshot = Mesh::new()
        .with(client)
        .with(web)
        .with(placed("near-1", "10.244.2.1", "near"))
        .with(placed("near-2", "10.244.2.2", "near"))
        .with(placed("far-1", "10.244.2.3", "far"))
        .snapshot();
    let mut tried: Vec<String> = Vec::new();
    for (name, rank, avoided) in [
        ("near-1", 1, false),
        ("near-2", 1, false),
        ("far-1", 0, false),
        ("near-1", 1, true),
    ] {
        let avoid = |workload: &Workload| tried.iter().any(|name| **name == *workload.name);
        let choice = choose(&snapshot, "client", "10.96.0.1:80", &avoid, 0).unwrap();
        assert_eq!(&*choice.next_hop.workload().unwrap().name, name);
        assert_eq!(
            (choice.rank, choice.others, choice.avoided),
            (rank, 2, avoided)
        );
        tried.push(name.to_owned());
    }
}

#[test]
fn the_choice_follows_the_service_and_its_endpoints() {
    let mut mesh = mesh(|web| web.waypoint = None);
    let first = mesh.0.snapshot();
    assert!(go(&first, "client", "10.96.0.1:80").is_ok());
    // A changed service without a change of endpoints.
    let (name, address) = support::service("web", "10.96.0.1", &[(81, 8080)]).named();
    mesh.0.upsert(&name, address).unwrap();
    let second = mesh.0.snapshot();
    assert!(matches!(
        go(&second, "client", "10.96.0.1:80"),
        Err(Refusal::UnknownPort { .. })
    ));
    assert!(
        go(&first, "client", "10.96.0.1:80").is_ok(),
        "the snapshot before is as it was"
    );
    // A changed endpoint.
    let mut sick = endpoint("web-1", "10.244.2.2", "web", &[(80, 8080)]);
    sick.status = proto::WorkloadStatus::Unhealthy.into();
    let (name, address) = sick.named();
    mesh.0.upsert(&name, address).unwrap();
    let third = mesh.0.snapshot();
    assert!(matches!(
        go(&third, "client", "10.96.0.1:81"),
        Err(Refusal::NoHealthyEndpoint { unhealthy: 1, .. })
    ));
}

#[test]
fn a_range_of_addresses_does_not_take_a_workloads_own() {
    let mut wide = support::service("wide", "10.96.0.2", &[(80, 80)]);
    wide.addresses = vec![proto::NetworkAddress {
        length: Some(8),
        ..at("", "10.0.0.0")
    }];
    let mode = proto::load_balancing::Mode::Passthrough.into();
    wide.load_balancing = Some(proto::LoadBalancing {
        mode,
        ..Default::default()
    });
    let snapshot = Mesh::new()
        .with(pod("client", "10.244.1.1"))
        .with(pod("web-1", "10.244.2.2"))
        .with(wide)
        .snapshot();
    assert_eq!(
        tunnel(go(&snapshot, "client", "10.244.2.2:80")).via,
        Via::Direct,
        "never plaintext between pods"
    );
    let elsewhere = go(&snapshot, "client", "10.9.9.9:80").unwrap();
    assert!(
        matches!(
            &elsewhere,
            NextHop::Passthrough {
                service: Some(_),
                ..
            }
        ),
        "{elsewhere:?}"
    );
}

#[test]
fn addresses_have_one_form() {
    let mut mapped = endpoint("web-1", "::ffff:10.244.2.2", "web", &[(80, 8080)]);
    mapped.addresses[0] = vec![0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 244, 2, 2].into();
    let snapshot = Mesh::new()
        .with(pod("client", "10.244.1.1"))
        .with(mapped)
        .snapshot();
    for to in ["10.244.2.2:80", "[::ffff:10.244.2.2]:80"] {
        assert_eq!(
            tunnel(go(&snapshot, "client", to)).hbone,
            "10.244.2.2:15008".parse().unwrap()
        );
    }
}

#[test]
fn on_demand_what_is_not_known_is_asked_for_before_it_is_concluded_from() {
    let mut store = Store::new("", None).on_demand();
    for (name, address) in [pod("client", "10.244.1.1").named(), {
        let mut behind = pod("behind", "10.244.2.2");
        behind.waypoint = by_host("way");
        behind.named()
    }] {
        store.upsert(&name, address).unwrap();
    }
    let snapshot = store.snapshot();
    let unknown = |to: &str| match go(&snapshot, "client", to) {
        Err(Refusal::Unknown(want)) => want.name().to_string(),
        other => panic!("{other:?}"),
    };
    assert_eq!(unknown("192.0.2.1:80"), "/192.0.2.1");
    assert_eq!(unknown("10.244.2.2:80"), key("way"));

    let mut answer = lateen_config::Batch::new(&lateen_config::resource_kinds::ADDRESS);
    answer.answered = vec!["/192.0.2.1".into(), key("way").into()];
    assert!(store.apply(&answer).is_empty());
    let snapshot = store.snapshot();
    assert!(matches!(
        go(&snapshot, "client", "192.0.2.1:80"),
        Ok(NextHop::Passthrough { .. })
    ));
    assert!(matches!(
        go(&snapshot, "client", "10.244.2.2:80"),
        Err(Refusal::UnknownWaypoint { .. })
    ));

    let mut forget = lateen_config::Batch::new(&lateen_config::resource_kinds::ADDRESS);
    forget.forgotten = vec!["/192.0.2.1".into()];
    store.apply(&forget);
    let want = Want::address(&"".into(), "192.0.2.1".parse().unwrap());
    assert_eq!(
        go(&store.snapshot(), "client", "192.0.2.1:80"),
        Err(Refusal::Unknown(want))
    );
}
