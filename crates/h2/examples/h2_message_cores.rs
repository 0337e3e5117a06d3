//! Ordinary messages through both ends of a connection, a fixed number of times, for counting instructions:
//! `tests/bench/instructions.sh` runs this under callgrind. The cores whose name begins with `crate` do the same with the `h2`
//! crate, over a pipe of tokio's.
#![forbid(unsafe_code)]

use std::future::{Future, poll_fn};
use std::hint::black_box;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use lateen_h2::{Config, Connection, Event, Field, Fields, Known, StreamId, Timestamp};

/// Requests that each core makes.
const REQUESTS: usize = 1000;
/// DATA frames of 1 KiB that each core of uploads sends.
const FRAMES: usize = 16_000;

fn main() {
    match std::env::args().nth(1).unwrap_or_default().as_str() {
        "h2_requests" => measured_h2_requests(&mut Pair::new()),
        "h2_unary" => measured_h2_unary(&mut Pair::new()),
        "h2_uploads_16" => measured_h2_uploads_16(&mut Pair::new()),
        "h2_uploads_2000" => measured_h2_uploads_2000(&mut Pair::new()),
        "crate_requests" => {
            let traces: Vec<String> = (0..REQUESTS).map(trace).collect();
            measured_crate_requests(&traces);
        }
        other => {
            eprintln!("unknown core {other:?}");
            std::process::exit(64);
        }
    }
}

/// A GET with ten fields beside its target, answered with six and 1 KiB.
#[inline(never)]
fn measured_h2_requests(pair: &mut Pair) {
    let body = Bytes::from(vec![7; 1024]);
    for number in 0..REQUESTS {
        let trace = pair.traces[number].clone();
        let mut fields = REQUEST
            .map(|(name, value)| Field::new(name, value).kept())
            .to_vec();
        fields.push(Field::new("traceparent", &trace));
        let stream = pair
            .client
            .request(None, &fields, true)
            .expect("there is room");
        pair.up();
        let mut fields = ANSWER
            .map(|(name, value)| Field::new(name, value).kept())
            .to_vec();
        fields.push(Field::known(Known::ContentLength, "1024"));
        let server = &mut pair.server;
        server
            .respond(stream, None, &fields, false)
            .expect("it is open");
        server.send(stream, body.clone()).expect("it is open");
        server.finish(stream).expect("it is open");
        server.release(stream);
        pair.down();
        pair.client.release(stream);
    }
    assert_eq!((pair.requests, pair.came), (REQUESTS, REQUESTS * 1024));
}

/// A unary call of gRPC: five bytes each way, and trailers.
#[inline(never)]
fn measured_h2_unary(pair: &mut Pair) {
    let body = Bytes::from(vec![7; 5]);
    for number in 0..REQUESTS {
        let trace = pair.traces[number].clone();
        let mut fields = UNARY
            .map(|(name, value)| Field::new(name, value).kept())
            .to_vec();
        fields.push(Field::new("traceparent", &trace));
        let stream = pair
            .client
            .request(None, &fields, false)
            .expect("there is room");
        pair.client.send(stream, body.clone()).expect("it is open");
        pair.client.finish(stream).expect("it is open");
        pair.up();
        let server = &mut pair.server;
        let head = [
            Field::known(Known::Status, "200"),
            Field::known(Known::ContentType, "application/grpc").kept(),
        ];
        server
            .respond(stream, None, &head, false)
            .expect("it is open");
        server.send(stream, body.clone()).expect("it is open");
        let status = [Field::known(Known::GrpcStatus, "0").kept()];
        server.trailers(stream, &status).expect("it is open");
        server.release(stream);
        pair.down();
        pair.client.release(stream);
    }
    assert_eq!((pair.requests, pair.came), (REQUESTS, REQUESTS * 10));
}

#[inline(never)]
fn measured_h2_uploads_16(pair: &mut Pair) {
    // Equal functions would be merged into one.
    black_box("h2_uploads_16");
    pair.uploads(16);
}

#[inline(never)]
fn measured_h2_uploads_2000(pair: &mut Pair) {
    black_box("h2_uploads_2000");
    pair.uploads(2000);
}

const REQUEST: [(&str, &str); 13] = [
    (":method", "GET"),
    (":scheme", "http"),
    (":authority", "reviews:9080"),
    (":path", "/reviews/1"),
    ("accept", "*/*"),
    ("accept-encoding", "gzip, deflate, br"),
    ("user-agent", "python-requests/2.32.3"),
    ("x-request-id", "4bf92f35-77b3-4da6-a3ce-929d0e0e4736"),
    ("x-forwarded-for", "10.244.1.2"),
    ("x-forwarded-proto", "http"),
    ("end-user", "jason"),
    ("cookie", "session=eyJ1c2VyIjoiamFzb24ifQ"),
    ("baggage", "k8s.namespace.name=default,service.name=client"),
];
const ANSWER: [(&str, &str); 6] = [
    (":status", "200"),
    ("content-type", "application/json"),
    ("server", "gunicorn"),
    ("date", "Mon, 23 Nov 2026 10:00:00 GMT"),
    ("vary", "accept-encoding"),
    ("x-served-by", "reviews-v2"),
];
const UNARY: [(&str, &str); 9] = [
    (":method", "POST"),
    (":scheme", "http"),
    (":authority", "greeter:50051"),
    (":path", "/helloworld.Greeter/SayHello"),
    ("content-type", "application/grpc"),
    ("te", "trailers"),
    ("user-agent", "grpc-go/1.83.0"),
    ("grpc-accept-encoding", "gzip"),
    ("grpc-timeout", "1S"),
];

fn trace(number: usize) -> String {
    format!("00-{number:032x}-b7ad6b7169203331-00")
}

struct Pair {
    client: Connection,
    server: Connection,
    wire: Vec<u8>,
    now: Timestamp,
    /// The buffer for the next request's fields.
    fields: Fields,
    requests: usize,
    /// What differs in each request.
    traces: Vec<String>,
    /// Bytes of content in both directions.
    came: usize,
}

impl Pair {
    fn new() -> Self {
        let config = Config {
            max_streams: 2000,
            first_windows: 2000,
            connection_first: 1 << 20,
            ..Config::requests()
        }
        .share();
        let now = Timestamp::from_micros(1);
        let mut pair = Pair {
            client: Connection::client(&config, now),
            server: Connection::server(&config, now),
            wire: Vec::new(),
            now,
            fields: Fields::default(),
            requests: 0,
            traces: (0..REQUESTS).map(trace).collect(),
            came: 0,
        };
        while pair.up() + pair.down() > 0 {}
        pair
    }

    fn up(&mut self) -> usize {
        self.now = self.now.after(Duration::from_micros(50));
        gather(&mut self.client, &mut self.wire);
        let mut input = &self.wire[..];
        while let Some(event) = self
            .server
            .receive(&mut input, self.now)
            .expect("it is good")
        {
            match event {
                Event::Request { .. } => {
                    self.server.swap_fields(&mut self.fields);
                    for known in [
                        Known::Path,
                        Known::Authority,
                        Known::XRequestId,
                        Known::Traceparent,
                    ] {
                        black_box(self.fields.find(known));
                    }
                    self.requests += 1;
                }
                Event::Data { stream, bytes, end } => {
                    self.came += black_box(bytes).len();
                    self.server.consumed(stream, bytes.len());
                    if end {
                        black_box(stream);
                    }
                }
                _ => {}
            }
        }
        self.wire.len()
    }

    fn down(&mut self) -> usize {
        gather(&mut self.server, &mut self.wire);
        let mut input = &self.wire[..];
        while let Some(event) = self
            .client
            .receive(&mut input, self.now)
            .expect("it is good")
        {
            if let Event::Data { stream, bytes, .. } = event {
                self.came += black_box(bytes).len();
                self.client.consumed(stream, bytes.len());
            } else {
                black_box(self.client.fields().len());
            }
        }
        self.wire.len()
    }

    /// So many uploads at once, a frame of each in turn, with a length that is held against them.
    fn uploads(&mut self, streams: usize) {
        let each = FRAMES / streams;
        let length = (each * 1024).to_string();
        let piece = Bytes::from(vec![7; 1024]);
        let ids: Vec<StreamId> = (0..streams)
            .map(|_| {
                let mut fields = REQUEST[1..4]
                    .iter()
                    .map(|(name, value)| Field::new(*name, *value))
                    .collect::<Vec<_>>();
                fields.push(Field::known(Known::Method, "POST"));
                fields.swap(0, 3);
                fields.push(Field::known(Known::ContentLength, &length));
                self.client
                    .request(None, &fields, false)
                    .expect("there is room")
            })
            .collect();
        for _ in 0..each {
            for stream in &ids {
                self.client
                    .send(*stream, piece.clone())
                    .expect("it is open");
            }
            while self.up() + self.down() > 0 {}
        }
        for stream in &ids {
            self.client.finish(*stream).expect("it is open");
        }
        while self.up() + self.down() > 0 {}
        for stream in &ids {
            self.client.release(*stream);
            self.server.release(*stream);
        }
        assert_eq!((self.requests, self.came), (streams, FRAMES * 1024));
    }
}

fn gather(from: &mut Connection, wire: &mut Vec<u8>) {
    wire.clear();
    while from.has_output() {
        let before = wire.len();
        from.output()
            .for_each(|piece| wire.extend_from_slice(piece));
        from.advance(wire.len() - before);
    }
}

/// What [`measured_h2_requests`] does, with the crate's two ends.
#[inline(never)]
fn measured_crate_requests(traces: &[String]) {
    let cx = &mut Context::from_waker(Waker::noop());
    let (near, far) = tokio::io::duplex(1 << 20);
    let mut server = pin!(h2::server::handshake(far));
    let mut client = pin!(h2::client::handshake(near));
    let (mut ends, mut served) = (None, None);
    while ends.is_none() || served.is_none() {
        if ends.is_none()
            && let Poll::Ready(done) = client.as_mut().poll(cx)
        {
            ends = Some(done.expect("it shakes hands"));
        }
        if let Some((_, connection)) = &mut ends {
            let _ = Pin::new(connection).poll(cx);
        }
        if served.is_none()
            && let Poll::Ready(done) = server.as_mut().poll(cx)
        {
            served = Some(done.expect("it shakes hands"));
        }
    }
    let ((mut send, mut client), mut server) =
        (ends.expect("it is there"), served.expect("it is there"));
    let body = Bytes::from(vec![7; 1024]);
    for trace in traces {
        let mut request = http::Request::builder()
            .method("GET")
            .uri("http://reviews:9080/reviews/1");
        for (name, value) in &REQUEST[4..] {
            request = request.header(*name, *value);
        }
        let request = request
            .header("traceparent", trace)
            .body(())
            .expect("it is good");
        assert!(matches!(send.poll_ready(cx), Poll::Ready(Ok(()))));
        let (mut response, _) = send.send_request(request, true).expect("there is room");
        let _ = Pin::new(&mut client).poll(cx);
        let Poll::Ready(Some(Ok((request, mut respond)))) = server.poll_accept(cx) else {
            panic!("a request")
        };
        for name in ["x-request-id", "traceparent"] {
            black_box(request.headers().get(name));
        }
        let mut answer = http::Response::builder();
        for (name, value) in &ANSWER[1..] {
            answer = answer.header(*name, *value);
        }
        let answer = answer
            .header("content-length", "1024")
            .body(())
            .expect("it is good");
        let mut stream = respond.send_response(answer, false).expect("it is open");
        stream.send_data(body.clone(), true).expect("it is open");
        let _ = server.poll_accept(cx);
        let _ = Pin::new(&mut client).poll(cx);
        let Poll::Ready(Ok(answer)) = Pin::new(&mut response).poll(cx) else {
            panic!("an answer")
        };
        let mut content = answer.into_body();
        let mut came = 0;
        while let Poll::Ready(Some(piece)) = pin!(poll_fn(|cx| content.poll_data(cx))).poll(cx) {
            let piece = piece.expect("it is good");
            came += piece.len();
            content
                .flow_control()
                .release_capacity(piece.len())
                .expect("it came");
        }
        assert_eq!(came, 1024);
    }
}
