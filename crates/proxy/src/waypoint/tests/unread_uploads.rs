//! Endpoints of HTTP/2 that do not read what a client sends: other clients' requests with content go on.

use std::time::Duration;

use bytes::Bytes;
use lateen_exchange::{Config, Error, Protocol, client, server};
use lateen_h2::FLOOR;
use lateen_http::{Canonical, FramedRequest, Length, Status};
use tokio::task::spawn_local;

use super::application::Application;
use super::bounds::{stream_of, stream_of_stranger};
use super::world::{World, local};
use super::{answer, canonical, connection, get, head, head_of};
use crate::testing::{soon, until};

/// Parameters of a server that gives all streams of a connection one window of 65,535 bytes, as many do.
fn narrow() -> Config {
    let http2 = lateen_h2::Config {
        first_windows: 1,
        stream_most: FLOOR,
        connection_most: FLOOR,
        allowance: FLOOR,
        ..lateen_h2::Config::requests()
    };
    Config {
        http2: http2.share(),
        ..Config::new(Protocol::Http2)
    }
}

/// Reads no content of `/slow`, and that of other requests before it answers. It accepts each CONNECT.
async fn choosy(request: FramedRequest, exchange: server::Exchange) -> Result<(), Error> {
    let Canonical::Request(head) = canonical(request) else {
        exchange.reply(Status::OK, &[], Length::None)?;
        return std::future::pending().await;
    };
    if head.path().target() == b"/slow" {
        std::future::pending::<()>().await;
    }
    while exchange.data().await?.is_some() {}
    exchange.reply(Status::OK, &[], Length::Known(0))?;
    exchange.finish()
}

/// An upload that is not read to its end.
async fn upload(client: &client::Handle, application: &Application) {
    let before = application.requests.get();
    let head = head("POST", "/slow", &[("content-length", "1000000")]);
    let exchange = client.request(&head, None).unwrap();
    spawn_local(async move {
        let _ = exchange.send(Bytes::from(vec![7; 1_000_000])).await;
        std::future::pending::<()>().await;
    });
    until("it has come", || application.requests.get() > before).await;
    // The content follows at once, as far as there are windows.
    tokio::time::sleep(Duration::from_millis(300)).await;
}

/// A request with content is answered.
async fn is_served(client: &client::Handle) {
    let head = head("POST", "/", &[("content-length", "5")]);
    let exchange = client.request(&head, None).unwrap();
    exchange.send("hello".into()).await.unwrap();
    exchange.finish().unwrap();
    assert_eq!(answer(&exchange).await.0.status(), Status::OK);
}

#[test]
fn an_upload_that_an_endpoint_does_not_read_holds_up_no_other_client_for_long() {
    local(async {
        let world = World::limited(|_| ()).await;
        let application = Application::plain_with(world.endpoint(), narrow(), choosy).await;
        let noisy = connection(stream_of(&world, "client").await, Protocol::Http2);
        let other = connection(stream_of_stranger(&world).await, Protocol::Http2);
        is_served(&other).await;
        upload(&noisy, &application).await;
        // Until nothing has moved for a second, the endpoint may just be slow.
        tokio::time::sleep(Duration::from_millis(1200)).await;
        is_served(&other).await;
        assert_eq!(application.connections.get(), 2);
    });
}

#[test]
fn requests_without_content_use_a_connection_whose_uploads_are_not_read() {
    local(async {
        let world = World::limited(|_| ()).await;
        let application = Application::plain_with(world.endpoint(), narrow(), choosy).await;
        let noisy = connection(stream_of(&world, "client").await, Protocol::Http2);
        let other = connection(stream_of_stranger(&world).await, Protocol::Http2);
        upload(&noisy, &application).await;
        tokio::time::sleep(Duration::from_millis(1200)).await;
        assert_eq!(get(&other, "GET", "/").await.0, 200);
        assert_eq!(application.connections.get(), 1);
        // The bytes of a tunnel would not leave there.
        let Canonical::Connect(connect) = head_of("CONNECT", "a:80", "a:80", &[]) else {
            panic!("it is a CONNECT")
        };
        let tunnel = other.connect(&connect).unwrap();
        let answer = soon("an answer", tunnel.answer()).await.unwrap();
        assert_eq!(answer.status(), Status::OK);
        assert_eq!(application.connections.get(), 2);
    });
}

#[test]
fn further_uploads_of_its_namespace_stall_no_other_shared_connection() {
    local(async {
        let world = World::limited(|_| ()).await;
        let application = Application::plain_with(world.endpoint(), narrow(), choosy).await;
        let noisy = connection(stream_of(&world, "client").await, Protocol::Http2);
        let its_friend = connection(stream_of(&world, "friend").await, Protocol::Http2);
        let other = connection(stream_of_stranger(&world).await, Protocol::Http2);
        upload(&noisy, &application).await;
        tokio::time::sleep(Duration::from_millis(1200)).await;
        is_served(&other).await;
        upload(&its_friend, &application).await;
        upload(&noisy, &application).await;
        is_served(&other).await;
        // Two are shared, and one belongs to each source of the namespace.
        assert_eq!(application.connections.get(), 4);
    });
}
