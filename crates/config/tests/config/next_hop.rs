//! Where connections go.

use std::net::SocketAddr;
use std::sync::Arc;

use lateen_config::next_hop::{
    InboundRefusal, NextHop, Refusal, Tunnel, Via, inbound, inbound_service, outbound,
    outbound_to_workload,
};
use lateen_config::{Snapshot, Workload};
use lateen_proto::workload::{
    ApplicationTunnel, IpFamilies, LoadBalancing, Locality, Service, TunnelProtocol,
    WorkloadStatus, load_balancing, service,
};
use proptest::prelude::*;

use super::support::{self, Mesh, Resource, at, endpoint, key, pod, uid};

fn client(snapshot: &Snapshot) -> Arc<Workload> {
    snapshot
        .workload_by_uid(&uid("client"))
        .expect("the client is there")
        .clone()
}

fn go(snapshot: &Snapshot, to: &str) -> Result<NextHop, Refusal> {
    let (source, to) = (client(snapshot), to.parse().unwrap());
    outbound(snapshot, &source, to, &|_| false, &mut |_| 0).map(|choice| choice.next_hop)
}

fn tunnel(next_hop: Result<NextHop, Refusal>) -> Tunnel {
    match next_hop {
        Ok(NextHop::Tunnel(tunnel)) => tunnel,
        other => panic!("no tunnel: {other:?}"),
    }
}

fn mesh() -> Mesh {
    Mesh::new().with(pod("client", "10.244.1.1"))
}

/// A mesh with one service `web` on 10.96.0.1:80.
fn web(change: impl FnOnce(&mut Service)) -> Mesh {
    let mut web = support::service("web", "10.96.0.1", &[(80, 8080)]);
    change(&mut web);
    mesh().with(web)
}

fn picked(next_hop: &NextHop) -> &str {
    &next_hop.workload().expect("something was picked").name
}

/// Everything that is picked over the whole range of the random number.
fn all_picked(snapshot: &Snapshot, to: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut total = 1;
    let mut turn = 0;
    while turn < total {
        let mut random = |n| {
            total = n;
            turn
        };
        let (source, to) = (client(snapshot), to.parse().unwrap());
        let choice = outbound(snapshot, &source, to, &|_| false, &mut random).unwrap();
        names.push(picked(&choice.next_hop).to_owned());
        turn += 1;
    }
    names
}

#[test]
fn a_mesh_service_is_reached_through_a_tunnel_to_an_endpoint() {
    let snapshot = web(|web| {
        web.subject_alt_names = vec!["spiffe://td/ns/x/sa/y".into(), "no identity".into()]
    })
    .with(endpoint("web-1", "10.244.2.2", "web", &[(80, 9090)]))
    .snapshot();
    let Tunnel {
        workload,
        service,
        hbone,
        authority,
        identities,
        via,
    } = tunnel(go(&snapshot, "10.96.0.1:80"));
    assert_eq!(via, Via::Direct);
    assert_eq!(&*workload.name, "web-1");
    assert_eq!(service.unwrap().key.to_string(), key("web"));
    assert_eq!(hbone, "10.244.2.2:15008".parse().unwrap());
    assert_eq!(authority.to_string(), "10.244.2.2:9090");
    let identities: Vec<_> = identities.iter().map(ToString::to_string).collect();
    assert_eq!(
        identities,
        [
            "spiffe://td/ns/x/sa/y",
            "spiffe://cluster.local/ns/default/sa/web-1"
        ]
    );
}

#[test]
fn an_endpoint_outside_the_mesh_is_reached_in_plain() {
    let mut plain = endpoint("web-1", "10.244.2.2", "web", &[(80, 8080)]);
    plain.tunnel_protocol = TunnelProtocol::None.into();
    let snapshot = web(|_| ()).with(plain).snapshot();
    let NextHop::Plain {
        target, service, ..
    } = go(&snapshot, "10.96.0.1:80").unwrap()
    else {
        panic!("not plain")
    };
    assert_eq!(target, "10.244.2.2:8080".parse().unwrap());
    assert!(service.is_some());
}

#[test]
fn a_pod_that_is_addressed_itself_keeps_its_port() {
    let snapshot = mesh()
        .with(endpoint("web-1", "10.244.2.2", "web", &[(80, 9090)]))
        .snapshot();
    let tunnel = tunnel(go(&snapshot, "10.244.2.2:80"));
    assert_eq!(tunnel.authority.to_string(), "10.244.2.2:80");
    assert!(tunnel.service.is_none());
}

#[test]
fn what_the_mesh_does_not_know_passes_through() {
    let target = "192.0.2.1:443".parse().unwrap();
    assert_eq!(
        go(&mesh().snapshot(), "192.0.2.1:443"),
        Ok(NextHop::Passthrough {
            target,
            service: None
        })
    );
}

#[test]
fn an_unknown_port_is_refused_and_the_known_ones_are_named() {
    let snapshot = web(|_| ())
        .with(endpoint("web-1", "10.244.2.2", "web", &[(80, 8080)]))
        .snapshot();
    let refusal = go(&snapshot, "10.96.0.1:81").unwrap_err();
    assert!(matches!(&refusal, Refusal::UnknownPort { port: 81, known, .. } if *known == [80]));
    assert!(refusal.to_string().contains(&key("web")), "{refusal}");
}

#[test]
fn a_service_without_ready_endpoints_is_refused_never_bypassed() {
    let mut sick = endpoint("web-1", "10.244.2.2", "web", &[(80, 8080)]);
    sick.status = WorkloadStatus::Unhealthy.into();
    assert!(matches!(
        go(&web(|_| ()).with(sick.clone()).snapshot(), "10.96.0.1:80"),
        Err(Refusal::NoHealthyEndpoint {
            total: 1,
            unhealthy: 1,
            unreachable: 0,
            ..
        })
    ));
    assert!(matches!(
        go(&web(|_| ()).snapshot(), "10.96.0.1:80"),
        Err(Refusal::NoHealthyEndpoint { total: 0, .. })
    ));
    let tolerant = web(|web| {
        let health_policy = load_balancing::HealthPolicy::AllowAll.into();
        web.load_balancing = Some(LoadBalancing {
            health_policy,
            ..Default::default()
        });
    });
    assert_eq!(
        picked(&go(&tolerant.with(sick).snapshot(), "10.96.0.1:80").unwrap()),
        "web-1"
    );
}

#[test]
fn endpoints_are_drawn_by_weight() {
    let weighted = |name: &str, address: &str, capacity| {
        let mut workload = endpoint(name, address, "web", &[(80, 8080)]);
        workload.capacity = capacity;
        workload
    };
    let snapshot = web(|_| ())
        .with(weighted("a", "10.244.2.1", None))
        .with(weighted("b", "10.244.2.2", Some(3)))
        .with(weighted("c", "10.244.2.3", Some(0)))
        .snapshot();
    assert_eq!(all_picked(&snapshot, "10.96.0.1:80"), ["a", "b", "b", "b"]);
}

#[test]
fn a_named_port_is_the_endpoints_matter() {
    let snapshot = web(|web| web.ports = support::ports(&[(80, 0)]))
        .with(endpoint("with", "10.244.2.1", "web", &[(80, 9090)]))
        .with(endpoint("without", "10.244.2.2", "web", &[]))
        .snapshot();
    assert_eq!(all_picked(&snapshot, "10.96.0.1:80"), ["with"]);
    let authority = tunnel(go(&snapshot, "10.96.0.1:80")).authority;
    assert_eq!(authority.to_string(), "10.244.2.1:9090");
}

#[test]
fn a_mapping_without_target_means_the_same_port() {
    let snapshot = web(|_| ())
        .with(endpoint("web-1", "10.244.2.1", "web", &[(80, 0)]))
        .snapshot();
    let authority = tunnel(go(&snapshot, "10.96.0.1:80")).authority;
    assert_eq!(authority.to_string(), "10.244.2.1:80");
}

#[test]
fn a_waypoint_is_never_passed_by() {
    let service_behind = web(|web| web.waypoint = support::waypoint("10.96.0.9")).with(endpoint(
        "web-1",
        "10.244.2.2",
        "web",
        &[(80, 8080)],
    ));
    let refusal = go(&service_behind.snapshot(), "10.96.0.1:80").unwrap_err();
    assert!(
        matches!(refusal, Refusal::UnknownWaypoint { .. }),
        "{refusal}"
    );
    assert!(refusal.to_string().contains("10.96.0.9"), "{refusal}");

    let weighted_only = web(|web| {
        web.weighted_waypoints
            .push(lateen_proto::workload::WeightedWaypoint {
                destination: support::waypoint("10.96.0.9"),
                weight: 1,
            });
    })
    .with(endpoint("web-1", "10.244.2.2", "web", &[(80, 8080)]));
    assert!(matches!(
        go(&weighted_only.snapshot(), "10.96.0.1:80"),
        Err(Refusal::UnknownWaypoint { .. })
    ));
}

#[test]
fn a_workloads_waypoint_is_passed_and_goes_on_itself() {
    let mut behind = pod("web-1", "10.244.2.2");
    behind.waypoint = support::waypoint("10.244.3.3");
    let snapshot = mesh()
        .with(behind)
        .with(pod("waypoint", "10.244.3.3"))
        .snapshot();
    let through = tunnel(go(&snapshot, "10.244.2.2:80"));
    assert_eq!(&*through.workload.name, "waypoint");
    assert_eq!(through.via, Via::Waypoint("/10.244.3.3".into()));
    assert_eq!(through.hbone, "10.244.3.3:15008".parse().unwrap());
    assert_eq!(through.authority.to_string(), "10.244.2.2:80");
    let waypoint = snapshot.workload_by_uid(&uid("waypoint")).unwrap();
    let to = "10.244.2.2:80".parse().unwrap();
    let onward = outbound(&snapshot, waypoint, to, &|_| false, &mut |_| 0).map(|c| c.next_hop);
    assert_eq!(tunnel(onward).via, Via::Direct);
}

#[test]
fn a_workload_that_was_selected_is_reached_past_the_waypoint_that_it_names_now() {
    let mut behind = pod("web-1", "10.244.2.2");
    behind.waypoint = support::waypoint("10.244.3.3");
    let snapshot = mesh()
        .with(behind)
        .with(pod("waypoint", "10.244.3.3"))
        .with(pod("before", "10.244.3.4"))
        .snapshot();
    let before = snapshot.workload_by_uid(&uid("before")).unwrap();
    let selected = snapshot.workload_by_uid(&uid("web-1")).unwrap();
    let go = |to: &str| {
        let to = to.parse().unwrap();
        let choice = outbound_to_workload(&snapshot, before, selected, to, &|_| false, &mut |_| 0);
        choice.map(|choice| choice.next_hop)
    };
    let onward = tunnel(go("10.244.2.2:80"));
    assert_eq!((onward.via, &*onward.workload.name), (Via::Direct, "web-1"));
    assert_eq!(onward.hbone, "10.244.2.2:15008".parse().unwrap());
    assert!(matches!(
        go("10.244.3.4:15008"),
        Err(Refusal::LoopGuard { .. })
    ));
}

#[test]
fn a_passthrough_service_leaves_the_destination_alone() {
    let mode = load_balancing::Mode::Passthrough.into();
    let snapshot = web(|web| {
        web.load_balancing = Some(LoadBalancing {
            mode,
            ..Default::default()
        })
    })
    .snapshot();
    let next_hop = go(&snapshot, "10.96.0.1:80").unwrap();
    assert_eq!(next_hop.service().unwrap().key.to_string(), key("web"));
    let meant = "10.96.0.1:80".parse::<SocketAddr>().unwrap();
    assert!(matches!(next_hop, NextHop::Passthrough { target, .. } if target == meant));
}

#[test]
fn failover_prefers_the_near_and_strict_knows_nothing_else() {
    let in_zone = |name: &str, address: &str, zone: &str| {
        let mut workload = endpoint(name, address, "web", &[(80, 8080)]);
        workload.locality = Some(Locality {
            zone: zone.into(),
            ..Default::default()
        });
        workload
    };
    let with_mode = |mode: load_balancing::Mode| {
        let mut client = pod("client", "10.244.1.1");
        client.locality = Some(Locality {
            zone: "near".into(),
            ..Default::default()
        });
        web(|web| {
            web.load_balancing = Some(LoadBalancing {
                routing_preference: vec![load_balancing::Scope::Zone.into()],
                mode: mode.into(),
                ..Default::default()
            });
        })
        .with(client)
        .with(in_zone("far", "10.244.2.2", "far"))
    };
    let near = || in_zone("near", "10.244.2.1", "near");
    assert_eq!(
        all_picked(
            &with_mode(load_balancing::Mode::Failover)
                .with(near())
                .snapshot(),
            "10.96.0.1:80"
        ),
        ["near"]
    );
    assert_eq!(
        all_picked(
            &with_mode(load_balancing::Mode::Failover).snapshot(),
            "10.96.0.1:80"
        ),
        ["far"]
    );
    assert_eq!(
        all_picked(
            &with_mode(load_balancing::Mode::Strict)
                .with(near())
                .snapshot(),
            "10.96.0.1:80"
        ),
        ["near"]
    );
    assert!(
        go(
            &with_mode(load_balancing::Mode::Strict).snapshot(),
            "10.96.0.1:80"
        )
        .is_err()
    );
}

#[test]
fn an_endpoint_of_another_network_without_gateway_is_out_of_reach() {
    let mut remote = endpoint("remote", "10.244.9.9", "web", &[(80, 8080)]);
    remote.network = "elsewhere".into();
    let local = endpoint("local", "10.244.2.2", "web", &[(80, 8080)]);
    assert!(matches!(
        go(&web(|_| ()).with(remote.clone()).snapshot(), "10.96.0.1:80"),
        Err(Refusal::NoHealthyEndpoint { unreachable: 1, .. })
    ));
    assert_eq!(
        all_picked(
            &web(|_| ()).with(remote).with(local).snapshot(),
            "10.96.0.1:80"
        ),
        ["local"]
    );
}

#[test]
fn the_address_family_follows_the_client() {
    let mut dual = endpoint("web-1", "10.244.2.2", "web", &[(80, 8080)]);
    dual.addresses.push(support::bytes("fd00::2"));
    let snapshot = web(|web| {
        web.addresses.push(at("", "fd00:96::1"));
        web.ip_families = IpFamilies::Dual.into();
    })
    .with(dual)
    .snapshot();
    for (to, target) in [
        ("10.96.0.1:80", "10.244.2.2:8080"),
        ("[fd00:96::1]:80", "[fd00::2]:8080"),
    ] {
        assert_eq!(tunnel(go(&snapshot, to)).authority.to_string(), target);
    }
}

#[test]
fn a_service_of_a_namespace_alone_is_not_seen_from_others() {
    let snapshot = web(|web| {
        web.namespace = "other".into();
        web.visibility = service::Visibility::Namespace.into();
    })
    .snapshot();
    assert!(matches!(
        go(&snapshot, "10.96.0.1:80"),
        Ok(NextHop::Passthrough { .. })
    ));
}

#[test]
fn nothing_leads_back_into_the_proxy() {
    let snapshot = mesh().with(pod("web-1", "10.244.2.2")).snapshot();
    for port in [15001, 15006, 15008] {
        for ip in [
            "127.0.0.1",
            "127.1.2.3",
            "0.0.0.0",
            "10.244.1.1",
            "10.244.2.2",
        ] {
            let next_hop = go(&snapshot, &format!("{ip}:{port}"));
            assert!(
                matches!(next_hop, Err(Refusal::LoopGuard { .. })),
                "{ip}:{port}: {next_hop:?}"
            );
        }
        let elsewhere = format!("192.0.2.1:{port}");
        assert!(
            go(&snapshot, &elsewhere).is_ok(),
            "{elsewhere} is somebody else's port"
        );
    }
}

fn come(snapshot: &Snapshot, to: &str, authority: &str) -> Result<SocketAddr, InboundRefusal> {
    let local = snapshot
        .workload_by_uid(&uid(to))
        .expect("the workload is there");
    inbound(snapshot, local, local.addresses[0], authority).map(|inbound| inbound.target)
}

#[test]
fn a_tunnel_leads_to_its_own_address_only() {
    let snapshot = mesh().with(pod("web-1", "10.244.2.2")).snapshot();
    assert_eq!(
        come(&snapshot, "client", "10.244.1.1:80"),
        Ok("10.244.1.1:80".parse().unwrap())
    );
    let refusal = come(&snapshot, "client", "10.244.2.2:80").unwrap_err();
    assert!(matches!(refusal, InboundRefusal::AddressMismatch { .. }));
    assert_eq!(refusal.status(), 400);
    assert!(come(&snapshot, "client", "[::ffff:10.244.1.1]:80").is_ok());
}

#[test]
fn a_tunnel_does_not_lead_into_the_proxy() {
    let mut sandwiched = pod("sandwiched", "10.244.3.3");
    sandwiched.application_tunnel = Some(ApplicationTunnel {
        protocol: 0,
        port: 15006,
    });
    let snapshot = mesh().with(sandwiched).snapshot();
    for port in [15001, 15006, 15008] {
        let refusal = come(&snapshot, "client", &format!("10.244.1.1:{port}")).unwrap_err();
        assert!(matches!(refusal, InboundRefusal::LoopGuard { .. }));
        assert_eq!(refusal.status(), 503);
    }
    assert!(matches!(
        come(&snapshot, "sandwiched", "10.244.3.3:80"),
        Err(InboundRefusal::LoopGuard { .. })
    ));
}

#[test]
fn a_hostname_leads_to_the_workloads_port_of_that_service() {
    let snapshot = web(|_| ())
        .with(endpoint("web-1", "10.244.2.2", "web", &[(80, 9090)]))
        .snapshot();
    let host = "web.default.svc.cluster.local";
    assert_eq!(
        come(&snapshot, "web-1", &format!("{host}:80")),
        Ok("10.244.2.2:9090".parse().unwrap())
    );
    assert!(matches!(
        come(&snapshot, "web-1", &format!("{host}:81")),
        Err(InboundRefusal::UnknownPort { .. })
    ));
    assert!(matches!(
        come(&snapshot, "web-1", "nobody.example:80"),
        Err(InboundRefusal::UnknownHost { .. })
    ));
    assert!(matches!(
        come(&snapshot, "client", &format!("{host}:80")),
        Err(InboundRefusal::NotServed { .. })
    ));
}

#[test]
fn what_is_no_authority_is_refused() {
    let snapshot = mesh().snapshot();
    for authority in [
        "",
        ":",
        ":80",
        "10.244.1.1",
        "10.244.1.1:",
        "10.244.1.1:0",
        "10.244.1.1:65536",
        "h:+80",
        "a b:80",
        "u@h:80",
        "[::1:80",
    ] {
        let refusal = come(&snapshot, "client", authority);
        assert!(
            matches!(refusal, Err(InboundRefusal::Authority { .. })),
            "{authority:?}: {refusal:?}"
        );
    }
}

#[test]
fn a_waypoint_takes_tunnels_for_what_it_serves() {
    let mut waypoint = support::service("waypoint", "10.96.0.9", &[(15008, 15008)]);
    waypoint.ports.clear();
    let snapshot = web(|web| web.waypoint = support::waypoint("10.96.0.9"))
        .with(waypoint)
        .with(endpoint("waypoint-1", "10.244.3.3", "waypoint", &[]))
        .snapshot();
    assert_eq!(
        come(&snapshot, "waypoint-1", "10.96.0.1:80"),
        Ok("10.244.3.3:80".parse().unwrap())
    );
    let host = "web.default.svc.cluster.local:80";
    assert_eq!(
        come(&snapshot, "waypoint-1", host),
        Ok("10.244.3.3:8080".parse().unwrap())
    );
    assert!(come(&snapshot, "waypoint-1", "10.96.0.2:80").is_err());
    assert!(come(&snapshot, "client", "10.96.0.1:80").is_err());
}

#[test]
fn an_application_tunnel_takes_every_connection_on_its_port() {
    let sandwiched = |protocol| {
        let mut sandwiched = endpoint("sandwiched", "10.244.3.3", "web", &[]);
        sandwiched.application_tunnel = Some(ApplicationTunnel {
            protocol,
            port: 15088,
        });
        web(|_| ()).with(sandwiched).snapshot()
    };
    let take = |snapshot: &Snapshot, authority| {
        let local = snapshot.workload_by_uid(&uid("sandwiched")).unwrap();
        inbound(snapshot, local, local.addresses[0], authority).unwrap()
    };
    let plain = take(&sandwiched(0), "10.96.0.1:80");
    assert_eq!(plain.target, "10.244.3.3:15088".parse().unwrap());
    assert_eq!(plain.handover, None);

    let proxy = take(&sandwiched(1), "10.96.0.1:80");
    assert_eq!(
        proxy.target, plain.target,
        "policies are asked about the workload"
    );
    let handover = proxy.handover.unwrap();
    assert_eq!(handover.dial, "127.0.0.1:15088".parse().unwrap());
    assert_eq!(handover.destination, "10.96.0.1:80".parse().unwrap());
    assert_eq!(handover.hostname, None);

    let host = "web.default.svc.cluster.local";
    let named = take(&sandwiched(1), &format!("{host}:80"))
        .handover
        .unwrap();
    assert_eq!(named.destination, "10.96.0.1:80".parse().unwrap());
    assert_eq!(named.hostname.as_deref(), Some(host));
}

#[test]
fn an_inbound_connection_counts_to_the_service_that_was_meant() {
    let mut local = endpoint("web-1", "10.244.2.2", "web", &[(80, 8080)]);
    local
        .services
        .extend(endpoint("", "::", "admin", &[(81, 9090)]).services);
    let snapshot = web(|_| ())
        .with(support::service("admin", "10.96.0.2", &[(81, 0)]))
        .with(local)
        .snapshot();
    let local = snapshot.workload_by_uid(&uid("web-1")).unwrap();
    let counted =
        |named, port| inbound_service(&snapshot, local, named, port).map(|s| s.name.to_string());
    assert_eq!(counted(None, 8080).as_deref(), Some("web"));
    assert_eq!(counted(None, 9090).as_deref(), Some("admin"));
    assert_eq!(counted(None, 1234), None);
    assert_eq!(
        counted(Some("admin.default.svc.cluster.local"), 8080).as_deref(),
        Some("admin")
    );
    assert_eq!(
        counted(Some("stranger.example"), 8080).as_deref(),
        Some("web"),
        "a name is not believed blindly"
    );
}

proptest! {
    /// Authorities are peers' bytes.
    #[test]
    fn no_authority_panics_or_leads_elsewhere(authority in "\\PC{0,30}|[0-9a-f.:\\[\\]]{0,30}|[a-z.]{0,10}:[0-9]{0,6}") {
        let snapshot = web(|_| ()).with(endpoint("web-1", "10.244.2.2", "web", &[(80, 9090)])).snapshot();
        if let Ok(target) = come(&snapshot, "web-1", &authority) {
            prop_assert_eq!(target.ip().to_string(), "10.244.2.2");
        }
    }
}

#[test]
fn resources_name_themselves() {
    assert_eq!(pod("a", "10.0.0.1").named().0, uid("a"));
    assert_eq!(support::service("a", "10.0.0.1", &[]).named().0, key("a"));
}
