//! Addresses that a client of a waypoint chooses: the one that it dialled, and those of the host that it names.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use lateen_config::next_hop::{Choice, NextHop, Refusal, Resolve, outbound_to};
use lateen_config::{ServiceKey, Snapshot, Workload};
use lateen_proto::workload::{
    Extension, LoadBalancing, NetworkAddress, Service, TunnelProtocol, Workload as Wire,
    load_balancing,
};

use super::support::{self, Mesh, at, endpoint, pod, uid};

/// The service of a ServiceEntry of port 80.
fn entry(host: &str, addresses: Vec<NetworkAddress>) -> Service {
    Service {
        name: host.into(),
        namespace: "default".into(),
        hostname: host.into(),
        addresses,
        ports: support::ports(&[(80, 8080)]),
        ..Default::default()
    }
}

/// An entry with resolution NONE.
fn unresolved(addresses: Vec<NetworkAddress>) -> Service {
    let mut service = entry("none.example", addresses);
    service.load_balancing = Some(LoadBalancing {
        mode: load_balancing::Mode::Passthrough.into(),
        ..Default::default()
    });
    service
}

fn range(address: &str, length: u32) -> NetworkAddress {
    NetworkAddress {
        length: Some(length),
        ..at("", address)
    }
}

/// What an entry with resolution DYNAMIC_DNS has for an endpoint.
fn named(host: &str) -> Wire {
    let mut workload = endpoint("wild", "192.0.2.1", "x", &[]);
    workload.uid = "Kubernetes/networking.istio.io/ServiceEntry/default/wild".into();
    workload.tunnel_protocol = TunnelProtocol::None.into();
    workload.addresses.clear();
    workload.hostname = host.into();
    workload.services = [(format!("default/{host}"), Default::default())].into();
    workload
}

fn source(snapshot: &Snapshot) -> Arc<Workload> {
    snapshot.workload_by_uid(&uid("gate")).unwrap().clone()
}

fn go(snapshot: &Snapshot, host: &str, to: &str) -> Result<Choice, Refusal> {
    let service = snapshot.service_by_key(&ServiceKey::new("default", host));
    let (service, to) = (service.unwrap().clone(), to.parse::<SocketAddr>().unwrap());
    let source = source(snapshot);
    outbound_to(snapshot, &source, &service, to, &|_| false, &mut |_| 0)
}

fn target(choice: Result<Choice, Refusal>) -> Option<SocketAddr> {
    match choice.ok()?.next_hop {
        NextHop::Passthrough { target, .. } | NextHop::Plain { target, .. } => Some(target),
        other => panic!("neither passed through nor plain: {other:?}"),
    }
}

/// The waypoint `gate`, and the wildcard `*.example.com` on 240.240.0.1.
fn wild() -> Mesh {
    Mesh::new()
        .with(pod("gate", "10.244.1.1"))
        .with(entry("*.example.com", vec![at("", "240.240.0.1")]))
        .with(named("*.example.com"))
}

fn resolve(snapshot: &Snapshot) -> Resolve {
    match go(snapshot, "*.example.com", "240.240.0.1:80")
        .unwrap()
        .next_hop
    {
        NextHop::Resolve(resolve) => resolve,
        other => panic!("nothing to resolve: {other:?}"),
    }
}

fn to_host(snapshot: &Snapshot, address: &str) -> Result<Choice, Refusal> {
    let address: IpAddr = address.parse().unwrap();
    let host = ("a.example.com", address);
    resolve(snapshot).to_host(snapshot, &source(snapshot), host, &|_| false)
}

#[test]
fn without_resolution_a_listed_address_is_passed_through() {
    let snapshot = Mesh::new()
        .with(pod("gate", "10.244.1.1"))
        .with(unresolved(vec![
            at("", "192.0.2.1"),
            range("198.51.100.0", 24),
        ]))
        .snapshot();
    for to in ["192.0.2.1:80", "198.51.100.77:80", "[::ffff:192.0.2.1]:80"] {
        let to: SocketAddr = to.parse().unwrap();
        let plain = SocketAddr::new(to.ip().to_canonical(), 80);
        assert_eq!(
            target(go(&snapshot, "none.example", &plain.to_string())),
            Some(plain)
        );
    }
    for to in ["192.0.2.2:80", "198.51.101.1:80", "0.0.0.0:80"] {
        let refused = go(&snapshot, "none.example", to);
        assert!(
            matches!(refused, Err(Refusal::NotListed { .. })),
            "{to}: {refused:?}"
        );
    }
}

#[test]
fn without_resolution_and_addresses_any_outside_address_is_passed_through() {
    let snapshot = Mesh::new()
        .with(pod("gate", "10.244.1.1"))
        .with(unresolved(vec![]))
        .snapshot();
    let to = "203.0.113.9:80";
    assert_eq!(
        target(go(&snapshot, "none.example", to)),
        Some(to.parse().unwrap())
    );
}

#[test]
fn a_range_does_not_lead_to_the_proxy_itself_or_to_its_machine() {
    let snapshot = Mesh::new()
        .with(pod("gate", "10.244.1.1"))
        .with(unresolved(vec![range("0.0.0.0", 0), range("::", 0)]))
        .snapshot();
    for to in [
        "127.0.0.1:80",
        "127.9.9.9:80",
        "10.244.1.1:80",
        "0.0.0.0:80",
        "169.254.169.254:80",
        "224.0.0.1:80",
        "255.255.255.255:80",
        "[::1]:80",
        "[::]:80",
        "[fe80::1]:80",
        "[fd00:ec2::254]:80",
        "[fd00:ec2::23]:80",
        "[64:ff9b::a9fe:a9fe]:80",
        "[ff02::1]:80",
    ] {
        let refused = go(&snapshot, "none.example", to);
        assert!(
            matches!(refused, Err(Refusal::Reserved { .. })),
            "{to}: {refused:?}"
        );
    }
    for to in ["192.0.2.1:80", "[64:ff9b::192.0.2.1]:80"] {
        assert_eq!(
            target(go(&snapshot, "none.example", to)),
            Some(to.parse().unwrap())
        );
    }
}

#[test]
fn a_range_does_not_lead_to_pods_by_an_address_that_is_translated() {
    let snapshot = Mesh::new()
        .with(pod("gate", "10.244.1.1"))
        .with(pod("web-1", "10.244.2.1"))
        .with(unresolved(vec![range("64:ff9b::", 96)]))
        .snapshot();
    let refused = go(&snapshot, "none.example", "[64:ff9b::10.244.2.1]:80");
    let error = refused.unwrap_err().to_string();
    assert!(error.contains("translated into the mesh"), "{error}");
}

#[test]
fn an_address_of_metadata_that_an_entry_names_is_meant() {
    for (named, to) in [
        ("169.254.169.254", "169.254.169.254:80"),
        ("fd00:ec2::254", "[fd00:ec2::254]:80"),
    ] {
        let snapshot = Mesh::new()
            .with(pod("gate", "10.244.1.1"))
            .with(unresolved(vec![at("", named)]))
            .snapshot();
        assert_eq!(
            target(go(&snapshot, "none.example", to)),
            Some(to.parse().unwrap())
        );
    }
}

#[test]
fn a_wildcard_covers_the_hosts_below_its_domain_alone() {
    let snapshot = wild().snapshot();
    let resolve = resolve(&snapshot);
    assert!(resolve.is_wildcard());
    for host in ["a.example.com", "a.b.example.com"] {
        assert_eq!(resolve.admit(&snapshot, host), Ok(()), "{host}");
    }
    for host in [
        "example.com",
        ".example.com",
        "aexample.com",
        "a.example.com.evil.test",
        "a.example.org",
        "",
    ] {
        let refused = resolve.admit(&snapshot, host);
        assert!(
            matches!(refused, Err(Refusal::NotCovered { .. })),
            "{host}: {refused:?}"
        );
    }
}

#[test]
fn a_host_with_a_service_of_its_own_is_refused() {
    let other = |namespace: &str, host: &str, address: &str| Service {
        namespace: namespace.into(),
        ..entry(host, vec![at("", address)])
    };
    let snapshot = wild()
        .with(other("default", "secure.example.com", "240.240.0.2"))
        .with(other("default", "*.inner.example.com", "240.240.0.3"))
        .with(other("strange", "a.example.com", "240.240.0.4"))
        .snapshot();
    let resolve = resolve(&snapshot);
    for (host, service) in [
        ("secure.example.com", "default/secure.example.com"),
        ("a.inner.example.com", "default/*.inner.example.com"),
    ] {
        match resolve.admit(&snapshot, host) {
            Err(refusal @ Refusal::HostOfAnother { .. }) => {
                assert!(refusal.is_about_host());
                assert!(refusal.to_string().contains(service), "{refusal}");
            }
            other => panic!("{host}: {other:?}"),
        }
    }
    // Whoever may write entries elsewhere has no say here.
    assert_eq!(resolve.admit(&snapshot, "a.example.com"), Ok(()));
}

#[test]
fn a_host_leads_to_the_entrys_port_at_its_address() {
    let snapshot = wild().snapshot();
    for (address, expected) in [
        ("192.0.2.9", "192.0.2.9:8080"),
        ("::ffff:192.0.2.9", "192.0.2.9:8080"),
        ("2001:db8::9", "[2001:db8::9]:8080"),
    ] {
        let found = target(to_host(&snapshot, address));
        assert_eq!(found, Some(expected.parse().unwrap()), "{address}");
    }
}

#[test]
fn a_host_does_not_lead_to_the_proxy_itself_or_to_its_machine() {
    let snapshot = wild().snapshot();
    for address in [
        "127.0.0.1",
        "::1",
        "::ffff:127.0.0.1",
        "0.0.0.0",
        "0.1.2.3",
        "::",
        "169.254.169.254",
        "fe80::1",
        "fd00:ec2::254",
        "fd20:ce::254",
        "64:ff9b::127.0.0.1",
        "64:ff9b::a9fe:a9fe",
        "10.244.1.1",
        "224.0.0.1",
        "255.255.255.255",
    ] {
        let refused = to_host(&snapshot, address);
        assert!(
            matches!(refused, Err(Refusal::ReservedHost { .. })),
            "{address}: {refused:?}"
        );
    }
}

#[test]
fn a_host_does_not_lead_past_the_policies_of_the_mesh() {
    let mut behind = entry("behind.example", vec![at("", "192.0.2.7")]);
    behind.waypoint = support::waypoint("10.244.1.1");
    let mut plain = endpoint("plain", "10.244.2.3", "web", &[(80, 8080)]);
    plain.tunnel_protocol = TunnelProtocol::None.into();
    let snapshot = wild()
        .with(support::service("web", "10.96.0.1", &[(80, 8080)]))
        .with(endpoint("web-1", "10.244.2.1", "web", &[(80, 8080)]))
        .with(plain)
        .with(behind)
        .with(entry("auto.example", vec![at("", "240.240.0.9")]))
        .snapshot();
    for address in [
        "10.96.0.1",
        "10.244.2.1",
        "192.0.2.7",
        "240.240.0.9",
        "240.240.0.1",
        // A translator sends these to the same places.
        "64:ff9b::10.96.0.1",
        "64:ff9b::10.244.2.1",
    ] {
        let refused = to_host(&snapshot, address);
        assert!(
            matches!(refused, Err(Refusal::HostInMesh { .. })),
            "{address}: {refused:?}"
        );
    }
    // A pod outside of the mesh has no proxy that obeys policies.
    let found = target(to_host(&snapshot, "10.244.2.3"));
    assert_eq!(found, Some("10.244.2.3:8080".parse().unwrap()));
}

#[test]
fn an_extension_says_that_addresses_are_taken_one_at_a_time() {
    let mut service = entry("rr.example", vec![at("", "240.240.0.1")]);
    service.extensions = vec![Extension {
        name: "lateen.dns-round-robin".into(),
        config: None,
    }];
    let snapshot = Mesh::new()
        .with(service)
        .with(entry("all.example", vec![at("", "240.240.0.2")]))
        .snapshot();
    for (host, expected) in [("rr.example", true), ("all.example", false)] {
        let found = snapshot.service_by_key(&ServiceKey::new("default", host));
        assert_eq!(found.unwrap().is_round_robin, expected, "{host}");
    }
}
