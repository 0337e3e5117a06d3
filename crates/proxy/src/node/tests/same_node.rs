//! Tests of connections between two pods of one node that are handed over inside the process. They look from outside like the
//! same connections through a tunnel.

use std::collections::BTreeSet;

use fixture::Home;
use lateen_proto::workload::ApplicationTunnel;
use lateen_proto::workload::application_tunnel::Protocol;
use lateen_relay::Limits;
use socket2::{Domain, Socket, Type};
use tokio::net::{TcpListener, TcpSocket};

use super::*;

const HERE: Home = Home::West { same_node: true };
pub(super) const HANDED_OVER: &str = "lateen_connections_handed_over_total";

/// An application that is too busy to answer.
pub(super) struct Busy {
    _listener: TcpListener,
    /// They fill its queue.
    _queued: Vec<Socket>,
}

impl Busy {
    pub(super) fn at(address: SocketAddr) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.bind(address).unwrap();
        let listener = socket.listen(1).unwrap();
        let queued = (0..8).map(|_| {
            let one = Socket::new(Domain::IPV4, Type::STREAM.nonblocking(), None).unwrap();
            // Those that find room are connected at once, and the others wait for it.
            let _ = one.connect(&address.into());
            one
        });
        Self {
            _queued: queued.collect(),
            _listener: listener,
        }
    }
}

/// Waits until so many connections are served or on their way.
pub(super) async fn listed(mesh: &Mesh, count: usize) {
    let listed = async {
        while mesh.west.connections().await.len() < count {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    soon("it is on its way", listed).await;
}

/// What telemetry says of a connection, without what differs between any two: times, ports of the moment, the net.
async fn told(home: Home) -> (BTreeSet<String>, Vec<String>, f64) {
    let mut mesh = Mesh::start_at(home).await;
    let principal = CLIENT.strip_prefix("spiffe://").unwrap();
    let mut rehearsed = wds::policy("rehearsal", Action::Deny, &[principal]);
    rehearsed.dry_run = true;
    mesh.protect(rehearsed).await;
    let mut application = mesh.application().await;
    let (mut client, mut served) = open(&mesh, &mut application).await;
    say(&mut served, "pong!").await;
    hear(&mut client, "pong!").await;
    drop((client, served));
    let mut lines = Vec::new();
    for direction in ["outbound", "inbound"] {
        let line = mesh
            .logged(&["connection complete", &format!("direction=\"{direction}\"")])
            .await;
        let mut kept = Vec::new();
        for field in line.split(&['\t', ' '][..]) {
            let (name, value) = field.split_once('=').unwrap_or((field, ""));
            match name {
                _ if field.ends_with('Z') => {}
                "duration" => kept.push(name.to_owned()),
                "src.addr" => {
                    let (ip, _) = value.rsplit_once(':').expect("an address");
                    // The application's own, or the tunnel's.
                    kept.push(format!("{name}={ip}"));
                }
                _ => kept.push(field.to_owned()),
            }
        }
        let net = mesh.server_ip().to_string();
        let net = net.split('.').nth(1).expect("four numbers").to_owned();
        lines.push(kept.join(" ").replace(&format!("127.{net}."), "127.N."));
    }
    let page = mesh.west.metrics.render();
    let counted = page.lines().filter(|line| {
        line.starts_with("istio_tcp_connections")
            || line.starts_with("istio_tcp_sent")
            || line.starts_with("istio_tcp_received")
            || line.starts_with("lateen_policy_dry_run")
            || line.starts_with("lateen_tunnels_opened_total")
    });
    let handed_over = mesh.west.value(HANDED_OVER);
    (counted.map(str::to_owned).collect(), lines, handed_over)
}

#[tokio::test]
async fn what_is_told_of_a_connection_is_what_would_be_told_across_a_tunnel() {
    let (counted, lines, handed_over) = told(HERE).await;
    let (counted_across, lines_across, across) = told(Home::West { same_node: false }).await;
    assert_eq!((handed_over, across), (1.0, 0.0));
    assert_eq!(lines, lines_across);
    assert_eq!(counted, counted_across);
    for reporter in ["source", "destination"] {
        let of = |line: &&String| {
            line.starts_with(OPENED)
                && line.contains(&format!("reporter=\"{reporter}\""))
                && line.contains("connection_security_policy=\"mutual_tls\"")
                && line.contains(CLIENT)
                && line.contains(SERVER)
        };
        assert_eq!(counted.iter().filter(of).count(), 1, "{counted:#?}");
    }
    assert!(lines[1].contains("policy.dry_run"), "{}", lines[1]);
}

#[tokio::test]
async fn the_first_connections_are_handed_over_already_and_all_share_one_tunnel() {
    let mesh = Mesh::start_at(HERE).await;
    let mut application = mesh.application().await;
    let mut held = Vec::new();
    // At once: all wait for one proof.
    for _ in 0..8 {
        held.push(mesh.dial(mesh.vip()).await.unwrap());
    }
    for client in &mut held {
        say(client, "x").await;
    }
    let mut served = Vec::new();
    for _ in 0..8 {
        served.push(soon("the server accepts", application.recv()).await);
    }
    // An application hears of a connection before the proxy does.
    until("all are handed over", || {
        mesh.west.value(HANDED_OVER) == 8.0
    })
    .await;
    assert_eq!(mesh.west.count(TUNNELS_OPENED, &["source"]), 1.0);
    assert_eq!(mesh.west.count(TUNNELS_OPENED, &["destination"]), 1.0);
    let listed = mesh.west.connections().await;
    assert_eq!(listed.len(), 16, "each is listed at both of its ends");
    assert!(listed.iter().all(|one| one.tunnelled));
    let tunnels: BTreeSet<_> = listed.iter().map(|one| one.tunnel).collect();
    assert_eq!(tunnels.len(), 1, "{tunnels:?}");
}

#[tokio::test]
async fn a_pod_of_another_process_is_reached_through_a_tunnel() {
    let mesh = Mesh::start_at(Home::Replaced).await;
    let mut application = mesh.application().await;
    let held = [
        open(&mesh, &mut application).await,
        open(&mesh, &mut application).await,
    ];
    assert_eq!(mesh.west.value(HANDED_OVER), 0.0);
    // One that showed where the pod is, and the one that is used.
    assert_eq!(mesh.west.count(TUNNELS_OPENED, &["source"]), 2.0);
    let listed = mesh.east.connections().await;
    assert_eq!(listed.len(), 2, "the other process serves both");
    drop(held);
}

#[tokio::test]
async fn a_denied_principal_is_refused_and_explained_on_both_sides() {
    let mut mesh = Mesh::start_at(HERE).await;
    let mut application = mesh.application().await;
    let principal = CLIENT.strip_prefix("spiffe://").unwrap();
    mesh.protect(wds::policy("no-client", Action::Deny, &[principal]))
        .await;
    refused(&mesh, mesh.vip()).await;
    let inbound = mesh.logged(&["direction=\"inbound\"", "\terror\t"]).await;
    let words =
        "connection closed due to policy rejection: explicitly denied by: default/no-client";
    assert!(
        inbound.contains(words) && inbound.contains(CLIENT),
        "{inbound}"
    );
    let outbound = mesh.logged(&["direction=\"outbound\"", "\terror\t"]).await;
    assert!(outbound.contains("401"), "{outbound}");
    for flags in ["DENY", "CONNECT"] {
        let flags = format!("response_flags=\"{flags}\"");
        assert_eq!(mesh.west.count(FAILED, &[&flags]), 1.0);
    }
    assert_eq!(mesh.west.value(HANDED_OVER), 0.0);
    assert!(
        application.try_recv().is_err(),
        "the application saw a denied connection"
    );
}

#[tokio::test]
async fn an_application_that_does_not_listen_is_the_endpoints_fault() {
    let mesh = Mesh::start_at(HERE).await;
    refused(&mesh, mesh.vip()).await;
    let inbound = mesh.logged(&["direction=\"inbound\"", "\terror\t"]).await;
    assert!(inbound.contains("connection failed"), "{inbound}");
    let outbound = mesh.logged(&["direction=\"outbound\"", "\terror\t"]).await;
    assert!(outbound.contains("503"), "{outbound}");
}

/// The proof is a tunnel's: who would be turned away there is not handed over.
#[tokio::test]
async fn a_client_that_a_tunnel_would_turn_away_is_turned_away() {
    let mesh = Mesh::start_at_with(HERE, "elsewhere.example", Limits::default()).await;
    let mut application = mesh.application().await;
    refused(&mesh, mesh.vip()).await;
    mesh.logged(&["direction=\"inbound\"", "of another trust domain"])
        .await;
    let line = mesh.logged(&["direction=\"outbound\"", "\terror\t"]).await;
    let words = "peer refused the handshake: it does not accept our identity";
    assert!(line.contains(words), "{line}");
    let flags = "response_flags=\"TLS_FAILURE\"";
    assert_eq!(mesh.west.count(FAILED, &[flags]), 2.0, "on both sides");
    assert_eq!(mesh.west.value(HANDED_OVER), 0.0);
    assert!(application.try_recv().is_err());
}

#[tokio::test]
async fn a_server_without_the_expected_identity_gets_nothing() {
    let mut mesh = Mesh::start_at(HERE).await;
    let mut application = mesh.application().await;
    // The control plane says that somebody else is there; the pod has the certificate of its names.
    let mut server = mesh.server_workload();
    server.uid = "cluster1//Pod/default/somebody".to_owned();
    server.name = "somebody".to_owned();
    server.service_account = "somebody".to_owned();
    let gone = mesh.server_workload().uid;
    mesh.resources.retain(|(name, _)| *name != gone);
    mesh.put_workload(server);
    mesh.configure().await;
    refused(&mesh, mesh.vip()).await;
    mesh.logged(&["direction=\"outbound\"", "error="]).await;
    assert_eq!(mesh.west.value(HANDED_OVER), 0.0);
    assert!(application.try_recv().is_err());
}

#[tokio::test]
async fn a_pod_that_holds_its_share_takes_no_more() {
    let mesh = Mesh::start_at(HERE).await;
    let mut application = mesh.application().await;
    let held = open(&mesh, &mut application).await;
    // What is left of the share is taken by its tunnel and this connection.
    let _others = mesh.server.share.take(fixture::SHARE - 2).unwrap();
    refused(&mesh, mesh.vip()).await;
    mesh.logged(&["direction=\"inbound\"", "share of the proxy's descriptors"])
        .await;
    drop(held);
}

#[tokio::test]
async fn an_application_tunnel_is_told_who_comes() {
    let mut mesh = Mesh::start_at(HERE).await;
    let mut server = mesh.server_workload();
    server.application_tunnel = Some(ApplicationTunnel {
        protocol: Protocol::Proxy.into(),
        port: 9000,
    });
    mesh.put_workload(server);
    mesh.configure().await;
    let _client = mesh.dial(mesh.vip()).await;
    // What is dialled, and for whom, whether anybody listens there or not: loopback is one for all tests.
    let line = mesh
        .logged(&["direction=\"inbound\"", "127.0.0.1:9000"])
        .await;
    assert!(line.contains(CLIENT), "{line}");
}

#[tokio::test]
async fn either_direction_may_end_first() {
    let mesh = Mesh::start_at(HERE).await;
    let mut application = mesh.application().await;
    for client_first in [true, false] {
        let (mut client, mut served) = open(&mesh, &mut application).await;
        let (first, second) = match client_first {
            true => (&mut client, &mut served),
            false => (&mut served, &mut client),
        };
        first.shutdown().await.unwrap();
        let mut rest = Vec::new();
        soon("the end", second.read_to_end(&mut rest))
            .await
            .unwrap();
        assert_eq!(rest, b"");
        say(second, "still").await;
        hear(first, "still").await;
        second.shutdown().await.unwrap();
        soon("the other end", first.read_to_end(&mut rest))
            .await
            .unwrap();
    }
    until("all are over", || {
        let closed = "istio_tcp_connections_closed_total";
        mesh.west.count(closed, &["response_flags=\"-\""]) == 4.0
    })
    .await;
    assert_eq!(mesh.west.value(HANDED_OVER), 2.0);
    assert_eq!(mesh.west.count(TUNNELS_OPENED, &["source"]), 1.0);
}

#[tokio::test]
async fn one_that_is_not_read_holds_up_its_sender_and_loses_nothing() {
    let mesh = Mesh::start_at(HERE).await;
    let mut application = mesh.application().await;
    let (client, mut served) = open(&mesh, &mut application).await;
    let piece: Vec<u8> = (0..64 << 10).map(|i: u32| (i * 7) as u8).collect();
    // Nobody reads: the kernel's buffers fill up, and nothing else does.
    let mut written = 0;
    loop {
        let ready = tokio::time::timeout(Duration::from_secs(1), client.writable());
        if ready.await.is_err() {
            break;
        }
        let from = written % piece.len();
        match client.try_write(&piece[from..]) {
            Ok(n) => written += n,
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        assert!(written < 64 << 20, "{written} bytes wait for nobody");
    }
    assert!(written > 0);
    let mut got = vec![0; written];
    soon("all of it", served.read_exact(&mut got))
        .await
        .unwrap();
    let right = got
        .iter()
        .enumerate()
        .all(|(at, byte)| *byte == piece[at % piece.len()]);
    assert!(right, "other bytes than were sent");
    drop((client, served));
    let line = mesh
        .logged(&["connection complete", "direction=\"inbound\""])
        .await;
    assert!(
        line.contains(&format!("bytes_recv={}", written + 4)),
        "{line}"
    );
}

#[tokio::test]
async fn one_that_stands_still_is_ended_where_that_is_asked_for() {
    let limits = Limits::new(Some(Duration::from_secs(5)), None);
    let mesh = Mesh::start_at_with(HERE, "cluster.local", limits).await;
    let mut application = mesh.application().await;
    let (mut client, _served) = open(&mesh, &mut application).await;
    ends_silently(&mut client).await;
    for direction in ["inbound", "outbound"] {
        let words = [
            format!("direction=\"{direction}\""),
            "LATEEN_IDLE_TIMEOUT".to_owned(),
        ];
        mesh.logged(&[&words[0], &words[1]]).await;
    }
}

/// Where applications believe what comes first, and at a pod that is not captured, nothing changes by the node.
#[tokio::test]
async fn a_plain_workload_of_this_node_is_reached_plainly() {
    let mut mesh = Mesh::start_at(HERE).await;
    let plain = wds::plain(mesh.server_workload());
    mesh.put_workload(plain);
    mesh.configure().await;
    let mut application = mesh.application().await;
    let held = open(&mesh, &mut application).await;
    assert_eq!(mesh.west.value(HANDED_OVER), 0.0);
    assert_eq!(mesh.west.count(TUNNELS_OPENED, &["source"]), 0.0);
    drop(held);
}
