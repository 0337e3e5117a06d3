//! A proxy's exchange in memory, for tests/bench/instructions.sh: a request of ten fields in on one connection and out on
//! another, an answer of 1 KiB back. The work of the proxy alone is counted, a thousand times; that of its peers is not.
#![forbid(unsafe_code)]

use std::cell::RefCell;
use std::future::Future;
use std::hint::black_box;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use lateen_exchange::{Config, Protocol, client, server};
use lateen_h2::{Event, Field, Known, Timestamp};
use lateen_http::{Canonical, Downstream, FieldValue, PeerKind, Rules, Scheme};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

const RUNS: usize = 1000;
/// Exchanges before the count begins: header tables and buffers are filled by then.
const WARM: usize = 20;

fn main() {
    let core = std::env::args().nth(1).unwrap_or_default();
    match core.as_str() {
        "exchange_h1" => http1(),
        "exchange_h2" => http2(),
        other => {
            eprintln!("unknown core {other:?}: exchange_h1 or exchange_h2");
            std::process::exit(64);
        }
    }
}

/// One turn of the proxy between two HTTP/1 connections.
#[inline(never)]
fn measured_exchange_h1(proxy: &mut Proxy) {
    black_box("exchange_h1");
    proxy.turn();
}

/// One turn of the proxy between two HTTP/2 connections.
#[inline(never)]
fn measured_exchange_h2(proxy: &mut Proxy) {
    black_box("exchange_h2");
    proxy.turn();
}

const FIELDS: [(&str, &str); 9] = [
    ("user-agent", "Mozilla/5.0 (X11; Linux x86_64; rv:128.0)"),
    ("accept", "text/html,application/xhtml+xml,*/*;q=0.8"),
    ("accept-encoding", "gzip, deflate, br"),
    ("accept-language", "en-US,en;q=0.5"),
    ("cookie", "session=eyJ1c2VyIjoibm9ybWFsIn0"),
    ("x-forwarded-for", "10.244.1.2"),
    ("x-forwarded-proto", "http"),
    ("x-request-id", "5b7f3c1e-8a5b-4f53-9c0e-0e2ab1a0d5f3"),
    (
        "traceparent",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    ),
];
const ANSWER: [(&str, &str); 3] = [
    ("content-type", "text/html; charset=utf-8"),
    ("server", "gunicorn/19.9.0"),
    ("date", "Fri, 20 Nov 2026 10:00:00 GMT"),
];
const HOST: &str = "details.default.svc.cluster.local:9080";
const PATH: &str = "/productpage?u=normal";

fn lines(fields: &[(&str, &str)]) -> String {
    let lines = fields
        .iter()
        .map(|(name, value)| format!("{name}: {value}\r\n"));
    lines.collect()
}

fn http1() {
    let request = format!(
        "GET {PATH} HTTP/1.1\r\nhost: {HOST}\r\n{}\r\n",
        lines(&FIELDS)
    );
    let answer = format!(
        "HTTP/1.1 200 OK\r\n{}content-length: 1024\r\n\r\n{}",
        lines(&ANSWER),
        "x".repeat(1024)
    );
    let mut proxy = Proxy::new(Protocol::Http1);
    for run in 0..WARM + RUNS {
        proxy.below.give(request.as_bytes());
        proxy.run(run, measured_exchange_h1);
        assert!(proxy.above.take().ends_with(b"\r\n\r\n"));
        proxy.above.give(answer.as_bytes());
        proxy.run(run, measured_exchange_h1);
        assert!(proxy.below.take().ends_with(b"xxxx"));
    }
    assert_eq!(proxy.answered, WARM + RUNS);
}

fn http2() {
    let mut proxy = Proxy::new(Protocol::Http2);
    let config = lateen_h2::Config::requests().share();
    let mut user = lateen_h2::Connection::client(&config, Timestamp::default());
    let mut application = lateen_h2::Connection::server(&config, Timestamp::default());
    let content = Bytes::from(vec![b'x'; 1024]);
    let mut came = 0;
    for run in 0..WARM + RUNS {
        let mut fields = vec![
            Field::new(":method", "GET"),
            Field::new(":scheme", "http"),
            Field::new(":authority", HOST).kept(),
            Field::new(":path", PATH).kept(),
        ];
        fields.extend(FIELDS.map(|(name, value)| match name {
            "x-request-id" | "traceparent" => Field::new(name, value),
            _ => Field::new(name, value).kept(),
        }));
        user.request(None, &fields, true).expect("there is room");
        send(&mut user, &proxy.below);
        proxy.run(run, measured_exchange_h2);
        hear(&mut application, &proxy.above, |application, event| {
            let Event::Request { stream, .. } = event else {
                return;
            };
            let mut fields = vec![Field::new(":status", "200")];
            fields.extend(ANSWER.map(|(name, value)| Field::new(name, value).kept()));
            fields.push(Field::known(Known::ContentLength, "1024"));
            let answered = application.respond(stream, None, &fields, false);
            answered.expect("it is open");
            let sent = application.send(stream, content.clone());
            sent.expect("it is open");
            application.finish(stream).expect("it is open");
            application.release(stream);
        });
        send(&mut application, &proxy.above);
        proxy.run(run, measured_exchange_h2);
        hear(&mut user, &proxy.below, |user, event| {
            if let Event::Data { stream, bytes, end } = event {
                came += bytes.len();
                user.consumed(stream, bytes.len());
                if end {
                    user.release(stream);
                }
            }
        });
    }
    assert_eq!(proxy.answered, WARM + RUNS);
    assert_eq!(came, (WARM + RUNS) * 1024);
}

fn send(peer: &mut lateen_h2::Connection, memory: &Memory) {
    while peer.has_output() {
        let bytes: Vec<u8> = peer.output().flatten().copied().collect();
        memory.give(&bytes);
        peer.advance(bytes.len());
    }
}

fn hear(
    peer: &mut lateen_h2::Connection,
    memory: &Memory,
    mut act: impl FnMut(&mut lateen_h2::Connection, Event<'_>),
) {
    let bytes = memory.take();
    let mut input = &bytes[..];
    while let Some(event) = peer
        .receive(&mut input, Timestamp::default())
        .expect("the proxy is right")
    {
        act(peer, event);
    }
}

/// Our end of a connection whose peer is the benchmark.
#[derive(Debug, Clone, Default)]
struct Memory(Rc<RefCell<(Vec<u8>, Vec<u8>)>>);

impl Memory {
    fn give(&self, bytes: &[u8]) {
        self.0.borrow_mut().0.extend_from_slice(bytes);
    }

    fn take(&self) -> Vec<u8> {
        let taken = self.0.borrow().1.clone();
        self.0.borrow_mut().1.clear();
        taken
    }
}

impl AsyncRead for Memory {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let input = &mut self.0.borrow_mut().0;
        if input.is_empty() {
            return Poll::Pending;
        }
        let length = input.len().min(buffer.remaining());
        buffer.put_slice(&input[..length]);
        input.drain(..length);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Memory {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.0.borrow_mut().1.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let output = &mut self.0.borrow_mut().1;
        let before = output.len();
        pieces
            .iter()
            .for_each(|piece| output.extend_from_slice(piece));
        Poll::Ready(Ok(output.len() - before))
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

/// A proxy's two connections, moved by one task.
struct Proxy {
    server: server::Connection<Memory>,
    handle: client::Handle,
    client: client::Connection<Memory>,
    below: Memory,
    above: Memory,
    peer: Downstream,
    open: Option<(server::Exchange, client::Exchange)>,
    answered: usize,
}

impl Proxy {
    fn new(protocol: Protocol) -> Self {
        let mut config = Config::new(protocol);
        config.timeouts = None;
        let (below, above) = (Memory::default(), Memory::default());
        let (handle, client) = client::open(above.clone(), config.clone());
        let peer = SocketAddr::from((Ipv4Addr::LOCALHOST, 40_000));
        Proxy {
            server: server::Connection::new(below.clone(), config),
            handle,
            client,
            below,
            above,
            peer: Downstream::new(PeerKind::Mesh, peer, Scheme::Http),
            open: None,
            answered: 0,
        }
    }

    fn run(&mut self, run: usize, measured: fn(&mut Proxy)) {
        match run < WARM {
            true => self.turn(),
            false => measured(self),
        }
    }

    /// Moves everything that can be moved.
    fn turn(&mut self) {
        let cx = &mut Context::from_waker(Waker::noop());
        let mut id = || FieldValue::new("id").expect("it is visible");
        while let Poll::Ready(next) = self.server.poll_next(cx) {
            let (request, below) = next.expect("no fault").expect("it goes on");
            let canonical = request.canonical(&Rules::default(), &self.peer, &mut id);
            let Ok(Canonical::Request(head)) = canonical else {
                panic!("a request")
            };
            let above = self.handle.request(&head, None).expect("it is ready");
            self.open = Some((below, above));
        }
        assert!(pin!(&mut self.client).poll(cx).is_pending());
        let Some((below, above)) = &self.open else {
            return;
        };
        let Poll::Ready(answer) = above.poll_answer(cx) else {
            return;
        };
        let head = answer
            .expect("no fault")
            .canonical(None, PeerKind::Mesh)
            .expect("it is good");
        below.respond(&head, None).expect("it is open");
        while let Poll::Ready(Some(mut bytes)) =
            above.poll_data(cx).map(|data| data.expect("content"))
        {
            let sent = below.poll_send(cx, &mut bytes);
            assert!(matches!(sent, Poll::Ready(Ok(()))));
        }
        below.finish().expect("it is open");
        self.open = None;
        self.answered += 1;
        assert!(self.server.poll_next(cx).is_pending());
    }
}
