//! What ends a connection that was handed over inside the process, and what does not.

use std::time::SystemTime;

use fixture::Home;

use super::nearby::{HANDED_OVER, open};
use super::*;
use crate::live::Cut;

const HERE: Home = Home::West { same_node: true };
const CLOSED: &str = "istio_tcp_connections_closed_total";
const REVOKED: &str = "response_flags=\"CERT_REVOKED\"";

fn soon_due() -> SystemTime {
    SystemTime::now() + Duration::from_secs(3600)
}

#[tokio::test]
async fn a_change_of_policy_cuts_what_it_denies_and_nothing_else() {
    let mut mesh = Mesh::start_at(HERE).await;
    let mut application = mesh.application().await;
    let (mut client, mut served) = open(&mesh, &mut application).await;
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
    let outbound = mesh.logged(&["direction=\"outbound\"", "error="]).await;
    assert!(
        outbound.contains("cut at the other end of this node (policy)"),
        "{outbound}"
    );
    assert_eq!(mesh.west.value(HANDED_OVER), 1.0);
    assert_eq!(mesh.west.count(FAILED, &["response_flags=\"DENY\""]), 1.0);
}

#[tokio::test]
async fn a_pod_that_has_ended_takes_its_connections_along() {
    for (servers, direction) in [(true, "inbound"), (false, "outbound")] {
        let mesh = Mesh::start_at(HERE).await;
        let mut application = mesh.application().await;
        let (mut client, mut served) = open(&mesh, &mut application).await;
        mesh.west.gone(match servers {
            true => &mesh.server,
            false => &mesh.client,
        });
        ends_silently(&mut client).await;
        ends_silently(&mut served).await;
        let words = format!("direction=\"{direction}\"");
        mesh.logged(&[&words, "connection closed because its pod has ended"])
            .await;
        let other = "cut at the other end of this node (gone)";
        mesh.logged(&["connection complete", other]).await;
        assert_eq!(mesh.west.value(HANDED_OVER), 1.0);
    }
}

#[tokio::test]
async fn a_pod_that_is_let_go_keeps_its_connections_and_gets_no_more() {
    let mesh = Mesh::start_at(HERE).await;
    let mut application = mesh.application().await;
    let (mut client, mut served) = open(&mesh, &mut application).await;
    let before = mesh.west.count(TUNNELS_OPENED, &["source"]);
    mesh.server.release();
    for round in 0..3 {
        let text = format!("after {round}");
        say(&mut client, &text).await;
        hear(&mut served, &text).await;
    }
    until("their tunnel is told to go away", || {
        mesh.west.count(TUNNELS_CLOSED, &["reporter=\"source\""]) == before
    })
    .await;
    // The door is still there: what comes is served, once a tunnel has proven it anew.
    let late = open(&mesh, &mut application).await;
    assert!(mesh.west.count(TUNNELS_OPENED, &["source"]) > before);
    say(&mut client, "to the end").await;
    hear(&mut served, "to the end").await;
    drop(late);
}

#[tokio::test]
async fn a_client_that_is_let_go_leaves_its_tunnel() {
    let mesh = Mesh::start_at(HERE).await;
    let mut application = mesh.application().await;
    let (mut client, mut served) = open(&mesh, &mut application).await;
    mesh.west.released(&mesh.client);
    until("the tunnel ends", || {
        mesh.west.count(TUNNELS_CLOSED, &["reporter=\"source\""]) == 1.0
    })
    .await;
    say(&mut client, "still").await;
    hear(&mut served, "still").await;
    drop((client, served));
    until("nothing of it is left", || {
        mesh.west.acceptor.loads().read() == [0]
    })
    .await;
}

#[tokio::test]
async fn revoked_ends_lose_their_connections_and_get_no_more() {
    for (identity, direction) in [(CLIENT, "inbound"), (SERVER, "outbound")] {
        let mesh = Mesh::start_at(HERE).await;
        let mut application = mesh.application().await;
        let (mut client, mut served) = open(&mesh, &mut application).await;
        // A list that names others changes nothing.
        mesh.west.revoke(&mesh.ca.revoke(&[u64::MAX], soon_due()));
        say(&mut client, "y").await;
        hear(&mut served, "y").await;
        let serial = mesh.west.serial(identity);
        mesh.west.revoke(&mesh.ca.revoke(&[serial], soon_due()));
        ends_silently(&mut client).await;
        ends_silently(&mut served).await;
        let words = format!("direction=\"{direction}\"");
        mesh.logged(&[&words, "certificate was revoked"]).await;
        assert_eq!(mesh.west.count(CLOSED, &[REVOKED]), 1.0);
        refused(&mesh, mesh.vip()).await;
        assert_eq!(mesh.west.value(HANDED_OVER), 1.0);
    }
}

/// Revocation reaches what a tunnel vouched for that ended in order meanwhile.
#[tokio::test]
async fn a_revocation_cuts_what_outlived_its_tunnel() {
    let mesh = Mesh::start_at(HERE).await;
    let mut application = mesh.application().await;
    let (mut client, mut served) = open(&mesh, &mut application).await;
    let serial = mesh.west.serial(CLIENT);
    mesh.server.release();
    until("the tunnel ends", || {
        mesh.west.count(TUNNELS_CLOSED, &["reporter=\"source\""]) == 1.0
    })
    .await;
    say(&mut client, "y").await;
    hear(&mut served, "y").await;
    mesh.west.revoke(&mesh.ca.revoke(&[serial], soon_due()));
    ends_silently(&mut client).await;
    ends_silently(&mut served).await;
    assert_eq!(mesh.west.count(CLOSED, &[REVOKED]), 1.0);
}

#[tokio::test]
async fn a_drain_lets_them_finish_and_its_end_cuts_them() {
    let mesh = Mesh::start_at(HERE).await;
    let mut application = mesh.application().await;
    let (mut client, mut served) = open(&mesh, &mut application).await;
    let (mut other, mut others) = open(&mesh, &mut application).await;
    mesh.west.drain();
    say(&mut served, "after").await;
    hear(&mut client, "after").await;
    drop((client, served));
    until("it ended in order", || {
        mesh.west.count(CLOSED, &["response_flags=\"-\""]) == 2.0
    })
    .await;
    let cut = soon("the cut", mesh.west.cut_all(Cut::Deadline)).await;
    assert_eq!(cut, 2, "one, at both of its ends");
    ends_silently(&mut other).await;
    ends_silently(&mut others).await;
    for direction in ["outbound", "inbound"] {
        mesh.logged(&[
            &format!("direction=\"{direction}\""),
            "connection closed due to connection drain: this proxy ends",
        ])
        .await;
    }
}

#[tokio::test]
async fn a_reset_stays_a_reset() {
    let mesh = Mesh::start_at(HERE).await;
    let mut application = mesh.application().await;
    let (client, mut served) = open(&mesh, &mut application).await;
    lateen_relay::reset_on_close(&client);
    drop(client);
    let error = soon("the reset", served.read_u8()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    for direction in ["outbound", "inbound"] {
        let words = format!("direction=\"{direction}\"");
        mesh.logged(&["connection complete", &words, "downstream"])
            .await;
    }
}
