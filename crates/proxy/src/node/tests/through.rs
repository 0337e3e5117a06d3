//! Tests of connections with a next hop other than the application: waypoints, gateways, application tunnels, hostnames.

use std::net::IpAddr;

use lateen_proto::workload::application_tunnel::Protocol;
use lateen_proto::workload::gateway_address::Destination;
use lateen_proto::workload::{ApplicationTunnel, GatewayAddress, NetworkAddress, WeightedWaypoint};
use lateen_proxy_protocol::{Addresses, Command, Parsed, Tlv};

use super::*;

fn bytes_of(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

fn reference(ip: IpAddr) -> GatewayAddress {
    GatewayAddress {
        destination: Some(Destination::Address(NetworkAddress {
            address: bytes_of(ip).into(),
            ..NetworkAddress::default()
        })),
        hbone_mtls_port: 15008,
    }
}

async fn echoed(mesh: &Mesh, address: SocketAddr) {
    let mut client = mesh.dial(address).await.unwrap();
    say(&mut client, "there and back").await;
    hear(&mut client, "there and back").await;
}

#[tokio::test]
async fn a_service_behind_a_waypoint_is_reached_through_it_and_never_around_it() {
    let mut mesh = Mesh::start().await;
    let at = mesh.ip(3, 1);
    mesh.put_workload(wds::workload("waypoint", "north", at));
    mesh.change_service(|service| service.waypoint = Some(reference(at)));
    mesh.configure().await;
    let mut application = mesh.application().await;
    // Nobody is there: that is no reason to go around.
    refused(&mesh, mesh.vip()).await;
    let line = mesh
        .logged(&["direction=\"outbound\"", "Connection refused"])
        .await;
    assert!(
        line.contains(&format!("the waypoint /{at}: "))
            && line.contains("see whether its pods run"),
        "{line}"
    );

    let mut asked = peer::waypoint(&mesh, "waypoint", (at, 15008).into()).await;
    echoed(&mesh, mesh.vip()).await;
    let seen = soon("the waypoint is asked", asked.recv()).await.unwrap();
    assert_eq!(seen.peer, CLIENT);
    assert_eq!(seen.authority, mesh.vip().to_string());
    let forwarded = seen.forwarded.unwrap();
    assert_eq!(
        forwarded.host.as_deref(),
        Some("server.default.svc.cluster.local")
    );
    assert_eq!(forwarded.client.unwrap().ip(), mesh.client_ip());
    assert_eq!(seen.baggage.unwrap().workload.as_deref(), Some("client"));
    assert_eq!(seen.network, None);
    let line = mesh
        .logged(&["direction=\"outbound\"", "\tinfo\t", "connection complete"])
        .await;
    assert!(
        line.contains(&format!("dst.addr={at}:15008"))
            && line.contains(&format!("dst.hbone_addr={}", mesh.vip())),
        "{line}"
    );
    assert!(application.try_recv().is_err());
}

#[tokio::test]
async fn a_waypoint_that_proves_to_be_somebody_else_gets_nothing() {
    let mut mesh = Mesh::start().await;
    let at = mesh.ip(3, 1);
    mesh.put_workload(wds::workload("waypoint", "north", at));
    mesh.change_service(|service| service.waypoint = Some(reference(at)));
    mesh.configure().await;
    let mut asked = peer::waypoint(&mesh, "impostor", (at, 15008).into()).await;
    refused(&mesh, mesh.vip()).await;
    mesh.logged(&["direction=\"outbound\"", "tls error", "impostor"])
        .await;
    assert!(asked.try_recv().is_err());
}

#[tokio::test]
async fn a_waypoint_that_does_not_exist_is_named_with_the_cure() {
    let mut mesh = Mesh::start().await;
    let nowhere = mesh.ip(3, 9);
    mesh.change_service(|service| service.waypoint = Some(reference(nowhere)));
    mesh.configure().await;
    refused(&mesh, mesh.vip()).await;
    let line = mesh.logged(&["direction=\"outbound\"", "waypoint"]).await;
    assert!(
        line.contains(&nowhere.to_string()) && line.contains("remove the use-waypoint label"),
        "{line}"
    );
}

#[tokio::test]
async fn waypoints_share_connections_by_their_weights() {
    let mut mesh = Mesh::start().await;
    let waypoints = [
        ("old", mesh.ip(3, 1), 1),
        ("new", mesh.ip(3, 2), 3),
        ("off", mesh.ip(3, 3), 0),
    ];
    let mut asked = Vec::new();
    for (name, at, _) in waypoints {
        mesh.put_workload(wds::workload(name, "north", at));
        asked.push(peer::waypoint(&mesh, name, (at, 15008).into()).await);
    }
    mesh.change_service(|service| {
        service.weighted_waypoints = waypoints
            .map(|(_, at, weight)| WeightedWaypoint {
                destination: Some(reference(at)),
                weight,
            })
            .to_vec();
    });
    mesh.configure().await;
    for _ in 0..60 {
        echoed(&mesh, mesh.vip()).await;
    }
    let counts: Vec<usize> = asked.iter_mut().map(|asked| asked.len()).collect();
    // By chance alone one in four of sixty is never none and never half.
    assert!((1..30).contains(&counts[0]), "{counts:?}");
    assert_eq!((counts[0] + counts[1], counts[2]), (60, 0));
}

#[tokio::test]
async fn another_network_is_reached_by_a_tunnel_in_a_tunnel() {
    let mut mesh = Mesh::start().await;
    let at = mesh.ip(3, 1);
    mesh.put_workload(wds::workload("gateway", "north", at));
    let mut remote = mesh.server_workload();
    remote.addresses.clear();
    remote.network = "far".to_owned();
    remote.network_gateway = Some(reference(at));
    mesh.put_workload(remote);
    mesh.change_service(|service| service.subject_alt_names = vec![SERVER.to_owned()]);
    mesh.configure().await;
    let mut asked = peer::gateway(&mesh, "gateway", "server", (at, 15008).into()).await;
    echoed(&mesh, mesh.vip()).await;
    echoed(&mesh, mesh.vip()).await;
    let authority = "server.default.svc.cluster.local:80";
    for _ in 0..2 {
        for inner in [false, true] {
            let seen = soon("a request", asked.recv()).await.unwrap();
            assert_eq!((seen.inner, &*seen.authority), (inner, authority));
            assert_eq!(seen.peer, CLIENT);
            // Only the inner one says where it comes from; this network's name is the empty one.
            assert_eq!(seen.network.as_deref(), inner.then_some(""));
            assert_eq!(seen.baggage.unwrap().workload.as_deref(), Some("client"));
        }
    }
    let line = mesh
        .logged(&["direction=\"outbound\"", "connection complete"])
        .await;
    // Who serves is known by its own proof and word, and is not the gateway.
    for words in [
        "dst.cluster=\"far\"".to_owned(),
        "dst.workload=\"behind\"".to_owned(),
        format!("dst.identity=\"{SERVER}\""),
    ] {
        assert!(line.contains(&words), "{line}");
    }
    assert!(!line.contains("error="), "{line}");
    // The tunnel to the gateway stays; those inside it end with their connections.
    until("the inner tunnels end", || {
        mesh.west.count(TUNNELS_CLOSED, &["source", "\"done\""]) == 2.0
    })
    .await;
    assert_eq!(mesh.west.count(TUNNELS_OPENED, &["source"]), 3.0);
    assert_eq!(mesh.west.count(TUNNELS_CLOSED, &[]), 2.0);
}

#[tokio::test]
async fn whoever_is_behind_a_gateway_must_be_who_serves() {
    let mut mesh = Mesh::start().await;
    let at = mesh.ip(3, 1);
    mesh.put_workload(wds::workload("gateway", "north", at));
    let mut remote = mesh.server_workload();
    remote.addresses.clear();
    remote.network = "far".to_owned();
    remote.network_gateway = Some(reference(at));
    mesh.put_workload(remote);
    mesh.change_service(|service| service.subject_alt_names = vec![SERVER.to_owned()]);
    mesh.configure().await;
    let _asked = peer::gateway(&mesh, "gateway", "gateway", (at, 15008).into()).await;
    refused(&mesh, mesh.vip()).await;
    mesh.logged(&["direction=\"outbound\"", "tls error behind the gateway"])
        .await;
    assert_eq!(
        mesh.west.count(FAILED, &["response_flags=\"TLS_FAILURE\""]),
        1.0
    );
}

#[tokio::test]
async fn an_application_tunnel_is_told_who_connects() {
    let mut mesh = Mesh::start().await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut server = mesh.server_workload();
    server.application_tunnel = Some(ApplicationTunnel {
        protocol: Protocol::Proxy.into(),
        port: listener.local_addr().unwrap().port().into(),
    });
    mesh.put_workload(server);
    mesh.configure().await;
    let mut client = mesh.dial(mesh.vip()).await.unwrap();
    say(&mut client, "payload").await;
    let (mut served, from) = soon("the application accepts", listener.accept())
        .await
        .unwrap();
    assert!(from.ip().is_loopback());
    let mut bytes = Vec::new();
    let (header, length) = loop {
        served.read_buf(&mut bytes).await.unwrap();
        if let Parsed::Complete { header, length } = lateen_proxy_protocol::parse(&bytes).unwrap() {
            break (header, length);
        }
    };
    assert_eq!(header.command, Command::Proxy);
    let Addresses::Tcp {
        source,
        destination,
    } = header.addresses
    else {
        panic!("{header:?}");
    };
    // The tunnel's other end; pods of this mesh share a namespace, in which it is not the client's own address.
    assert!(source.ip().is_loopback());
    assert_eq!(destination, (mesh.server_ip(), 8080).into());
    assert_eq!(header.value(Tlv::SOURCE_IDENTITY), Some(CLIENT.as_bytes()));
    bytes.drain(..length);
    while bytes.len() < 7 {
        served.read_buf(&mut bytes).await.unwrap();
    }
    assert_eq!(bytes, b"payload");
    say(&mut served, "answer").await;
    hear(&mut client, "answer").await;
}

#[tokio::test]
async fn an_application_tunnel_is_told_the_hostname_that_was_asked_for() {
    let mut mesh = Mesh::start().await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut server = mesh.server_workload();
    server.application_tunnel = Some(ApplicationTunnel {
        protocol: Protocol::Proxy.into(),
        port: listener.local_addr().unwrap().port().into(),
    });
    mesh.put_workload(server);
    mesh.configure().await;
    let authority = ["server.default.svc.cluster.local:80".to_owned()];
    let ask = raw::ask(&mesh, &authority);
    let accept = async {
        let (mut served, _) = soon("the application accepts", listener.accept())
            .await
            .unwrap();
        let mut bytes = Vec::new();
        loop {
            served.read_buf(&mut bytes).await.unwrap();
            match lateen_proxy_protocol::parse(&bytes).unwrap() {
                Parsed::Complete { header, .. } => return header,
                Parsed::Incomplete { .. } => {}
            }
        }
    };
    let (statuses, header) = tokio::join!(ask, accept);
    assert_eq!(statuses, [200]);
    assert_eq!(
        header.value(Tlv::HOSTNAME),
        Some(&b"server.default.svc.cluster.local"[..])
    );
    let Addresses::Tcp {
        source,
        destination,
    } = header.addresses
    else {
        panic!("{header:?}");
    };
    assert_eq!(source.ip(), mesh.client_ip());
    assert_eq!(destination, mesh.vip());
}

#[tokio::test]
async fn an_application_tunnel_without_protocol_takes_all_connections_on_its_port() {
    let mut mesh = Mesh::start().await;
    let mut server = mesh.server_workload();
    server.application_tunnel = Some(ApplicationTunnel {
        protocol: Protocol::None.into(),
        port: 9191,
    });
    mesh.put_workload(server);
    mesh.configure().await;
    let mut application = fixture::listen((mesh.server_ip(), 9191).into()).await;
    let (_client, _served) = open(&mesh, &mut application).await;
}

#[tokio::test]
async fn a_workload_that_is_known_by_hostname_is_resolved_when_it_is_needed() {
    let mut mesh = Mesh::start().await;
    let mut server = wds::plain(mesh.server_workload());
    server.addresses.clear();
    server.hostname = "server.example".to_owned();
    mesh.put_workload(server);
    mesh.configure().await;
    refused(&mesh, mesh.vip()).await;
    mesh.logged(&["direction=\"outbound\"", "resolve server.example"])
        .await;
    mesh.west.names.set("server.example", &[mesh.server_ip()]);
    let mut application = mesh.application().await;
    let (_client, _served) = open(&mesh, &mut application).await;
}
