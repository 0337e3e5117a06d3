//! Hostile endpoints: none answers another request, holds one whose client has its answer, or has one processed more often.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use lateen_exchange::{Error, Protocol, server};
use lateen_h2::{Code, Config, Connection, Event, Field, Known, StreamId, Timestamp};
use lateen_http::FramedRequest;
use lateen_proto::workload::AppProtocol;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Barrier;

use super::application::{Application, break_off, tell};
use super::hostile::{answer_first, raw, read_head};
use super::world::{World, local};
use super::{answer, connection, get, head, upgrades};
use crate::testing::{soon, until};
use crate::waypoint::Accounts;

#[test]
fn bytes_behind_an_answer_answer_no_other_request() {
    const POISON: &str = "HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\npoison";
    local(async {
        for (method, first) in [
            ("GET", "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"),
            ("HEAD", "HTTP/1.1 200 OK\r\ncontent-length: 44\r\n\r\n"),
            ("GET", "HTTP/1.1 204 No Content\r\n\r\n"),
            (
                "GET",
                "HTTP/1.1 304 Not Modified\r\ncontent-length: 44\r\n\r\n",
            ),
            (
                "GET",
                "HTTP/1.1 304 Not Modified\r\ntransfer-encoding: chunked\r\n\r\n",
            ),
            (
                "GET",
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
            ),
        ] {
            let world = World::start().await;
            let first: &'static str = format!("{first}{POISON}").leak();
            let accepted = raw(world.endpoint(), move |_, stream| {
                answer_first(stream, first)
            })
            .await;
            let client = connection(world.stream().await, Protocol::Http1);
            let asked = get(&client, method, "/first").await;
            assert_eq!(asked.1, "", "{first:?}");
            let other = world.tunnel("other").await;
            let request = lateen_hbone::ConnectRequest::new(world.vip());
            let (stream, _) = other.connect(&request).await.unwrap();
            let other = connection(stream, Protocol::Http1);
            let second = get(&other, method, "/second").await;
            // A connection of its own begins with the first answer once more.
            assert_eq!(second.1, "", "{first:?}");
            assert_eq!(accepted.get(), 2, "{first:?}");
        }
    });
}

#[test]
fn a_connection_whose_request_was_not_read_to_its_end_serves_no_other() {
    local(async {
        let world = World::start().await;
        let accepted = raw(world.endpoint(), |_, stream| {
            answer_first(stream, "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nearly")
        })
        .await;
        let client = connection(world.stream().await, Protocol::Http1);
        let fields = [("content-length", "1000")];
        let exchange = client
            .request(&head("POST", "/early", &fields), None)
            .unwrap();
        // The rest of the content would be the next request.
        let smuggled = Bytes::from_static(b"GET /smuggled HTTP/1.1\r\nhost: a\r\n\r\n");
        exchange.send(smuggled).await.unwrap();
        let (head, content) = answer(&exchange).await;
        assert_eq!((head.status().code(), &content[..]), (200, &b"early"[..]));
        drop(exchange);
        let client = connection(world.stream().await, Protocol::Http1);
        assert_eq!(get(&client, "GET", "/next").await.1, "early");
        assert_eq!(accepted.get(), 2);
    });
}

#[test]
fn an_endpoint_that_switches_protocols_unasked_is_refused() {
    local(async {
        for answer in [
            "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
            "HTTP/1.1 200 OK\nfolded: no\r\n\r\n",
            "HTTP/1.1 200 OK\r\na: b\r\n c\r\n\r\n",
            "HTTP/1.1 204 No Content\r\ncontent-length: 3\r\n\r\nabc",
        ] {
            let world = World::start().await;
            raw(world.endpoint(), move |_, stream| {
                answer_first(stream, answer)
            })
            .await;
            let client = connection(world.stream().await, Protocol::Http1);
            assert_eq!(get(&client, "GET", "/x").await.0, 502, "{answer:?}");
        }
        let world = World::start().await;
        // A connection accepts 10,000 informational answers to a request.
        let flood: &'static str = "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(10_001).leak();
        raw(world.endpoint(), move |_, stream| {
            answer_first(stream, flood)
        })
        .await;
        let client = connection(world.stream().await, Protocol::Http1);
        assert_eq!(get(&client, "GET", "/hints").await.0, 502);
    });
}

/// Opens so many connections to the endpoint, which are idle then.
async fn warm(world: &World, count: usize) {
    let mut clients = Vec::new();
    for _ in 0..count {
        clients.push(connection(world.stream().await, Protocol::Http1));
    }
    let warm = clients.iter().map(|client| get(client, "GET", "/warm"));
    for answered in futures_util::future::join_all(warm).await {
        assert_eq!(answered.0, 200);
    }
}

/// Counts requests for `/count`, to which `react` sends bytes before the connection ends. Others are answered together, four at
/// a time.
async fn counting(world: &World, react: &'static [u8]) -> Rc<Cell<usize>> {
    let counted = Rc::new(Cell::new(0));
    let (count, together) = (Rc::clone(&counted), Rc::new(Barrier::new(4)));
    raw(world.endpoint(), move |_, mut stream| {
        let (count, together) = (Rc::clone(&count), Rc::clone(&together));
        async move {
            while let Some(head) = read_head(&mut stream).await {
                if head.contains("/count") {
                    count.set(count.get() + 1);
                    let _ = stream.write_all(react).await;
                    return;
                }
                together.wait().await;
                let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
                let _ = stream.write_all(answer).await;
            }
        }
    })
    .await;
    counted
}

#[test]
fn a_request_that_kills_its_endpoint_is_repeated_once_though_connections_had_served_before() {
    local(async {
        let world = World::start().await;
        let counted = counting(&world, b"").await;
        warm(&world, 4).await;
        let client = connection(world.stream().await, Protocol::Http1);
        assert_eq!(get(&client, "PUT", "/count").await.0, 503);
        assert_eq!(counted.get(), 2);
    });
}

#[test]
fn a_request_that_was_answered_with_garbage_is_not_repeated() {
    local(async {
        for garbage in [
            &b"HTTP/1.1 200 OK\nno\r\n\r\n"[..],
            b"HTTP/1.1 200 OK\r\nlo",
        ] {
            let world = World::start().await;
            let counted = counting(&world, garbage).await;
            warm(&world, 4).await;
            let client = connection(world.stream().await, Protocol::Http1);
            assert_eq!(get(&client, "PUT", "/count").await.0, 502);
            assert_eq!(counted.get(), 1, "{garbage:?}");
        }
    });
}

/// Serves HTTP/2 whose SETTINGS are those of `said`, and takes requests as if they were the usual ones. `react` gets each request, and
/// says whether the connection goes on.
async fn speak(
    mut stream: TcpStream,
    said: Config,
    mut react: impl FnMut(&mut Connection, StreamId) -> bool,
) {
    let mut said = Connection::server(&said.share(), Timestamp::default());
    let usual = Config::requests().share();
    let mut http2 = Connection::server(&usual, Timestamp::default());
    let first: Vec<u8> = said.output().flatten().copied().collect();
    let skipped = http2.queued();
    http2.advance(skipped);
    let _ = stream.write_all(&first).await;
    let mut buffer = vec![0; 4096];
    while let Ok(length @ 1..) = stream.read(&mut buffer).await {
        let mut input = &buffer[..length];
        let (mut asked, mut over) = (Vec::new(), Vec::new());
        while let Ok(Some(event)) = http2.receive(&mut input, Timestamp::default()) {
            match event {
                Event::Request { stream, .. } => asked.push(stream),
                Event::Reset { stream, .. } => over.push(stream),
                _ => {}
            }
        }
        for id in asked {
            if !react(&mut http2, id) {
                return;
            }
        }
        for id in over {
            http2.release(id);
        }
        while http2.has_output() {
            let bytes: Vec<u8> = http2.output().flatten().copied().collect();
            http2.advance(bytes.len());
            let _ = stream.write_all(&bytes).await;
        }
    }
}

/// Serves HTTP/2 to a client that may open no stream, and answers those that it opened before it knew.
async fn barred(stream: TcpStream, open: Rc<Cell<usize>>) {
    open.set(open.get() + 1);
    let said = Config {
        max_streams: 0,
        ..Config::requests()
    };
    speak(stream, said, |http2, id| {
        let status = [Field::known(Known::Status, "204")];
        http2.respond(id, None, &status, true).unwrap();
        http2.release(id);
        true
    })
    .await;
    open.set(open.get() - 1);
}

#[test]
fn an_endpoint_that_allows_no_streams_collects_no_connections() {
    local(async {
        let mut world = World::unconfigured();
        world.put_service("server", 96, AppProtocol::Http2);
        let endpoint = world.put_plain_endpoint("server", "app", 3);
        world.configure().await;
        let open = Rc::new(Cell::new(0));
        let count = Rc::clone(&open);
        raw(endpoint, move |_, stream| barred(stream, Rc::clone(&count))).await;
        let client = connection(world.stream().await, Protocol::Http2);
        for _ in 0..20 {
            assert_eq!(get(&client, "GET", "/").await.0, 204);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        until("all but the last ones are closed", || open.get() <= 2).await;
    });
}

/// A world whose service speaks HTTP/2, with one endpoint in plain text.
async fn of_http2() -> (World, SocketAddr) {
    let mut world = World::unconfigured();
    world.put_service("server", 96, AppProtocol::Http2);
    let endpoint = world.put_plain_endpoint("server", "app", 3);
    world.configure().await;
    (world, endpoint)
}

#[test]
fn an_endpoint_that_does_not_end_an_answer_holds_no_request_whose_client_has_all_of_it() {
    local(async {
        for protocol in [Protocol::Http1, Protocol::Http2] {
            let (world, endpoint) = of_http2().await;
            raw(endpoint, |_, stream| {
                speak(stream, Config::requests(), |http2, id| {
                    let status = [Field::known(Known::Status, "204")];
                    // On a busy machine the waypoint may have reset it by now.
                    let _ = http2.respond(id, None, &status, false);
                    true
                })
            })
            .await;
            let client = connection(world.stream().await, protocol);
            assert_eq!(get(&client, "GET", "/unended").await.0, 204);
            // The line is written at the end of the request.
            let words = ["/unended", "status=204", "flags=\"-\""];
            world.logged(&words).await;
            // One after the other a client may have more requests than at once.
            for _ in 0..250 {
                assert_eq!(get(&client, "GET", "/").await.0, 204, "{protocol:?}");
            }
        }
    });
}

#[test]
fn an_endpoint_that_does_not_end_content_of_a_known_length_holds_no_request_of_http1() {
    local(async {
        let (world, endpoint) = of_http2().await;
        raw(endpoint, |_, stream| {
            speak(stream, Config::requests(), |http2, id| {
                let head = [
                    Field::known(Known::Status, "200"),
                    Field::new("content-length", "5"),
                ];
                http2.respond(id, None, &head, false).unwrap();
                http2.send(id, Bytes::from_static(b"hello")).unwrap();
                true
            })
        })
        .await;
        let client = connection(world.stream().await, Protocol::Http1);
        for _ in 0..3 {
            let (status, content) = get(&client, "GET", "/unended").await;
            assert_eq!((status, &*content), (200, "hello"));
        }
        let words = ["/unended", "status=200", "flags=\"-\""];
        world.logged(&words).await;
    });
}

#[test]
fn an_endpoint_that_does_not_end_an_answer_holds_no_request_whose_content_comes_after_it() {
    local(async {
        let (world, endpoint) = of_http2().await;
        raw(endpoint, |_, stream| {
            speak(stream, Config::requests(), |http2, id| {
                let status = [Field::known(Known::Status, "204")];
                http2.respond(id, None, &status, false).unwrap();
                true
            })
        })
        .await;
        let mut client = world.stream().await;
        let head = b"PUT /late HTTP/1.1\r\nhost: server\r\ncontent-length: 1\r\n\r\n";
        client.write_all(head).await.unwrap();
        let answer = upgrades::read_head(&mut client).await;
        assert!(answer.starts_with("HTTP/1.1 204 "), "{answer}");
        client.write_all(b"x").await.unwrap();
        // The line is written at the end of the request. The connection serves the next one.
        let words = ["/late", "status=204", "flags=\"-\""];
        world.logged(&words).await;
        client.write_all(head).await.unwrap();
        let answer = upgrades::read_head(&mut client).await;
        assert!(answer.starts_with("HTTP/1.1 204 "), "{answer}");
    });
}

#[test]
fn trailers_behind_content_of_a_known_length_arrive_though_they_come_later() {
    local(async {
        let (world, endpoint) = of_http2().await;
        let late = |_: FramedRequest, exchange: server::Exchange| async move {
            let length = lateen_http::Length::Known(5);
            exchange.reply(lateen_http::Status::OK, &[], length)?;
            exchange.send(Bytes::from_static(b"hello")).await?;
            tokio::time::sleep(Duration::from_millis(300)).await;
            exchange.finish_with(&super::messages::trailers())
        };
        let _application = Application::plain(endpoint, Protocol::Http2, late).await;
        let client = connection(world.stream().await, Protocol::Http2);
        let fields = [("te", "trailers")];
        let exchange = client.request(&head("GET", "/", &fields), None).unwrap();
        let (_, content) = answer(&exchange).await;
        assert_eq!(&content[..], b"hello");
        assert!(exchange.trailers().is_some());
    });
}

/// A client takes the code for the waypoint's own. It would repeat a request that was refused, take an answer that ends without an
/// error for complete, and open another connection after an error of the protocol.
#[test]
fn an_endpoint_that_breaks_its_answer_off_says_nothing_about_the_clients_connection() {
    local(async {
        for (said, told) in [
            (Code::CANCEL, Code::CANCEL),
            (Code::ENHANCE_YOUR_CALM, Code::ENHANCE_YOUR_CALM),
            (Code::NO_ERROR, Code::INTERNAL_ERROR),
            (Code::PROTOCOL_ERROR, Code::INTERNAL_ERROR),
            (Code::REFUSED_STREAM, Code::INTERNAL_ERROR),
            (Code::HTTP_1_1_REQUIRED, Code::INTERNAL_ERROR),
        ] {
            let (world, endpoint) = of_http2().await;
            let is_read = Rc::new(Cell::new(false));
            let seen = Rc::clone(&is_read);
            let breaks = move |_, exchange| break_off(exchange, Rc::clone(&seen), said);
            let _application = Application::plain(endpoint, Protocol::Http2, breaks).await;
            let client = connection(world.stream().await, Protocol::Http2);
            let exchange = client.request(&head("GET", "/", &[]), None).unwrap();
            exchange.finish().unwrap();
            exchange.answer().await.unwrap();
            assert_eq!(
                exchange.data().await.unwrap().as_deref(),
                Some(&b"some"[..])
            );
            is_read.set(true);
            let heard = exchange.data().await.unwrap_err();
            assert!(
                matches!(heard, Error::Reset(code) if code == told),
                "{said}: {heard}"
            );
        }
    });
}

#[test]
fn heads_that_an_endpoint_does_not_read_are_no_more_than_the_account_of_their_client_has() {
    const MIB: usize = 1 << 20;
    local(async {
        // The identity has 256 KiB.
        let accounts = Accounts::new(MIB);
        let mut world = World::limited(|config| config.accounts = accounts.clone()).await;
        world.put_service("server", 96, AppProtocol::Http2);
        world.configure().await;
        raw(world.endpoint(), |_, mut stream| async move {
            // SETTINGS, and the acknowledgment of the waypoint's.
            let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 4, 1, 0, 0, 0, 0];
            stream.write_all(&settings).await.unwrap();
            std::future::pending::<()>().await;
        })
        .await;
        // Characters that the compression of HTTP/2 leaves as they are. The system's buffers take the first ones.
        for bytes in [50_000, 3000] {
            let value = "X".repeat(bytes);
            let request = head("GET", "/", &[("x-large", &value)]);
            let mut is_refused = false;
            for _ in 0..1000 {
                // The first bytes of each connection are charged to nobody.
                let client = connection(world.stream().await, Protocol::Http2);
                let exchange = client.request(&request, None).unwrap();
                exchange.finish().unwrap();
                let answer = exchange.answer();
                is_refused = match tokio::time::timeout(Duration::from_millis(20), answer).await {
                    Err(_) => false,
                    Ok(Ok(answer)) => answer.status().code() == 503,
                    Ok(Err(error)) => bytes > 4096 && error.is_unprocessed(),
                };
                if is_refused {
                    break;
                }
            }
            assert!(is_refused, "{} bytes are charged", accounts.held());
        }
        let words = ["flags=\"UO\"", "does not read earlier requests"];
        world.logged(&words).await;
        let held = accounts.held();
        // Requests of an identity have 128 KiB here, and clients' own heads are among them.
        assert!((112 * 1024..=256 * 1024).contains(&held), "{held}");
    });
}

/// Resets of a client beyond 50 would give it another connection.
#[test]
fn invalid_answers_count_as_no_resets_of_their_client() {
    local(async {
        let (world, endpoint) = of_http2().await;
        let accepted = raw(endpoint, |_, stream| {
            speak(stream, Config::requests(), |http2, id| {
                let head = [
                    Field::known(Known::Status, "200"),
                    Field::new("content-length", "1"),
                    Field::new("content-length", "2"),
                ];
                http2.respond(id, None, &head, false).unwrap();
                true
            })
        })
        .await;
        let client = connection(world.stream().await, Protocol::Http2);
        for _ in 0..60 {
            assert_eq!(get(&client, "GET", "/").await.0, 502);
        }
        assert_eq!(accepted.get(), 1);
    });
}

#[test]
fn an_endpoint_that_accepts_no_heads_leaves_requests_to_others() {
    local(async {
        let mut world = World::unconfigured();
        world.put_service("server", 96, AppProtocol::Http2);
        let picky = world.put_plain_endpoint("server", "picky", 3);
        let other = world.put_plain_endpoint("server", "other", 4);
        world.configure().await;
        raw(picky, |_, stream| {
            let said = Config {
                max_header_list: 1,
                ..Config::requests()
            };
            // Those that came before it was heard.
            speak(stream, said, |http2, id| {
                http2.reset(id, Code::REFUSED_STREAM);
                http2.release(id);
                true
            })
        })
        .await;
        let other = Application::plain(other, Protocol::Http2, tell).await;
        let client = connection(world.stream().await, Protocol::Http2);
        for n in 0..100 {
            assert_eq!(get(&client, "POST", &format!("/{n}")).await.0, 200);
        }
        assert_eq!(other.requests.get(), 100);
    });
}

/// Every endpoint of the service says that it accepts heads of 4 KiB. Another attempt at the same one would be refused again.
#[test]
fn a_head_that_no_endpoint_accepts_is_answered_with_431() {
    local(async {
        for endpoints in [1, 4] {
            let mut world = World::unconfigured();
            world.put_service("server", 96, AppProtocol::Http2);
            let addresses: Vec<_> = (0..endpoints)
                .map(|n| world.put_plain_endpoint("server", &format!("app-{n}"), 3 + n))
                .collect();
            world.configure().await;
            for address in addresses {
                raw(address, |_, stream| {
                    let said = Config {
                        max_header_list: 4096,
                        ..Config::requests()
                    };
                    speak(stream, said, |http2, id| {
                        let status = [Field::known(Known::Status, "204")];
                        http2.respond(id, None, &status, true).unwrap();
                        http2.release(id);
                        true
                    })
                })
                .await;
            }
            let client = connection(world.stream().await, Protocol::Http2);
            let value = "x".repeat(5000);
            let fields = [("x-large", &*value)];
            let ask = async || {
                let large = head("GET", "/large", &fields);
                let exchange = client.request(&large, None).unwrap();
                exchange.finish().unwrap();
                let (answered, content) = answer(&exchange).await;
                let content = String::from_utf8(content).unwrap();
                (answered.status().code(), content)
            };
            // Each connection takes its first request before it has heard of the limit.
            let refused = async {
                loop {
                    match ask().await {
                        (204, _) => {}
                        refused => break refused,
                    }
                }
            };
            let (status, text) = soon("a refusal", refused).await;
            assert_eq!(status, 431, "{text}");
            assert!(text.contains("larger than the upstream accepts"), "{text}");
            let words = ["/large", "status=431", "SETTINGS_MAX_HEADER_LIST_SIZE"];
            let line = world.logged(&words).await;
            assert!(line.contains("flags=\"DPE\""), "{line}");
            // A smaller one passes on the same connections.
            assert_eq!(get(&client, "GET", "/").await.0, 204);
        }
    });
}

#[test]
fn a_hint_that_cannot_be_passed_on_costs_no_answer() {
    local(async {
        let world = World::start().await;
        raw(world.endpoint(), |_, stream| {
            answer_first(
                stream,
                "HTTP/1.1 103 Early Hints\r\nhost: a b\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
            )
        })
        .await;
        let client = connection(world.stream().await, Protocol::Http1);
        assert_eq!(get(&client, "GET", "/hints").await.0, 200);
        let words = ["/hints", "status=200", "flags=\"-\""];
        world.logged(&words).await;
    });
}

/// Serves HTTP/2 whose connections end with their `last` request, and count the requests that are not for `/warm`.
async fn dying(endpoint: SocketAddr, last: usize) -> Rc<Cell<usize>> {
    let came = Rc::new(Cell::new(0));
    let count = Rc::clone(&came);
    raw(endpoint, move |number, stream| {
        let (count, here) = (Rc::clone(&count), Cell::new(0));
        speak(stream, Config::requests(), move |http2, id| {
            here.set(here.get() + 1);
            let is_warm = http2.fields().find(Known::Path) == Some(&b"/warm"[..]);
            if is_warm {
                let status = [Field::known(Known::Status, "204")];
                http2.respond(id, None, &status, true).unwrap();
                http2.release(id);
                return true;
            }
            count.set(count.get() + 1);
            // Others than the first end with their first request.
            number == 1 && here.get() < last
        })
    })
    .await;
    came
}

#[test]
fn requests_under_way_on_a_connection_that_dies_are_not_repeated_unless_the_policy_says_so() {
    local(async {
        let (world, endpoint) = of_http2().await;
        let came = dying(endpoint, 2).await;
        let client = connection(world.stream().await, Protocol::Http2);
        let (one, two) = tokio::join!(get(&client, "PUT", "/one"), get(&client, "PUT", "/two"));
        assert_eq!((one.0, two.0), (503, 503));
        assert_eq!(came.get(), 2);
    });
}

#[test]
fn requests_that_meet_the_end_of_an_idle_connection_are_repeated_once() {
    local(async {
        let (world, endpoint) = of_http2().await;
        let came = dying(endpoint, 3).await;
        let client = connection(world.stream().await, Protocol::Http2);
        assert_eq!(get(&client, "GET", "/warm").await.0, 204);
        let (one, two) = tokio::join!(get(&client, "PUT", "/one"), get(&client, "PUT", "/two"));
        // Every connection that takes both of them ends as well.
        assert_eq!((one.0, two.0), (503, 503));
        assert!((3..=4).contains(&came.get()), "{}", came.get());
    });
}
