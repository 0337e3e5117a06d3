//! Requests that meet endpoints which are not there.

use std::cell::Cell;
use std::collections::HashSet;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use lateen_exchange::Protocol;
use lateen_h2::Code;
use lateen_proto::l7::Retry;
use lateen_proto::workload::AppProtocol;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::spawn_local;

use super::application::{Application, tell};
use super::messages::trailers;
use super::world::{World, local};
use super::{answer, connection, get, head};
use crate::testing::{soon, until};

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
fn a_stream_that_the_only_endpoint_refuses_goes_to_it_again() {
    local(async {
        let world = World::start().await;
        let refused = Rc::new(Cell::new(0));
        let count = Rc::clone(&refused);
        let refuse_two = move |request, exchange: lateen_exchange::server::Exchange| {
            let count = Rc::clone(&count);
            async move {
                if count.get() < 2 {
                    count.set(count.get() + 1);
                    exchange.reset(Code::REFUSED_STREAM);
                    return Ok(());
                }
                tell(request, exchange).await
            }
        };
        let application = Application::plain(world.endpoint(), Protocol::Http2, refuse_two).await;
        let client = connection(world.stream().await, Protocol::Http2);
        assert_eq!(get(&client, "POST", "/again").await.0, 200);
        assert_eq!(application.requests.get(), 3);
        world.logged(&["/again", "status=200", "attempts=3"]).await;
        // The policy says how often.
        refused.set(-1);
        assert_eq!(get(&client, "POST", "/never").await.0, 503);
        assert_eq!(application.requests.get(), 6);
        let line = world.logged(&["/never", "status=503"]).await;
        assert!(line.contains("flags=\"URX,UR\""), "{line}");
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
fn a_request_whose_trailers_were_taken_is_not_sent_without_them() {
    local(async {
        let mut world = World::start().await;
        let second = world.put_plain_endpoint("server", "second", 4);
        world.configure().await;
        let (told, mut heard) = tokio::sync::mpsc::unbounded_channel();
        let refuse = move |_, exchange: lateen_exchange::server::Exchange| {
            let told = told.clone();
            async move {
                while exchange.data().await?.is_some() {}
                told.send(exchange.trailers().is_some()).unwrap();
                exchange.reset(Code::REFUSED_STREAM);
                Ok(())
            }
        };
        let _first = Application::plain(world.endpoint(), Protocol::Http2, refuse.clone()).await;
        let _second = Application::plain(second, Protocol::Http2, refuse).await;
        let client = connection(world.stream().await, Protocol::Http2);
        let fields = [("te", "trailers"), ("transfer-encoding", "chunked")];
        let exchange = client
            .request(&head("POST", "/trailers", &fields), None)
            .unwrap();
        exchange.finish_with(&trailers()).unwrap();
        let (answered, _) = answer(&exchange).await;
        assert_eq!(answered.status().code(), 503);
        assert_eq!(heard.recv().await, Some(true));
        assert!(heard.try_recv().is_err(), "no other endpoint has seen it");
        world.logged(&["/trailers", "attempts=1"]).await;
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
        const ALL: usize = 60;
        let mut applications = Vec::new();
        let came = Rc::new(Cell::new(0));
        // None is answered before all are under way.
        let hold = move |_, exchange: lateen_exchange::server::Exchange| {
            let came = Rc::clone(&came);
            async move {
                came.set(came.get() + 1);
                until("all have come", || came.get() >= ALL).await;
                exchange.reply(lateen_http::Status::OK, &[], lateen_http::Length::Known(0))?;
                exchange.finish()
            }
        };
        for address in addresses {
            let one = Application::plain(address, Protocol::Http2, hold.clone()).await;
            applications.push(one);
        }
        let client = connection(world.stream().await, Protocol::Http2);
        let asked = (0..ALL).map(|_| {
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

/// A policy with this number of repeats on these conditions.
fn repeating(attempts: u32, on: &[&str], per_try_timeout_ms: u32) -> Option<Retry> {
    Some(Retry {
        attempts,
        on: on.iter().map(ToString::to_string).collect(),
        per_try_timeout_ms,
    })
}

#[test]
fn the_meshs_policy_says_how_often_a_request_is_repeated() {
    local(async {
        for (attempts, flags, path) in [
            (0, "UF", "/no"),
            (1, "URX,UF", "/one"),
            (4, "URX,UF", "/four"),
        ] {
            let mut world = World::start().await;
            for number in 4..10 {
                world.put_plain_endpoint("server", &format!("dead-{number}"), number);
            }
            world.settings().retry = repeating(attempts, &["connect-failure"], 0);
            world.configure().await;
            let client = connection(world.stream().await, Protocol::Http1);
            assert_eq!(get(&client, "GET", path).await.0, 503);
            let attempts = format!("attempts={} ", attempts + 1);
            let flags = format!("flags=\"{flags}\"");
            world.logged(&[path, "status=503", &attempts, &flags]).await;
        }
    });
}

#[test]
fn an_idempotent_request_that_is_lost_is_repeated_once_if_the_policy_says_reset() {
    local(async {
        for (on, method, repeated) in [
            ("reset", "GET", 2),
            ("reset", "POST", 1),
            ("connect-failure", "GET", 1),
            ("503", "GET", 1),
        ] {
            let mut world = World::start().await;
            let others: Vec<_> = (4..8)
                .map(|number| world.put_plain_endpoint("server", &format!("app-{number}"), number))
                .collect();
            world.settings().retry = repeating(5, &[on], 0);
            world.configure().await;
            let break_off = |_, exchange: lateen_exchange::server::Exchange| async move {
                exchange.reset(Code::INTERNAL_ERROR);
                Ok(())
            };
            let mut applications = Vec::new();
            for address in [world.endpoint()].into_iter().chain(others) {
                applications.push(Application::plain(address, Protocol::Http2, break_off).await);
            }
            let client = connection(world.stream().await, Protocol::Http2);
            assert_eq!(get(&client, method, "/lost").await.0, 503);
            let taken: usize = applications.iter().map(|one| one.requests.get()).sum();
            assert_eq!(taken, repeated, "{on} {method}");
            world.logged(&["/lost", "flags=\"UR\""]).await;
        }
    });
}

/// The time in which an endpoint is to begin its answer. One that answers at once may be as late as a busy machine makes it.
const BEGIN_MS: u32 = 4000;

/// More than [`BEGIN_MS`].
const LONGER: Duration = Duration::from_millis(4500);

#[test]
fn an_endpoint_that_does_not_begin_its_answer_in_time_is_given_up() {
    local(async {
        let mut world = World::start().await;
        let quick = world.put_plain_endpoint("server", "quick", 4);
        world.settings().retry = repeating(2, &["reset"], BEGIN_MS);
        world.configure().await;
        let (told, mut gone) = tokio::sync::mpsc::unbounded_channel();
        let never = move |_, exchange: lateen_exchange::server::Exchange| {
            let told = told.clone();
            async move {
                let error = std::future::poll_fn(|cx| exchange.poll_gone(cx)).await;
                told.send(()).unwrap();
                Err(error)
            }
        };
        let slow = Application::plain(world.endpoint(), Protocol::Http2, never).await;
        let client = connection(world.stream().await, Protocol::Http2);
        // The other endpoint is dead so far.
        let answered = get(&client, "POST", "/slow-post").await;
        assert_eq!(answered, (504, "upstream request timeout".to_owned()));
        soon("the endpoint hears of it", gone.recv()).await.unwrap();
        world
            .logged(&["/slow-post", "flags=\"UT\"", "status=504"])
            .await;
        assert_eq!(slow.requests.get(), 1);
        let answers_late = |_, exchange: lateen_exchange::server::Exchange| async move {
            exchange.reply(lateen_http::Status::OK, &[], lateen_http::Length::Known(4))?;
            tokio::time::sleep(LONGER).await;
            exchange.send("late".into()).await?;
            exchange.finish()
        };
        let _quick = Application::plain(quick, Protocol::Http2, answers_late).await;
        while slow.requests.get() < 2 {
            // An answer that has begun may take its time.
            assert_eq!(get(&client, "GET", "/").await, (200, "late".to_owned()));
        }
    });
}

#[test]
fn a_client_may_take_its_time_with_the_content_of_a_request() {
    local(async {
        let mut world = World::start().await;
        world.settings().retry = repeating(0, &[], BEGIN_MS);
        world.configure().await;
        let _application = Application::plain(world.endpoint(), Protocol::Http2, count).await;
        let client = connection(world.stream().await, Protocol::Http2);
        let fields = [("content-length", "4")];
        let exchange = client.request(&head("PUT", "/", &fields), None).unwrap();
        exchange.send(Bytes::from_static(b"ab")).await.unwrap();
        tokio::time::sleep(LONGER).await;
        exchange.send(Bytes::from_static(b"cd")).await.unwrap();
        exchange.finish().unwrap();
        let (answered, content) = answer(&exchange).await;
        assert_eq!((answered.status().code(), &content[..]), (200, &b"4"[..]));
    });
}

/// Answers the length of the content.
async fn count(
    _: lateen_http::FramedRequest,
    exchange: lateen_exchange::server::Exchange,
) -> Result<(), lateen_exchange::Error> {
    let mut length = 0;
    while let Some(bytes) = exchange.data().await? {
        length += bytes.len();
    }
    let text = length.to_string();
    let known = lateen_http::Length::Known(text.len() as u64);
    exchange.reply(lateen_http::Status::OK, &[], known)?;
    exchange.send(text.into()).await?;
    exchange.finish()
}

#[test]
fn a_connection_may_take_as_long_as_the_mesh_says() {
    local(async {
        let mut world = World::start().await;
        // Nobody accepts, and the queue of connections is full.
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.bind(world.endpoint()).unwrap();
        let _listener = socket.listen(1).unwrap();
        let mut waiting = Vec::new();
        for _ in 0..4 {
            let address = world.endpoint();
            waiting.push(spawn_local(async move {
                tokio::net::TcpStream::connect(address).await
            }));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        world.settings().connect_timeout_ms = 150;
        world.settings().retry = repeating(0, &[], 0);
        world.configure().await;
        let client = connection(world.stream().await, Protocol::Http1);
        let start = std::time::Instant::now();
        assert_eq!(get(&client, "GET", "/unreachable").await.0, 503);
        let took = start.elapsed();
        // Without the setting it would be ten seconds.
        assert!((150..9000).contains(&took.as_millis()), "{took:?}");
        world
            .logged(&["/unreachable", "flags=\"UF\"", "did not answer in time"])
            .await;
        drop(waiting);
    });
}
