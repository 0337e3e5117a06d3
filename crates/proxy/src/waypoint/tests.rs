//! The waypoint role with everything real: workers, sockets, TLS and tunnels, on loopback addresses of each test's own.

mod access_log;
mod addresses;
mod application;
mod bounds;
mod connections;
mod first_bytes;
mod hostile;
mod hostile_endpoints;
mod leaving;
mod limits;
mod listing;
mod messages;
mod networks;
mod outside;
mod policy;
mod refused;
mod retried;
mod server_names;
mod unread;
mod unread_uploads;
mod upgrades;
mod world;

use lateen_exchange::{Config, Protocol, client};
use lateen_http::{
    Canonical, Downstream, FieldValue, FramedRequest, Limits, PeerKind, RawRequest, RequestHead,
    ResponseHead, Rules, Scheme, Version,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::spawn_local;

use crate::testing::soon;

/// A request in its one form.
fn canonical(request: FramedRequest) -> Canonical {
    let peer = Downstream::new(PeerKind::Mesh, ([127, 0, 0, 1], 1).into(), Scheme::Http);
    let mut id = || FieldValue::new("id").unwrap();
    request
        .canonical(&Rules::default(), &peer, &mut id)
        .unwrap()
}

/// The head of a request to the service.
pub(super) fn head(method: &str, target: &str, fields: &[(&str, &str)]) -> RequestHead {
    match head_of(method, target, "server", fields) {
        Canonical::Request(head) => head,
        Canonical::Connect(_) => panic!("no CONNECT is asked for"),
    }
}

/// The head of a request to a host.
fn head_of(method: &str, target: &str, host: &str, fields: &[(&str, &str)]) -> Canonical {
    let mut text = format!("{method}{target}");
    let spans = (0..method.len(), method.len()..text.len());
    let mut lines = Vec::new();
    for (name, value) in [("host", host)].iter().chain(fields) {
        let start = text.len();
        text.extend([*name, *value]);
        lines.push((start..start + name.len(), start + name.len()..text.len()));
    }
    let limits = Limits::default();
    let (method, target) = spans;
    let mut raw = RawRequest::http1(text.into(), method, target, Version::Http11, limits).unwrap();
    for (name, value) in lines {
        raw.field(name, value).unwrap();
    }
    canonical(raw.frame().unwrap())
}

/// An HTTP connection over a stream to the waypoint.
fn connection(stream: lateen_hbone::Stream, protocol: Protocol) -> client::Handle {
    let (handle, driver) = client::open(stream, Config::new(protocol));
    spawn_local(async move {
        let _ = driver.await;
    });
    handle
}

/// The final answer to a request, and its content.
async fn answer(exchange: &client::Exchange) -> (ResponseHead, Vec<u8>) {
    let head = loop {
        let head = soon("an answer", exchange.answer()).await.unwrap();
        if !head.status().is_informational() {
            break head.canonical(None, PeerKind::Mesh).unwrap();
        }
    };
    let mut content = Vec::new();
    while let Some(bytes) = soon("content", exchange.data()).await.unwrap() {
        content.extend_from_slice(&bytes);
    }
    (head, content)
}

/// A request without content, and its answer.
async fn get(handle: &client::Handle, method: &str, target: &str) -> (u16, String) {
    let exchange = handle.request(&head(method, target, &[]), None).unwrap();
    exchange.finish().unwrap();
    let (head, content) = answer(&exchange).await;
    (head.status().code(), String::from_utf8(content).unwrap())
}

/// Writes text, and reads as many bytes as `expected` has.
async fn talk(stream: &mut lateen_hbone::Stream, text: &str, expected: &str) {
    soon("a write", stream.write_all(text.as_bytes()))
        .await
        .unwrap();
    let mut heard = vec![0; expected.len()];
    soon(expected, stream.read_exact(&mut heard)).await.unwrap();
    assert_eq!(String::from_utf8_lossy(&heard), expected);
}
