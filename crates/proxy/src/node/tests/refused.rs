//! Connections that are refused, and why.

use super::*;

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
    // The client learns it only after its side of TLS 1.3 is done, and does not try again.
    assert_eq!(
        mesh.east.count(FAILED, &["response_flags=\"TLS_FAILURE\""]),
        1.0
    );
    let line = mesh.logged(&["direction=\"outbound\"", "\terror\t"]).await;
    assert!(
        line.contains("peer refused the handshake: it does not accept our identity"),
        "{line}"
    );
    assert!(application.try_recv().is_err());
    // Where it was opened it counts as opened for that reason, and as closed.
    until("the tunnel is over", || {
        mesh.west.count(TUNNELS_CLOSED, &["source", "rejected"]) == 1.0
    })
    .await;
    for (node, metric, counted) in [
        (&mesh.west, TUNNELS_OPENED, 1.0),
        (&mesh.west, TUNNELS_CLOSED, 1.0),
        (&mesh.east, TUNNELS_OPENED, 0.0),
        (&mesh.east, TUNNELS_CLOSED, 0.0),
    ] {
        assert_eq!(node.count(metric, &[]), counted, "{metric}");
    }
}

/// What is opened less what is closed is what is open, whatever became of it.
#[tokio::test]
async fn a_tunnel_that_ends_before_it_speaks_http2_counts_as_closed() {
    let mesh = Mesh::start().await;
    let gone = raw::proven(&mesh, mesh.client_ip()).await;
    // Earlier it might fail the server's half of TLS.
    until("the server is done too", || {
        mesh.east.count(TUNNELS_OPENED, &[]) == 1.0
    })
    .await;
    drop(gone);
    let mut other = raw::proven(&mesh, mesh.client_ip()).await;
    let question = b"GET / HTTP/1.1\r\nHost: server.example\r\n\r\n";
    other.write_all(question).await.unwrap();
    other.flush().await.unwrap();
    let _silent = raw::proven(&mesh, mesh.client_ip()).await;
    for reason in ["lost", "protocol_error", "unresponsive"] {
        let words = ["destination", reason];
        until(&format!("it closes: {reason}"), || {
            mesh.east.count(TUNNELS_CLOSED, &words) == 1.0
        })
        .await;
    }
    for metric in [TUNNELS_OPENED, TUNNELS_CLOSED] {
        assert_eq!(mesh.east.count(metric, &[]), 3.0, "{metric}");
    }
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
    let full = raw::full_listener((silent, 15008).into()).await;
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
async fn requests_on_a_tunnel_cannot_take_more_descriptors_than_the_pods_share() {
    let mesh = Mesh::start().await;
    let mut application = mesh.application().await;
    // All but what one tunnel and one request need.
    let others = mesh.server.share.take(fixture::SHARE - 2).unwrap();
    let (mut first, mut served) = open(&mesh, &mut application).await;
    refused(&mesh, mesh.vip()).await;
    mesh.logged(&["direction=\"inbound\"", "share of the proxy's descriptors"])
        .await;
    say(&mut first, "still there").await;
    hear(&mut served, "still there").await;
    drop(others);
    let (_late, _served) = open(&mesh, &mut application).await;
}

#[tokio::test]
async fn tunnels_that_a_pod_has_opened_count_in_its_share() {
    let mesh = Mesh::start().await;
    let mut application = mesh.application().await;
    // All but what the connection needs.
    let others = mesh.client.share.take(fixture::SHARE - 2).unwrap();
    refused(&mesh, mesh.vip()).await;
    mesh.logged(&["direction=\"outbound\"", "none is left for a tunnel"])
        .await;
    drop(others);
    let (first, served) = open(&mesh, &mut application).await;
    drop((first, served));
    // The tunnel stays, and nothing else.
    until("the connection is over", || {
        mesh.client.share.take(fixture::SHARE - 1).is_some()
    })
    .await;
    assert!(mesh.client.share.take(fixture::SHARE).is_none());
}

#[tokio::test]
async fn a_request_that_is_given_up_is_not_dialled_for_any_longer() {
    let mesh = Mesh::start_patient().await;
    let silent = (mesh.server_ip(), 8080).into();
    let _full = raw::full_listener(silent).await;
    let begun = until("the request counts", || mesh.east.count(OPENED, &[]) == 1.0);
    let ended = mesh.logged(&["direction=\"inbound\"", "connection complete"]);
    raw::give_up(&mesh, &silent.to_string(), begun, ended).await;
    mesh.logged(&["direction=\"inbound\"", "the peer gave up"])
        .await;
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
