//! What is done for a pod is charged to it, on both sides of a tunnel: that is what its turns are made of.

use super::*;
use crate::pod::Port;

/// Connections of the busy pod, and questions on each of them.
const BUSY: usize = 40;

async fn answer(mut stream: TcpStream) {
    let mut byte = [0];
    while stream.read_exact(&mut byte).await.is_ok() {
        if stream.write_all(&byte).await.is_err() {
            return;
        }
    }
}

#[tokio::test]
async fn a_pod_pays_for_its_own_connections_and_for_no_other_pods() {
    let mut mesh = Mesh::unconfigured();
    let busy_vip = SocketAddr::new(mesh.vip().ip(), 81);
    let idle_ip = mesh.ip(2, 9);
    mesh.put_workload(wds::workload("busy", "west", mesh.ip(1, 2)));
    mesh.put_workload(wds::workload("idle", "east", idle_ip));
    mesh.change_service(|service| {
        service.ports.push(lateen_proto::workload::Port {
            service_port: 81,
            target_port: 8080,
            ..Default::default()
        });
    });
    let (busy, idle) = (
        mesh.west.pod("busy", "cluster.local"),
        mesh.east.pod("idle", "cluster.local"),
    );
    let _doors = [
        mesh.west.open(&busy, Port::Outbound, busy_vip),
        mesh.east.open(&idle, Port::Hbone, (idle_ip, 15008).into()),
    ];
    mesh.configure().await;
    let mut application = mesh.application().await;
    tokio::spawn(async move {
        while let Some((stream, _)) = application.recv().await {
            tokio::spawn(answer(stream));
        }
    });

    // A quiet pod has its tunnel and its connection.
    let mut quiet = mesh.dial(mesh.vip()).await.unwrap();
    say(&mut quiet, "?").await;
    hear(&mut quiet, "?").await;
    let at_first = mesh.west.spent_on(&mesh.client).await;
    assert!(!at_first.used.is_zero(), "a handshake costs something");
    let before = mesh.east.spent_on(&mesh.server).await;

    for _ in 0..BUSY {
        let mut stream = mesh.dial_from(mesh.ip(1, 2), busy_vip).await.unwrap();
        for _ in 0..BUSY {
            say(&mut stream, "?").await;
            hear(&mut stream, "?").await;
        }
    }
    let busy = mesh.west.spent_on(&busy).await;
    let quiets = mesh.west.spent_on(&mesh.client).await.used - at_first.used;
    assert!(quiets * 10 < busy.used, "{quiets:?} beside {busy:?}");
    assert_eq!(busy.totals.opened, BUSY as u64);

    // At the other end it is the server's work, and nobody else's.
    let servers = mesh.east.spent_on(&mesh.server).await.used - before.used;
    assert!(servers * 2 > busy.used / 4, "{servers:?} of {busy:?}");
    assert!(mesh.east.spent_on(&idle).await.used.is_zero());
}
