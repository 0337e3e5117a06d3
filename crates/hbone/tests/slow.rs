//! A path that was fast and takes 1 Mbit/s now, below a kernel that holds 4 MiB for it: what is asked waits for half a minute
//! behind what was written, and the answer comes later than a PING's time. (Where it was slow from the start the window
//! is what comes in two seconds, or the first one.)

mod common;

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use common::{local, noise, request, serve, stream};
use lateen_hbone::{Settings, TunnelError, client};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf, duplex, split};
use tokio::task::spawn_local;
use tokio::time::{Instant, sleep};

/// What the kernel holds at most for a connection that is written to.
const HELD: usize = 4 << 20;

/// What the path carries in a tenth of a second: 200 Mbit/s, 1 Mbit/s.
const FAST: usize = 2_500_000;
const SLOW: usize = 12_500;

/// Carries so many bytes in a tenth of a second; none once that is 0.
async fn carry(
    mut from: ReadHalf<DuplexStream>,
    mut to: WriteHalf<DuplexStream>,
    rate: Rc<Cell<usize>>,
) {
    let mut tenth = vec![0; FAST];
    while let Ok(read @ 1..) = from.read(&mut tenth[..rate.get()]).await {
        if to.write_all(&tenth[..read]).await.is_err() {
            return;
        }
        sleep(Duration::from_millis(100)).await;
        if rate.get() == 0 {
            std::future::pending::<()>().await;
        }
    }
}

/// Both ends of such a path, and how fast it is.
fn path() -> (DuplexStream, DuplexStream, Rc<Cell<usize>>) {
    let ((near, left), (right, far)) = (duplex(HELD), duplex(HELD));
    let ((from_left, to_left), (from_right, to_right)) = (split(left), split(right));
    let rate = Rc::new(Cell::new(FAST));
    spawn_local(carry(from_left, to_right, Rc::clone(&rate)));
    spawn_local(carry(from_right, to_left, Rc::clone(&rate)));
    (near, far, rate)
}

#[tokio::test(start_paused = true)]
async fn a_tunnel_whose_pings_wait_behind_its_bytes_is_kept_while_the_peer_is_heard_of() {
    for upwards in [true, false] {
        local(async {
            let (near, far, rate) = path();
            let mut incoming = serve(far, Settings::server());
            let handshake = client::handshake(near, Settings::client());
            let (tunnel, driver) = handshake.await.unwrap();
            let driver = spawn_local(driver);
            let read = Rc::<Cell<usize>>::default();
            for _ in 0..8 {
                let (ours, theirs) = stream(&tunnel, &mut incoming).await;
                let (mut writer, mut reader) = if upwards {
                    (ours, theirs)
                } else {
                    (theirs, ours)
                };
                spawn_local(async move {
                    let piece = noise(64 * 1024, 1);
                    while writer.write_all(&piece).await.is_ok() {}
                });
                let read = Rc::clone(&read);
                spawn_local(async move {
                    let mut piece = vec![0; 64 * 1024];
                    while let Ok(more @ 1..) = reader.read(&mut piece).await {
                        read.set(read.get() + more);
                    }
                });
            }
            sleep(Duration::from_secs(20)).await;
            rate.set(SLOW);
            sleep(Duration::from_secs(300)).await;
            assert!(!driver.is_finished(), "upwards {upwards}");
            let before = read.get();
            sleep(Duration::from_secs(60)).await;
            let more = read.get() - before;
            assert!(more > 5 << 20, "{more} bytes in a minute");

            // It is given up all the same when nothing comes any more.
            rate.set(0);
            let (since, ended) = (Instant::now(), driver.await.unwrap());
            assert!(matches!(ended, Err(TunnelError::Unresponsive)), "{ended:?}");
            let waited = since.elapsed();
            assert!(waited <= Duration::from_secs(50), "{waited:?}");
        })
        .await;
    }
}

/// Its windows are an unmodified ztunnel's: it gives credit for 5 MiB at a time, which takes longer than a PING may.
#[tokio::test(start_paused = true)]
async fn such_a_tunnel_is_kept_while_its_peer_takes_what_is_sent() {
    for streams in [1, 8] {
        local(async {
            let (near, far, rate) = path();
            spawn_local(async move {
                let mut builder = h2::server::Builder::new();
                builder
                    .initial_window_size(4 << 20)
                    .initial_connection_window_size(16 << 20)
                    .max_frame_size(1 << 20);
                let handshake = builder.handshake::<_, bytes::Bytes>(far);
                let mut connection = handshake.await.unwrap();
                while let Some(Ok((request, mut respond))) = connection.accept().await {
                    let answer = respond
                        .send_response(http::Response::new(()), false)
                        .unwrap();
                    spawn_local(async move {
                        let _answer = answer;
                        let mut body = request.into_body();
                        while let Some(Ok(data)) = body.data().await {
                            // The connection may be over.
                            let _ = body.flow_control().release_capacity(data.len());
                        }
                    });
                }
            });
            let handshake = client::handshake(near, Settings::client());
            let (tunnel, driver) = handshake.await.unwrap();
            let driver = spawn_local(driver);
            for _ in 0..streams {
                let (mut writer, _) = tunnel.connect(&request()).await.unwrap();
                spawn_local(async move {
                    let piece = noise(64 * 1024, 1);
                    while writer.write_all(&piece).await.is_ok() {}
                });
            }
            sleep(Duration::from_secs(20)).await;
            rate.set(SLOW);
            sleep(Duration::from_secs(300)).await;
            assert!(
                !driver.is_finished(),
                "{streams} streams: {:?}",
                driver.await
            );
        })
        .await;
    }
}
