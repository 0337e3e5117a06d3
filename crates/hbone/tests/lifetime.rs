//! How long a tunnel lives: told to go, lost, silent or idle.

mod common;

use std::time::Duration;

use common::hostile::opening;
use common::wire::{
    self, ACK, END_HEADERS, HEADERS, SETTINGS, WINDOW_UPDATE, connect, frame, literal,
};
use common::{echo, local, request, serve, settings, stream, tunnel};
use lateen_hbone::{ConnectError, Connection, Settings, TunnelError, client};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::task::spawn_local;
use tokio::time::{Instant, sleep, timeout};

#[tokio::test]
async fn goaway_lets_streams_finish_and_takes_no_more() {
    local(async {
        let (ours, theirs) = settings();
        let (tunnel, mut incoming) = tunnel(ours, theirs).await;
        let (mut near, mut far) = stream(&tunnel, &mut incoming).await;
        assert!(tunnel.usable());
        // Shuts the server down.
        drop(incoming);
        while tunnel.usable() {
            tokio::task::yield_now().await;
        }
        let refused = tunnel.connect(&request()).await.expect_err("it was taken");
        assert!(matches!(refused, ConnectError::Unprocessed(_)), "{refused}");
        assert!(refused.unprocessed());
        near.write_all(b"still here").await.unwrap();
        let mut got = [0; 10];
        far.read_exact(&mut got).await.unwrap();
        far.write_all(b"me too").await.unwrap();
        far.shutdown().await.unwrap();
        let mut got = Vec::new();
        near.read_to_end(&mut got).await.unwrap();
        assert_eq!(got, b"me too");
    })
    .await;
}

#[tokio::test]
async fn a_lost_connection_breaks_streams_and_requests() {
    local(async {
        let (near_io, far_io) = duplex(64 * 1024);
        let (tunnel, driver) = client::handshake(near_io, Settings::client())
            .await
            .unwrap();
        let driver = spawn_local(driver);
        let mut server = Connection::accept(far_io, Settings::server())
            .await
            .unwrap();
        let request = request();
        let (connected, far) = tokio::join!(tunnel.connect(&request), async {
            let far = server.next().await.unwrap().unwrap().accept(None).unwrap();
            // Sends the answer.
            let idle = tokio::time::timeout(Duration::from_millis(50), server.next()).await;
            assert!(idle.is_err());
            far
        });
        let mut near = connected.unwrap().0;
        let pending = spawn_local({
            let tunnel = tunnel.clone();
            async move { tunnel.connect(&common::request()).await.err() }
        });
        tokio::task::yield_now().await;
        drop((server, far));
        near.read(&mut [0; 1])
            .await
            .expect_err("the loss became an end");
        let lost = pending.await.unwrap().expect("nobody answered");
        assert!(lost.unanswered() && !lost.unprocessed(), "{lost}");
        assert!(!tunnel.usable());
        assert_eq!(tunnel.active(), 1);
        drop(near);
        assert_eq!(tunnel.active(), 0);
        // How it ended depends on whether the end or the error came first.
        let _ = driver.await.unwrap();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_silent_peer_is_given_up() {
    local(async {
        let (near, mut far) = duplex(64 * 1024);
        let (tunnel, driver) = client::handshake(near, Settings::client()).await.unwrap();
        let driver = spawn_local(driver);
        // Reads and never says a word.
        let silent = spawn_local(async move {
            let mut sink = [0; 1024];
            while far.read(&mut sink).await.is_ok_and(|n| n > 0) {}
        });
        let started = tokio::time::Instant::now();
        let ended = driver.await.unwrap();
        assert!(matches!(ended, Err(TunnelError::Unresponsive)), "{ended:?}");
        let waited = started.elapsed().as_secs();
        assert!((30..=31).contains(&waited), "{waited} s");
        assert!(!tunnel.usable());
        silent.abort();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_answers_pings_is_kept_and_an_idle_tunnel_is_not() {
    local(async {
        let (near, far) = duplex(64 * 1024);
        let _incoming = serve(far, Settings::server());
        let (tunnel, driver) = client::handshake(near, Settings::client()).await.unwrap();
        let driver = spawn_local(driver);
        tokio::time::sleep(Duration::from_secs(290)).await;
        assert!(tunnel.usable());
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert!(!tunnel.usable());
        driver.await.unwrap().unwrap();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_tunnel_with_a_stream_is_not_idle() {
    local(async {
        let (ours, theirs) = settings();
        let (tunnel, mut incoming) = tunnel(ours, theirs).await;
        let (mut near, far) = stream(&tunnel, &mut incoming).await;
        spawn_local(echo(far));
        tokio::time::sleep(Duration::from_secs(1800)).await;
        near.write_all(b"hello").await.unwrap();
        near.read_exact(&mut [0; 5]).await.unwrap();
        assert!(tunnel.usable());
    })
    .await;
}

/// A client that acknowledges SETTINGS, renews the connection's window every five seconds, and answers no PING.
async fn speaks_but_answers_no_ping(mut near: DuplexStream, frames: Vec<u8>) {
    let acknowledged = frame(SETTINGS, ACK, 0, &[]);
    let opening = [opening(&[]), acknowledged, frames].concat();
    assert!(wire::write(&mut near, &opening).await);
    let (mut reader, mut writer) = tokio::io::split(near);
    spawn_local(async move { while matches!(reader.read(&mut [0; 4096]).await, Ok(1..)) {} });
    let window = frame(WINDOW_UPDATE, 0, 0, &1u32.to_be_bytes());
    while writer.write_all(&window).await.is_ok() {
        sleep(Duration::from_secs(5)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_drained_tunnel_ends_in_a_minute_though_its_peer_answers_no_ping() {
    local(async {
        let (near, far) = duplex(64 * 1024);
        spawn_local(speaks_but_answers_no_ping(near, Vec::new()));
        let mut server = Connection::accept(far, Settings::server()).await.unwrap();
        server.drain();
        let start = Instant::now();
        let ended = timeout(Duration::from_secs(600), server.next()).await;
        let ended = ended.expect("it does not end").map(|next| next.is_none());
        assert!(matches!(ended, Ok(true)), "{ended:?}");
        let took = start.elapsed();
        assert!(took >= Settings::server().ping_timeout, "{took:?}");
        assert!(took <= Duration::from_secs(60), "{took:?}");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_silent_stream_outlives_a_drain_whose_pings_nobody_answers() {
    local(async {
        let (near, far) = duplex(64 * 1024);
        spawn_local(speaks_but_answers_no_ping(near, connect(1)));
        let mut server = Connection::accept(far, Settings::server()).await.unwrap();
        let incoming = server.next().await.unwrap().expect("a request");
        let stream = incoming.accept(None).unwrap();
        server.drain();
        let ended = spawn_local(async move { server.next().await.map(|next| next.is_none()) });
        sleep(Duration::from_secs(1800)).await;
        assert!(!ended.is_finished());
        drop(stream);
        let over = Instant::now();
        let ended = ended.await.unwrap();
        assert!(matches!(ended, Ok(true)), "{ended:?}");
        let took = over.elapsed();
        assert!(took >= Settings::server().ping_timeout, "{took:?}");
        assert!(took <= Duration::from_secs(60), "{took:?}");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_request_that_was_turned_away_keeps_no_drained_tunnel() {
    local(async {
        let (near, far) = duplex(64 * 1024);
        // It is no CONNECT, and its content never ends.
        let fields = [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", "/"),
            (":authority", "a"),
        ];
        let block = fields.map(|(name, value)| literal(name.as_bytes(), value.as_bytes()));
        let request = frame(HEADERS, END_HEADERS, 1, &block.concat());
        spawn_local(speaks_but_answers_no_ping(near, request));
        let mut server = Connection::accept(far, Settings::server()).await.unwrap();
        let none = timeout(Duration::from_secs(1), server.next()).await;
        none.expect_err("it is answered with 405");
        server.drain();
        let ended = timeout(Duration::from_secs(60), server.next()).await;
        let ended = ended.expect("it does not end").map(|next| next.is_none());
        assert!(matches!(ended, Ok(true)), "{ended:?}");
    })
    .await;
}
