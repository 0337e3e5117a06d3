//! Connections that are served: bytes, counters, logs.

use lateen_hbone::{Authority, ConnectRequest};

use super::*;
use crate::pod::Port;

#[tokio::test]
async fn both_sides_count_and_log_both_identities() {
    let mesh = Mesh::start().await;
    let mut application = mesh.application().await;
    let (mut client, mut served) = open(&mesh, &mut application).await;
    say(&mut served, "pong!").await;
    hear(&mut client, "pong!").await;
    drop((client, served));

    for (node, reporter, direction, sent, received) in [
        (&mesh.west, "source", "outbound", 4, 5),
        (&mesh.east, "destination", "inbound", 5, 4),
    ] {
        let line = mesh
            .logged(&["connection complete", &format!("direction=\"{direction}\"")])
            .await;
        for words in [
            format!("src.identity=\"{CLIENT}\""),
            format!("dst.identity=\"{SERVER}\""),
            "dst.service=\"server.default.svc.cluster.local\"".to_owned(),
            format!("dst.addr={}", mesh.hbone()),
            format!("dst.hbone_addr={}:8080", mesh.server_ip()),
            format!("bytes_sent={sent} bytes_recv={received}"),
        ] {
            assert!(line.contains(&words), "{line} lacks {words}");
        }
        assert!(!line.contains("error="), "{line}");
        let words = [
            format!("reporter=\"{reporter}\""),
            format!("source_principal=\"{CLIENT}\""),
            format!("destination_principal=\"{SERVER}\""),
            "connection_security_policy=\"mutual_tls\"".to_owned(),
            "response_flags=\"-\"".to_owned(),
        ];
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        assert_eq!(node.count(OPENED, &words), 1.0);
        assert_eq!(
            node.count("istio_tcp_connections_closed_total", &words),
            1.0
        );
        assert_eq!(node.count("istio_tcp_received_bytes_total", &words), 4.0);
        assert_eq!(node.count("istio_tcp_sent_bytes_total", &words), 5.0);
        assert_eq!(node.count(FAILED, &[]), 0.0);
    }
}

#[tokio::test]
async fn open_connections_are_listed_and_closed_ones_are_not() {
    let mesh = Mesh::start().await;
    let mut application = mesh.application().await;
    let (client, served) = open(&mesh, &mut application).await;
    let [out] = &mesh.west.connections().await[..] else {
        panic!("one connection goes out");
    };
    assert_eq!(out.direction, Direction::Outbound);
    assert_eq!(out.source, client.local_addr().unwrap());
    assert_eq!(
        (out.wanted, out.destination),
        (Some(mesh.vip()), mesh.hbone())
    );
    let [into] = &mesh.east.connections().await[..] else {
        panic!("one connection comes in");
    };
    assert_eq!(into.direction, Direction::Inbound);
    assert_eq!(into.destination, (mesh.server_ip(), 8080).into());
    assert!(out.tunnelled && into.tunnelled);
    // A second connection shares the tunnel, and both ends say so.
    let (second, answered) = open(&mesh, &mut application).await;
    for (node, first) in [(&mesh.west, out), (&mesh.east, into)] {
        let tunnels: Vec<_> = node.connections().await.iter().map(|c| c.tunnel).collect();
        assert!(first.tunnel.is_some());
        assert_eq!(tunnels, [first.tunnel; 2]);
    }
    drop((client, served, second, answered));
    for node in [&mesh.west, &mesh.east] {
        let deadline = tokio::time::Instant::now() + fixture::LONG;
        while !node.connections().await.is_empty() {
            assert!(
                tokio::time::Instant::now() < deadline,
                "a closed connection stays listed"
            );
        }
    }
}

#[tokio::test]
async fn either_direction_may_end_first() {
    let mesh = Mesh::start().await;
    let mut application = mesh.application().await;
    let mut client = mesh.dial(mesh.vip()).await.unwrap();
    say(&mut client, "question").await;
    client.shutdown().await.unwrap();
    let (mut served, _) = soon("the server accepts", application.recv())
        .await
        .unwrap();
    let mut question = String::new();
    soon(
        "the end of the question",
        served.read_to_string(&mut question),
    )
    .await
    .unwrap();
    assert_eq!(question, "question");
    say(&mut served, "answer").await;
    served.shutdown().await.unwrap();
    let mut answer = String::new();
    soon("the end of the answer", client.read_to_string(&mut answer))
        .await
        .unwrap();
    assert_eq!(answer, "answer");
}

/// What leaves sockets in CLOSE_WAIT for good: one side ends, the other one never does.
#[tokio::test]
async fn a_connection_of_which_one_side_never_ends_is_given_up() {
    let limits = lateen_relay::Limits::new(None, Some(Duration::from_secs(5)));
    let mesh = Mesh::start_limited(limits).await;
    let mut application = mesh.application().await;
    let mut client = mesh.dial(mesh.vip()).await.unwrap();
    say(&mut client, "question").await;
    client.shutdown().await.unwrap();
    let (mut served, _) = soon("the server accepts", application.recv())
        .await
        .unwrap();
    hear(&mut served, "question").await;
    ends_silently(&mut client).await;
    let line = mesh
        .logged(&["connection complete", "half-close time-out"])
        .await;
    assert!(line.contains("LATEEN_HALF_CLOSE_TIMEOUT"), "{line}");
    for node in [&mesh.west, &mesh.east] {
        let deadline = tokio::time::Instant::now() + fixture::LONG;
        while !node.connections().await.is_empty() {
            assert!(tokio::time::Instant::now() < deadline, "it stays");
        }
    }
}

#[tokio::test]
async fn an_idle_connection_is_ended_where_that_is_asked_for() {
    let limits = lateen_relay::Limits::new(Some(Duration::from_secs(5)), None);
    let mesh = Mesh::start_limited(limits).await;
    let mut application = mesh.application().await;
    let (mut client, _served) = open(&mesh, &mut application).await;
    ends_silently(&mut client).await;
    mesh.logged(&["connection complete", "LATEEN_IDLE_TIMEOUT"])
        .await;
}

#[tokio::test]
async fn a_large_answer_arrives_whole() {
    let mesh = Mesh::start().await;
    let mut application = mesh.application().await;
    let mut client = mesh.dial(mesh.vip()).await.unwrap();
    let (mut served, _) = soon("the server accepts", application.recv())
        .await
        .unwrap();
    let sent: Vec<u8> = (0..8u32 << 20)
        .map(|i| i.wrapping_mul(2_654_435_761) as u8)
        .collect();
    let expected = sent.clone();
    tokio::spawn(async move {
        served.write_all(&sent).await.unwrap();
        served.shutdown().await.unwrap();
    });
    let mut got = Vec::new();
    soon("the whole answer", client.read_to_end(&mut got))
        .await
        .unwrap();
    assert!(
        got == expected,
        "{} of {} bytes, or not the same",
        got.len(),
        expected.len()
    );
}

#[tokio::test]
async fn connections_to_one_pod_share_a_tunnel() {
    let mesh = Mesh::start().await;
    let mut application = mesh.application().await;
    let mut held = Vec::new();
    for _ in 0..5 {
        let mut client = mesh.dial(mesh.vip()).await.unwrap();
        say(&mut client, "x").await;
        let served = soon("the server accepts", application.recv())
            .await
            .unwrap();
        held.push((client, served));
    }
    assert_eq!(mesh.west.acceptor.loads().read(), [5]);
    assert_eq!(
        mesh.east.acceptor.loads().read(),
        [1],
        "five connections, one tunnel"
    );
    drop(held);
    until("the worker is free again", || {
        mesh.west.acceptor.loads().read() == [0]
    })
    .await;
}

/// Replicas have one identity, and a connection can come from an address that every pod has, such as a loopback one.
#[tokio::test]
async fn pods_that_nothing_but_their_name_tells_apart_have_tunnels_of_their_own() {
    let mut mesh = Mesh::start().await;
    let replica = mesh.west.pod_of("replica", "client", "cluster.local");
    let mut workload = wds::workload("replica", "west", mesh.ip(1, 2));
    workload.service_account = "client".to_owned();
    mesh.put_workload(workload);
    let at = SocketAddr::from((mesh.ip(96, 2), 80));
    let also = wds::service("server", at.ip(), 80, 8080);
    mesh.change_service(|service| service.addresses.extend(also.addresses));
    let _door = mesh.west.open(&replica, Port::Outbound, at);
    mesh.configure().await;
    let mut application = mesh.application().await;
    let mut held = Vec::new();
    // Both from the same address.
    for address in [mesh.vip(), at, mesh.vip(), at] {
        let mut client = mesh.dial(address).await.unwrap();
        say(&mut client, "x").await;
        let (mut served, _) = soon("the server accepts", application.recv())
            .await
            .unwrap();
        hear(&mut served, "x").await;
        held.push((client, served));
    }
    let opened = || mesh.west.count(TUNNELS_OPENED, &["source"]);
    assert_eq!((opened(), mesh.east.acceptor.loads().read()[0]), (2.0, 2));
    drop(held);
    // Each pays for its own, and for nothing else by now.
    for pod in [&mesh.client, &replica] {
        until("its connections are over", || {
            pod.share.take(fixture::SHARE - 1).is_some()
        })
        .await;
        assert!(pod.share.take(fixture::SHARE).is_none());
    }

    // One that is let go leaves its tunnel, and no other.
    mesh.west.released(&mesh.client);
    until("its tunnel ends", || {
        mesh.client.share.take(fixture::SHARE).is_some()
    })
    .await;
    let mut client = mesh.dial(at).await.unwrap();
    say(&mut client, "y").await;
    let (mut served, _) = soon("the server accepts", application.recv())
        .await
        .unwrap();
    hear(&mut served, "y").await;
    assert_eq!(opened(), 2.0);
}

#[tokio::test]
async fn a_connection_waits_a_little_for_a_control_plane_that_is_late() {
    let mesh = Mesh::unconfigured();
    let mut application = mesh.application().await;
    let mut client = mesh.dial(mesh.vip()).await.unwrap();
    say(&mut client, "early").await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    mesh.configure().await;
    let (mut served, _) = soon("the server accepts", application.recv())
        .await
        .unwrap();
    hear(&mut served, "early").await;
}

#[tokio::test]
async fn a_workload_without_tunnel_is_reached_plainly() {
    let mut mesh = Mesh::start().await;
    let mut application = mesh.application().await;
    let plain = wds::plain(mesh.server_workload());
    mesh.put_workload(plain);
    mesh.configure().await;
    let (client, served) = open(&mesh, &mut application).await;
    drop((client, served));
    let line = mesh
        .logged(&["connection complete", "direction=\"outbound\""])
        .await;
    assert!(
        line.contains(&format!("dst.addr={}:8080", mesh.server_ip())),
        "{line}"
    );
    assert!(
        !line.contains("identity") && !line.contains("hbone"),
        "{line}"
    );
    assert_eq!(
        mesh.west
            .count(OPENED, &["connection_security_policy=\"unknown\""]),
        1.0
    );
}

#[tokio::test]
async fn what_a_peer_says_about_itself_does_not_grow_without_bound() {
    let mesh = Mesh::start().await;
    let _application = mesh.application().await;
    let authority: Authority = format!("{}:8080", mesh.server_ip()).parse().unwrap();
    let claims = |range: std::ops::Range<usize>| {
        let claim = |i| ConnectRequest {
            baggage: Some(
                format!(
                    "k8s.namespace.name=other,service.name={}{i}",
                    "x".repeat(200)
                )
                .into(),
            ),
            ..ConnectRequest::new(authority.clone())
        };
        range.map(claim).collect::<Vec<_>>()
    };
    // An address that no workload has, so that only the peer's own words describe it.
    let nobody = mesh.ip(1, 99);
    raw::request(&mesh, nobody, claims(0..1)).await;
    let first = [
        "source_workload_namespace=\"default\"",
        "source_canonical_service=\"xxx",
    ];
    assert_eq!(
        mesh.east.count(OPENED, &first),
        1.0,
        "a plausible description is shown"
    );
    for round in 0..12 {
        raw::request(&mesh, nobody, claims(round * 100..(round + 1) * 100)).await;
    }
    let series = mesh.east.metrics.render();
    let opened = series
        .lines()
        .filter(|line| line.starts_with(OPENED))
        .count();
    assert!(opened <= 1001, "{opened} series");
    assert_eq!(
        mesh.east.count(OPENED, &[CLIENT]),
        1201.0,
        "every connection is counted"
    );
}

/// Whoever writes an entry chooses whom it allows; what a peer is granted goes by what it proves, and by the pod that reads.
#[tokio::test]
async fn tunnels_are_charged_to_whom_the_peer_proved_to_be_and_to_the_pod_that_reads() {
    let mut mesh = Mesh::start().await;
    let allowed = "spiffe://cluster.local/ns/default/sa/allowed";
    mesh.change_service(|service| service.subject_alt_names = vec![allowed.to_owned()]);
    mesh.configure().await;
    let mut application = mesh.application().await;
    let mut client = mesh.dial(mesh.vip()).await.unwrap();
    say(&mut client, "ping").await;
    let (mut served, _) = soon("the server accepts", application.recv())
        .await
        .unwrap();
    // More than a tunnel has without being granted anything.
    let bulk = vec![7; 1 << 20];
    let read = async {
        let mut got = vec![0; 4 + bulk.len()];
        served.read_exact(&mut got).await.unwrap();
        served.write_all(&got).await.unwrap();
    };
    let written = async {
        client.write_all(&bulk).await.unwrap();
        client
            .read_exact(&mut vec![0; 4 + bulk.len()])
            .await
            .unwrap();
    };
    soon("a lot goes there and back", async {
        tokio::join!(read, written)
    })
    .await;
    for (node, peer, pod) in [
        (&mesh.west, SERVER, &mesh.client),
        (&mesh.east, CLIENT, &mesh.server),
    ] {
        let granted = node
            .budget
            .granted_between(&peer.parse().unwrap(), pod.uid.as_str());
        assert!(
            granted.is_some_and(|granted| granted > 0),
            "{peer}: {granted:?}"
        );
        assert_eq!(granted, Some(node.budget.granted()), "{peer}");
    }
}
