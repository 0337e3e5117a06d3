//! Connections in memory, and heads for them.
#![allow(dead_code)] // Each test file uses a part of it.

use std::cell::RefCell;
use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use lateen_exchange::{Account, Config, Error, Protocol, Timeouts, client, server};
use lateen_h2::Timestamp;
use lateen_http::{
    Asked, Canonical, ConnectHead, Downstream, FieldValue, FramedRequest, Limits, PeerKind,
    RawRequest, RawResponse, RawTrailers, RequestHead, ResponseHead, Rules, Scheme, Status,
    Trailers, Version,
};
use tokio::io::{AsyncReadExt, DuplexStream, duplex};
use tokio::task::{JoinHandle, LocalSet, spawn_local};
use tokio::time::{sleep, timeout};

pub const PROTOCOLS: [Protocol; 2] = [Protocol::Http1, Protocol::Http2];

/// A server's first frames over HTTP/2: empty SETTINGS, and the acknowledgment of the client's.
pub const SETTINGS: [u8; 18] = [0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 4, 1, 0, 0, 0, 0];

/// Bytes that a pipe holds.
pub const PIPE: usize = 64 * 1024;

/// Runs a test on one thread, as connections are used.
pub fn local<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");
    runtime.block_on(LocalSet::new().run_until(async {
        let limited = timeout(Duration::from_secs(60), test);
        limited.await.expect("nothing waits for ever")
    }))
}

/// Runs a test on one thread in virtual time: a sleep ends when nothing else moves.
pub fn virtually(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(LocalSet::new().run_until(test));
}

/// Both ends of a connection; the client's is driven by a task.
pub struct Pair {
    pub handle: client::Handle,
    pub server: server::Connection<DuplexStream>,
    pub driver: JoinHandle<Result<(), lateen_exchange::ConnectionError>>,
}

pub fn pair(protocol: Protocol) -> Pair {
    let (ours, theirs) = duplex(PIPE);
    let (handle, connection) = client::open(ours, Config::new(protocol));
    Pair {
        handle,
        server: server::Connection::new(theirs, Config::new(protocol)),
        driver: spawn_local(connection),
    }
}

/// Serves each request of a connection in a task of its own.
pub fn serve<F>(
    mut server: server::Connection<DuplexStream>,
    answer: impl Fn(FramedRequest, server::Exchange) -> F + 'static,
) -> JoinHandle<Result<(), lateen_exchange::ConnectionError>>
where
    F: Future<Output = Result<(), Error>> + 'static,
{
    spawn_local(async move {
        while let Some((request, exchange)) = server.next().await? {
            let answered = answer(request, exchange);
            spawn_local(async move {
                // A failure shows at the other end.
                let _ = answered.await;
            });
        }
        Ok(())
    })
}

/// A request in its one form, from HTTP/1 fields.
pub fn canonical(request: FramedRequest) -> Canonical {
    let here = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
    let here = Downstream::new(PeerKind::Mesh, here, Scheme::Http);
    let mut id = || FieldValue::new("id").expect("it is visible");
    request
        .canonical(&Rules::default(), &here, &mut id)
        .expect("it is good")
}

fn raw(method: &str, target: &str, fields: &[(&str, &str)]) -> Canonical {
    let mut text = format!("{method}{target}");
    let target = method.len()..text.len();
    let mut spans = Vec::new();
    for (name, value) in [("host", "a:80")].iter().chain(fields) {
        let start = text.len();
        text.extend([*name, *value]);
        spans.push((start..start + name.len(), start + name.len()..text.len()));
    }
    let bytes = Bytes::from(text);
    let method = 0..method.len();
    let limits = Limits::default();
    let mut raw =
        RawRequest::http1(bytes, method, target, Version::Http11, limits).expect("it is good");
    for (name, value) in spans {
        raw.field(name, value).expect("it is good");
    }
    canonical(raw.frame().expect("it is good"))
}

/// The head of a request.
pub fn head(method: &str, target: &str, fields: &[(&str, &str)]) -> RequestHead {
    match raw(method, target, fields) {
        Canonical::Request(head) => head,
        Canonical::Connect(_) => panic!("a request"),
    }
}

/// The head of a CONNECT.
pub fn connect(authority: &str) -> ConnectHead {
    let fields = [("host", authority)];
    let mut text = format!("CONNECT{authority}");
    let target = 7..text.len();
    let start = text.len();
    text.extend([fields[0].0, fields[0].1]);
    let end = text.len();
    let limits = Limits::default();
    let mut raw =
        RawRequest::http1(text.into(), 0..7, target, Version::Http11, limits).expect("it is good");
    raw.field(start..start + 4, start + 4..end)
        .expect("it is good");
    match canonical(raw.frame().expect("it is good")) {
        Canonical::Connect(head) => head,
        Canonical::Request(_) => panic!("a CONNECT"),
    }
}

/// An informational answer with this Link field.
pub fn informational(code: u16, link: &str) -> ResponseHead {
    let text = Bytes::from(format!("Link{link}"));
    let length = text.len();
    let status = Status::new(code).expect("three digits");
    let mut raw =
        RawResponse::http1(text, status, Version::Http11, Limits::default()).expect("it is small");
    raw.field(0..4, 4..length).expect("it is good");
    let framed = raw.frame(Asked::Ordinary).expect("it is good");
    framed.canonical(None, PeerKind::Mesh).expect("it is good")
}

/// The final answer.
pub async fn answer(exchange: &client::Exchange) -> Result<ResponseHead, Error> {
    loop {
        let head = exchange.answer().await?;
        if !head.status().is_informational() || head.opens_tunnel() {
            return Ok(head.canonical(None, PeerKind::Mesh).expect("it is good"));
        }
    }
}

/// The rest of the content.
pub async fn content(stream: &lateen_exchange::Stream) -> Result<Vec<u8>, Error> {
    let mut content = Vec::new();
    while let Some(bytes) = stream.data().await? {
        content.extend_from_slice(&bytes);
    }
    Ok(content)
}

/// All bytes that a peer sends, up to its end.
pub async fn text(peer: &mut DuplexStream) -> String {
    let mut bytes = Vec::new();
    // A connection that is cut ends it as well.
    let _ = peer.read_to_end(&mut bytes).await;
    String::from_utf8_lossy(&bytes).into_owned()
}

pub fn pattern(length: usize) -> Bytes {
    (0..length).map(|at| (at % 251) as u8).collect()
}

pub const KIB: usize = 1024;

/// Waits until nothing moves.
pub async fn rest() {
    sleep(Duration::from_millis(500)).await;
}

/// A connection to a server that charges an account.
pub fn charged(
    protocol: Protocol,
    account: Option<&Account>,
) -> (client::Handle, server::Connection<DuplexStream>) {
    let (ours, theirs) = duplex(PIPE);
    let (handle, connection) = client::open(ours, Config::new(protocol));
    spawn_local(async move {
        let _ = connection.await;
    });
    let config = Config {
        account: account.cloned(),
        ..Config::new(protocol)
    };
    (handle, server::Connection::new(theirs, config))
}

/// Connections that send no PING, and so never notice that a server is gone.
pub fn patient(protocol: Protocol) -> Config {
    let timeouts = Timeouts {
        ping_after: Duration::MAX / 2,
        ..Timeouts::default()
    };
    Config {
        timeouts: Some(timeouts),
        ..Config::new(protocol)
    }
}

/// Exchanges that a server has accepted, for a test to read.
pub type Exchanges = Rc<RefCell<Vec<server::Exchange>>>;

/// Drives a server's connection, whose exchanges nobody reads.
pub fn keep(mut server: server::Connection<DuplexStream>, exchanges: &Exchanges) {
    let exchanges = Rc::clone(exchanges);
    spawn_local(async move {
        while let Ok(Some((_, exchange))) = server.next().await {
            exchanges.borrow_mut().push(exchange);
        }
    });
}

/// The preface of a client of HTTP/2, with the acknowledgment of SETTINGS.
pub fn preface() -> Vec<u8> {
    let config = lateen_h2::Config::requests().share();
    let mut client = lateen_h2::Connection::client(&config, Timestamp::default());
    let preface = client.output().flatten().copied();
    preface.chain([0, 0, 0, 4, 1, 0, 0, 0, 0]).collect()
}

/// Trailers of so many bytes.
pub fn trailers(bytes: usize) -> Trailers {
    let text = Bytes::from(format!("x-note{}", "v".repeat(bytes)));
    let length = text.len();
    let mut raw = RawTrailers::new(text, Version::Http11, Limits::default()).expect("it is short");
    raw.field(0..6, 6..length).expect("it is good");
    raw.canonical()
}
