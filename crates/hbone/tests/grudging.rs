//! Peers that read nothing and answer no PING, but renew a window that they never used, so that they are heard of: what
//! ends tunnels otherwise ends theirs.

mod common;

use std::time::Duration;

use common::local;
use common::wire::{self, *};
use lateen_hbone::{Connection, Settings, TunnelError, client};
use tokio::io::{AsyncWriteExt, DuplexStream, duplex};
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::{Instant, sleep};

/// Gives a byte of credit in every 15 s until the tunnel ends: how long that takes.
async fn renews<T>(peer: &mut DuplexStream, tunnel: &JoinHandle<T>) -> Duration {
    let since = Instant::now();
    while !tunnel.is_finished() {
        assert!(
            since.elapsed() < Duration::from_secs(600),
            "the tunnel lives on"
        );
        wire::write(peer, &frame(WINDOW_UPDATE, 0, 0, &1_u32.to_be_bytes())).await;
        sleep(Duration::from_secs(15)).await;
    }
    since.elapsed()
}

#[tokio::test(start_paused = true)]
async fn who_reads_nothing_loses_its_tunnel_and_gives_back_what_was_granted() {
    local(async {
        let (mut near, far) = duplex(256 * 1024);
        let settings = Settings::server();
        let budget = settings.send_budget.clone();
        let server = spawn_local(async move {
            let mut connection = Connection::accept(far, settings).await?;
            while let Some(incoming) = connection.next().await? {
                let mut stream = incoming.accept(None).unwrap();
                spawn_local(async move {
                    let block = vec![7; 64 * 1024];
                    while stream.write_all(&block).await.is_ok() {}
                });
            }
            Ok::<_, TunnelError>(())
        });
        let open = [
            PREFACE.to_vec(),
            frame(SETTINGS, 0, 0, &setting(4, 1 << 30)),
            frame(WINDOW_UPDATE, 0, 0, &(1_u32 << 30).to_be_bytes()),
        ];
        wire::write(&mut near, &open.concat()).await;
        for id in 0..50 {
            wire::write(&mut near, &connect(2 * id + 1)).await;
        }
        let lived = renews(&mut near, &server).await;
        assert!(lived <= Duration::from_secs(90), "{lived:?}");
        let ended = server.await.unwrap();
        assert!(matches!(ended, Err(TunnelError::Stalled)), "{ended:?}");
        assert_eq!(budget.granted(), 0);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_idle_tunnel_to_such_a_peer_ends_as_others_do() {
    local(async {
        let (near, mut far) = duplex(256 * 1024);
        let handshake = client::handshake(near, Settings::client());
        let (tunnel, driver) = handshake.await.unwrap();
        let driver = spawn_local(driver);
        wire::write(&mut far, &frame(SETTINGS, 0, 0, &[])).await;
        let lived = renews(&mut far, &driver).await;
        assert!(lived <= Duration::from_secs(330), "{lived:?}");
        drop(tunnel);
    })
    .await;
}
