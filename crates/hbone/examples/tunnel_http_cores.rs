//! What HTTP within a tunnel costs, without sockets and TLS: for callgrind, as tests/bench/instructions.sh counts it. Both ends
//! are counted, with the runtime and the pipe below.
//!
//! | argument | counted |
//! |---|---|
//! | `tunnel_http1`, `tunnel_http2` | requests of ten fields and answers of 1 KiB, one after another, on one stream of a tunnel |
//! | `pipe_http1`, `pipe_http2` | the same on the pipe itself |
//! | `pipe_requests`, `pipe_opens` | the work of `tunnel_requests` and `tunnel_opens` (tunnel_cores.rs) on streams of `lateen_exchange` |
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout)]

use std::hint::black_box;
use std::net::{Ipv4Addr, SocketAddr};

use bytes::Bytes;
use lateen_exchange::{Config, Protocol, Tunnel, client, server};
use lateen_hbone::{ConnectRequest, Connection, Settings};
use lateen_http::{
    Canonical, ConnectHead, Downstream, FieldValue, Length, Limits, PeerKind, RawRequest, Rules,
    Scheme, Status, Version,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, duplex};
use tokio::runtime::Runtime;
use tokio::task::{LocalSet, spawn_local};

const EXCHANGES: usize = 1_000;
/// Exchanges before the count begins: windows have their sizes, and header tables are filled by then.
const WARM: usize = 50;
const CONTENT: usize = 1024;
const STREAMS: usize = 16;
/// On each stream.
const REQUESTS: usize = 500;
const OPENS: usize = 4_000;

const FIELDS: [(&str, &str); 10] = [
    ("host", "details.default.svc.cluster.local:9080"),
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
const CONNECT: [(&str, &str); 2] = [
    ("host", "10.0.0.7:8080"),
    ("baggage", "k8s.namespace.name=default,service.name=client"),
];

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    let local = LocalSet::new();
    let what = std::env::args().nth(1).unwrap_or_default();
    let protocol = match what.ends_with('1') {
        true => Protocol::Http1,
        false => Protocol::Http2,
    };
    let measured: fn(&Runtime, &LocalSet, client::Handle) = match what.as_str() {
        "tunnel_http1" => measured_tunnel_http1,
        "tunnel_http2" => measured_tunnel_http2,
        "pipe_http1" => measured_pipe_http1,
        "pipe_http2" => measured_pipe_http2,
        "pipe_requests" => measured_pipe_requests,
        "pipe_opens" => measured_pipe_opens,
        _ => return println!("see the head of this file"),
    };
    let handle = local.block_on(&runtime, async {
        // As much as a socket takes.
        let (near, far) = duplex(256 * 1024);
        if what.starts_with("tunnel") {
            return through_a_tunnel(near, far, protocol).await;
        }
        spawn_local(serve(far, protocol));
        open(near, protocol)
    });
    if what.contains("http") {
        local.block_on(&runtime, ask(&handle, WARM));
    } else {
        local.block_on(&runtime, async {
            talk(connect(&handle, &connect_head()).await, 16 * 1024, 400).await;
        });
    }
    measured(&runtime, &local, handle);
}

/// A connection over a stream of a tunnel.
async fn through_a_tunnel(
    near: DuplexStream,
    far: DuplexStream,
    protocol: Protocol,
) -> client::Handle {
    spawn_local(async move {
        let accepted = Connection::accept(far, Settings::server()).await;
        let mut connection = accepted.expect("a client");
        while let Ok(Some(incoming)) = connection.next().await {
            if let Ok(stream) = incoming.accept(None) {
                spawn_local(serve(stream, protocol));
            }
        }
    });
    let made = lateen_hbone::client::handshake(near, Settings::client()).await;
    let (tunnel, driver) = made.expect("a server");
    spawn_local(driver);
    let request = ConnectRequest::new(SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)));
    let (stream, _) = tunnel.connect(&request).await.expect("it is granted");
    open(stream, protocol)
}

fn config(protocol: Protocol) -> Config {
    let mut config = Config::new(protocol);
    config.timeouts = None;
    config
}

fn open(io: impl AsyncRead + AsyncWrite + Unpin + 'static, protocol: Protocol) -> client::Handle {
    let (handle, connection) = client::open(io, config(protocol));
    spawn_local(connection);
    handle
}

/// Answers requests with 1 KiB, and echoes what comes through a CONNECT.
async fn serve(io: impl AsyncRead + AsyncWrite + Unpin, protocol: Protocol) {
    let content = Bytes::from(vec![b'x'; CONTENT]);
    let mut connection = server::Connection::new(io, config(protocol));
    while let Ok(Some((request, exchange))) = connection.next().await {
        let here = SocketAddr::from((Ipv4Addr::LOCALHOST, 40_000));
        let here = Downstream::new(PeerKind::Mesh, here, Scheme::Http);
        let mut id = || FieldValue::new("id").expect("it is visible");
        let canonical = request.canonical(&Rules::default(), &here, &mut id);
        match canonical.expect("it is good") {
            Canonical::Request(_) => {
                let length = Length::Known(CONTENT as u64);
                exchange.reply(Status::OK, &[], length).expect("it is open");
                exchange.send(content.clone()).await.expect("it is open");
                exchange.finish().expect("it is open");
            }
            Canonical::Connect(_) => {
                exchange
                    .reply(Status::OK, &[], Length::None)
                    .expect("it is open");
                let tunnel = exchange.into_tunnel().expect("it is granted");
                spawn_local(echo(tunnel));
            }
        }
    }
}

/// A request in its one form.
fn request(method: &str, target: &str, fields: &[(&str, &str)]) -> Canonical {
    let mut text = format!("{method}{target}");
    let target = method.len()..text.len();
    let mut spans = Vec::new();
    for (name, value) in fields {
        let start = text.len();
        text.extend([*name, *value]);
        spans.push((start..start + name.len(), start + name.len()..text.len()));
    }
    let (method, limits) = (0..method.len(), Limits::default());
    let raw = RawRequest::http1(text.into(), method, target, Version::Http11, limits);
    let mut raw = raw.expect("it is small");
    for (name, value) in spans {
        raw.field(name, value).expect("it is good");
    }
    let here = SocketAddr::from((Ipv4Addr::LOCALHOST, 40_000));
    let here = Downstream::new(PeerKind::Mesh, here, Scheme::Http);
    let mut id = || FieldValue::new("id").expect("it is visible");
    let framed = raw.frame().expect("it is good");
    let canonical = framed.canonical(&Rules::default(), &here, &mut id);
    canonical.expect("it is good")
}

/// So many requests, one after another.
async fn ask(handle: &client::Handle, times: usize) {
    let Canonical::Request(head) = request("GET", "/productpage?u=normal", &FIELDS) else {
        panic!("a request")
    };
    for _ in 0..times {
        let exchange = handle.request(&head, None).expect("it is ready");
        black_box(exchange.answer().await.expect("an answer"));
        let mut came = 0;
        while let Some(bytes) = exchange.data().await.expect("content") {
            came += bytes.len();
        }
        assert_eq!(came, CONTENT);
    }
}

fn connect_head() -> ConnectHead {
    match request("CONNECT", "10.0.0.7:8080", &CONNECT) {
        Canonical::Connect(head) => head,
        Canonical::Request(_) => panic!("a CONNECT"),
    }
}

async fn connect(handle: &client::Handle, head: &ConnectHead) -> Tunnel {
    let exchange = handle.connect(head).expect("it is ready");
    black_box(exchange.answer().await.expect("an answer"));
    exchange.into_tunnel().expect("it is granted")
}

/// Sends back what comes.
async fn echo(mut tunnel: Tunnel) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(n @ 1..) = tunnel.read(&mut buffer).await {
        if tunnel.write_all(&buffer[..n]).await.is_err() {
            return;
        }
    }
    // Whoever has left need not be told.
    let _ = tunnel.shutdown().await;
}

/// So often so many bytes there and back.
async fn talk(mut tunnel: Tunnel, bytes: usize, times: usize) {
    let (sent, mut got) = (vec![7; bytes], vec![0; bytes]);
    for _ in 0..times {
        tunnel.write_all(&sent).await.expect("it is open");
        tunnel.read_exact(&mut got).await.expect("it is open");
    }
    black_box(&got);
    tunnel.shutdown().await.expect("it is open");
}

#[inline(never)]
fn measured_tunnel_http1(runtime: &Runtime, local: &LocalSet, handle: client::Handle) {
    black_box("tunnel_http1");
    local.block_on(runtime, ask(&handle, EXCHANGES));
}

#[inline(never)]
fn measured_tunnel_http2(runtime: &Runtime, local: &LocalSet, handle: client::Handle) {
    black_box("tunnel_http2");
    local.block_on(runtime, ask(&handle, EXCHANGES));
}

#[inline(never)]
fn measured_pipe_http1(runtime: &Runtime, local: &LocalSet, handle: client::Handle) {
    black_box("pipe_http1");
    local.block_on(runtime, ask(&handle, EXCHANGES));
}

#[inline(never)]
fn measured_pipe_http2(runtime: &Runtime, local: &LocalSet, handle: client::Handle) {
    black_box("pipe_http2");
    local.block_on(runtime, ask(&handle, EXCHANGES));
}

#[inline(never)]
fn measured_pipe_requests(runtime: &Runtime, local: &LocalSet, handle: client::Handle) {
    local.block_on(runtime, async {
        let (head, mut all) = (connect_head(), Vec::new());
        for _ in 0..STREAMS {
            let tunnel = connect(&handle, &head).await;
            all.push(spawn_local(talk(tunnel, 1024, REQUESTS)));
        }
        for one in all {
            one.await.expect("it talks");
        }
    });
}

#[inline(never)]
fn measured_pipe_opens(runtime: &Runtime, local: &LocalSet, handle: client::Handle) {
    local.block_on(runtime, async {
        let head = connect_head();
        for _ in 0..OPENS {
            talk(connect(&handle, &head).await, 100, 1).await;
        }
    });
}
