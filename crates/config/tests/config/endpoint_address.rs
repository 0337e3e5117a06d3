//! Endpoints whose addresses, written down or resolved, are those of something else in the mesh; and addresses that several
//! name.

use std::net::SocketAddr;
use std::sync::Arc;

use lateen_config::next_hop::{Choice, NextHop, Refusal, Resolve, Via, outbound, own_machine};
use lateen_config::{Batch, Snapshot, Store, Workload, resource_kinds};
use lateen_proto::workload::{
    Extension, NetworkMode, Service, TunnelProtocol, Workload as Wire, service,
};
use prost::Message;

use super::support::{self, Mesh, Resource, at, endpoint, key, pod, uid};

const CREATED: &str = "lateen.entry-created";

/// The service of a ServiceEntry.
fn entry(namespace: &str, host: &str, address: &str, created: i64) -> Service {
    let config = prost_types::Any {
        type_url: "type.googleapis.com/google.protobuf.Timestamp".into(),
        value: prost_types::Timestamp {
            seconds: created,
            nanos: 0,
        }
        .encode_to_vec(),
    };
    Service {
        name: host.into(),
        namespace: namespace.into(),
        hostname: host.into(),
        addresses: vec![at("", address)],
        ports: support::ports(&[(80, 8080)]),
        canonical: true,
        extensions: vec![Extension {
            name: CREATED.into(),
            config: Some(config),
        }],
        ..Default::default()
    }
}

/// An endpoint of a service that speaks no tunnel: an address, or a hostname.
fn outside(name: &str, of: &str, address: &str) -> Wire {
    let is_name = address.parse::<std::net::IpAddr>().is_err();
    let mut workload = endpoint(name, "192.0.2.1", "x", &[]);
    workload.uid = format!("Kubernetes/networking.istio.io/ServiceEntry/default/{name}");
    workload.tunnel_protocol = TunnelProtocol::None.into();
    workload.services = [(of.to_owned(), Default::default())].into();
    workload.addresses.clear();
    if is_name {
        workload.hostname = address.into();
    } else {
        workload.addresses.push(support::bytes(address));
    }
    workload
}

fn source(snapshot: &Snapshot) -> Arc<Workload> {
    snapshot.workload_by_uid(&uid("client")).unwrap().clone()
}

fn dial(snapshot: &Snapshot, to: &str) -> Result<Choice, Refusal> {
    let to: SocketAddr = to.parse().unwrap();
    outbound(snapshot, &source(snapshot), to, &|_| false, &mut |_| 0)
}

fn resolve(choice: Result<Choice, Refusal>) -> Resolve {
    match choice.unwrap().next_hop {
        NextHop::Resolve(resolve) => resolve,
        other => panic!("nothing to resolve: {other:?}"),
    }
}

fn answered(snapshot: &Snapshot, name: &Resolve, address: &str) -> Result<Choice, Refusal> {
    let (source, address) = (source(snapshot), address.parse().unwrap());
    name.at(snapshot, &source, address, &|_| false, &mut |_| 0)
}

/// `client`; the service `web` of two mesh pods, on 10.96.0.1:8080; the entry `alias.example`, on 240.240.0.1:80, whose one
/// endpoint is given.
fn mesh(endpoint_address: &str) -> Mesh {
    Mesh::new()
        .with(pod("client", "10.244.1.1"))
        .with(support::service("web", "10.96.0.1", &[(8080, 9090)]))
        .with(endpoint("web-1", "10.244.2.1", "web", &[(8080, 9090)]))
        .with(endpoint("web-2", "10.244.2.2", "web", &[(8080, 9090)]))
        .with(entry("default", "alias.example", "240.240.0.1", 1))
        .with(outside("e", "default/alias.example", endpoint_address))
}

#[test]
fn an_endpoint_that_is_a_services_address_is_that_service() {
    let (written, named) = (mesh("10.96.0.1").snapshot(), mesh("web.example").snapshot());
    let name = resolve(dial(&named, "240.240.0.1:80"));
    for choice in [
        dial(&written, "240.240.0.1:80"),
        answered(&named, &name, "10.96.0.1"),
        answered(&named, &name, "::ffff:10.96.0.1"),
    ] {
        let choice = choice.unwrap();
        assert_eq!(choice.others, 1, "its other pod can be tried");
        assert!(choice.behind.unwrap().as_str().ends_with("default/e"));
        let NextHop::Tunnel(tunnel) = choice.next_hop else {
            panic!("{:?}", choice.next_hop)
        };
        assert_eq!(tunnel.via, Via::Direct);
        assert_eq!(tunnel.hbone, "10.244.2.1:15008".parse().unwrap());
        assert_eq!(tunnel.authority.to_string(), "10.244.2.1:9090");
        let accounts: Vec<_> = tunnel
            .identities
            .iter()
            .map(|i| i.service_account().to_string())
            .collect();
        assert_eq!(accounts, ["web-1"]);
        assert_eq!(tunnel.service.unwrap().key.to_string(), key("web"));
    }
}

#[test]
fn what_the_service_refuses_is_refused_by_way_of_an_endpoint_too() {
    let mut web = support::service("web", "10.96.0.1", &[(9, 9)]);
    let other_port = mesh("web.example").with(web.clone()).snapshot();
    web.ports = support::ports(&[(8080, 9090)]);
    web.waypoint = support::waypoint("10.96.0.9");
    let behind_a_waypoint = mesh("web.example").with(web).snapshot();
    for (snapshot, expected) in [
        (other_port, "has no port 8080"),
        (behind_a_waypoint, "waypoint"),
    ] {
        let name = resolve(dial(&snapshot, "240.240.0.1:80"));
        let refusal = answered(&snapshot, &name, "10.96.0.1").unwrap_err();
        assert!(refusal.to_string().contains(expected), "{refusal}");
    }
}

#[test]
fn an_endpoint_that_is_a_mesh_pod_is_reached_through_the_pods_waypoint() {
    let mut bound = pod("bound", "10.244.2.9");
    bound.waypoint = support::waypoint("10.244.3.3");
    let snapshot = mesh("bound.example")
        .with(bound)
        .with(pod("way", "10.244.3.3"))
        .snapshot();
    let name = resolve(dial(&snapshot, "240.240.0.1:80"));
    match answered(&snapshot, &name, "10.244.2.9").unwrap().next_hop {
        NextHop::Tunnel(tunnel) => {
            assert!(matches!(tunnel.via, Via::Waypoint(_)));
            assert_eq!(tunnel.authority.to_string(), "10.244.2.9:8080");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_endpoint_that_leads_back_to_its_service_is_refused_by_name() {
    // A service of itself, by the address that was chosen for it and by a cluster's.
    let own = mesh("alias.example").snapshot();
    let name = resolve(dial(&own, "240.240.0.1:80"));
    let refusal = answered(&own, &name, "240.240.0.1").unwrap_err();
    assert!(matches!(refusal, Refusal::Circle { .. }), "{refusal}");
    assert!(
        refusal.to_string().contains("ServiceEntry/default/e"),
        "{refusal}"
    );
    let written = mesh("240.240.0.1").snapshot();
    assert!(matches!(
        dial(&written, "240.240.0.1:80"),
        Err(Refusal::Circle { .. })
    ));
    let cluster = Mesh::new()
        .with(pod("client", "10.244.1.1"))
        .with(support::service("web", "10.96.0.1", &[(80, 80)]))
        .with(outside("w", &key("web"), "web.default.svc.cluster.local"))
        .snapshot();
    let name = resolve(dial(&cluster, "10.96.0.1:80"));
    let refusal = answered(&cluster, &name, "10.96.0.1").unwrap_err();
    assert!(matches!(refusal, Refusal::Circle { .. }), "{refusal}");
    // Two that are each other's.
    let two = mesh("other.example")
        .with(entry("default", "other.example", "240.240.0.2", 1))
        .with(outside("o", "default/other.example", "alias.example"));
    let mut other = entry("default", "other.example", "240.240.0.2", 1);
    other.ports = support::ports(&[(8080, 80)]);
    let two = two.with(other).snapshot();
    let first = resolve(dial(&two, "240.240.0.1:80"));
    let second = resolve(answered(&two, &first, "240.240.0.2"));
    let refusal = answered(&two, &second, "240.240.0.1").unwrap_err();
    assert!(matches!(refusal, Refusal::Circle { .. }), "{refusal}");
}

#[test]
fn services_of_services_end_somewhere() {
    let mut mesh = Mesh::new().with(pod("client", "10.244.1.1"));
    for n in 1..9 {
        let host = format!("s{n}.example");
        let mut one = entry("default", &host, &format!("240.240.0.{n}"), 1);
        one.ports = support::ports(&[(80, 80)]);
        let next = format!("240.240.0.{}", n + 1);
        mesh = mesh
            .with(one)
            .with(outside(&format!("e{n}"), &format!("default/{host}"), &next));
    }
    let refusal = dial(&mesh.snapshot(), "240.240.0.1:80").unwrap_err();
    assert!(
        matches!(refusal, Refusal::TooFar { steps: 4, .. }),
        "{refusal}"
    );
}

/// What an entry's author names is an address of somewhere else: another entry that names it, too, takes no connection to it
/// away from those whose own entry leads there, and an entry may name the address of its only endpoint.
#[test]
fn an_entry_takes_no_endpoint_of_another_entry() {
    for (namespace, host) in [
        ("attic", "thief.example"),
        ("default", "web.default.svc.cluster.local"),
    ] {
        let mut thief = entry(namespace, host, "203.0.113.5", 0);
        thief.name = "web".into();
        thief.ports = support::ports(&[(8080, 8080)]);
        let mesh = || {
            mesh("db.example")
                .with(thief.clone())
                .with(endpoint("thieves", "10.244.2.7", "x", &[]))
        };
        let snapshot = mesh().snapshot();
        let name = resolve(dial(&snapshot, "240.240.0.1:80"));
        let choice = answered(&snapshot, &name, "203.0.113.5").unwrap();
        assert!(
            matches!(choice.next_hop, NextHop::Plain { target, .. } if target == "203.0.113.5:8080".parse().unwrap()),
            "{choice:?}"
        );
    }
    let own = Mesh::new()
        .with(pod("client", "10.244.1.1"))
        .with(entry("default", "db.example", "203.0.113.5", 1))
        .with(outside("e", "default/db.example", "203.0.113.5"))
        .snapshot();
    assert!(matches!(
        dial(&own, "203.0.113.5:80").unwrap().next_hop,
        NextHop::Plain { .. }
    ));
}

#[test]
fn on_demand_an_endpoints_address_is_asked_for() {
    let mut store = Store::new("", None).on_demand();
    for (name, address) in [
        pod("client", "10.244.1.1").named(),
        entry("default", "alias.example", "240.240.0.1", 1).named(),
        outside("e", "default/alias.example", "web.example").named(),
    ] {
        store.upsert(&name, address).unwrap();
    }
    let snapshot = store.snapshot();
    let name = resolve(dial(&snapshot, "240.240.0.1:80"));
    match answered(&snapshot, &name, "10.244.2.1") {
        Err(Refusal::Unknown(want)) => assert_eq!(want.name().to_string(), "/10.244.2.1"),
        other => panic!("{other:?}"),
    }
    let mut answer = Batch::new(&resource_kinds::ADDRESS);
    answer.answered = vec!["/10.244.2.1".into()];
    assert!(store.apply(&answer).is_empty());
    let choice = answered(&store.snapshot(), &name, "10.244.2.1").unwrap();
    assert!(matches!(choice.next_hop, NextHop::Plain { .. }));
}

/// Of several entries that name an address, the client's namespace's own; else the oldest that it may see, however the
/// namespaces are called and in whatever order they come.
#[test]
fn an_address_that_several_entries_name_is_the_oldests_for_others() {
    let older = entry("zebra", "z.example", "192.0.2.9", 1);
    let younger = entry("attic", "a.example", "192.0.2.9", 2);
    let mut private = entry("hidden", "h.example", "192.0.2.9", 0);
    private.visibility = service::Visibility::Namespace.into();
    let all = [older, younger, private];
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
        let mesh = order
            .iter()
            .fold(Mesh::new(), |mesh, n| mesh.with(all[*n].clone()));
        let snapshot = mesh.snapshot();
        let address = "192.0.2.9".parse().unwrap();
        let seen = |namespace| {
            &*snapshot
                .service_exactly(namespace, "", address)
                .unwrap()
                .namespace
        };
        for (client, expected) in [
            ("third", "zebra"),
            ("attic", "attic"),
            ("zebra", "zebra"),
            ("hidden", "hidden"),
        ] {
            assert_eq!(seen(client), expected, "{client}, {order:?}");
        }
    }
    // A Service comes before the oldest, and a range goes by the same order.
    let mut service = support::service("web", "192.0.2.9", &[(80, 80)]);
    service.canonical = true;
    let snapshot = Mesh::new().with(all[0].clone()).with(service).snapshot();
    let address = "192.0.2.9".parse().unwrap();
    assert_eq!(
        &*snapshot.service_exactly("third", "", address).unwrap().name,
        "web"
    );
    let ranges = all[..2].iter().cloned().map(|mut one| {
        one.addresses[0].length = Some(24);
        one
    });
    let snapshot = ranges.fold(Mesh::new(), Mesh::with).snapshot();
    assert_eq!(
        &*snapshot
            .service_for("third", "", address)
            .unwrap()
            .namespace,
        "zebra"
    );
}

/// A pod `db` on its node's network, at 10.243.0.11, behind the service `hdb`.
fn on_the_node() -> Mesh {
    let mut db = endpoint("db", "10.243.0.11", "hdb", &[(80, 9999)]);
    db.tunnel_protocol = TunnelProtocol::None.into();
    db.network_mode = NetworkMode::HostNetwork.into();
    Mesh::new()
        .with(pod("client", "10.244.1.1"))
        .with(support::service("hdb", "10.96.0.3", &[(80, 9999)]))
        .with(db)
}

/// A workload of an entry, in a tunnel.
fn tunnelled(address: &str) -> Wire {
    let mut thief = outside("thief", "default/thief.example", address);
    thief.uid = "Kubernetes/networking.istio.io/WorkloadEntry/attic/thief".into();
    thief.namespace = "attic".into();
    thief.tunnel_protocol = TunnelProtocol::Hbone.into();
    thief
}

#[test]
fn nobody_takes_the_address_of_a_node() {
    let range = Service {
        addresses: vec![lateen_proto::workload::NetworkAddress {
            length: Some(16),
            ..at("", "10.243.0.0")
        }],
        ..entry("attic", "range.example", "10.243.0.0", 1)
    };
    let mut mesh = on_the_node()
        .with(entry("attic", "e.example", "10.243.0.11", 1))
        .with(entry("default", "own.example", "10.243.0.11", 1))
        .with(range)
        .with(tunnelled("10.243.0.11"))
        .with(outside("e", "attic/e.example", "192.0.2.77"))
        .with(outside("o", "default/own.example", "192.0.2.78"));
    let snapshot = mesh.0.snapshot();
    // The pod's own service, and the node's address as a headless service gives it.
    let NextHop::Plain {
        target, workload, ..
    } = dial(&snapshot, "10.96.0.3:80").unwrap().next_hop
    else {
        panic!("the pod's service does not lead to it");
    };
    assert_eq!(target, "10.243.0.11:9999".parse().unwrap());
    assert_eq!(workload.uid.as_str(), uid("db"));
    let to = "10.243.0.11:80";
    let NextHop::Passthrough { target, service } = dial(&snapshot, to).unwrap().next_hop else {
        panic!("the node's address leads elsewhere");
    };
    assert_eq!((target, service), (to.parse().unwrap(), None));
    assert!(
        snapshot
            .workload("", "10.243.0.11".parse().unwrap())
            .is_none()
    );
    // With the pod gone, the address is one of the world outside.
    mesh.0.remove(&uid("db"));
    let choice = dial(&mesh.snapshot(), to).unwrap();
    assert!(choice.next_hop.service().is_some(), "{choice:?}");
}

#[test]
fn nobody_takes_the_address_of_a_pod() {
    for hbone in [true, false] {
        let mut web = endpoint("web-1", "10.244.2.1", "web", &[(80, 8080)]);
        if !hbone {
            web.tunnel_protocol = TunnelProtocol::None.into();
        }
        let snapshot = Mesh::new()
            .with(pod("client", "10.244.1.1"))
            .with(support::service("web", "10.96.0.1", &[(80, 8080)]))
            .with(web)
            .with(entry("attic", "e.example", "10.244.2.1", 1))
            .with(outside("e", "attic/e.example", "192.0.2.77"))
            .with(tunnelled("10.244.2.1"))
            .with(entry("attic", "f.example", "240.240.0.9", 1))
            .with(outside("f", "attic/f.example", "64:ff9b::10.244.2.1"))
            .snapshot();
        for to in ["10.244.2.1:8080", "10.96.0.1:80"] {
            let choice = dial(&snapshot, to).unwrap();
            let found = choice.next_hop.workload().unwrap();
            assert_eq!(found.uid.as_str(), uid("web-1"), "{to}");
            assert_eq!(matches!(choice.next_hop, NextHop::Tunnel(_)), hbone, "{to}");
        }
        // A translator would send it there.
        let choice = dial(&snapshot, "240.240.0.9:80").unwrap();
        assert_eq!(matches!(choice.next_hop, NextHop::Tunnel(_)), hbone);
    }
}

/// A waypoint dials from its own pod, where loopback has the pages of its operators.
#[test]
fn a_name_leads_a_proxy_that_dials_itself_to_no_place_of_its_own_machine_or_link() {
    let snapshot = mesh("inside.example").snapshot();
    let name = resolve(dial(&snapshot, "240.240.0.1:80"));
    let own = source(&snapshot);
    for (address, kind) in [
        ("127.0.0.1", "a loopback address"),
        ("127.1.2.3", "a loopback address"),
        ("::1", "a loopback address"),
        ("::ffff:127.0.0.1", "a loopback address"),
        ("0.0.0.0", "an unspecified address"),
        ("::", "an unspecified address"),
        ("169.254.169.254", "a link-local address"),
        ("::ffff:169.254.169.254", "a link-local address"),
        ("fe80::1", "a link-local address"),
        ("fd00:ec2::254", "the address of a cloud's metadata"),
        ("fd20:ce::254", "the address of a cloud's metadata"),
        // A translator sends these to the same places.
        ("64:ff9b::7f00:1", "a loopback address"),
        ("64:ff9b::a9fe:a9fe", "a link-local address"),
        ("10.244.1.1", "the proxy's own address"),
        ("224.0.0.1", "an address of many"),
        ("ff02::1", "an address of many"),
        ("255.255.255.255", "an address of many"),
    ] {
        let refusal = name
            .admit_address(&own, address.parse().unwrap())
            .unwrap_err()
            .to_string();
        for part in [
            "service default/alias.example",
            "inside.example",
            kind,
            "of another machine",
        ] {
            assert!(refusal.contains(part), "{address}: {refusal}");
        }
    }
    for address in [
        "192.0.2.9",
        "10.244.2.1",
        "2001:db8::1",
        "64:ff9b::c000:209",
    ] {
        assert_eq!(name.admit_address(&own, address.parse().unwrap()), Ok(()));
    }
}

#[test]
fn a_written_address_is_on_the_proxys_own_machine_unless_it_is_on_its_link() {
    let own = source(&mesh("inside.example").snapshot());
    let kind = |address: &str| own_machine(&own, address.parse().unwrap());
    for address in [
        "127.0.0.1",
        "::ffff:127.0.0.1",
        "0.0.0.0",
        "::",
        "224.0.0.1",
    ] {
        assert!(kind(address).is_some(), "{address}");
    }
    // That of a cloud's metadata has to be written down, as an address of an entry or of its endpoint.
    for address in ["169.254.169.254", "fe80::1", "192.0.2.9", "10.244.1.1"] {
        assert_eq!(kind(address), None, "{address}");
    }
}
