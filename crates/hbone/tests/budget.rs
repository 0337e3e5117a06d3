//! What peers may have lent: only as much as they use, only a share each, and idle tunnels give way.

mod common;

use std::time::Duration;

use common::{local, request, serve, stream};
use lateen_hbone::{Budget, Connection, Settings, Status, Tunnel, client};
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::sleep;

/// A server whose beat is quick.
fn theirs(budget: &Budget) -> Settings {
    Settings {
        budget: budget.clone(),
        ping_interval: Duration::from_millis(200),
        ..Settings::server()
    }
}

/// A tunnel whose client never lets go of it, and the requests that come out of it.
async fn keep(
    settings: Settings,
) -> (
    Tunnel,
    tokio::sync::mpsc::UnboundedReceiver<lateen_hbone::Incoming>,
    JoinHandle<()>,
) {
    let (near, far) = duplex(1 << 20);
    let incoming = serve(far, settings);
    let ours = Settings {
        idle_timeout: None,
        ..Settings::client()
    };
    let (tunnel, driver) = client::handshake(near, ours).await.unwrap();
    let driver = spawn_local(async move {
        // How it ends is the server's to decide.
        let _ = driver.await;
    });
    (tunnel, incoming, driver)
}

/// Sends until the window of one stream was used up more than once; the other end reads all.
async fn bulk(
    tunnel: &Tunnel,
    incoming: &mut tokio::sync::mpsc::UnboundedReceiver<lateen_hbone::Incoming>,
) {
    let (mut near, mut far) = stream(tunnel, incoming).await;
    let sending = spawn_local(async move {
        near.write_all(&vec![7; 8 << 20]).await.unwrap();
        near.shutdown().await.unwrap();
        // Dropped before all is through, it would take back what waits.
        near
    });
    let mut got = 0;
    let mut buffer = vec![0; 64 << 10];
    while let n @ 1.. = far.read(&mut buffer).await.unwrap() {
        got += n;
    }
    drop(sending.await.unwrap());
    assert_eq!(got, 8 << 20);
}

/// Requests that are refused, and streams that say nothing: neither needs a window.
#[tokio::test]
async fn peers_that_send_nothing_are_lent_nothing() {
    local(async {
        const REQUESTS: usize = 64;
        let budget = Budget::default();
        let mut kept = Vec::new();
        for n in 0..24 {
            let (near, far) = duplex(1 << 20);
            let settings = theirs(&budget);
            spawn_local(async move {
                let mut connection = Connection::accept(far, settings).await.unwrap();
                let mut waiting = Vec::new();
                while let Ok(Some(incoming)) = connection.next().await {
                    waiting.push(incoming);
                    if waiting.len() < REQUESTS {
                        continue;
                    }
                    for incoming in waiting.drain(..) {
                        if n % 2 == 0 {
                            incoming.refuse(Status::Unavailable);
                        } else {
                            spawn_local(common::echo(incoming.accept(None).unwrap()));
                        }
                    }
                }
            });
            let (tunnel, driver) = client::handshake(near, Settings::client()).await.unwrap();
            spawn_local(driver);
            let asked: Vec<_> = (0..REQUESTS)
                .map(|_| {
                    let tunnel = tunnel.clone();
                    spawn_local(async move { tunnel.connect(&request()).await.ok() })
                })
                .collect();
            for answer in asked {
                kept.push(answer.await.unwrap());
            }
            kept.push(None);
            // The tunnel stays.
            std::mem::forget(tunnel);
        }
        assert_eq!(kept.iter().flatten().count(), 12 * REQUESTS);
        assert_eq!(budget.lent(), 0);
    })
    .await;
}

/// Windows still become as large as a stream's for those who use them.
#[tokio::test]
async fn a_bulk_transfer_grows_its_window() {
    local(async {
        let budget = Budget::default();
        let (tunnel, mut incoming, _driver) = keep(theirs(&budget)).await;
        bulk(&tunnel, &mut incoming).await;
        assert_eq!(budget.lent(), 1 << 20);
    })
    .await;
}

/// Tunnels that were busy once, so that their peers have credit: when it becomes scarce, those that idle are told to go.
#[tokio::test]
async fn idle_tunnels_give_back_what_others_need() {
    local(async {
        // So that each of them gets what it wants and nothing is scarce before the last.
        let budget = Budget::new(20 << 20);
        let mut kept = Vec::new();
        while budget.lent() <= 10 << 20 {
            let (tunnel, mut incoming, driver) = keep(theirs(&budget)).await;
            bulk(&tunnel, &mut incoming).await;
            kept.push((tunnel, incoming, driver));
            assert!(kept.len() <= 32, "{} bytes are lent", budget.lent());
        }
        for _ in 0..1500 {
            if budget.lent() <= 10 << 20 {
                break;
            }
            sleep(Duration::from_millis(10)).await;
        }
        assert!(budget.lent() <= 10 << 20, "{} bytes", budget.lent());
        assert!(kept.iter().any(|(tunnel, ..)| !tunnel.alive()));
        // And those that nobody needs are left alone.
        assert!(kept.iter().filter(|(tunnel, ..)| tunnel.alive()).count() > 1);
    })
    .await;
}

/// Everything a single peer can do leaves three quarters to others.
#[tokio::test]
async fn one_peer_has_a_share() {
    local(async {
        let budget = Budget::new(32 << 20);
        let mut kept = Vec::new();
        for _ in 0..6 {
            let mine = theirs(&budget.share("spiffe://cluster.local/ns/a/sa/greedy"));
            let (tunnel, mut incoming, driver) = keep(mine).await;
            for _ in 0..8 {
                let (mut near, far) = stream(&tunnel, &mut incoming).await;
                spawn_local(async move {
                    let block = vec![0; 64 * 1024];
                    while near.write_all(&block).await.is_ok() {}
                });
                kept.push(far);
            }
            std::mem::forget((tunnel, incoming, driver));
        }
        let mut before = usize::MAX;
        while budget.lent() != before || before == 0 {
            before = budget.lent();
            sleep(Duration::from_millis(300)).await;
        }
        assert!(budget.lent() <= 8 << 20, "{} bytes", budget.lent());
        // It is not so because nothing was wanted.
        assert!(budget.lent() > 6 << 20, "{} bytes", budget.lent());
        let other = theirs(&budget.share("spiffe://cluster.local/ns/a/sa/modest"));
        let (tunnel, mut incoming, _driver) = keep(other).await;
        let before = budget.lent();
        bulk(&tunnel, &mut incoming).await;
        assert_eq!(budget.lent() - before, 1 << 20);
    })
    .await;
}
