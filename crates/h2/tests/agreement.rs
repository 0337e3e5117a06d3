//! Against the `h2` crate, over a pipe in memory that cuts as it likes: our client with its server, and the reverse. Every
//! tunnel is an echo; what comes back is what was sent, whoever opened it, and nobody finds fault.

mod common;

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use common::drive::{drive, within};
use common::{connect, ok, small};
use lateen_h2::{Code, Config, Connection, Event, Field, StreamId, Timestamp};
use tokio::io::{AsyncRead, AsyncWriteExt, DuplexStream, ReadBuf, duplex};
use tokio::task::spawn_local;

/// Sizes of what each tunnel carries: nothing, little, a frame, windows' worths.
const SIZES: [usize; 8] = [0, 1, 100, 16_384, 16_385, 70_000, 300_000, 1_000_000];

fn body(number: usize) -> Vec<u8> {
    (0..SIZES[number % SIZES.len()])
        .map(|n| (n * 7 + number) as u8)
        .collect()
}

/// Whether whoever opened a tunnel leaves it in the midst.
fn quits(number: usize) -> bool {
    number % 7 == 6
}

fn authority(number: usize) -> String {
    format!("10.0.0.{number}:8080")
}

/// Echoes what comes on our server's streams, with at most 64 KiB on the way back each.
#[derive(Default)]
struct Echo {
    back: BTreeMap<u32, (StreamId, BytesMut, bool)>,
    baggage: usize,
    resets: usize,
}

impl Echo {
    fn act(&mut self, connection: &mut Connection, event: Option<Event<'_>>) {
        match event {
            Some(Event::Request {
                stream, connect, ..
            }) => {
                assert!(connect);
                self.baggage += usize::from(
                    connection
                        .fields()
                        .get("baggage")
                        .is_some_and(|b| b.len() > 20),
                );
                let fields = [Field::new("baggage", "service.name=server").kept()];
                connection
                    .respond(stream, Some(&ok()), &fields, false)
                    .unwrap();
                self.back
                    .insert(stream.get(), (stream, BytesMut::new(), false));
            }
            Some(Event::Data { stream, bytes, end }) => {
                let entry = self.back.get_mut(&stream.get()).unwrap();
                entry.1.extend_from_slice(bytes);
                entry.2 = end;
            }
            Some(Event::Failed(error)) => panic!("{error}"),
            Some(Event::Reset { stream, code, .. }) => {
                assert_eq!(code, Code::CANCEL);
                self.resets += 1;
                self.back.remove(&stream.get());
                connection.release(stream);
            }
            Some(_) => {}
            None => {
                self.back.retain(|_, (stream, bytes, ended)| {
                    let n = connection.room(*stream).min(bytes.len());
                    if n > 0 {
                        let rest = bytes.split_off(n);
                        connection
                            .send(*stream, std::mem::replace(bytes, rest).into())
                            .unwrap();
                        connection.consumed(*stream, n);
                    }
                    let over = *ended && bytes.is_empty();
                    if over {
                        let _ = connection.finish(*stream);
                    }
                    !over
                });
            }
        }
    }
}

async fn our_server_serves_it(pipe: usize, config: Config, streams: usize) {
    let (near, far) = duplex(pipe);
    let mut echo = Echo::default();
    let connection = Connection::server(&config.share(), Timestamp::default());
    let server = spawn_local(async move {
        let result = drive(far, connection, |connection, event| {
            echo.act(connection, event)
        })
        .await;
        (result, echo.baggage, echo.resets)
    });
    let (send, client) = h2::client::handshake(near).await.unwrap();
    spawn_local(async move { client.await.unwrap() });
    let mut tunnels = Vec::new();
    for number in 0..streams {
        let mut send = send.clone().ready().await.unwrap();
        tunnels.push(spawn_local(async move {
            let request = http::Request::builder()
                .method(http::Method::CONNECT)
                .uri(authority(number))
                .header("baggage", "k8s.namespace.name=default,service.name=client")
                .header(
                    "traceparent",
                    format!("00-{number:032x}-00000000000000aa-00"),
                )
                // On some it needs several frames.
                .header("x-large", "x".repeat(if number == 5 { 40_000 } else { 4 }))
                .body(())
                .unwrap();
            let (response, mut stream) = send.send_request(request, false).unwrap();
            let body = Bytes::from(body(number));
            let expected = body.clone();
            let upload = spawn_local(async move {
                let mut rest = body;
                while !rest.is_empty() {
                    stream.reserve_capacity(rest.len());
                    let room = poll_fn(|cx| stream.poll_capacity(cx))
                        .await
                        .unwrap()
                        .unwrap();
                    stream
                        .send_data(rest.split_to(room.min(rest.len())), false)
                        .unwrap();
                }
                stream.send_data(Bytes::new(), true).unwrap();
            });
            let response = response.await.unwrap();
            assert_eq!(response.status(), 200);
            assert_eq!(response.headers()["baggage"], "service.name=server");
            if quits(number) {
                // It leaves in the midst of it: the others go on.
                upload.abort();
                return;
            }
            let mut body = response.into_body();
            let mut got = Vec::new();
            while let Some(chunk) = body.data().await {
                let chunk = chunk.unwrap();
                body.flow_control().release_capacity(chunk.len()).unwrap();
                got.extend_from_slice(&chunk);
            }
            upload.await.unwrap();
            assert!(got == expected, "tunnel {number}");
        }));
    }
    for tunnel in tunnels {
        tunnel.await.unwrap();
    }
    drop(send);
    let (result, baggage, resets) = server.await.unwrap();
    let connection = result.unwrap();
    assert_eq!((connection.active(), connection.credit().held), (0, 0));
    assert_eq!(resets, (streams + 1) / 7);
    assert_eq!(baggage, streams);
}

async fn it_serves_our_client(pipe: usize, config: Config, streams: usize) {
    let (near, far) = duplex(pipe);
    spawn_local(async move {
        let mut server = h2::server::handshake(far).await.unwrap();
        while let Some(request) = server.accept().await {
            let (request, mut respond) = request.unwrap();
            assert_eq!(request.method(), http::Method::CONNECT);
            assert_eq!(
                request.headers()["baggage"],
                "k8s.namespace.name=default,service.name=client"
            );
            spawn_local(async move {
                let mut body = request.into_body();
                let mut stream = respond
                    .send_response(http::Response::new(()), false)
                    .unwrap();
                while let Some(chunk) = body.data().await {
                    let Ok(mut chunk) = chunk else { return };
                    let length = chunk.len();
                    while !chunk.is_empty() {
                        stream.reserve_capacity(chunk.len());
                        let room = poll_fn(|cx| stream.poll_capacity(cx)).await;
                        let Some(Ok(room)) = room else { return };
                        let part = chunk.split_to(room.min(chunk.len()));
                        if stream.send_data(part, false).is_err() {
                            return;
                        }
                    }
                    body.flow_control().release_capacity(length).unwrap();
                }
                let _ = stream.send_data(Bytes::new(), true);
            });
        }
    });
    let connection = Connection::client(&config.share(), Timestamp::default());
    let mut unsent: BTreeMap<u32, (StreamId, Bytes)> = BTreeMap::new();
    let mut got: BTreeMap<u32, (Vec<u8>, bool)> = BTreeMap::new();
    let mut opened = 0;
    let result = drive(near, connection, |connection, event| match event {
        Some(Event::Response { status, .. }) => assert_eq!(status, 200),
        Some(Event::Data { stream, bytes, end }) => {
            let entry = got.entry(stream.get()).or_default();
            entry.0.extend_from_slice(bytes);
            entry.1 = end;
            connection.consumed(stream, bytes.len());
            if quits(stream.get() as usize / 2) {
                entry.1 = true;
                unsent.remove(&stream.get());
                connection.release(stream);
            }
        }
        Some(Event::Failed(error)) => panic!("{error}"),
        Some(Event::Reset { stream, code, .. }) => panic!("{stream} {code}"),
        Some(_) => {}
        None => {
            while opened < streams && connection.is_acquainted() {
                let Ok(stream) = connection.request(None, &connect(&authority(opened)), false)
                else {
                    break;
                };
                unsent.insert(stream.get(), (stream, body(opened).into()));
                opened += 1;
            }
            unsent.retain(|_, (stream, rest)| {
                let n = connection.room(*stream).min(rest.len());
                connection.send(*stream, rest.split_to(n)).unwrap();
                if rest.is_empty() {
                    connection.finish(*stream).unwrap();
                }
                !rest.is_empty()
            });
            if opened == streams && got.len() == streams && got.values().all(|(_, ended)| *ended) {
                connection.drain();
            }
        }
    })
    .await;
    assert_eq!(result.unwrap().active(), 0);
    for (number, (got, ended)) in got.into_values().enumerate() {
        let whole = got == body(number) || quits(number) && body(number).starts_with(&got);
        assert!(ended && whole, "tunnel {number}");
    }
}

/// The pipe's size, our parameters, and how many tunnels.
fn configs() -> [(usize, Config, usize); 3] {
    [
        (64 * 1024, small(), 24),
        (
            700,
            Config {
                turn: 1024,
                ..small()
            },
            8,
        ),
        (
            1 << 20,
            Config {
                max_frame: 1 << 14,
                stream_first: 1 << 20,
                ..small()
            },
            24,
        ),
    ]
}

#[tokio::test]
async fn our_server_serves_the_h2_crate() {
    for (pipe, config, streams) in configs() {
        within(our_server_serves_it(pipe, config, streams)).await;
    }
}

#[tokio::test]
async fn the_h2_crate_serves_our_client() {
    for (pipe, config, streams) in configs() {
        within(it_serves_our_client(pipe, config, streams)).await;
    }
}

/// A drain in two steps: the tunnel that stands goes on, the connection then ends in order on both sides.
#[tokio::test]
async fn our_server_drains_and_the_h2_crate_follows() {
    within(async {
        let (near, far) = duplex(64 * 1024);
        let mut echo = Echo::default();
        let connection = Connection::server(&small().share(), Timestamp::default());
        let server = spawn_local(drive(far, connection, move |connection, event| {
            let first = matches!(event, Some(Event::Request { .. }));
            echo.act(connection, event);
            if first {
                connection.drain();
            }
        }));
        let (send, client) = h2::client::handshake(near).await.unwrap();
        let client = spawn_local(client);
        let mut send = send.ready().await.unwrap();
        let request = http::Request::builder()
            .method(http::Method::CONNECT)
            .uri(authority(1));
        let request = request.body(()).unwrap();
        let (response, mut stream) = send.send_request(request, false).unwrap();
        let mut body = response.await.unwrap().into_body();
        // The peer has heard that there is to be no other.
        while send.clone().ready().await.is_ok() {
            tokio::task::yield_now().await;
        }
        stream.send_data("still here".into(), true).unwrap();
        assert_eq!(body.data().await.unwrap().unwrap(), "still here");
        assert!(body.data().await.is_none());
        client.await.unwrap().unwrap();
        assert!(server.await.unwrap().unwrap().is_done());
    })
    .await;
}

/// Hands our server what the peer has written so far.
fn take_in(server: &mut Connection, pipe: &mut DuplexStream, echo: &mut Echo) {
    let mut buffer = [0; 4096];
    let mut read = ReadBuf::new(&mut buffer);
    let mut cx = Context::from_waker(Waker::noop());
    let polled = Pin::new(pipe).poll_read(&mut cx, &mut read);
    assert!(!matches!(polled, Poll::Ready(Err(_))));
    let mut input = read.filled();
    while let Some(event) = server.receive(&mut input, Timestamp::default()).unwrap() {
        echo.act(server, Some(event));
    }
}

/// Hands the peer what our server has to say.
async fn put_out(server: &mut Connection, pipe: &mut DuplexStream) {
    while server.has_output() {
        let piece = server.output().next().unwrap().to_vec();
        pipe.write_all(&piece).await.unwrap();
        server.advance(piece.len());
    }
}

/// The crate answers PINGs before it writes requests that it queued earlier.
#[tokio::test]
async fn a_request_that_the_h2_crate_queued_before_it_read_our_go_away_is_served() {
    let (near, mut far) = duplex(64 * 1024);
    let mut echo = Echo::default();
    let mut server = Connection::server(&small().share(), Timestamp::default());
    let (mut send, mut client) = h2::client::handshake(near).await.unwrap();
    let mut cx = Context::from_waker(Waker::noop());
    for _ in 0..4 {
        put_out(&mut server, &mut far).await;
        assert!(Pin::new(&mut client).poll(&mut cx).is_pending());
        take_in(&mut server, &mut far, &mut echo);
    }
    server.drain();
    put_out(&mut server, &mut far).await;
    poll_fn(|cx| send.poll_ready(cx)).await.unwrap();
    let request = http::Request::builder()
        .method(http::Method::CONNECT)
        .uri(authority(1));
    let (response, _stream) = send.send_request(request.body(()).unwrap(), false).unwrap();
    for _ in 0..8 {
        assert!(Pin::new(&mut client).poll(&mut cx).is_pending());
        take_in(&mut server, &mut far, &mut echo);
        put_out(&mut server, &mut far).await;
    }
    let answered = pin!(response).poll(&mut cx);
    assert!(
        matches!(&answered, Poll::Ready(Ok(response)) if response.status() == 200),
        "{answered:?}"
    );
}
