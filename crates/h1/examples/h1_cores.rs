//! The cores of HTTP/1 for tests/bench/instructions.sh: each runs a thousand times inside its measured function.
#![forbid(unsafe_code)]

use std::hint::black_box;

use bytes::Bytes;
use lateen_h1::{ClientConnection, ClientEvent, Config, Length, ServerConnection, ServerEvent};

const RUNS: usize = 1000;

/// Ten fields, as a browser behind a proxy sends them.
const REQUEST: &[u8] = b"GET /productpage?u=normal HTTP/1.1\r\n\
host: details.default.svc.cluster.local:9080\r\n\
user-agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0)\r\n\
accept: text/html,application/xhtml+xml,*/*;q=0.8\r\n\
accept-encoding: gzip, deflate, br\r\n\
accept-language: en-US,en;q=0.5\r\n\
cookie: session=eyJ1c2VyIjoibm9ybWFsIn0\r\n\
x-forwarded-for: 10.244.1.2\r\n\
x-forwarded-proto: http\r\n\
x-request-id: 5b7f3c1e-8a5b-4f53-9c0e-0e2ab1a0d5f3\r\n\
traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\n\
\r\n";

fn main() {
    let core = std::env::args().nth(1).unwrap_or_default();
    match core.as_str() {
        "h1_head" => measured_h1_head(&Bytes::from_static(REQUEST)),
        "h1_exchange" => {
            measured_h1_exchange(&mut Pair::new(), &Bytes::from(vec![b'x'; 1024]), false)
        }
        "h1_chunked" => measured_h1_chunked(&mut Pair::new(), &Bytes::from(vec![b'x'; 1024]), true),
        "crate_head" => measured_crate_head(REQUEST),
        _ => panic!("h1_head, h1_exchange or h1_chunked"),
    }
}

/// Reads a head of ten fields on a new connection.
#[inline(never)]
fn measured_h1_head(request: &Bytes) {
    for _ in 0..RUNS {
        let mut server = ServerConnection::new(Config::default());
        let event = server.receive(&mut request.clone()).expect("it is good");
        assert!(matches!(
            black_box(event),
            Some(ServerEvent::Request { end: true, .. })
        ));
    }
}

/// The same bytes through `httparse`, which judges neither framing nor hosts.
#[inline(never)]
fn measured_crate_head(request: &[u8]) {
    for _ in 0..RUNS {
        let mut fields = [httparse::EMPTY_HEADER; 16];
        let mut head = httparse::Request::new(&mut fields);
        assert!(black_box(head.parse(request)).is_ok_and(|status| status.is_complete()));
    }
}

/// A request of ten fields over one connection, read and written again over another, and an answer of 1 KiB.
#[inline(never)]
fn measured_h1_exchange(pair: &mut Pair, content: &Bytes, is_chunked: bool) {
    for _ in 0..RUNS {
        pair.exchange(content, is_chunked);
    }
}

/// The same with a chunked answer.
#[inline(never)]
fn measured_h1_chunked(pair: &mut Pair, content: &Bytes, is_chunked: bool) {
    for _ in 0..RUNS {
        pair.exchange(content, is_chunked);
    }
}

/// A proxy's two connections, and what its peers send.
struct Pair {
    server: ServerConnection,
    client: ClientConnection,
    request: Bytes,
    known: Bytes,
    chunked: Bytes,
}

impl Pair {
    fn new() -> Self {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/html; charset=utf-8\r\nserver: gunicorn/19.9.0\r\ndate: Fri, 20 Nov 2026 10:00:00 GMT\r\n";
        let content = "x".repeat(1024);
        Pair {
            server: ServerConnection::new(Config::default()),
            client: ClientConnection::new(Config::default()),
            request: Bytes::from(REQUEST.to_vec()),
            known: format!("{head}content-length: 1024\r\n\r\n{content}").into(),
            chunked: format!(
                "{head}transfer-encoding: chunked\r\n\r\n400\r\n{content}\r\n0\r\n\r\n"
            )
            .into(),
        }
    }

    fn exchange(&mut self, content: &Bytes, is_chunked: bool) {
        let Ok(Some(ServerEvent::Request { head, end: true })) =
            self.server.receive(&mut self.request.clone())
        else {
            panic!("a request")
        };
        self.client
            .request(
                head.method(),
                head.target(),
                head.fields().iter(),
                Length::None,
            )
            .expect("it is idle");
        drop(head);
        let written: usize = self
            .client
            .output()
            .map(|piece| black_box(piece).len())
            .sum();
        self.client.advance(written);
        let mut input = if is_chunked {
            self.chunked.clone()
        } else {
            self.known.clone()
        };
        let Ok(Some(ClientEvent::Response { head, end: false })) = self.client.receive(&mut input)
        else {
            panic!("a response")
        };
        let fields = head
            .fields()
            .iter()
            .filter(|field| !matches!(field.name(), b"content-length" | b"transfer-encoding"));
        self.server
            .respond(head.status(), fields, head.length())
            .expect("it is due");
        let mut came = 0;
        while let Ok(Some(event)) = self.client.receive(&mut input) {
            match event {
                ClientEvent::Data { bytes, .. } => {
                    came += bytes.len();
                    self.server.send(bytes).expect("it is announced");
                }
                ClientEvent::End => self.server.finish().expect("it is announced"),
                event => panic!("{event:?}"),
            }
        }
        assert_eq!(came, content.len());
        let written: usize = self
            .server
            .output()
            .map(|piece| black_box(piece).len())
            .sum();
        self.server.advance(written);
        assert!(self.server.is_idle() && self.client.is_idle());
    }
}
