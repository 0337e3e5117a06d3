//! The budget grants peers credit: only as much as they use, never what others need, and idle tunnels give way. In virtual time:
//! windows follow how much comes in a second and from tick to tick, which on a busy machine would be little.

mod common;

use std::time::Duration;

use common::pooled::{identity, key};
use common::{local, path, request, serve, stream};
use lateen_hbone::{
    Below, Budget, Budgeted, Connection, Pool, PoolKey, RetryBudget, Settings, Status, Tunnel,
    client,
};
use lateen_types::Identity;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::sleep;

/// The bytes that a tunnel is granted that moves much on one stream: the windows end at up to a mebibyte, doubled from 64 KiB.
const LARGE: usize = 900 << 10;

/// A server whose tick is quick.
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
    // On which windows of a mebibyte are of use.
    let (near, far) = path(Duration::from_millis(1));
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
    bulks(tunnel, incoming, 1).await;
}

/// The same on so many streams at once.
async fn bulks(
    tunnel: &Tunnel,
    incoming: &mut tokio::sync::mpsc::UnboundedReceiver<lateen_hbone::Incoming>,
    count: usize,
) {
    let mut all = Vec::new();
    for _ in 0..count {
        let (near, far) = stream(tunnel, incoming).await;
        all.push(spawn_local(transfer(near, far)));
    }
    for one in all {
        one.await.unwrap();
    }
}

async fn transfer(mut near: lateen_hbone::Stream, mut far: lateen_hbone::Stream) {
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
#[tokio::test(start_paused = true)]
async fn peers_that_send_nothing_are_granted_nothing() {
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
        assert_eq!(budget.granted(), 0);
    })
    .await;
}

/// Windows still become as large as a stream's for those who use them.
#[tokio::test(start_paused = true)]
async fn a_bulk_transfer_grows_its_window() {
    local(async {
        let budget = Budget::default();
        let (tunnel, mut incoming, _driver) = keep(theirs(&budget)).await;
        bulk(&tunnel, &mut incoming).await;
        assert!((LARGE..=1 << 20).contains(&budget.granted()));
    })
    .await;
}

/// Tunnels that were busy once, so that their peers have credit: when it becomes scarce, those that idle are told to go.
#[tokio::test(start_paused = true)]
async fn idle_tunnels_give_back_what_others_need() {
    local(async {
        // So that each of them gets what it wants and nothing is scarce before the last.
        let budget = Budget::new(20 << 20);
        let mut kept = Vec::new();
        // The last one may have found them gone already.
        while budget.granted() <= 10 << 20
            && kept
                .iter()
                .all(|(tunnel, ..): &(Tunnel, _, _)| tunnel.alive())
        {
            let (tunnel, mut incoming, driver) = keep(theirs(&budget)).await;
            bulk(&tunnel, &mut incoming).await;
            kept.push((tunnel, incoming, driver));
            assert!(kept.len() <= 32, "{} bytes are granted", budget.granted());
            // Their ticks are apart: of those that tick at one moment all would go.
            sleep(Duration::from_millis(7)).await;
        }
        for _ in 0..1500 {
            if budget.granted() <= 10 << 20 {
                break;
            }
            sleep(Duration::from_millis(10)).await;
        }
        assert!(budget.granted() <= 10 << 20, "{} bytes", budget.granted());
        assert!(kept.iter().any(|(tunnel, ..)| !tunnel.alive()));
        // And those that nobody needs are left alone.
        assert!(kept.iter().filter(|(tunnel, ..)| tunnel.alive()).count() > 1);
    })
    .await;
}

/// Whatever a single peer does to a pod, or a single pod does to a peer by not reading, others find a window: with either of
/// them too.
#[tokio::test(start_paused = true)]
async fn who_takes_all_it_can_leaves_others_a_window() {
    local(async {
        let budget = Budget::new(48 << 20);
        for _ in 0..6 {
            let mine = theirs(&budget.between(&identity("greedy"), "deaf"));
            let (tunnel, mut incoming, driver) = keep(mine).await;
            stop_reading(&tunnel, &mut incoming).await;
            std::mem::forget((tunnel, incoming, driver));
        }
        let mut before = usize::MAX;
        while budget.granted() != before || before == 0 {
            before = budget.granted();
            sleep(Duration::from_millis(300)).await;
        }
        assert!(budget.granted() <= 32 << 20, "{} bytes", budget.granted());
        // It is not so because nothing was wanted.
        assert!(budget.granted() > 24 << 20, "{} bytes", budget.granted());
        for (peer, pod) in [("greedy", "pod"), ("peer", "deaf"), ("peer", "pod")] {
            let (tunnel, mut incoming, driver) =
                keep(theirs(&budget.between(&identity(peer), pod))).await;
            let before = budget.granted();
            bulk(&tunnel, &mut incoming).await;
            assert!(budget.granted() - before >= LARGE, "{peer} to {pod}");
            std::mem::forget((tunnel, incoming, driver));
        }
    })
    .await;
}

/// Streams that never stop sending, to a pod that reads until they have large windows and then no more.
async fn stop_reading(
    tunnel: &Tunnel,
    incoming: &mut tokio::sync::mpsc::UnboundedReceiver<lateen_hbone::Incoming>,
) {
    for _ in 0..8 {
        let (mut near, mut far) = stream(tunnel, incoming).await;
        spawn_local(async move {
            let block = vec![0; 64 * 1024];
            while near.write_all(&block).await.is_ok() {}
        });
        spawn_local(async move {
            far.read_exact(&mut vec![0; 8 << 20]).await.unwrap();
            std::future::pending::<()>().await;
        });
    }
}

/// Takes all that these pairs can get, by pods that do not read.
async fn deaf(budget: &Budget, pairs: &[(&str, &str)]) {
    for (peer, pod) in pairs {
        for _ in 0..6 {
            let mine = theirs(&budget.between(&identity(peer), pod));
            let (tunnel, mut incoming, driver) = keep(mine).await;
            stop_reading(&tunnel, &mut incoming).await;
            std::mem::forget((tunnel, incoming, driver));
        }
        let mut before = usize::MAX;
        while budget.granted() != before || before == 0 {
            before = budget.granted();
            sleep(Duration::from_millis(300)).await;
        }
    }
}

/// The bytes that a pair is granted when it moves much.
async fn newcomer(budget: &Budget, peer: &str, pod: &str) -> usize {
    let mine = budget.between(&identity(peer), pod);
    let (tunnel, mut incoming, driver) = keep(theirs(&mine)).await;
    bulk(&tunnel, &mut incoming).await;
    std::mem::forget((tunnel, incoming, driver));
    budget.granted_between(&identity(peer), pod).unwrap_or(0)
}

/// A first window is left to a peer whose part pods that do not read have, and to a pod's peers.
#[tokio::test(start_paused = true)]
async fn those_with_a_part_in_it_find_a_first_window() {
    const FIRST: usize = 256 << 10;
    local(async {
        let budget = Budget::default();
        deaf(&budget, &[("gateway", "evil-1"), ("gateway", "evil-2")]).await;
        for (peer, pod) in [("gateway", "one"), ("gateway", "other"), ("other", "one")] {
            let got = newcomer(&budget, peer, pod).await;
            assert!(got >= FIRST, "{peer} to {pod}: {got} bytes");
        }
        let budget = Budget::default();
        deaf(&budget, &[("evil-1", "pod"), ("evil-2", "pod")]).await;
        for (peer, pod) in [("one", "pod"), ("other", "pod"), ("one", "other")] {
            let got = newcomer(&budget, peer, pod).await;
            assert!(got >= FIRST, "{peer} to {pod}: {got} bytes");
        }
    })
    .await;
}

/// Peers of a busy pod, with many streams each that were brisk once and stay open: the last finds a window too, and
/// what they do not use comes back once they send.
#[tokio::test(start_paused = true)]
async fn peers_that_were_busy_once_leave_others_a_window() {
    local(async {
        let budget = Budget::default();
        let mut kept = Vec::new();
        for n in 0..8 {
            let (peer, pod) = (identity(&format!("peer-{n}")), "busy");
            let (tunnel, mut incoming, driver) = keep(theirs(&budget.between(&peer, pod))).await;
            for _ in 0..15 {
                std::mem::forget(stream(&tunnel, &mut incoming).await);
            }
            bulks(&tunnel, &mut incoming, 15).await;
            let got = budget.granted_between(&peer, pod).unwrap_or(0);
            assert!(got >= 256 << 10, "peer {n}: {got} bytes");
            kept.push((tunnel, incoming, driver));
        }
        let before = budget.granted();
        assert!(before > 40 << 20, "{before} bytes");
        // Several ticks, and a little is sent now and then.
        for _ in 0..60 {
            if budget.granted() <= before - (4 << 20) {
                break;
            }
            sleep(Duration::from_millis(1_000)).await;
            for (tunnel, incoming, _) in &mut kept {
                let (mut near, mut far) = stream(tunnel, incoming).await;
                let (block, mut got) = (vec![7; 100 << 10], vec![0; 100 << 10]);
                let (wrote, read) = tokio::join!(near.write_all(&block), far.read_exact(&mut got));
                wrote.unwrap();
                read.unwrap();
            }
        }
        assert!(
            budget.granted() <= before - (4 << 20),
            "{} bytes",
            budget.granted()
        );
    })
    .await;
}

/// Service accounts of one namespace, one after the other, each with pods of its own.
#[tokio::test(start_paused = true)]
async fn service_accounts_of_one_namespace_leave_others_a_window() {
    local(async {
        let budget = Budget::default();
        for n in 0..8 {
            for tunnel in 0..4 {
                let peer = Identity::new("cluster.local", "tenant", &format!("sa-{n}")).unwrap();
                let mine = budget.between(&peer, &format!("pod-{n}-{tunnel}"));
                let (tunnel, mut incoming, driver) = keep(theirs(&mine)).await;
                for _ in 0..15 {
                    std::mem::forget(stream(&tunnel, &mut incoming).await);
                }
                bulks(&tunnel, &mut incoming, 15).await;
                std::mem::forget((tunnel, incoming, driver));
            }
        }
        let got = newcomer(&budget, "honest", "fresh").await;
        assert!(got >= LARGE, "{got} bytes");
    })
    .await;
}

/// Who the peer is shows when it is dialled: what it sends back is granted by that, and not by where it was looked for.
#[tokio::test(start_paused = true)]
async fn a_dial_says_who_is_charged() {
    local(async {
        let (of_all, of_peer) = (Budget::default(), Budget::default());
        let ours = Settings {
            budget: of_all.clone(),
            ..Settings::client()
        };
        let pool = Pool::<String>::new(ours, 100);
        let key = PoolKey {
            destinations: [identity("one"), identity("other")].into(),
            ..key()
        };
        let dial = || {
            let (near, far) = path(Duration::from_millis(1));
            let mut incoming = serve(far, Settings::server());
            spawn_local(async move {
                while let Some(incoming) = incoming.recv().await {
                    let mut stream = incoming.accept(None).unwrap();
                    spawn_local(async move {
                        stream.write_all(&vec![7; 8 << 20]).await.unwrap();
                        // Dropped before all is through, it would take back what waits.
                        let _ = stream.read(&mut [0]).await;
                    });
                }
            });
            let dialled = Budgeted {
                io: near,
                budget: of_peer.clone(),
                below: Below {
                    sent: |_| 0,
                    wake_at: None,
                },
            };
            async move { Ok(dialled) }
        };
        let (mut stream, _) = pool
            .connect(&key, &request(), &RetryBudget::default(), dial)
            .await
            .unwrap();
        stream.read_exact(&mut vec![0; 8 << 20]).await.unwrap();
        assert_eq!(of_all.granted(), 0);
        assert!((LARGE..=1 << 20).contains(&of_peer.granted()));
    })
    .await;
}
