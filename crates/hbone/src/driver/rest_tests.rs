//! What a tunnel keeps when a burst of streams is over.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::duplex;
use tokio::task::{LocalSet, spawn_local, yield_now};

use crate::client::{self, ConnectRequest};
use crate::server::Connection;
use crate::settings::Settings;

const STREAMS: u16 = 100;

#[tokio::test(start_paused = true)]
async fn a_burst_leaves_no_room_behind() {
    LocalSet::new().run_until(burst()).await;
}

async fn burst() {
    let (near, far) = duplex(1 << 20);
    let handshake = client::handshake(near, Settings::client()).await;
    let (tunnel, driver) = handshake.unwrap();
    spawn_local(driver);
    let asking: Vec<_> = (1..=STREAMS)
        .map(|port| {
            let tunnel = tunnel.clone();
            spawn_local(async move {
                let address = SocketAddr::from(([10, 0, 0, 7], port));
                tunnel.connect(&ConnectRequest::new(address)).await.unwrap()
            })
        })
        .collect();
    yield_now().await;
    let accepting = Connection::accept(far, Settings::server()).await;
    let mut connection = accepting.unwrap();
    let (mut accepted, mut most) = (Vec::new(), 0);
    for _ in 0..STREAMS {
        let incoming = connection.next().await.unwrap().unwrap();
        most = most.max(connection.room());
        accepted.push(incoming.accept(None).unwrap());
    }
    assert!(most >= usize::from(STREAMS) / 2, "{most}: no burst");
    assert!(connection.room() <= 8, "{} requests", connection.room());

    let (ours, theirs) = (tunnel.shared(), connection.shared());
    assert!(theirs.borrow().room() >= usize::from(STREAMS));
    drop(accepted);
    let serving = spawn_local(async move { connection.next().await.map(drop) });
    for asking in asking {
        drop(asking.await.unwrap());
    }
    tokio::time::sleep(2 * Settings::server().ping_interval + Duration::from_secs(1)).await;
    assert!(!serving.is_finished(), "the tunnel is to be idle, not over");
    assert_eq!([ours.borrow().room(), theirs.borrow().room()], [0, 0]);
}
