//! Tests of revoked and replaced certificates while connections use them.

use super::*;

const CLOSED: &str = "istio_tcp_connections_closed_total";
const REVOKED: &str = "response_flags=\"CERT_REVOKED\"";

fn soon_due() -> std::time::SystemTime {
    std::time::SystemTime::now() + Duration::from_secs(3600)
}

#[tokio::test]
async fn a_revoked_client_loses_its_connections_and_gets_no_more() {
    let mesh = Mesh::start().await;
    let mut application = mesh.application().await;
    let (mut client, mut served) = open(&mesh, &mut application).await;
    // A list that names others changes nothing.
    mesh.east.revoke(&mesh.ca.revoke(&[u64::MAX], soon_due()));
    say(&mut client, "y").await;
    hear(&mut served, "y").await;

    let serial = mesh.west.serial(CLIENT);
    mesh.east.revoke(&mesh.ca.revoke(&[serial], soon_due()));
    ends_silently(&mut client).await;
    ends_silently(&mut served).await;
    let line = mesh
        .logged(&["direction=\"inbound\"", "certificate was revoked"])
        .await;
    assert!(line.contains(CLIENT), "{line}");
    assert_eq!(mesh.east.count(CLOSED, &[REVOKED]), 1.0);

    refused(&mesh, mesh.vip()).await;
    let line = mesh.logged(&["CRL_PATH", "direction=\"inbound\""]).await;
    assert!(line.contains("revoked"), "{line}");
    assert!(mesh.east.count(FAILED, &[REVOKED]) >= 1.0);
    // The other side is told why.
    mesh.logged(&["our certificate is revoked", "direction=\"outbound\""])
        .await;
}

#[tokio::test]
async fn a_revoked_server_loses_its_connections_and_gets_no_more() {
    let mesh = Mesh::start().await;
    let mut application = mesh.application().await;
    let (mut client, mut served) = open(&mesh, &mut application).await;
    let serial = mesh.east.serial(SERVER);
    mesh.west.revoke(&mesh.ca.revoke(&[serial], soon_due()));
    ends_silently(&mut client).await;
    ends_silently(&mut served).await;
    mesh.logged(&["direction=\"outbound\"", "certificate was revoked"])
        .await;
    assert_eq!(mesh.west.count(CLOSED, &[REVOKED]), 1.0);
    refused(&mesh, mesh.vip()).await;
    until("the next connection is refused for it", || {
        mesh.west.count(CLOSED, &[REVOKED]) == 2.0
    })
    .await;
}

#[tokio::test]
async fn certificates_that_live_seconds_rotate_under_connections_and_none_fails() {
    let mesh = Mesh::start_with_certificates_of(Duration::from_secs(10)).await;
    let mut application = mesh.application().await;
    let (mut lasting, mut held) = open(&mesh, &mut application).await;
    let first = mesh.west.serial(CLIENT);

    // The first certificates end in between. They are renewed at half of their life, which leaves a busy machine 5 s.
    let deadline = tokio::time::Instant::now() + Duration::from_secs(13);
    let mut rounds = 0;
    while tokio::time::Instant::now() < deadline {
        let (_client, _served) = open(&mesh, &mut application).await;
        rounds += 1;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_ne!(mesh.west.serial(CLIENT), first, "nothing was renewed");
    // A connection outlives the certificates that its tunnel was opened with.
    say(&mut lasting, "last").await;
    hear(&mut held, "last").await;
    for node in [&mesh.west, &mesh.east] {
        let broken = mesh.log(&["connection complete", "\terror\t"]);
        assert_eq!(node.count(FAILED, &[]), 0.0, "{rounds} rounds: {broken:?}");
        let bad = node.count(CLOSED, &[]) - node.count(CLOSED, &["response_flags=\"-\""]);
        assert_eq!(bad, 0.0, "{rounds} rounds: {broken:?}");
    }
    // Those in between have ended: what is left is the tunnel of the lasting connection, and one in use.
    until("old tunnels end with their last stream", || {
        mesh.east.acceptor.loads().read()[0] <= 2
    })
    .await;
}
