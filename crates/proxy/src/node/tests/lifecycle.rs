//! Pods that are released and proxies that end.

use super::*;

#[tokio::test]
async fn a_released_pod_keeps_its_connections_on_tunnels_that_go_away() {
    let mesh = Mesh::start().await;
    let mut application = mesh.application().await;
    let (mut client, mut served) = open(&mesh, &mut application).await;
    mesh.server.leave();
    for round in 0..3 {
        let text = format!("after {round}");
        say(&mut client, &text).await;
        hear(&mut served, &text).await;
    }
    // The old tunnel was told to go away, so new connections take another one as soon as the client's node has read that.
    let newly = async {
        for _ in 0..20 {
            let late = open(&mesh, &mut application).await;
            if mesh.east.acceptor.loads().read() == [2] {
                return late;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("new connections take the tunnel that goes away");
    };
    let _late = soon("another tunnel", newly).await;
    drop((client, served));
    until("the old tunnel ends with its last stream", || {
        mesh.east.acceptor.loads().read() == [1]
    })
    .await;
}

#[tokio::test]
async fn a_released_pods_tunnels_end_even_if_its_name_has_another_address_by_then() {
    let mut mesh = Mesh::start().await;
    let mut application = mesh.application().await;
    let mut client = mesh.dial(mesh.vip()).await.unwrap();
    say(&mut client, "x").await;
    let (served, _) = soon("the server accepts", application.recv())
        .await
        .unwrap();
    // Recreated: the same names, another address.
    mesh.put_workload(wds::workload("client", "west", mesh.ip(1, 2)));
    mesh.configure().await;
    mesh.west.released(&mesh.client);
    drop((client, served));
    until("the tunnel ends with its last stream", || {
        mesh.east.acceptor.loads().read() == [0]
    })
    .await;
}

#[tokio::test]
async fn a_drain_lets_connections_finish() {
    let mesh = Mesh::start().await;
    let mut application = mesh.application().await;
    let (mut client, mut served) = open(&mesh, &mut application).await;
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
