//! Requests that meet endpoints which are not there.

use std::collections::HashSet;
use std::time::Duration;

use bytes::Bytes;
use lateen_exchange::Protocol;
use lateen_h2::Code;
use lateen_proto::workload::AppProtocol;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::spawn_local;

use super::application::{Application, tell};
use super::world::{World, local};
use super::{answer, connection, get, head};

#[test]
fn a_dead_endpoint_costs_no_request() {
    local(async {
        let mut world = World::start().await;
        world.put_plain_endpoint("server", "dead", 4);
        world.configure().await;
        let _application = Application::plain(world.endpoint(), Protocol::Http1, tell).await;
        let client = connection(world.stream().await, Protocol::Http1);
        for _ in 0..20 {
            assert_eq!(get(&client, "POST", "/").await.0, 200);
        }
        world
            .logged(&["request complete", "attempts=2", "status=200"])
            .await;
    });
}

#[test]
fn when_all_endpoints_are_dead_the_answer_is_503_after_three_attempts_at_most() {
    local(async {
        let mut world = World::start().await;
        for number in 4..8 {
            world.put_plain_endpoint("server", &format!("dead-{number}"), number);
        }
        world.configure().await;
        let client = connection(world.stream().await, Protocol::Http1);
        let (status, text) = get(&client, "GET", "/dead").await;
        assert_eq!(status, 503);
        assert!(text.contains("upstream connect error"), "{text}");
        let line = world.logged(&["/dead", "status=503", "attempts=3"]).await;
        assert!(
            line.contains("flags=\"URX,UF\"") && line.contains("refused"),
            "{line}"
        );
    });
}

#[test]
fn a_stream_that_an_endpoint_refuses_goes_to_another_one() {
    local(async {
        let mut world = World::start().await;
        let second = world.put_plain_endpoint("server", "second", 4);
        world.configure().await;
        let refuse = |_, exchange: lateen_exchange::server::Exchange| async move {
            exchange.reset(Code::REFUSED_STREAM);
            Ok(())
        };
        let _first = Application::plain(world.endpoint(), Protocol::Http2, refuse).await;
        let second = Application::plain(second, Protocol::Http2, tell).await;
        let client = connection(world.stream().await, Protocol::Http2);
        for n in 0..10 {
            assert_eq!(get(&client, "POST", &format!("/{n}")).await.0, 200);
        }
        assert_eq!(second.requests.get(), 10);
    });
}

#[test]
fn an_idle_connection_that_its_server_has_closed_costs_no_idempotent_request() {
    local(async {
        let world = World::start().await;
        let listener = TcpListener::bind(world.endpoint()).await.unwrap();
        // Each connection serves one request and closes without a word.
        spawn_local(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                spawn_local(async move {
                    let mut request = vec![0; 1000];
                    let _ = stream.read(&mut request).await;
                    let _ = stream
                        .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
                        .await;
                    tokio::time::sleep(Duration::from_millis(5)).await;
                });
            }
        });
        let client = connection(world.stream().await, Protocol::Http1);
        for n in 0..10 {
            assert_eq!(get(&client, "GET", &format!("/{n}")).await.0, 200);
            tokio::time::sleep(Duration::from_millis(n)).await;
        }
    });
}

#[test]
fn a_request_whose_content_has_begun_is_not_sent_twice() {
    local(async {
        let world = World::start().await;
        let take = |_, exchange: lateen_exchange::server::Exchange| async move {
            let _ = exchange.data().await?;
            exchange.reset(Code::INTERNAL_ERROR);
            Ok(())
        };
        let application = Application::plain(world.endpoint(), Protocol::Http2, take).await;
        let client = connection(world.stream().await, Protocol::Http2);
        let fields = [("content-length", "4")];
        let exchange = client
            .request(&head("PUT", "/once", &fields), None)
            .unwrap();
        exchange.send(Bytes::from_static(b"ab")).await.unwrap();
        let (answered, _) = answer(&exchange).await;
        assert_eq!(answered.status().code(), 503);
        assert_eq!(application.requests.get(), 1);
        world.logged(&["/once", "flags=\"UR\"", "attempts=1"]).await;
    });
}

#[test]
fn requests_under_way_are_spread_over_the_endpoints() {
    local(async {
        let mut world = World::unconfigured();
        world.put_service("server", 96, AppProtocol::Http2);
        let addresses: Vec<_> = (3..6)
            .map(|number| world.put_plain_endpoint("server", &format!("app-{number}"), number))
            .collect();
        world.configure().await;
        let mut applications = Vec::new();
        let hold = |_, exchange: lateen_exchange::server::Exchange| async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            exchange.reply(lateen_http::Status::OK, &[], lateen_http::Length::Known(0))?;
            exchange.finish()
        };
        for address in addresses {
            applications.push(Application::plain(address, Protocol::Http2, hold).await);
        }
        let client = connection(world.stream().await, Protocol::Http2);
        let asked = (0..60).map(|_| {
            let client = client.clone();
            async move { get(&client, "GET", "/").await.0 }
        });
        let statuses: HashSet<_> = futures_util::future::join_all(asked)
            .await
            .into_iter()
            .collect();
        assert_eq!(statuses, HashSet::from([200]));
        let taken: Vec<_> = applications.iter().map(|one| one.requests.get()).collect();
        assert!(
            taken.iter().all(|taken| (15..=25).contains(taken)),
            "{taken:?}"
        );
    });
}
