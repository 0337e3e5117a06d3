//! The node role with everything real but redirection. Needs root: sockets are marked.

mod fixture;
mod raw;

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use fixture::{Mesh, soon, until};
use lateen_proto::security::string_match::MatchType;
use lateen_proto::security::{Action, Authorization, StringMatch};
use lateen_testkit::wds;
use lateen_types::Direction;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const CLIENT: &str = "spiffe://cluster.local/ns/default/sa/client";
const SERVER: &str = "spiffe://cluster.local/ns/default/sa/server";
const OPENED: &str = "istio_tcp_connections_opened_total";
const FAILED: &str = "istio_tcp_connections_failed_total";

async fn say(stream: &mut TcpStream, text: &str) {
    soon("a write", stream.write_all(text.as_bytes()))
        .await
        .unwrap();
}

async fn hear(stream: &mut TcpStream, text: &str) {
    let mut heard = vec![0; text.len()];
    soon(text, stream.read_exact(&mut heard)).await.unwrap();
    assert_eq!(heard, text.as_bytes());
}

/// Waits for the end of a connection and asserts that nothing came before it.
async fn ends_silently(stream: &mut TcpStream) {
    let mut rest = Vec::new();
    // An end and a reset are both ends.
    let _ = soon("the end of a connection", stream.read_to_end(&mut rest)).await;
    assert_eq!(rest, b"");
}

/// Dials and asserts that nothing is answered but an end. A reset may overtake `connect` itself.
async fn refused(mesh: &Mesh, address: SocketAddr) {
    match mesh.dial(address).await {
        Ok(mut client) => ends_silently(&mut client).await,
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}"),
    }
}

/// What PeerAuthentication STRICT becomes: whoever has no identity is denied.
fn deny_without_identity(name: &str) -> Authorization {
    let mut policy = wds::policy(name, Action::Deny, &[]);
    let any = StringMatch {
        match_type: Some(MatchType::Presence(())),
    };
    policy.rules[0].clauses[0].matches[0].not_principals = vec![any];
    policy
}

#[tokio::test]
async fn both_sides_count_and_log_both_identities() {
    let mesh = Mesh::start().await;
    let mut application = mesh.application().await;
    let mut client = mesh.dial(mesh.vip()).await.unwrap();
    say(&mut client, "ping").await;
    let (mut served, _) = soon("the server accepts", application.recv())
        .await
        .unwrap();
    hear(&mut served, "ping").await;
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
    let mut client = mesh.dial(mesh.vip()).await.unwrap();
    say(&mut client, "ping").await;
    let (mut served, _) = soon("the server accepts", application.recv())
        .await
        .unwrap();
    hear(&mut served, "ping").await;
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
    drop((client, served));
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
async fn a_policy_in_dry_run_is_reported_and_decides_nothing() {
    let mut mesh = Mesh::start().await;
    let mut application = mesh.application().await;
    let principal = CLIENT.strip_prefix("spiffe://").unwrap();
    let mut policy = wds::policy("rehearsal", Action::Deny, &[principal]);
    policy.dry_run = true;
    mesh.protect(policy).await;
    let mut client = mesh.dial(mesh.vip()).await.unwrap();
    say(&mut client, "ping").await;
    let (mut served, _) = soon("the server accepts", application.recv())
        .await
        .unwrap();
    hear(&mut served, "ping").await;
    mesh.logged(&["\tpolicy\t", "dry run: default/rehearsal would deny"])
        .await;
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

#[tokio::test]
async fn a_denied_principal_is_refused_and_explained_on_both_sides() {
    let mut mesh = Mesh::start().await;
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
    assert_eq!(mesh.east.count(FAILED, &["response_flags=\"DENY\""]), 1.0);
    assert_eq!(
        mesh.west.count(FAILED, &["response_flags=\"CONNECT\""]),
        1.0
    );
    assert!(
        application.try_recv().is_err(),
        "the application saw a denied connection"
    );
}

#[tokio::test]
async fn a_policy_that_is_not_known_lets_nobody_in() {
    let mut mesh = Mesh::start().await;
    let mut application = mesh.application().await;
    let mut server = mesh.server_workload();
    server
        .authorization_policies
        .push("default/not-here".to_owned());
    mesh.put_workload(server);
    mesh.configure().await;
    refused(&mesh, mesh.vip()).await;
    mesh.logged(&[
        "direction=\"inbound\"",
        "default/not-here",
        "not known here",
    ])
    .await;
    assert!(application.try_recv().is_err());
}

#[tokio::test]
async fn a_change_of_policy_cuts_connections_that_it_denies_and_no_others() {
    let mut mesh = Mesh::start().await;
    let mut application = mesh.application().await;
    let mut client = mesh.dial(mesh.vip()).await.unwrap();
    say(&mut client, "ping").await;
    let (mut served, _) = soon("the server accepts", application.recv())
        .await
        .unwrap();
    hear(&mut served, "ping").await;

    mesh.protect(wds::policy(
        "others",
        Action::Deny,
        &["cluster.local/ns/default/sa/other"],
    ))
    .await;
    say(&mut served, "still here").await;
    hear(&mut client, "still here").await;

    let principal = CLIENT.strip_prefix("spiffe://").unwrap();
    mesh.protect(wds::policy("no-client", Action::Deny, &[principal]))
        .await;
    ends_silently(&mut served).await;
    ends_silently(&mut client).await;
    mesh.logged(&[
        "direction=\"inbound\"",
        "connection closed due to policy change",
    ])
    .await;
    assert_eq!(mesh.east.count(FAILED, &["response_flags=\"DENY\""]), 1.0);
}

#[tokio::test]
async fn nothing_is_let_through_before_the_configuration_is_there() {
    let mesh = Mesh::unconfigured();
    let mut application = mesh.application().await;
    refused(&mesh, mesh.vip()).await;
    let line = mesh
        .logged(&["connection failed", "direction=\"outbound\""])
        .await;
    assert!(
        line.contains("the control plane has not sent its configuration yet"),
        "{line}"
    );
    assert_eq!(
        mesh.west.count(
            FAILED,
            &["reporter=\"source\"", "response_flags=\"CONNECT\""]
        ),
        1.0
    );
    assert_eq!(mesh.west.count(OPENED, &[]), 0.0);
    assert!(application.try_recv().is_err());
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
async fn a_pod_that_the_control_plane_does_not_name_is_refused() {
    let mut mesh = Mesh::unconfigured();
    mesh.resources
        .retain(|(name, _)| *name != wds::uid("default", "client"));
    mesh.configure().await;
    refused(&mesh, mesh.vip()).await;
    mesh.logged(&[
        "connection failed",
        "names no workload for pod default/client",
    ])
    .await;
}

#[tokio::test]
async fn a_peer_of_another_trust_domain_is_refused() {
    let mesh = Mesh::start_with_foreign_client().await;
    let mut application = mesh.application().await;
    refused(&mesh, mesh.vip()).await;
    mesh.logged(&[
        "direction=\"inbound\"",
        "elsewhere.example",
        "of another trust domain",
    ])
    .await;
    // The client learns it only after its side of TLS 1.3 is done, and tries again.
    assert!(mesh.east.count(FAILED, &["response_flags=\"TLS_FAILURE\""]) >= 1.0);
    let line = mesh.logged(&["direction=\"outbound\"", "\terror\t"]).await;
    assert!(
        line.contains("may not accept this workload's certificate"),
        "{line}"
    );
    assert!(application.try_recv().is_err());
}

#[tokio::test]
async fn an_application_that_does_not_listen_is_told_apart() {
    let mesh = Mesh::start().await;
    refused(&mesh, mesh.vip()).await;
    let refused = format!(
        "connection failed: {}:8080: Connection refused",
        mesh.server_ip()
    );
    mesh.logged(&["direction=\"inbound\"", &refused]).await;
    mesh.logged(&["direction=\"outbound\"", "503"]).await;
    assert_eq!(
        mesh.east.count(FAILED, &["response_flags=\"CONNECT\""]),
        1.0
    );
}

#[tokio::test]
async fn a_service_without_endpoints_is_explained() {
    let mut mesh = Mesh::unconfigured();
    mesh.resources
        .retain(|(name, _)| *name != wds::uid("default", "server"));
    mesh.configure().await;
    refused(&mesh, mesh.vip()).await;
    mesh.logged(&["connection failed", "no endpoint for port 80"])
        .await;
}

#[tokio::test]
async fn a_workload_without_tunnel_is_reached_plainly() {
    let mut mesh = Mesh::start().await;
    let mut application = mesh.application().await;
    let plain = wds::plain(mesh.server_workload());
    mesh.put_workload(plain);
    mesh.configure().await;
    let mut client = mesh.dial(mesh.vip()).await.unwrap();
    say(&mut client, "plain").await;
    let (mut served, _) = soon("the server accepts", application.recv())
        .await
        .unwrap();
    hear(&mut served, "plain").await;
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
async fn a_released_pod_keeps_its_connections_on_tunnels_that_go_away() {
    let mesh = Mesh::start().await;
    let mut application = mesh.application().await;
    let mut client = mesh.dial(mesh.vip()).await.unwrap();
    say(&mut client, "before").await;
    let (mut served, _) = soon("the server accepts", application.recv())
        .await
        .unwrap();
    hear(&mut served, "before").await;
    mesh.server.release();
    for round in 0..3 {
        let text = format!("after {round}");
        say(&mut client, &text).await;
        hear(&mut served, &text).await;
    }
    // The old tunnel was told to go away, so a new connection takes another one.
    let mut late = mesh.dial(mesh.vip()).await.unwrap();
    say(&mut late, "late").await;
    let mut served_late = soon("the server accepts", application.recv())
        .await
        .unwrap()
        .0;
    hear(&mut served_late, "late").await;
    assert_eq!(mesh.east.acceptor.loads().read(), [2]);
    drop((client, served));
    until("the old tunnel ends with its last stream", || {
        mesh.east.acceptor.loads().read() == [1]
    })
    .await;
}

#[tokio::test]
async fn a_drain_lets_connections_finish() {
    let mesh = Mesh::start().await;
    let mut application = mesh.application().await;
    let mut client = mesh.dial(mesh.vip()).await.unwrap();
    say(&mut client, "before").await;
    let (mut served, _) = soon("the server accepts", application.recv())
        .await
        .unwrap();
    hear(&mut served, "before").await;
    mesh.east.drain();
    mesh.west.drain();
    say(&mut served, "after").await;
    hear(&mut client, "after").await;
    drop((client, served));
    until("every worker is free", || {
        [&mesh.east, &mesh.west]
            .iter()
            .all(|node| node.acceptor.loads().read() == [0])
    })
    .await;
}

#[tokio::test]
async fn a_connection_that_is_cut_at_the_end_is_logged() {
    let mesh = Mesh::start().await;
    let mut application = mesh.application().await;
    let mut client = mesh.dial(mesh.vip()).await.unwrap();
    say(&mut client, "x").await;
    let _served = soon("the server accepts", application.recv())
        .await
        .unwrap();
    mesh.west.stop();
    ends_silently(&mut client).await;
    mesh.logged(&[
        "direction=\"outbound\"",
        "connection closed due to connection drain",
    ])
    .await;
}

#[tokio::test]
async fn plaintext_to_a_workload_that_demands_identities_is_refused() {
    let mut mesh = Mesh::start().await;
    let address = (mesh.server_ip(), 9000).into();
    let _door = mesh
        .east
        .open(&mesh.server, crate::pod::Port::Plaintext, address);
    mesh.protect(deny_without_identity("strict")).await;
    refused(&mesh, address).await;
    let line = mesh
        .logged(&[
            "direction=\"inbound\"",
            "explicitly denied by: default/strict",
        ])
        .await;
    assert!(!line.contains("identity"), "{line}");
    let words = [
        "response_flags=\"DENY\"",
        "connection_security_policy=\"unknown\"",
    ];
    assert_eq!(mesh.east.count(FAILED, &words), 1.0);

    let mut application = mesh.application().await;
    let mut client = mesh.dial(mesh.vip()).await.unwrap();
    say(&mut client, "with identity").await;
    let (mut served, _) = soon("the server accepts", application.recv())
        .await
        .unwrap();
    hear(&mut served, "with identity").await;
}

#[tokio::test]
async fn plaintext_to_the_proxys_own_port_is_refused() {
    let mesh = Mesh::start().await;
    let address = (mesh.server_ip(), 15006).into();
    let _door = mesh
        .east
        .open(&mesh.server, crate::pod::Port::Plaintext, address);
    refused(&mesh, address).await;
    mesh.logged(&["direction=\"inbound\"", "is the proxy's own port"])
        .await;
}

#[tokio::test]
async fn an_outbound_connection_to_the_proxy_itself_is_refused() {
    let mesh = Mesh::start().await;
    let address = (mesh.client_ip(), 15001).into();
    let _door = mesh
        .west
        .open(&mesh.client, crate::pod::Port::Outbound, address);
    refused(&mesh, address).await;
    mesh.logged(&["direction=\"outbound\"", "is the proxy's own port"])
        .await;
}

#[tokio::test]
async fn a_peer_that_says_nothing_is_cut() {
    let mesh = Mesh::start().await;
    refused(&mesh, mesh.hbone()).await;
    mesh.logged(&["direction=\"inbound\"", "did not finish the handshake"])
        .await;
    assert_eq!(
        mesh.east.count(FAILED, &["response_flags=\"TLS_FAILURE\""]),
        1.0
    );
}

#[tokio::test]
async fn a_tunnel_port_that_never_answers_points_at_a_network_policy() {
    let mut mesh = Mesh::unconfigured();
    // TEST-NET-3 (RFC 5737): nothing answers there, and loopback does not route to it.
    let silent = mesh.ip(7, 7);
    let mut server = wds::workload("server", "east", silent);
    server = wds::serving(server, "server", 80, 8080);
    mesh.put_workload(server);
    mesh.configure().await;
    // A listener whose backlog is full drops what comes.
    let full = raw::full_listener((silent, 15008).into());
    refused(&mesh, mesh.vip()).await;
    mesh.logged(&[
        "direction=\"outbound\"",
        "maybe a NetworkPolicy is blocking HBONE port 15008",
    ])
    .await;
    assert_eq!(
        mesh.west
            .count(FAILED, &["response_flags=\"NETWORK_POLICY\""]),
        1.0
    );
    drop(full);
}

#[tokio::test]
async fn requests_on_a_tunnel_are_answered_by_their_authority() {
    let mut mesh = Mesh::start().await;
    let mut application = mesh.application().await;
    let server = mesh.server_ip();
    let other = mesh.ip(2, 99);
    let statuses = raw::ask(
        &mesh,
        &[
            format!("{server}:8080"),
            "server.default.svc.cluster.local:80".to_owned(),
            format!("{other}:8080"),
            format!("{server}:15008"),
            format!("{server}:15001"),
            "unknown.example:80".to_owned(),
            "server.default.svc.cluster.local:81".to_owned(),
            format!("{server}:8081"),
        ],
    )
    .await;
    assert_eq!(statuses, [200, 200, 400, 503, 503, 503, 503, 503]);
    for _ in 0..2 {
        let (_, from) = soon("the application sees a connection", application.recv())
            .await
            .unwrap();
        assert_eq!(from.ip(), mesh.client_ip(), "the source address is kept");
    }
    assert!(application.try_recv().is_err());

    let principal = CLIENT.strip_prefix("spiffe://").unwrap();
    mesh.protect(wds::policy("no-client", Action::Deny, &[principal]))
        .await;
    assert_eq!(raw::ask(&mesh, &[format!("{server}:8080")]).await, [401]);
}

/// A connection that only relays must stay small: there are many, and most of them wait.
#[test]
fn a_relaying_connection_is_small() {
    fn size<A, B, F>(_: impl FnOnce(A, B) -> F) -> usize {
        size_of::<F>()
    }
    let sizes = [
        ("outbound", size(super::outbound::serve)),
        ("plaintext", size(super::plaintext::serve)),
        ("inbound", size(super::inbound::connect)),
    ];
    for (name, bytes) in sizes {
        assert!(bytes <= 896, "{name}: {bytes} bytes");
    }
}
