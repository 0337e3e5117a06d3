//! Clients that do not read what endpoints send: the tunnels to the endpoints go on serving all others.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use lateen_exchange::{Error, Protocol, client, server};
use lateen_hbone::{Budget, Stream};
use lateen_http::{Canonical, FramedRequest, Length, Status};
use lateen_proto::workload::AppProtocol;
use tokio::io::AsyncWriteExt as _;

use super::application::Application;
use super::bounds::{stream_in, stream_of, stream_of_stranger};
use super::world::{World, local};
use super::{answer, canonical, connection, get, head};
use crate::testing::until;

const MIB: usize = 1 << 20;

/// More than all buffers and windows between an application and its client hold.
const LARGE: usize = 8 * MIB;

/// Answers that are not read.
const UNREAD: usize = 12;

/// A waypoint whose tunnels have their windows from a budget of a mebibyte. The endpoint of `server` is a pod of the mesh.
async fn small(protocol: AppProtocol) -> (World, SocketAddr) {
    let mut world = World::limited(|config| config.client.budget = Budget::new(MIB)).await;
    world.put_service("server", 96, protocol);
    let endpoint = world.put_mesh_endpoint("server", "app", 3);
    world.configure().await;
    (world, endpoint)
}

/// Answers `/large` with [`LARGE`] bytes, and everything else with few. `sent` counts them.
async fn serve(
    request: FramedRequest,
    exchange: server::Exchange,
    sent: Rc<Cell<usize>>,
) -> Result<(), Error> {
    let Canonical::Request(head) = canonical(request) else {
        panic!("no CONNECT is asked for")
    };
    let pieces = match head.path().target() {
        b"/large" => LARGE / 16384,
        _ => 0,
    };
    exchange.reply(Status::OK, &[], Length::Known(16384 * pieces as u64))?;
    for _ in 0..pieces {
        exchange.send(Bytes::from(vec![7; 16384])).await?;
        sent.set(sent.get() + 16384);
    }
    exchange.finish()
}

/// An application in the mesh, and the bytes of content that it has sent.
async fn application(
    world: &World,
    endpoint: SocketAddr,
    protocol: Protocol,
) -> (Application, Rc<Cell<usize>>) {
    let sent = Rc::new(Cell::new(0));
    let counted = Rc::clone(&sent);
    let handler = move |request, exchange| serve(request, exchange, Rc::clone(&counted));
    let application = Application::in_mesh(&world.ca, "app", endpoint, protocol, handler).await;
    (application, sent)
}

/// Waits until the application can send no more.
async fn stands_still(sent: &Cell<usize>) {
    let mut before = 0;
    while before == 0 || before != sent.get() {
        before = sent.get();
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

/// Another source of the namespace is served, and one of another namespace.
async fn others_are_served(world: &World, protocol: Protocol) {
    for stream in [
        stream_of(world, "other").await,
        stream_of_stranger(world).await,
    ] {
        let other = connection(stream, protocol);
        for _ in 0..3 {
            assert_eq!(get(&other, "GET", "/small").await.0, 200);
        }
    }
}

fn ask(client: &client::Handle) -> client::Exchange {
    let exchange = client.request(&head("GET", "/large", &[]), None).unwrap();
    exchange.finish().unwrap();
    exchange
}

/// Answers that a client does not read, of an application with this protocol.
async fn answers_are_left_unread(port: AppProtocol, protocol: Protocol) {
    let (world, endpoint) = small(port).await;
    let (application, sent) = application(&world, endpoint, protocol).await;
    let tunnel = world.tunnel("client").await;
    let mut unread = Vec::new();
    for _ in 0..UNREAD {
        let client = connection(stream_in(&world, &tunnel).await, protocol);
        unread.push((ask(&client), client));
    }
    until("all have come", || application.requests.get() == UNREAD).await;
    stands_still(&sent).await;
    assert!(sent.get() < UNREAD * LARGE);
    others_are_served(&world, protocol).await;
    // A client that reads late loses nothing.
    let (head, content) = answer(&unread[0].0).await;
    assert_eq!((head.status(), content.len()), (Status::OK, LARGE));
}

#[test]
fn answers_that_a_client_does_not_read_hold_up_no_other_client_of_the_endpoint() {
    local(answers_are_left_unread(
        AppProtocol::Http11,
        Protocol::Http1,
    ));
}

#[test]
fn answers_of_http2_that_a_client_does_not_read_hold_up_no_other_client_of_the_endpoint() {
    local(answers_are_left_unread(AppProtocol::Http2, Protocol::Http2));
}

#[test]
fn relayed_connections_that_a_client_does_not_read_hold_up_no_other_client_of_the_endpoint() {
    local(async {
        let (world, endpoint) = small(AppProtocol::Tcp).await;
        let (application, sent) = application(&world, endpoint, Protocol::Http1).await;
        let tunnel = world.tunnel("client").await;
        let mut unread: Vec<Stream> = Vec::new();
        for _ in 0..UNREAD {
            let mut stream = stream_in(&world, &tunnel).await;
            let request = b"GET /large HTTP/1.1\r\nhost: a\r\n\r\n";
            stream.write_all(request).await.unwrap();
            unread.push(stream);
        }
        until("all have come", || application.requests.get() == UNREAD).await;
        stands_still(&sent).await;
        assert!(sent.get() < UNREAD * LARGE);
        others_are_served(&world, Protocol::Http1).await;
    });
}
