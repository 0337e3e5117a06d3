//! Tunnels behind WebSocket handshakes and CONNECT, in both protocols, and connections within them.

mod common;

use std::future::poll_fn;
use std::time::Duration;

use bytes::Bytes;
use common::{
    PIPE, PROTOCOLS, answer, canonical, connect, content, head, local, pair, serve, text,
};
use lateen_exchange::{Config, ConnectionError, Error, Protocol, Tunnel, client, server};
use lateen_http::{Canonical, FramedRequest, Length, PeerKind, Status, Upgrade};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, copy, duplex, split};
use tokio::task::{JoinHandle, spawn_local, yield_now};
use tokio::time::timeout;

const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";

async fn echo(tunnel: Tunnel) -> Result<(), Error> {
    let (mut reader, mut writer) = split(tunnel);
    // A failure shows at the other end.
    let _ = copy(&mut reader, &mut writer).await;
    let _ = writer.shutdown().await;
    Ok(())
}

async fn accept(request: FramedRequest, exchange: server::Exchange) -> Result<(), Error> {
    match canonical(request) {
        Canonical::Request(head) => exchange.accept(&head)?,
        Canonical::Connect(_) => exchange.reply(Status::OK, &[], Length::None)?,
    }
    echo(exchange.into_tunnel().expect("it is accepted")).await
}

/// Sends content through a tunnel that echoes it, more than all buffers on the way hold.
async fn exercise(tunnel: Tunnel) {
    let bytes = common::pattern(700_000);
    let (mut reader, mut writer) = split(tunnel);
    let expected = bytes.clone();
    let sender = spawn_local(async move {
        writer.write_all(&bytes).await.expect("it is read");
        writer.shutdown().await.expect("it is open");
        writer
    });
    let mut came = Vec::new();
    reader.read_to_end(&mut came).await.expect("it comes back");
    assert!(came == expected);
    sender.await.expect("no panic");
}

#[test]
fn websocket_becomes_a_tunnel() {
    for protocol in PROTOCOLS {
        local(async {
            let pair = pair(protocol);
            let server = serve(pair.server, accept);
            let fields = [
                ("connection", "upgrade"),
                ("upgrade", "websocket"),
                ("sec-websocket-version", "13"),
                ("sec-websocket-key", KEY),
            ];
            while protocol == Protocol::Http2 && !pair.handle.allows_extended_connect() {
                yield_now().await;
            }
            let head = head("GET", "/chat", &fields);
            let exchange = pair.handle.request(&head, None).expect("it is ready");
            let answer = exchange.answer().await.expect("an answer");
            assert!(answer.opens_tunnel(), "{protocol:?}");
            if protocol == Protocol::Http1 {
                let Some(Upgrade::WebSocket { key }) = head.upgrade() else {
                    panic!("it asks for a WebSocket")
                };
                answer
                    .canonical(key.as_ref(), PeerKind::Mesh)
                    .expect("the key is accepted");
            }
            exercise(exchange.into_tunnel().expect("it is accepted")).await;
            drop(pair.handle);
            pair.driver
                .await
                .expect("no panic")
                .expect("an orderly end");
            server.await.expect("no panic").expect("an orderly end");
        });
    }
}

#[test]
fn connect_becomes_a_tunnel() {
    for protocol in PROTOCOLS {
        local(async {
            let pair = pair(protocol);
            let server = serve(pair.server, accept);
            let exchange = pair.handle.connect(&connect("a:443")).expect("it is ready");
            let answer = answer(&exchange).await.expect("an answer");
            assert!(answer.opens_tunnel(), "{protocol:?}");
            exercise(exchange.into_tunnel().expect("it is accepted")).await;
            drop(pair.handle);
            pair.driver
                .await
                .expect("no panic")
                .expect("an orderly end");
            server.await.expect("no panic").expect("an orderly end");
        });
    }
}

#[test]
fn refused_upgrade_is_an_ordinary_answer() {
    local(async {
        let pair = pair(Protocol::Http1);
        serve(pair.server, |_, exchange| async move {
            exchange.reply(Status::BAD_REQUEST, &[], Length::Known(2))?;
            exchange.send("no".into()).await
        });
        let fields = [
            ("connection", "upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-key", KEY),
        ];
        let exchange = pair.handle.request(&head("GET", "/", &fields), None);
        let exchange = exchange.expect("it is ready");
        assert!(!answer(&exchange).await.expect("an answer").opens_tunnel());
        assert_eq!(content(&exchange).await.expect("content"), b"no");
        assert!(exchange.into_tunnel().is_err());
    });
}

#[test]
fn bytes_behind_an_upgrade_are_the_tunnels() {
    local(async {
        let (mut peer, io) = duplex(PIPE);
        let server = server::Connection::new(io, Config::new(Protocol::Http1));
        let server = serve(server, accept);
        let request = format!(
            "GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-key: {KEY}\r\n\r\nearly"
        );
        peer.write_all(request.as_bytes())
            .await
            .expect("there is room");
        peer.shutdown().await.expect("it is open");
        let answer = text(&mut peer).await;
        assert!(answer.starts_with("HTTP/1.1 101 "), "{answer}");
        assert!(answer.ends_with("\r\n\r\nearly"), "{answer}");
        server.await.expect("no panic").expect("an orderly end");
    });
}

#[test]
fn tunnel_carries_another_connection() {
    for outer in PROTOCOLS {
        for inner in PROTOCOLS {
            local(async {
                let pair = pair(outer);
                serve(pair.server, move |_, exchange| async move {
                    exchange.reply(Status::OK, &[], Length::None)?;
                    let tunnel = exchange.into_tunnel().expect("it is accepted");
                    let mut server = server::Connection::new(tunnel, Config::new(inner));
                    while let Some((_, exchange)) = server.next().await? {
                        exchange.reply(Status::OK, &[], Length::Known(5))?;
                        exchange.send("inner".into()).await?;
                        exchange.finish()?;
                    }
                    Ok(())
                });
                let exchange = pair.handle.connect(&connect("a:443")).expect("it is ready");
                answer(&exchange).await.expect("an answer");
                let tunnel = exchange.into_tunnel().expect("it is accepted");
                let (handle, connection) = client::open(tunnel, Config::new(inner));
                let driver = spawn_local(connection);
                for _ in 0..3 {
                    let exchange = handle.request(&head("GET", "/", &[]), None);
                    let exchange = exchange.expect("it is ready");
                    answer(&exchange).await.expect("an answer");
                    assert_eq!(content(&exchange).await.expect("content"), b"inner");
                }
                drop(handle);
                driver.await.expect("no panic").expect("an orderly end");
            });
        }
    }
}

/// A tunnel of HTTP/1 that is finished behind more bytes than the pipe holds, its driver, and its peer, which has ended its direction.
async fn finished() -> (
    Tunnel,
    JoinHandle<Result<(), ConnectionError>>,
    DuplexStream,
    Bytes,
) {
    let (ours, mut peer) = duplex(PIPE);
    let (handle, connection) = client::open(ours, Config::new(Protocol::Http1));
    let driver = spawn_local(connection);
    let exchange = handle.connect(&connect("a:443")).expect("it is ready");
    let accepted = b"HTTP/1.1 200 OK\r\n\r\n";
    peer.write_all(accepted).await.expect("there is room");
    peer.shutdown().await.expect("it is open");
    answer(&exchange).await.expect("an answer");
    let mut tunnel = exchange.into_tunnel().expect("it is accepted");
    let said = common::pattern(3 * PIPE);
    tunnel.write_all(&said).await.expect("there is room");
    assert_eq!(tunnel.read(&mut [0]).await.expect("it is open"), 0);
    tunnel.finish().expect("it is open");
    let sent = timeout(Duration::from_millis(100), tunnel_is_sent(&tunnel)).await;
    assert!(sent.is_err(), "{sent:?}");
    assert!(tunnel.unsent() > 0);
    (tunnel, driver, peer, said)
}

async fn tunnel_is_sent(tunnel: &Tunnel) -> Result<(), Error> {
    poll_fn(|cx| tunnel.poll_sent(cx)).await
}

#[test]
fn finished_tunnel_of_http1_is_sent_once_its_last_byte_is_written() {
    local(async {
        let (tunnel, driver, mut peer, said) = finished().await;
        let mut heard = Vec::new();
        let read = async {
            // The pipe holds the rest then.
            heard.resize(2 * PIPE + PIPE / 2, 0);
            peer.read_exact(&mut heard).await.expect("it comes");
        };
        let (sent, ()) = tokio::join!(tunnel_is_sent(&tunnel), read);
        sent.expect("it is written");
        assert_eq!(tunnel.unsent(), 0);
        drop(tunnel);
        driver.await.expect("no panic").expect("an orderly end");
        peer.read_to_end(&mut heard).await.expect("it comes");
        assert!(heard.ends_with(&said));
    });
}

#[test]
fn finished_tunnel_of_http1_that_is_cut_is_not_sent() {
    local(async {
        let (tunnel, driver, _peer, _) = finished().await;
        driver.abort();
        let sent = tunnel_is_sent(&tunnel).await;
        assert!(matches!(sent, Err(Error::Connection(_))), "{sent:?}");
    });
}

#[test]
fn finished_tunnel_of_http2_needs_no_wait() {
    local(async {
        let pair = pair(Protocol::Http2);
        serve(pair.server, accept);
        let exchange = pair.handle.connect(&connect("a:443")).expect("it is ready");
        answer(&exchange).await.expect("an answer");
        let mut tunnel = exchange.into_tunnel().expect("it is accepted");
        tunnel.write_all(b"hello").await.expect("there is room");
        tunnel.finish().expect("it is open");
        tunnel_is_sent(&tunnel).await.expect("it is open");
    });
}
