//! HTTP within a tunnel: both ends of a connection of `lateen_exchange` over the two ends of a stream.

mod common;

use std::cell::Cell;
use std::future::Future;
use std::io::ErrorKind;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use common::messages::{head, trailers};
use common::{local, noise, serve, settings, stream};
use lateen_exchange::{Config, ConnectionError, Error, Protocol, client, server};
use lateen_h2::Code;
use lateen_hbone::{Incoming, Stream, Tunnel};
use lateen_http::{Known, Length, Status};
use tokio::io::duplex;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, spawn_local};

const CHUNKED: [(&str, &str); 2] = [("transfer-encoding", "chunked"), ("te", "trailers")];

/// The end of the stream that the HTTP client has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClientAt {
    /// The tunnel's client, as for a waypoint that is asked through a tunnel.
    Near,
    /// The tunnel's server.
    Far,
}

/// Both ends of a connection within a tunnel; tasks drive the tunnel and the HTTP client's end.
struct Pair {
    handle: client::Handle,
    server: server::Connection<Stream>,
    driver: JoinHandle<Result<(), ConnectionError>>,
    tunnel: Tunnel,
    tunnel_driver: JoinHandle<()>,
    incoming: mpsc::UnboundedReceiver<Incoming>,
}

async fn pair(protocol: Protocol, client_at: ClientAt) -> Pair {
    let (ours, theirs) = settings();
    let (near, far) = duplex(256 * 1024);
    let mut incoming = serve(far, theirs);
    let (tunnel, driver) = lateen_hbone::client::handshake(near, ours).await.unwrap();
    let tunnel_driver = spawn_local(async move {
        // How it ends shows in the streams.
        let _ = driver.await;
    });
    let (near, far) = stream(&tunnel, &mut incoming).await;
    let (asks, answers) = match client_at {
        ClientAt::Near => (near, far),
        ClientAt::Far => (far, near),
    };
    let (handle, connection) = client::open(asks, Config::new(protocol));
    Pair {
        handle,
        server: server::Connection::new(answers, Config::new(protocol)),
        driver: spawn_local(connection),
        tunnel,
        tunnel_driver,
        incoming,
    }
}

/// Runs a test with both protocols in both directions of a tunnel.
async fn each<T: Future<Output = ()>>(test: impl Fn(Protocol, Pair) -> T) {
    for protocol in [Protocol::Http1, Protocol::Http2] {
        for client_at in [ClientAt::Near, ClientAt::Far] {
            local(async { test(protocol, pair(protocol, client_at).await).await }).await;
        }
    }
}

/// Moves a server's connection to its end.
fn drive(mut server: server::Connection<Stream>) -> JoinHandle<Result<(), ConnectionError>> {
    spawn_local(async move {
        while let Some(next) = server.next().await? {
            drop(next);
        }
        Ok(())
    })
}

async fn answer(exchange: &client::Exchange) -> Result<Status, Error> {
    Ok(exchange.answer().await?.status())
}

async fn content(stream: &lateen_exchange::Stream) -> Result<Vec<u8>, Error> {
    let mut content = Vec::new();
    while let Some(bytes) = stream.data().await? {
        content.extend_from_slice(&bytes);
    }
    Ok(content)
}

/// The kind of the error that ended the connection below an exchange.
fn kind(error: &Error) -> ErrorKind {
    match error {
        Error::Connection(ConnectionError::Io(error)) => error.kind(),
        error => panic!("{error}"),
    }
}

/// Checks that the tunnel is as it was and carries another stream.
async fn goes_on(tunnel: &Tunnel, incoming: &mut mpsc::UnboundedReceiver<Incoming>) {
    assert!(tunnel.alive());
    let (near, _far) = stream(tunnel, incoming).await;
    drop(near);
    while tunnel.active() > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn messages_with_content_and_trailers_arrive_in_both_directions() {
    each(|protocol, mut pair| async move {
        let serving = spawn_local(async move {
            while let Some((_, exchange)) = pair.server.next().await? {
                spawn_local(async move {
                    let content = content(&exchange).await.unwrap();
                    let trailers = exchange.trailers().unwrap();
                    let reply = exchange.reply(Status::OK, &[], Length::Delimited);
                    reply.unwrap();
                    exchange.send(content.into()).await.unwrap();
                    exchange.finish_with(&trailers).unwrap();
                });
            }
            Ok::<_, ConnectionError>(())
        });
        for (number, size) in [5, 0, 300_000, 2_000_000].into_iter().enumerate() {
            let bytes = noise(size, number as u32);
            let request = head("POST", "/a?b", &CHUNKED);
            let exchange = pair.handle.request(&request, None).unwrap();
            let status = number.to_string();
            exchange.send(bytes.clone().into()).await.unwrap();
            exchange.finish_with(&trailers(&status)).unwrap();
            assert_eq!(answer(&exchange).await.unwrap(), Status::OK);
            assert!(content(&exchange).await.unwrap() == bytes, "{protocol:?}");
            let came = exchange.trailers().unwrap();
            assert_eq!(
                came.fields().get(Known::GrpcStatus),
                Some(status.as_bytes())
            );
        }
        drop(pair.handle);
        pair.driver.await.unwrap().unwrap();
        serving.await.unwrap().unwrap();
        goes_on(&pair.tunnel, &mut pair.incoming).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn dropped_request_is_reset_at_the_server() {
    each(|protocol, mut pair| async move {
        let request = head("POST", "/", &CHUNKED);
        let exchange = pair.handle.request(&request, None).unwrap();
        exchange.send("half".into()).await.unwrap();
        let (_, came) = pair.server.next().await.unwrap().unwrap();
        let serving = drive(pair.server);
        assert_eq!(came.data().await.unwrap().unwrap(), "half");
        drop(exchange);
        let error = came.data().await.expect_err("a part was taken for all");
        match protocol {
            Protocol::Http2 => {
                assert!(matches!(error, Error::Reset(Code::CANCEL)), "{error}");
                assert!(pair.handle.is_ready());
            }
            Protocol::Http1 => assert_eq!(kind(&error), ErrorKind::ConnectionReset),
        }
        drop((came, pair.handle));
        assert_eq!(
            pair.driver.await.unwrap().is_ok(),
            protocol == Protocol::Http2
        );
        assert_eq!(serving.await.unwrap().is_ok(), protocol == Protocol::Http2);
        goes_on(&pair.tunnel, &mut pair.incoming).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn dropped_answer_is_reset_at_the_client() {
    each(|protocol, mut pair| async move {
        let exchange = pair.handle.request(&head("GET", "/", &[]), None).unwrap();
        let (_, came) = pair.server.next().await.unwrap().unwrap();
        let serving = drive(pair.server);
        came.reply(Status::OK, &[], Length::Delimited).unwrap();
        came.send("half".into()).await.unwrap();
        answer(&exchange).await.unwrap();
        assert_eq!(exchange.data().await.unwrap().unwrap(), "half");
        drop(came);
        let error = exchange.data().await.expect_err("a part was taken for all");
        match protocol {
            Protocol::Http2 => {
                assert!(matches!(error, Error::Reset(Code::CANCEL)), "{error}");
                assert!(pair.handle.is_ready());
            }
            Protocol::Http1 => assert_eq!(kind(&error), ErrorKind::ConnectionReset),
        }
        drop((exchange, pair.handle));
        assert_eq!(
            pair.driver.await.unwrap().is_ok(),
            protocol == Protocol::Http2
        );
        assert_eq!(serving.await.unwrap().is_ok(), protocol == Protocol::Http2);
        goes_on(&pair.tunnel, &mut pair.incoming).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn reader_that_stops_makes_the_sender_wait() {
    const BLOCK: usize = 16 * 1024;
    const BLOCKS: usize = 512;
    // The buffers of both connections and of the stream, and its window.
    const MOST: usize = 2 << 20;
    each(|protocol, mut pair| async move {
        let exchange = pair.handle.request(&head("POST", "/", &CHUNKED), None);
        let exchange = exchange.unwrap();
        let taken = Rc::new(Cell::new(0));
        let counted = Rc::clone(&taken);
        let sending = spawn_local(async move {
            for _ in 0..BLOCKS {
                exchange
                    .send(Bytes::from_static(&[7; BLOCK]))
                    .await
                    .unwrap();
                counted.set(counted.get() + BLOCK);
            }
            exchange.finish().unwrap();
            answer(&exchange).await.unwrap()
        });
        let (_, came) = pair.server.next().await.unwrap().unwrap();
        let serving = drive(pair.server);
        tokio::time::sleep(Duration::from_secs(2)).await;
        let before = taken.get();
        assert!(
            before > 0 && before < MOST,
            "{protocol:?} took {before} bytes"
        );
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(taken.get(), before, "nobody has read");
        let content = content(&came).await.unwrap();
        assert!(content == [7; BLOCK].repeat(BLOCKS), "{protocol:?}");
        came.reply(Status::OK, &[], Length::None).unwrap();
        drop(came);
        assert_eq!(sending.await.unwrap(), Status::OK);
        drop(pair.handle);
        pair.driver.await.unwrap().unwrap();
        serving.await.unwrap().unwrap();
        goes_on(&pair.tunnel, &mut pair.incoming).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn exchanges_end_with_their_tunnel() {
    each(|_, mut pair| async move {
        let exchange = pair.handle.request(&head("POST", "/", &CHUNKED), None);
        let exchange = exchange.unwrap();
        let (_, came) = pair.server.next().await.unwrap().unwrap();
        let serving = drive(pair.server);
        pair.tunnel_driver.abort();
        let error = answer(&exchange).await.expect_err("the tunnel is gone");
        assert_eq!(kind(&error), ErrorKind::ConnectionAborted);
        let error = content(&came).await.expect_err("the tunnel is gone");
        assert_eq!(kind(&error), ErrorKind::ConnectionAborted);
        assert!(pair.handle.is_closed());
        drop((exchange, came));
        assert!(pair.driver.await.unwrap().is_err());
        assert!(serving.await.unwrap().is_err());
    })
    .await;
}
