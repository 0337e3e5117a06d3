//! Tests that handed-over connections still depend on the network between their pods: when it passes no more, they end. The
//! node has two workers, so that a tunnel has an end on each.

use std::sync::Arc;
use std::time::SystemTime;

use fixture::{Application, Home, LONG};
use lateen_testkit::identity;

use super::same_node::{Busy, HANDED_OVER, listed};
use super::*;
use crate::local_tunnels::{Ends, LocalTunnels};

const LOST: &str = "the tunnel between its two pods was lost";
const CUT: &str = "lateen_connections_cut_total";

const NEAR: Home = Home::Near {
    idle: Duration::from_secs(300),
    // It is longer than the time in which a tunnel that is asked has to answer.
    lost: Duration::from_secs(6),
};

async fn start() -> (Mesh, Application) {
    start_at(NEAR).await
}

async fn start_at(home: Home) -> (Mesh, Application) {
    let mesh = Mesh::start_impatient_at(home).await;
    let application = mesh.application().await;
    (mesh, application)
}

async fn end_as_lost(mesh: &Mesh, ends: (TcpStream, TcpStream)) {
    let (mut client, mut served) = ends;
    ends_silently(&mut client).await;
    ends_silently(&mut served).await;
    for direction in ["outbound", "inbound"] {
        let direction = format!("direction=\"{direction}\"");
        mesh.logged(&["connection complete", &direction, LOST])
            .await;
    }
    assert_eq!(mesh.west.count(CUT, &["reason=\"lost\""]), 2.0);
}

#[tokio::test]
async fn the_two_ends_of_a_tunnel_meet_whatever_workers_they_are_on() {
    let (mesh, mut application) = start().await;
    let held = open(&mesh, &mut application).await;
    assert_eq!(mesh.west.acceptor.loads().read(), [1, 1]);
    assert_eq!(mesh.west.value(HANDED_OVER), 1.0);
    drop(held);
}

#[tokio::test]
async fn what_is_open_is_cut_when_the_network_is() {
    let (mesh, mut application) = start().await;
    let held = open(&mesh, &mut application).await;
    mesh.path().cut(true);
    end_as_lost(&mesh, held).await;
}

/// A tunnel's end in order is the end of its use, not of what it vouches for.
#[tokio::test]
async fn what_is_open_is_cut_when_the_network_is_though_its_tunnel_takes_no_more() {
    type Retire = fn(&Mesh);
    let ways: [(&str, Retire); 3] = [
        ("the server's pod leaves", |mesh| mesh.server.leave()),
        ("the client's pod leaves", |mesh| {
            mesh.west.released(&mesh.client);
        }),
        ("the process does", |mesh| mesh.west.drain()),
    ];
    for (why, retire) in ways {
        let (mesh, mut application) = start().await;
        let (mut client, mut served) = open(&mesh, &mut application).await;
        retire(&mesh);
        // So long that the tunnel would be over if nothing rested on it.
        for round in 0..20 {
            say(&mut client, "still here").await;
            hear(&mut served, "still here").await;
            tokio::time::sleep(Duration::from_millis(10)).await;
            assert_eq!(mesh.west.count(TUNNELS_CLOSED, &[]), 0.0, "{why}, {round}");
        }
        mesh.path().cut(true);
        end_as_lost(&mesh, (client, served)).await;
    }
}

#[tokio::test]
async fn nothing_is_handed_over_once_the_network_is_cut_and_again_when_it_is_mended() {
    let (mesh, mut application) = start().await;
    let held = open(&mesh, &mut application).await;
    mesh.path().cut(true);
    // Since its last answer the tunnel has been silent for longer than it is believed.
    tokio::time::sleep(Duration::from_millis(500)).await;
    refused(&mesh, mesh.vip()).await;
    assert_eq!(mesh.west.value(HANDED_OVER), 1.0);
    assert!(
        application.try_recv().is_err(),
        "it reached the application"
    );
    mesh.path().cut(false);
    // What waited on the way may still be a tunnel's that has been given up.
    let again = open(&mesh, &mut application).await;
    assert_eq!(mesh.west.value(HANDED_OVER), 2.0);
    drop((held, again));
}

/// A tunnel that is silent for a moment takes no more, and what rests on it has the time of a PING.
#[tokio::test]
async fn what_is_open_outlives_an_interruption_that_ends_soon() {
    let (mesh, mut application) = start().await;
    let (mut client, mut served) = open(&mesh, &mut application).await;
    mesh.path().cut(true);
    tokio::time::sleep(Duration::from_millis(500)).await;
    mesh.path().cut(false);
    let other = open(&mesh, &mut application).await;
    say(&mut client, "still here").await;
    hear(&mut served, "still here").await;
    assert_eq!(mesh.west.count(CUT, &[]), 0.0);
    drop(other);
}

/// Who does not answer takes no more, and does not stand in the way of another tunnel.
#[tokio::test]
async fn a_tunnel_that_does_not_answer_is_replaced_at_once() {
    let (mesh, mut application) = start().await;
    let old = open(&mesh, &mut application).await;
    mesh.path().cut_open();
    tokio::time::sleep(Duration::from_millis(500)).await;
    let (mut client, mut served) = open(&mesh, &mut application).await;
    assert_eq!(mesh.west.value(HANDED_OVER), 2.0);
    end_as_lost(&mesh, old).await;
    say(&mut client, "still here").await;
    hear(&mut served, "still here").await;
    assert_eq!(mesh.west.count(TUNNELS_OPENED, &["source"]), 2.0);
}

/// What is being opened is not there yet to be cut.
#[tokio::test]
async fn a_tunnel_that_breaks_while_the_application_is_dialled_takes_the_connection_along() {
    let mesh = Mesh::start_at(NEAR).await;
    let busy = Busy::at((mesh.server_ip(), 8080).into());
    let mut client = mesh.dial(mesh.vip()).await.unwrap();
    listed(&mesh, 2).await;
    mesh.path().break_open();
    until("the tunnel is over", || {
        mesh.west.count(TUNNELS_CLOSED, &["source"]) == 1.0
    })
    .await;
    drop(busy);
    ends_silently(&mut client).await;
    mesh.logged(&["direction=\"inbound\"", LOST]).await;
    assert_eq!(mesh.west.value(HANDED_OVER), 0.0);
}

/// Nothing stays of a tunnel on which nothing rests, and not before.
#[tokio::test]
async fn a_tunnel_that_is_of_no_use_for_a_while_ends() {
    let lost = Duration::from_secs(6);
    let idle = Duration::from_secs(8);
    let (mesh, mut application) = start_at(Home::Near { idle, lost }).await;
    let (mut client, mut served) = open(&mesh, &mut application).await;
    // Longer than one is kept of which nobody makes use.
    let longer = tokio::time::Instant::now() + idle + Duration::from_secs(1);
    while tokio::time::Instant::now() < longer {
        say(&mut client, "still here").await;
        hear(&mut served, "still here").await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    drop((client, served));
    // Long enough for somebody to look whether it is of use.
    tokio::time::sleep(idle / 4 + Duration::from_millis(500)).await;
    let again = open(&mesh, &mut application).await;
    assert_eq!(mesh.west.count(TUNNELS_OPENED, &["source"]), 1.0);
    drop(again);
    until("it ends", || mesh.west.count(TUNNELS_CLOSED, &[]) == 2.0).await;
    until("nothing of it is left", || {
        mesh.west.local_tunnels.is_empty()
    })
    .await;
}

#[tokio::test]
async fn an_end_that_is_gone_is_met_no_more_and_takes_no_more() {
    let mesh = Mesh::unconfigured();
    let [client, server] = ["client", "server"].map(|name| mesh.ca.credentials(&identity(name)));
    let (near, far) = tokio::io::duplex(64 * 1024);
    let destinations = [identity("server")];
    let (accepted, connected) = tokio::join!(
        lateen_tls::accept(&server, near),
        lateen_tls::connect(&client, far, &destinations),
    );
    let (accepted, connected) = (accepted.unwrap().1, connected.unwrap().1);
    let ends = Arc::new(Ends {
        pod: Arc::clone(&mesh.server),
        peer: accepted.peer().clone(),
        client: mesh.vip(),
        local: mesh.hbone(),
    });
    let local_tunnels = LocalTunnels::default();
    assert!(local_tunnels.other_end(&connected).is_none());
    let registration = local_tunnels.register(&ends, &Arc::new(accepted));
    let accepted_end = local_tunnels.other_end(&connected).expect("it is here");
    assert!(accepted_end.uses.enter());
    drop(registration);
    assert!(local_tunnels.other_end(&connected).is_none());
    assert!(!accepted_end.uses.enter());
}

/// Where a pod is said to be gone its tunnels ask at once: its last word may not have come.
#[tokio::test]
async fn a_pod_that_the_control_plane_no_longer_knows_is_asked_whether_it_is_there() {
    let (idle, lost) = (10 * LONG, 10 * LONG);
    let (mut mesh, mut application) = start_at(Home::Near { idle, lost }).await;
    let held = open(&mesh, &mut application).await;
    mesh.path().cut(true);
    let gone = mesh.server_workload().uid;
    mesh.resources.retain(|(name, _)| *name != gone);
    mesh.configure().await;
    end_as_lost(&mesh, held).await;
}

#[tokio::test]
async fn who_comes_to_an_address_that_was_gone_is_proven_anew() {
    let (mut mesh, mut application) = start().await;
    let (mut client, mut served) = open(&mesh, &mut application).await;
    let other = mesh.west.pod("other", "cluster.local");
    mesh.west.released(&other);
    mesh.west.released(&mesh.server);
    let same = open(&mesh, &mut application).await;
    assert_eq!(mesh.west.count(TUNNELS_OPENED, &["source"]), 1.0);
    let gone = mesh.server_workload().uid;
    mesh.resources.retain(|(name, _)| *name != gone);
    mesh.configure().await;
    mesh.put_workload(mesh.server_workload());
    mesh.configure().await;
    let again = open(&mesh, &mut application).await;
    assert_eq!(mesh.west.count(TUNNELS_OPENED, &["source"]), 2.0);
    say(&mut client, "still here").await;
    hear(&mut served, "still here").await;
    drop((same, again));
}

/// Those who wait for a tunnel that is of no use any more do not wait for it, and it does not come in the way of the next.
#[tokio::test]
async fn who_waits_for_a_tunnel_that_is_retired_gets_another() {
    let (mesh, mut application) = start().await;
    mesh.path().cut(true);
    let mut client = mesh.dial(mesh.vip()).await.unwrap();
    until("a tunnel is dialled", || mesh.path().come() == 1).await;
    mesh.path().cut_open();
    mesh.west.released(&mesh.client);
    say(&mut client, "ping").await;
    let (mut served, _) = soon("the server accepts", application.recv())
        .await
        .unwrap();
    hear(&mut served, "ping").await;
    mesh.path().cut(false);
    until("the first one is there, and goes", || {
        mesh.west.count(TUNNELS_CLOSED, &[]) == 2.0
    })
    .await;
    let again = open(&mesh, &mut application).await;
    assert_eq!(mesh.west.count(TUNNELS_OPENED, &["source"]), 2.0);
    assert_eq!(mesh.west.value(HANDED_OVER), 2.0);
    drop(again);
}

/// The worker that has the server's end may hear of it first, and ends the tunnel.
#[tokio::test]
async fn a_revocation_is_called_one_whichever_worker_hears_of_it_first() {
    for (identity, direction) in [(CLIENT, "inbound"), (SERVER, "outbound")] {
        let (mesh, mut application) = start().await;
        let (mut client, mut served) = open(&mesh, &mut application).await;
        let listed = mesh.west.connections().await;
        let relays = usize::try_from(listed[0].id >> 48).unwrap();
        let serial = mesh.west.serial(identity);
        let due = SystemTime::now() + Duration::from_secs(3600);
        let lists = mesh.ca.revoke(&[serial], due);
        mesh.west.revoke_at(1 - relays, &lists);
        if identity == SERVER {
            // Its own end does not mind; the other one does.
            mesh.west.revoke_at(relays, &lists);
        }
        ends_silently(&mut client).await;
        ends_silently(&mut served).await;
        let direction = format!("direction=\"{direction}\"");
        mesh.logged(&[&direction, "certificate was revoked"]).await;
        assert_eq!(mesh.west.count(CUT, &["reason=\"revoked\""]), 1.0);
        assert_eq!(mesh.west.count(CUT, &[]), 1.0);
    }
}
