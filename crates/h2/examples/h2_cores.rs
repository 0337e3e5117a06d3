//! What this crate does for a connection, alone and a fixed number of times, for counting its instructions:
//! `tests/bench/instructions.sh` runs this under callgrind and compares with the committed baseline. The cores whose name
//! begins with `crate` do the same with the `h2` crate, over a pipe that is a buffer.
#![forbid(unsafe_code)]

use std::cell::RefCell;
use std::future::Future;
use std::hint::black_box;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use lateen_h2::{Config, Connection, Event, Field, Prebuilt, StreamId, Timestamp};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Frames that each core relays in each direction, in groups of one for each stream.
const FRAMES: usize = 1600;
/// Requests that are read and answered.
const REQUESTS: usize = 1000;

fn main() {
    let name = std::env::args().nth(1).unwrap_or_default();
    match name.as_str() {
        "h2_connect" => {
            let (server, wire) = asked();
            measured_h2_connect(server, &wire);
        }
        "h2_relay_1k" => measured_h2_relay_1k(&mut Ours::new(16), payload(1 << 10)),
        "h2_relay_16k" => measured_h2_relay_16k(&mut Ours::new(16), payload(1 << 14)),
        "h2_single_1k" => measured_h2_single_1k(&mut Ours::new(1), payload(1 << 10)),
        "crate_relay_1k" => measured_crate_relay_1k(&mut Theirs::new(16), payload(1 << 10)),
        "crate_relay_16k" => measured_crate_relay_16k(&mut Theirs::new(16), payload(1 << 14)),
        "crate_single_1k" => measured_crate_single_1k(&mut Theirs::new(1), payload(1 << 10)),
        "crate_connect" => measured_crate_connect(crate_asked(), REQUESTS),
        other => {
            eprintln!("unknown core {other:?}");
            std::process::exit(64);
        }
    }
}

fn payload(bytes: usize) -> Bytes {
    Bytes::from(vec![7; bytes])
}

#[inline(never)]
fn measured_h2_connect(server: Connection, wire: &[Vec<u8>]) {
    answer(server, wire);
}

#[inline(never)]
fn measured_h2_relay_1k(pair: &mut Ours, payload: Bytes) {
    // Equal functions would be merged into one.
    black_box("h2_relay_1k");
    pair.relay(payload);
}

#[inline(never)]
fn measured_h2_relay_16k(pair: &mut Ours, payload: Bytes) {
    black_box("h2_relay_16k");
    pair.relay(payload);
}

#[inline(never)]
fn measured_h2_single_1k(pair: &mut Ours, payload: Bytes) {
    black_box("h2_single_1k");
    pair.relay(payload);
}

#[inline(never)]
fn measured_crate_relay_1k(pair: &mut Theirs, payload: Bytes) {
    black_box("crate_relay_1k");
    pair.relay(payload);
}

#[inline(never)]
fn measured_crate_relay_16k(pair: &mut Theirs, payload: Bytes) {
    black_box("crate_relay_16k");
    pair.relay(payload);
}

#[inline(never)]
fn measured_crate_single_1k(pair: &mut Theirs, payload: Bytes) {
    black_box("crate_single_1k");
    pair.relay(payload);
}

const NOW: Timestamp = Timestamp::from_micros(1);

fn request(number: usize) -> String {
    format!("00-{number:032x}-b7ad6b7169203331-00")
}

const BAGGAGE: &str = "k8s.cluster.name=Kubernetes,k8s.namespace.name=default,k8s.deployment.name=client,service.name=client,service.version=v1";
const FORWARDED: &str = "for=\"10.244.1.2:40000\";host=details.default.svc.cluster.local";

/// A server, and requests for it: what a peer of ours writes, each with its reset behind it.
fn asked() -> (Connection, Vec<Vec<u8>>) {
    let config = Config::tunnel().share();
    let mut client = Connection::client(&config, NOW);
    let mut server = Connection::server(&config, NOW);
    let mut wire = Vec::new();
    join(&mut client, &mut server, &mut wire, NOW);
    join(&mut server, &mut client, &mut wire, NOW);
    join(&mut client, &mut server, &mut wire, NOW);
    let requests = (0..REQUESTS).map(|number| {
        let trace = request(number);
        let fields = [
            Field::new(":method", "CONNECT").kept(),
            Field::new(":authority", "10.244.2.3:9080"),
            Field::new("baggage", BAGGAGE).kept(),
            Field::new("forwarded", FORWARDED),
            Field::new("traceparent", &trace),
        ];
        let stream = client.request(None, &fields, true).expect("there is room");
        client.release(stream);
        let bytes: Vec<u8> = client.output().flatten().copied().collect();
        client.advance(bytes.len());
        // Without the reset, for the server answers with an end.
        bytes[..bytes.len() - 13].to_vec()
    });
    let requests = requests.collect();
    (server, requests)
}

/// Reads each request and answers it.
fn answer(mut server: Connection, wire: &[Vec<u8>]) {
    let ok = Prebuilt::new([Field::new(":status", "200")]);
    for request in wire {
        let mut input = &request[..];
        while let Ok(Some(event)) = server.receive(&mut input, NOW) {
            let Event::Request { stream, .. } = event else {
                panic!("a request: {event:?}")
            };
            black_box(server.fields().get(":authority"));
            black_box(server.fields().get("baggage"));
            black_box(server.fields().get("traceparent"));
            server
                .respond(stream, Some(&ok), &[], true)
                .expect("it is open");
            server.release(stream);
        }
        let n: usize = server.output().map(<[u8]>::len).sum();
        server.advance(n);
    }
    assert_eq!(server.active(), 0);
}

/// Writes what one has to say, and reads it at the other.
fn join(from: &mut Connection, to: &mut Connection, wire: &mut Vec<u8>, now: Timestamp) -> usize {
    let mut came = 0;
    while from.has_output() {
        wire.clear();
        from.output()
            .for_each(|piece| wire.extend_from_slice(piece));
        from.advance(wire.len());
        let mut input = &wire[..];
        while let Some(event) = to.receive(&mut input, now).expect("it is good") {
            if let Event::Data { stream, bytes, .. } = event {
                came += black_box(bytes).len();
                to.consumed(stream, bytes.len());
            }
        }
    }
    came
}

/// Two connections of ours.
struct Ours {
    client: Connection,
    server: Connection,
    streams: Vec<StreamId>,
    wire: Vec<u8>,
    now: Timestamp,
}

impl Ours {
    fn new(streams: usize) -> Self {
        // Windows as large as the crate's in its run: neither is held up.
        let config = Config {
            stream_first: 1 << 20,
            ..Config::tunnel()
        }
        .share();
        let mut pair = Ours {
            client: Connection::client(&config, NOW),
            server: Connection::server(&config, NOW),
            streams: Vec::new(),
            wire: Vec::new(),
            now: NOW,
        };
        pair.exchange();
        let ok = Prebuilt::new([Field::new(":status", "200")]);
        for _ in 0..streams {
            let fields = [
                Field::new(":method", "CONNECT"),
                Field::new(":authority", "10.244.2.3:9080"),
            ];
            let stream = pair
                .client
                .request(None, &fields, false)
                .expect("there is room");
            pair.exchange();
            pair.server
                .respond(stream, Some(&ok), &[], false)
                .expect("it is open");
            pair.exchange();
            pair.streams.push(stream);
        }
        // Windows grow first, as they do in the first moments of a connection.
        pair.relay(payload(1 << 14));
        pair
    }

    fn up(&mut self) -> usize {
        self.now = self.now.after(Duration::from_micros(50));
        join(&mut self.client, &mut self.server, &mut self.wire, self.now)
    }

    fn down(&mut self) -> usize {
        join(&mut self.server, &mut self.client, &mut self.wire, self.now)
    }

    fn exchange(&mut self) {
        self.up();
        self.down();
        self.up();
    }

    /// A frame on each stream, up and then down, until there were enough.
    fn relay(&mut self, payload: Bytes) {
        let (mut up, mut down) = (0, 0);
        for round in 1..=FRAMES / self.streams.len() {
            for stream in &self.streams {
                self.client
                    .send(*stream, payload.clone())
                    .expect("it is open");
            }
            let expected = round * self.streams.len() * payload.len();
            up += self.up();
            while up < expected {
                down += self.down();
                up += self.up();
            }
            for stream in &self.streams {
                self.server
                    .send(*stream, payload.clone())
                    .expect("it is open");
            }
            down += self.down();
            while down < expected {
                up += self.up();
                down += self.down();
            }
        }
        assert_eq!((up, down), (FRAMES * payload.len(), FRAMES * payload.len()));
    }
}

/// One direction of a pipe: what was written and not read.
type Half = Rc<RefCell<(Vec<u8>, usize)>>;

struct Pipe {
    inward: Half,
    outward: Half,
}

fn pipe() -> (Pipe, Pipe) {
    let (a, b) = (Half::default(), Half::default());
    let far = Pipe {
        inward: Rc::clone(&b),
        outward: Rc::clone(&a),
    };
    (
        Pipe {
            inward: a,
            outward: b,
        },
        far,
    )
}

impl AsyncRead for Pipe {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let (bytes, at) = &mut *self.inward.borrow_mut();
        let n = (bytes.len() - *at).min(buf.remaining());
        if n == 0 {
            return Poll::Pending;
        }
        buf.put_slice(&bytes[*at..*at + n]);
        *at += n;
        if *at == bytes.len() {
            bytes.clear();
            *at = 0;
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.outward.borrow_mut().0.extend_from_slice(buf);
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let out = &mut self.outward.borrow_mut().0;
        bufs.iter().for_each(|buf| out.extend_from_slice(buf));
        Poll::Ready(Ok(bufs.iter().map(|buf| buf.len()).sum()))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

type Ends = (h2::SendStream<Bytes>, h2::RecvStream);

/// Two connections of the crate's.
struct Theirs {
    client: h2::client::Connection<Pipe, Bytes>,
    server: h2::server::Connection<Pipe, Bytes>,
    send: h2::client::SendRequest<Bytes>,
    near: Vec<Ends>,
    far: Vec<Ends>,
}

impl Theirs {
    fn new(streams: usize) -> Self {
        const WINDOW: u32 = 16 << 20;
        let cx = &mut Context::from_waker(Waker::noop());
        let (near, far) = pipe();
        let mut client = Box::pin(
            h2::client::Builder::new()
                .initial_window_size(1 << 20)
                .initial_connection_window_size(WINDOW)
                .max_frame_size(256 * 1024)
                .handshake(near),
        );
        let Poll::Ready(Ok((send, mut client))) = client.as_mut().poll(cx) else {
            panic!("it shakes hands")
        };
        let mut server = Box::pin(
            h2::server::Builder::new()
                .initial_window_size(1 << 20)
                .initial_connection_window_size(WINDOW)
                .max_frame_size(256 * 1024)
                .handshake::<_, Bytes>(far),
        );
        let mut server = loop {
            let _ = Pin::new(&mut client).poll(cx);
            if let Poll::Ready(done) = server.as_mut().poll(cx) {
                break done.expect("it shakes hands");
            }
        };
        let _ = Pin::new(&mut client).poll(cx);
        let _ = server.poll_accept(cx);
        let _ = Pin::new(&mut client).poll(cx);
        let mut pair = Theirs {
            client,
            server,
            send,
            near: Vec::new(),
            far: Vec::new(),
        };
        for _ in 0..streams {
            let (mut response, stream) = pair.ask(cx);
            let recv = loop {
                let _ = Pin::new(&mut pair.client).poll(cx);
                if let Poll::Ready(Some(asked)) = pair.server.poll_accept(cx) {
                    let (request, mut respond) = asked.expect("a request");
                    let stream = respond
                        .send_response(http::Response::new(()), false)
                        .expect("it is open");
                    pair.far.push((stream, request.into_body()));
                }
                if let Poll::Ready(answer) = Pin::new(&mut response).poll(cx) {
                    break answer.expect("an answer").into_body();
                }
            };
            pair.near.push((stream, recv));
        }
        pair.relay(payload(1 << 14));
        pair
    }

    fn ask(&mut self, cx: &mut Context<'_>) -> (h2::client::ResponseFuture, h2::SendStream<Bytes>) {
        let request = http::Request::builder()
            .method(http::Method::CONNECT)
            .uri("10.244.2.3:9080")
            .header("baggage", BAGGAGE)
            .header("forwarded", FORWARDED)
            .header("traceparent", request(7))
            .body(())
            .expect("it is good");
        assert!(matches!(self.send.poll_ready(cx), Poll::Ready(Ok(()))));
        self.send
            .send_request(request, false)
            .expect("there is room")
    }

    fn relay(&mut self, payload: Bytes) {
        let cx = &mut Context::from_waker(Waker::noop());
        let (mut up, mut down) = (0, 0);
        for _ in 0..FRAMES / self.near.len() {
            put(&mut self.near, &payload, cx);
            let _ = Pin::new(&mut self.client).poll(cx);
            let _ = self.server.poll_accept(cx);
            up += take(&mut self.far, cx);
            put(&mut self.far, &payload, cx);
            let _ = self.server.poll_accept(cx);
            let _ = Pin::new(&mut self.client).poll(cx);
            down += take(&mut self.near, cx);
        }
        assert_eq!((up, down), (FRAMES * payload.len(), FRAMES * payload.len()));
    }
}

fn put(ends: &mut [Ends], payload: &Bytes, cx: &mut Context<'_>) {
    for (stream, _) in ends {
        let mut rest = payload.clone();
        stream.reserve_capacity(rest.len());
        while !rest.is_empty() {
            let mut room = stream.capacity();
            if room == 0 {
                let Poll::Ready(Some(Ok(more))) = stream.poll_capacity(cx) else {
                    panic!("there is room")
                };
                room = more;
            }
            stream
                .send_data(rest.split_to(room.min(rest.len())), false)
                .expect("it is open");
        }
    }
}

fn take(ends: &mut [Ends], cx: &mut Context<'_>) -> usize {
    let mut came = 0;
    for (_, recv) in ends {
        while let Poll::Ready(Some(Ok(bytes))) = recv.poll_data(cx) {
            came += black_box(&bytes).len();
            recv.flow_control()
                .release_capacity(bytes.len())
                .expect("it came");
        }
    }
    came
}

/// A server of the crate's, and requests for it.
fn crate_asked() -> (h2::server::Connection<Pipe, Bytes>, Half, Vec<Vec<u8>>) {
    let (_, requests) = asked();
    let (near, far) = pipe();
    let mut hello = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
    hello.extend(b"\0\0\0\x04\x01\0\0\0\0");
    near.outward.borrow_mut().0.extend(hello);
    let cx = &mut Context::from_waker(Waker::noop());
    let mut server = pin!(h2::server::Builder::new().handshake::<_, Bytes>(far));
    let Poll::Ready(Ok(server)) = server.as_mut().poll(cx) else {
        panic!("it shakes hands")
    };
    (server, near.outward, requests)
}

#[inline(never)]
fn measured_crate_connect(
    (mut server, wire, requests): (h2::server::Connection<Pipe, Bytes>, Half, Vec<Vec<u8>>),
    expected: usize,
) {
    let cx = &mut Context::from_waker(Waker::noop());
    let mut answered = 0;
    for request in &requests {
        wire.borrow_mut().0.extend_from_slice(request);
        while let Poll::Ready(Some(asked)) = server.poll_accept(cx) {
            let (request, mut respond) = asked.expect("a request");
            black_box(request.uri().authority());
            black_box(request.headers().get("baggage"));
            black_box(request.headers().get("traceparent"));
            respond
                .send_response(http::Response::new(()), true)
                .expect("it is open");
            answered += 1;
        }
    }
    assert_eq!(answered, expected);
}
