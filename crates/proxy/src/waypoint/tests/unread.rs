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
use lateen_types::Identity;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::application::Application;
use super::bounds::{stream_in, stream_of, stream_of_stranger};
use super::world::{World, local};
use super::{answer, canonical, connection, get, head};
use crate::testing::{soon, until};

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
    // A busy machine may stop the waypoint for some of these looks.
    const LOOKS: u32 = 8;
    let (mut before, mut equal) = (0, 0);
    while before == 0 || equal < LOOKS {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let now = sent.get();
        equal = if now == before { equal + 1 } else { 0 };
        before = now;
    }
}

/// Talks over a relayed connection that stands.
async fn is_relayed(stream: &mut Stream) {
    let request = b"GET /small HTTP/1.1\r\nhost: a\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut heard = Vec::new();
    while !heard.ends_with(b"\r\n\r\n") {
        heard.push(soon("an answer", stream.read_u8()).await.unwrap());
    }
    assert!(heard.starts_with(b"HTTP/1.1 200 "));
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
        // No other tunnel helps a connection that stands.
        let mut early = stream_in(&world, &world.tunnel_of(&source(0)).await).await;
        is_relayed(&mut early).await;
        let tunnel = world.tunnel("client").await;
        let mut unread: Vec<Stream> = Vec::new();
        for _ in 0..UNREAD {
            let mut stream = stream_in(&world, &tunnel).await;
            let request = b"GET /large HTTP/1.1\r\nhost: a\r\n\r\n";
            stream.write_all(request).await.unwrap();
            unread.push(stream);
        }
        until("all have come", || application.requests.get() == UNREAD + 1).await;
        stands_still(&sent).await;
        assert!(sent.get() < UNREAD * LARGE);
        is_relayed(&mut early).await;
        others_are_served(&world, Protocol::Http1).await;
    });
}

#[test]
fn an_idle_connection_in_a_tunnel_that_others_hold_up_is_not_used() {
    local(async {
        let (world, endpoint) = small(AppProtocol::Http11).await;
        let sent = Rc::new(Cell::new(0));
        let counted = Rc::clone(&sent);
        // All of the first requests are there before one is answered, so that each has a connection of its own.
        let (crowd, came) = (NOISY + 1, Rc::new(Cell::new(0)));
        let handler = move |request, exchange| {
            let (came, sent) = (Rc::clone(&came), Rc::clone(&counted));
            async move {
                came.set(came.get() + 1);
                until("all have come", || came.get() >= crowd).await;
                serve(request, exchange, sent).await
            }
        };
        let protocol = Protocol::Http1;
        let application = Application::in_mesh(&world.ca, "app", endpoint, protocol, handler).await;
        let connect = async |number: usize| {
            let tunnel = world.tunnel_of(&source(number)).await;
            connection(stream_in(&world, &tunnel).await, protocol)
        };
        // The budget is so small that each namespace has one place in the tunnel that all share.
        let mut clients = Vec::new();
        for number in 0..crowd {
            clients.push(connect(number).await);
        }
        let small = |client: &client::Handle| {
            let exchange = client.request(&head("GET", "/small", &[]), None).unwrap();
            exchange.finish().unwrap();
            exchange
        };
        let answers: Vec<_> = clients.iter().map(small).collect();
        for exchange in &answers {
            assert_eq!(answer(exchange).await.0.status(), Status::OK);
        }
        drop((answers, clients));
        // Answers that nobody reads take all connections but one. They are asked for at once, since a tunnel that is held up gets
        // no further stream.
        let mut clients = Vec::new();
        for number in 0..NOISY {
            clients.push(connect(number).await);
        }
        let unread: Vec<_> = clients.iter().map(ask).collect();
        until("all have come", || {
            application.requests.get() == crowd + NOISY
        })
        .await;
        stands_still(&sent).await;
        assert_eq!(application.connections.get(), crowd);
        // Until a tunnel has received nothing for a second, its peer may just be slow.
        tokio::time::sleep(Duration::from_millis(1500)).await;
        let polite = connect(NOISY).await;
        assert_eq!(get(&polite, "GET", "/small").await.0, 200);
        let connections = application.connections.get();
        assert_eq!(connections, crowd + 1, "the idle one is used");
        drop((unread, clients));
    });
}

/// Namespaces whose answers fill a tunnel that all share, each with its one place there.
const NOISY: usize = 8;

fn source(namespace: usize) -> Identity {
    Identity::new("cluster.local", &format!("n{namespace}"), "client").unwrap()
}
