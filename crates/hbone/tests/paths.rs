//! Windows follow the path: they begin small, carry much over a long path, and stay small for those who do not read.

mod common;

use std::time::Duration;

use common::{echo, local, path, serve, stream};
use lateen_hbone::{Budget, Settings, Stream, Tunnel, client};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::spawn_local;
use tokio::time::{Instant, sleep, timeout};

/// The window of a stream, and of a connection, at its start.
const FIRST: usize = 65_535;

/// Half a round trip.
const DELAY: Duration = Duration::from_millis(25);

/// A tunnel over a path of any bandwidth and 50 ms, its requests, and the server's ledger.
async fn far_away() -> (Tunnel, UnboundedReceiver<lateen_hbone::Incoming>, Budget) {
    far_away_with(Budget::default()).await
}

/// The same with another ledger.
async fn far_away_with(
    budget: Budget,
) -> (Tunnel, UnboundedReceiver<lateen_hbone::Incoming>, Budget) {
    let (near, far) = path(DELAY);
    let theirs = Settings {
        budget: budget.clone(),
        ..Settings::server()
    };
    let incoming = serve(far, theirs);
    let (tunnel, driver) = client::handshake(near, Settings::client()).await.unwrap();
    spawn_local(driver);
    (tunnel, incoming, budget)
}

/// Sends without end, and counts.
fn pour(mut stream: Stream) -> std::rc::Rc<std::cell::Cell<usize>> {
    let sent = std::rc::Rc::new(std::cell::Cell::new(0));
    let count = std::rc::Rc::clone(&sent);
    spawn_local(async move {
        let block = vec![7; 64 * 1024];
        while let Ok(n @ 1..) = stream.write(&block).await {
            count.set(count.get() + n);
        }
    });
    sent
}

#[tokio::test(start_paused = true)]
async fn a_long_path_carries_more_than_a_first_window_in_a_round_trip() {
    local(async {
        let (tunnel, mut incoming, budget) = far_away().await;
        for streams in [1, 4] {
            let mut readers = Vec::new();
            let start = Instant::now();
            for _ in 0..streams {
                let (near, mut far) = stream(&tunnel, &mut incoming).await;
                pour(near);
                readers.push(spawn_local(async move {
                    let mut buffer = vec![0; 64 * 1024];
                    let mut got = 0;
                    while start.elapsed() < Duration::from_secs(5) {
                        got += far.read(&mut buffer).await.unwrap();
                    }
                    got
                }));
            }
            for reader in readers {
                let got = reader.await.unwrap();
                // A hundred round trips, the first ones with small windows. A window that stayed as it began would have
                // carried one of them in each, and one of half a mebibyte eight.
                assert!(got >= 1_000 * FIRST, "{streams} streams: {got} bytes");
            }
        }
        assert!(budget.granted() > FIRST);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn who_does_not_read_has_a_first_window() {
    local(async {
        let (tunnel, mut incoming, budget) = far_away().await;
        let (near, _far) = stream(&tunnel, &mut incoming).await;
        let sent = pour(near);
        sleep(Duration::from_secs(60)).await;
        // What came, and what waits for the window.
        assert!(sent.get() <= 2 * FIRST, "{} bytes", sent.get());
        // The others of the tunnel have something to work with beside it: what the path carried at first was twice a window.
        assert!(budget.granted() <= 2 * FIRST, "{} bytes", budget.granted());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn who_reads_slowly_gets_no_larger_window() {
    local(async {
        let (tunnel, mut incoming, budget) = far_away().await;
        let (near, mut far) = stream(&tunnel, &mut incoming).await;
        let sent = pour(near);
        let mut read = 0;
        for _ in 0..600 {
            // A sixth of what the first window carries over this path.
            sleep(Duration::from_millis(50)).await;
            read += far.read(&mut vec![0; FIRST / 6]).await.unwrap();
            assert!(sent.get() - read <= 2 * FIRST + FIRST / 6);
        }
        assert!(budget.granted() <= 4 * FIRST, "{} bytes", budget.granted());
    })
    .await;
}

/// The ledger grants a tunnel a mebibyte, which is what each of two streams could make use of.
#[tokio::test(start_paused = true)]
async fn who_stops_reading_leaves_others_a_window_also_where_little_is_granted() {
    local(async {
        let (tunnel, mut incoming, budget) = far_away_with(Budget::new(4 << 20)).await;
        let (mut quiet, far) = stream(&tunnel, &mut incoming).await;
        spawn_local(echo(far));
        let start = Instant::now();
        for _ in 0..2 {
            let (near, mut far) = stream(&tunnel, &mut incoming).await;
            pour(near);
            spawn_local(async move {
                let mut buffer = vec![0; 64 * 1024];
                while start.elapsed() < Duration::from_secs(10) {
                    assert!(far.read(&mut buffer).await.unwrap() > 0);
                }
                sleep(Duration::from_secs(3600)).await;
            });
        }
        sleep(Duration::from_secs(20)).await;
        assert!(budget.granted() > 3 * FIRST, "{} bytes", budget.granted());
        for _ in 0..10 {
            let talk = async {
                quiet.write_all(&[1; 20_000]).await?;
                quiet.read_exact(&mut [0; 20_000]).await
            };
            let talked = timeout(Duration::from_secs(5), talk).await;
            talked.expect("the window is gone").unwrap();
        }
    })
    .await;
}

/// Between them streams that say nothing hold no promise, however many there are.
#[tokio::test(start_paused = true)]
async fn who_says_nothing_is_granted_nothing() {
    local(async {
        let (tunnel, mut incoming, budget) = far_away().await;
        let mut streams = Vec::new();
        for _ in 0..90 {
            streams.push(stream(&tunnel, &mut incoming).await);
        }
        for (near, far) in &mut streams {
            near.write_all(b"hello").await.unwrap();
            far.read_exact(&mut [0; 5]).await.unwrap();
        }
        sleep(Duration::from_secs(30)).await;
        assert_eq!(budget.granted(), 0);
    })
    .await;
}
