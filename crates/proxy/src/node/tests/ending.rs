//! Tests of pods that are being deleted, of addresses that pass to another pod, and of the end of a drain.

use super::*;
use crate::connection_table::Cut;

#[tokio::test]
async fn a_pod_that_is_being_deleted_sends_its_tunnels_away_and_serves_to_the_end() {
    let mesh = Mesh::start().await;
    let mut application = mesh.application().await;
    let (mut client, mut served) = open(&mesh, &mut application).await;
    mesh.server.leave();
    say(&mut client, "after").await;
    hear(&mut served, "after").await;
    // A peer that has not heard that the pod is leaving is served, on another tunnel.
    let mut late = mesh.dial(mesh.vip()).await.unwrap();
    say(&mut late, "late").await;
    let mut served_late = soon("the server accepts", application.recv())
        .await
        .unwrap()
        .0;
    hear(&mut served_late, "late").await;
    drop((client, served));
    until("the old tunnel ends with its last stream", || {
        mesh.east.acceptor.loads().read() == [1]
    })
    .await;
    // The newer one is sent away too, a little later.
    drop((late, served_late));
    until("the newer tunnel ends", || {
        mesh.east.acceptor.loads().read() == [0]
    })
    .await;
}

#[tokio::test]
async fn the_tunnel_to_a_pod_that_is_gone_is_not_used_for_whoever_has_its_address_next() {
    let mut mesh = Mesh::start().await;
    let mut application = mesh.application().await;
    let mut client = mesh.dial(mesh.vip()).await.unwrap();
    say(&mut client, "x").await;
    let served = soon("the server accepts", application.recv())
        .await
        .unwrap();
    drop((client, served));
    until("a tunnel stays for the next", || {
        mesh.east.acceptor.loads().read() == [1]
    })
    .await;
    // The same identity at the same address, another pod.
    let mut successor = mesh.server_workload();
    let gone = std::mem::replace(&mut successor.uid, "another".to_owned());
    mesh.resources.retain(|(name, _)| *name != gone);
    mesh.put_workload(successor);
    mesh.configure().await;
    until("the tunnel is left", || {
        mesh.east.acceptor.loads().read() == [0]
    })
    .await;
}

#[tokio::test]
async fn what_outlives_a_drain_is_cut_on_either_side_logged_and_counted() {
    let mesh = Mesh::start().await;
    let mut application = mesh.application().await;
    for (node, direction) in [(&mesh.west, "outbound"), (&mesh.east, "inbound")] {
        let mut client = mesh.dial(mesh.vip()).await.unwrap();
        say(&mut client, "x").await;
        let _served = soon("the server accepts", application.recv())
            .await
            .unwrap();
        assert_eq!(soon("the cut", node.cut_all(Cut::Deadline)).await, 1);
        ends_silently(&mut client).await;
        mesh.logged(&[
            &format!("direction=\"{direction}\""),
            "connection closed due to connection drain: this proxy ends",
        ])
        .await;
        assert_eq!(
            node.count("lateen_connections_cut_total", &["reason=\"deadline\""]),
            1.0
        );
    }
}

#[tokio::test]
async fn a_tunnel_that_is_opened_when_its_pod_leaves_has_a_second() {
    let mesh = Mesh::start().await;
    mesh.server.leave();
    let start = std::time::Instant::now();
    super::super::inbound::leaving(&mesh.server).await;
    assert!(start.elapsed() >= Duration::from_secs(1));
}
