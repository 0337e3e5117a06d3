//! Tests of the events that end a handed-over connection, and of those that do not.

use std::time::SystemTime;

use fixture::{Application, Home};

use super::same_node::{Busy, HANDED_OVER, listed};
use super::*;
use crate::connection_table::Cut;

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
async fn a_pod_that_is_let_go_keeps_its_connections_and_their_tunnel_to_their_end() {
    let mesh = Mesh::start_at(HERE).await;
    let mut application = mesh.application().await;
    let (mut client, mut served) = open(&mesh, &mut application).await;
    let (others_client, others_served) = open(&mesh, &mut application).await;
    mesh.server.leave();
    for round in 0..20 {
        let text = format!("after {round}");
        let (from, to) = match round % 2 {
            0 => (&mut client, &mut served),
            _ => (&mut served, &mut client),
        };
        say(from, &text).await;
        hear(to, &text).await;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    drop((others_client, others_served));
    until("one has ended", || mesh.west.count(CLOSED, &[]) == 2.0).await;
    say(&mut client, "to the end").await;
    hear(&mut served, "to the end").await;
    let closed = || mesh.west.count(TUNNELS_CLOSED, &[]);
    assert_eq!(closed(), 0.0, "it is still of use");
    drop((client, served));
    until("it ends at both of its ends", || closed() == 2.0).await;
    // The door is still there: what comes is served, once another tunnel has proven it.
    let late = open(&mesh, &mut application).await;
    assert!(mesh.west.count(TUNNELS_OPENED, &["source"]) >= 2.0);
    drop(late);
}

/// Opens connections until one rests on another tunnel than the first one.
async fn newly_proven(mesh: &Mesh, application: &mut Application) -> (TcpStream, TcpStream) {
    loop {
        let opened = open(mesh, application).await;
        if mesh.west.count(TUNNELS_OPENED, &["source"]) >= 2.0 {
            return opened;
        }
        drop(opened);
    }
}

#[tokio::test]
async fn a_client_that_is_let_go_leaves_its_tunnel_with_its_last_connection() {
    let mesh = Mesh::start_at(HERE).await;
    let mut application = mesh.application().await;
    let (mut client, mut served) = open(&mesh, &mut application).await;
    mesh.west.released(&mesh.client);
    say(&mut client, "still").await;
    hear(&mut served, "still").await;
    let late = soon("another tunnel", newly_proven(&mesh, &mut application)).await;
    assert_eq!(
        mesh.west.count(TUNNELS_CLOSED, &[]),
        0.0,
        "it is still of use"
    );
    drop((client, served));
    until("the tunnel ends", || {
        mesh.west.count(TUNNELS_CLOSED, &["reporter=\"source\""]) == 1.0
    })
    .await;
    drop(late);
    mesh.west.released(&mesh.client);
    until("nothing of it is left", || {
        mesh.west.acceptor.loads().read() == [0]
    })
    .await;
}

#[tokio::test]
async fn a_certificate_that_is_replaced_has_the_next_connections_proven_anew_and_cuts_none() {
    for replaced in [CLIENT, SERVER] {
        let mesh = Mesh::start_at(HERE).await;
        let mut application = mesh.application().await;
        let (mut client, mut served) = open(&mesh, &mut application).await;
        let identity = replaced.parse().unwrap();
        mesh.west.certificates.forget(&identity);
        mesh.west.certificates.want(&identity);
        let late = soon("another tunnel", newly_proven(&mesh, &mut application)).await;
        say(&mut client, "still").await;
        hear(&mut served, "still").await;
        drop(late);
    }
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

/// Revocation reaches what rests on a tunnel that takes no more.
#[tokio::test]
async fn a_revocation_cuts_what_outlived_its_tunnels_use() {
    for (identity, direction) in [(CLIENT, "inbound"), (SERVER, "outbound")] {
        let mesh = Mesh::start_at(HERE).await;
        let mut application = mesh.application().await;
        let (mut client, mut served) = open(&mesh, &mut application).await;
        let serial = mesh.west.serial(identity);
        mesh.server.leave();
        mesh.west.released(&mesh.client);
        say(&mut client, "y").await;
        hear(&mut served, "y").await;
        mesh.west.revoke(&mesh.ca.revoke(&[serial], soon_due()));
        ends_silently(&mut client).await;
        ends_silently(&mut served).await;
        let words = format!("direction=\"{direction}\"");
        mesh.logged(&[&words, "certificate was revoked"]).await;
        assert_eq!(mesh.west.count(CLOSED, &[REVOKED]), 1.0);
    }
}

/// While the application is being dialled there is no connection that could be cut, and the tunnel may end later.
#[tokio::test]
async fn a_revocation_reaches_what_is_being_opened() {
    for (identity, heard) in [
        (CLIENT, true),
        (SERVER, true),
        (CLIENT, false),
        (SERVER, false),
    ] {
        let mesh = Mesh::start_at(HERE).await;
        let busy = Busy::at((mesh.server_ip(), 8080).into());
        let mut client = mesh.dial(mesh.vip()).await.unwrap();
        listed(&mesh, 2).await;
        let serial = mesh.west.serial(identity);
        let list = mesh.ca.revoke(&[serial], soon_due());
        match heard {
            true => mesh.west.revoke(&list),
            false => mesh.west.revoke_unheard(&list),
        }
        drop(busy);
        ends_silently(&mut client).await;
        mesh.logged(&["direction=\"inbound\"", "certificate was revoked"])
            .await;
        assert_eq!(mesh.west.value(HANDED_OVER), 0.0);
    }
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
