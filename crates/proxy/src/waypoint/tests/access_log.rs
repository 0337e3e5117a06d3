//! Lines of the access log in Envoy's formats.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use lateen_exchange::{Config, Protocol, client};
use lateen_h2::Code;
use lateen_http::{Canonical, Length, Status};
use lateen_proto::l7::access_log::Encoding;
use lateen_proto::l7::{Action, Operation, Rule, StringMatch, string_match::Match};
use lateen_proto::workload::AppProtocol;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, UdpSocket};
use tokio::task::spawn_local;

use super::application::{Application, break_off, echo, tell};
use super::connections::greet_and_echo;
use super::outside::octets;
use super::world::{World, local};
use super::{answer, connection, get, head, talk};
use crate::testing::{dns, until};

async fn logging(encoding: Encoding, format: &str) -> World {
    let mut world = World::start().await;
    world.log_in(encoding, format);
    world.configure().await;
    world
}

#[test]
fn istios_default_text_has_all_of_its_columns() {
    local(async {
        let world = logging(Encoding::Text, "").await;
        let _application = Application::plain(world.endpoint(), Protocol::Http1, tell).await;
        let client = connection(world.stream().await, Protocol::Http1);
        let fields = [("user-agent", "say \"hi\""), ("x-request-id", "r-1")];
        let exchange = client
            .request(&head("GET", "/items?a=b", &fields), None)
            .unwrap();
        exchange.finish().unwrap();
        assert_eq!(answer(&exchange).await.0.status().code(), 200);
        let line = world.logged(&["/items"]).await;
        // The times, and the addresses of this test.
        let (start, rest) = line.split_once("] ").unwrap();
        assert!(start.starts_with("[20") && start.ends_with('Z'), "{line}");
        assert_eq!(start.len(), "[2026-11-20T21:37:00.123Z".len(), "{line}");
        let columns: Vec<_> = rest.split(' ').collect();
        let (vip, endpoint) = (world.vip().to_string(), world.endpoint().to_string());
        let quoted = format!("\"{endpoint}\"");
        let expected = [
            "\"GET",
            "/items?a=b",
            "HTTP/1.1\"",
            "200",
            "-",
            "via_upstream",
            "-",
            "\"-\"",
            "0",
            "14",
        ];
        assert_eq!(columns[..10], expected, "{line}");
        for time in &columns[10..12] {
            assert!(
                time.parse::<u64>().is_ok_and(|time| time < 10_000),
                "{line}"
            );
        }
        let expected = [
            "\"-\"",
            "\"say",
            "\\\"hi\\\"\"",
            "\"r-1\"",
            "\"server\"",
            &quoted,
            "inbound-vip|80|http|server.default.svc.cluster.local",
        ];
        assert_eq!(columns[12..19], expected, "{line}");
        assert!(columns[19].starts_with("127."), "our end: {line}");
        assert_eq!(columns[20], vip, "{line}");
        assert!(
            columns[21].starts_with(&world.ip(2, 1).to_string()),
            "{line}"
        );
        assert_eq!(columns[22..], ["-", "default"], "{line}");
        assert!(!line.contains("request complete"), "{line}");
    });
}

#[test]
fn json_by_default_is_istios_object_with_numbers_and_nulls() {
    local(async {
        let world = logging(Encoding::Json, "").await;
        let _application = Application::plain(world.endpoint(), Protocol::Http2, tell).await;
        let client = connection(world.stream().await, Protocol::Http2);
        assert_eq!(get(&client, "GET", "/json").await.0, 200);
        let line = world.logged(&["/json"]).await;
        let read: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(read.as_object().unwrap().len(), 24, "{line}");
        for (name, expected) in [
            ("method", "GET".into()),
            ("path", "/json".into()),
            ("protocol", "HTTP/2".into()),
            ("response_code", 200.into()),
            ("response_flags", "-".into()),
            ("response_code_details", "via_upstream".into()),
            ("bytes_sent", 9.into()),
            ("upstream_host", world.endpoint().to_string().into()),
            ("user_agent", serde_json::Value::Null),
        ] {
            assert_eq!(read[name], expected, "{name}: {line}");
        }
    });
}

#[test]
fn an_own_format_reads_answers_trailers_and_identities() {
    local(async {
        let format = "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT% %RESP(CONTENT-TYPE)% %RESP(:STATUS)% %TRAILER(GRPC-STATUS)% %GRPC_STATUS% %GRPC_STATUS(NUMBER)% %REQ(:METHOD):2% %REQ_WITHOUT_QUERY(:PATH)% %UPSTREAM_PROTOCOL% %UPSTREAM_REQUEST_ATTEMPT_COUNT% %DOWNSTREAM_PEER_URI_SAN% %HOSTNAME% %NONSENSE% %START_TIME(%s)%";
        let world = logging(Encoding::Text, format).await;
        let _application = Application::plain(world.endpoint(), Protocol::Http2, echo).await;
        let client = connection(world.stream().await, Protocol::Http2);
        let fields = [
            ("content-type", "application/grpc"),
            ("transfer-encoding", "chunked"),
        ];
        let exchange = client
            .request(&head("POST", "/a.B/C?x", &fields), None)
            .unwrap();
        exchange.finish_with(&super::messages::trailers()).unwrap();
        assert_eq!(answer(&exchange).await.0.status().code(), 200);
        let line = world.logged(&["/a.B/C"]).await;
        let (source, rest) = line.split_once(' ').unwrap();
        assert_eq!(source, world.ip(2, 1).to_string());
        let expected = "application/grpc 200 7 PermissionDenied 7 PO /a.B/C HTTP/2 1 spiffe://cluster.local/ns/default/sa/client gate - ";
        let time = rest.strip_prefix(expected);
        assert!(
            time.is_some_and(|time| time.parse::<u64>().is_ok()),
            "{line}"
        );
    });
}

#[test]
fn flags_and_details_say_what_went_wrong() {
    local(async {
        let format = "%DOWNSTREAM_LOCAL_ADDRESS% %REQ(:PATH)% %RESPONSE_CODE% %RESPONSE_FLAGS% %RESPONSE_CODE_DETAILS% %UPSTREAM_TRANSPORT_FAILURE_REASON% %BYTES_SENT% %RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)%";
        let mut world = logging(Encoding::Text, format).await;
        for number in 4..8 {
            world.put_plain_endpoint("server", &format!("dead-{number}"), number);
        }
        let methods = vec![StringMatch {
            r#match: Some(Match::Exact("DELETE".to_owned())),
        }];
        let no_delete = Rule {
            to: vec![Operation {
                methods,
                ..Operation::default()
            }],
            ..Rule::default()
        };
        world.put_policy("no-delete", Action::Deny, vec![no_delete]);
        world.configure().await;
        let client = connection(world.stream().await, Protocol::Http1);
        assert_eq!(get(&client, "GET", "/dead").await.0, 503);
        assert_eq!(get(&client, "DELETE", "/denied").await.0, 403);
        let line = world.logged(&["/dead"]).await;
        let expected = "/dead 503 URX,UF upstream_reset_before_response_started{remote_connection_failure|delayed_connect_error:_Connection_refused} delayed_connect_error:_Connection_refused ";
        assert!(line.contains(expected) && line.ends_with(" -"), "{line}");
        let line = world.logged(&["/denied"]).await;
        let expected =
            "/denied 403 - rbac_access_denied_matched_policy[ns[default]-policy[no-delete]] - 19 -";
        assert!(line.ends_with(expected), "{line}");

        let mut world = World::unconfigured();
        world.put_service("server", 96, AppProtocol::Http11);
        world.log_in(Encoding::Text, format);
        world.configure().await;
        let client = connection(world.stream().await, Protocol::Http1);
        assert_eq!(get(&client, "HEAD", "/nobody").await.0, 503);
        let line = world.logged(&["/nobody"]).await;
        assert!(
            line.ends_with("/nobody 503 UH no_healthy_upstream - 0 -"),
            "{line}"
        );
    });
}

#[test]
fn an_endpoint_that_breaks_off_is_told_by_how_far_it_came() {
    local(async {
        let world = logging(
            Encoding::Text,
            "%UPSTREAM_HOST% %REQ(:PATH)% %RESPONSE_CODE% %RESPONSE_FLAGS% %RESPONSE_CODE_DETAILS%",
        )
        .await;
        let is_read = Rc::new(Cell::new(false));
        let seen = Rc::clone(&is_read);
        let code = lateen_h2::Code::INTERNAL_ERROR;
        let breaks = move |request, exchange: lateen_exchange::server::Exchange| {
            let lateen_http::Canonical::Request(head) = super::canonical(request) else {
                panic!("no CONNECT is asked for")
            };
            let (is_late, seen) = (head.path().target() == b"/late", Rc::clone(&seen));
            async move {
                if is_late {
                    return break_off(exchange, seen, code).await;
                }
                exchange.reset(code);
                Ok(())
            }
        };
        let _application = Application::plain(world.endpoint(), Protocol::Http2, breaks).await;
        let client = connection(world.stream().await, Protocol::Http2);
        assert_eq!(get(&client, "GET", "/soon").await.0, 503);
        let exchange = client.request(&head("GET", "/late", &[]), None).unwrap();
        let _ = exchange.answer().await.unwrap();
        assert_eq!(
            exchange.data().await.unwrap().as_deref(),
            Some(&b"some"[..])
        );
        is_read.set(true);
        assert!(exchange.data().await.is_err());
        for expected in [
            "/soon 503 UR upstream_reset_before_response_started{remote_reset}",
            "/late 200 UR upstream_reset_after_response_started{remote_reset}",
        ] {
            let line = world.logged(&[&expected[..5]]).await;
            assert!(line.ends_with(expected), "{line}");
        }
    });
}

#[test]
fn a_call_of_grpc_whose_answer_gives_no_status_has_the_one_that_follows_from_http() {
    local(async {
        let format =
            "%UPSTREAM_HOST% %REQ(:PATH)% %RESPONSE_CODE% %GRPC_STATUS% %GRPC_STATUS(NUMBER)%";
        let world = logging(Encoding::Text, format).await;
        let is_read = Rc::new(Cell::new(false));
        let seen = Rc::clone(&is_read);
        let serve = move |request, exchange: lateen_exchange::server::Exchange| {
            let Canonical::Request(head) = super::canonical(request) else {
                panic!("no CONNECT is asked for")
            };
            let (path, seen) = (head.path().target().to_vec(), Rc::clone(&seen));
            async move {
                let status = match &path[..] {
                    b"/a.B/Cut" => return break_off(exchange, seen, Code::INTERNAL_ERROR).await,
                    b"/a.B/Down" => Status::new(503).unwrap(),
                    _ => Status::OK,
                };
                exchange.reply(status, &[], Length::Known(0))?;
                exchange.finish()
            }
        };
        let _application = Application::plain(world.endpoint(), Protocol::Http2, serve).await;
        let client = connection(world.stream().await, Protocol::Http2);
        let call = |path| {
            let fields = [("content-type", "application/grpc"), ("te", "trailers")];
            client.request(&head("POST", path, &fields), None).unwrap()
        };
        for path in ["/a.B/Down", "/a.B/Silent"] {
            let call = call(path);
            call.finish().unwrap();
            answer(&call).await;
        }
        let cut = call("/a.B/Cut");
        cut.finish().unwrap();
        cut.answer().await.unwrap();
        assert!(cut.data().await.unwrap().is_some());
        is_read.set(true);
        assert!(cut.data().await.is_err());
        for (path, expected) in [
            ("/a.B/Down", "503 Unavailable 14"),
            ("/a.B/Silent", "200 Unknown 2"),
            ("/a.B/Cut", "200 Unknown 2"),
        ] {
            let line = world.logged(&[path]).await;
            assert!(line.ends_with(expected), "{line}");
        }
        for labels in [
            ["response_code=\"503\"", "grpc_response_status=\"14\""],
            ["response_flags=\"-\"", "grpc_response_status=\"2\""],
            ["response_flags=\"UR\"", "grpc_response_status=\"2\""],
        ] {
            let found = world.metric("istio_requests_total", &labels);
            assert_eq!(found, Some(1.0), "{labels:?}");
        }
    });
}

/// The time that a slow resolver or endpoint takes.
const SLOW: Duration = Duration::from_millis(600);

/// The number at the end of the line about this path.
async fn number_of(world: &World, path: &str) -> u128 {
    let line = world.logged(&[path]).await;
    let (_, number) = line.rsplit_once(' ').unwrap();
    number.parse().unwrap_or_else(|_| panic!("{line}"))
}

#[test]
fn the_duration_of_a_request_ends_with_its_last_byte_and_not_with_its_last_attempt() {
    local(async {
        let format = "%UPSTREAM_HOST% %REQ(:PATH)% %REQUEST_DURATION%";
        let world = logging(Encoding::Text, format).await;
        let first = Rc::new(Cell::new(true));
        let refuse_once = move |request, exchange: lateen_exchange::server::Exchange| {
            let is_first = first.replace(false);
            async move {
                if is_first {
                    tokio::time::sleep(SLOW).await;
                    exchange.reset(Code::REFUSED_STREAM);
                    return Ok(());
                }
                tell(request, exchange).await
            }
        };
        let application = Application::plain(world.endpoint(), Protocol::Http2, refuse_once).await;
        let client = connection(world.stream().await, Protocol::Http2);
        assert_eq!(get(&client, "GET", "/twice").await.0, 200);
        assert_eq!(application.requests.get(), 2);
        assert!(number_of(&world, "/twice").await < SLOW.as_millis());
    });
}

#[test]
fn content_that_waits_for_an_endpoint_has_been_received() {
    local(async {
        let mut world = World::unconfigured();
        world.put_entry("slow.test", 90, |service| {
            service.ports[0].app_protocol = AppProtocol::Http2.into();
        });
        world.put_named_endpoint("slow.test", "slow.test");
        world.log_in(
            Encoding::Text,
            "%UPSTREAM_HOST% %DOWNSTREAM_LOCAL_ADDRESS% %REQ(:PATH)% %REQUEST_DURATION%",
        );
        world.configure().await;
        let (socket, at) = (
            UdpSocket::bind(world.resolver()).await.unwrap(),
            SocketAddr::from((world.ip(60, 1), 8080)),
        );
        spawn_local(async move {
            let mut buffer = [0; 512];
            while let Ok((length, peer)) = socket.recv_from(&mut buffer).await {
                tokio::time::sleep(SLOW).await;
                let answer = dns::reply(&buffer[..length], &[octets(at.ip())], 60);
                let _ = socket.send_to(&answer, peer).await;
            }
        });
        let _application = Application::plain(at, Protocol::Http2, echo).await;
        let vip = SocketAddr::from((world.ip(90, 1), 8080));
        let client = connection(world.ask(vip).await.unwrap(), Protocol::Http2);
        let fields = [("content-length", "4")];
        let post = client.request(&head("POST", "/at-once", &fields), None);
        let post = post.unwrap();
        post.send("abcd".into()).await.unwrap();
        post.finish().unwrap();
        assert_eq!(answer(&post).await.1, b"abcd");
        assert!(number_of(&world, "/at-once").await < SLOW.as_millis());
        // The next one finds the address, and its content comes late.
        let post = client.request(&head("POST", "/late", &fields), None);
        let post = post.unwrap();
        post.send("ab".into()).await.unwrap();
        // The waypoint may see the first part late.
        tokio::time::sleep(2 * SLOW).await;
        post.send("cd".into()).await.unwrap();
        post.finish().unwrap();
        assert_eq!(answer(&post).await.1, b"abcd");
        assert!(number_of(&world, "/late").await >= SLOW.as_millis());
    });
}

/// As with Envoy 1.40.
#[test]
fn a_request_that_its_client_resets_is_told_apart_from_one_whose_connection_ends() {
    local(async {
        let format =
            "%UPSTREAM_HOST% %REQ(:PATH)% %RESPONSE_CODE% %RESPONSE_FLAGS% %RESPONSE_CODE_DETAILS%";
        let world = logging(Encoding::Text, format).await;
        let wait = |_, exchange: lateen_exchange::server::Exchange| async move {
            Err(std::future::poll_fn(|cx| exchange.poll_gone(cx)).await)
        };
        let application = Application::plain(world.endpoint(), Protocol::Http2, wait).await;
        for (number, (path, code, expected)) in [
            ("/cancel", Some(Code::CANCEL), "0 DR http2.remote_reset"),
            (
                "/refuse",
                Some(Code::REFUSED_STREAM),
                "0 DR http2.remote_refuse",
            ),
            ("/close", None, "0 DC downstream_remote_disconnect"),
        ]
        .into_iter()
        .enumerate()
        {
            let (client, driver) = client::open(world.stream().await, Config::new(Protocol::Http2));
            let driver = spawn_local(driver);
            let exchange = client.request(&head("GET", path, &[]), None).unwrap();
            until("it has come", || application.requests.get() == number + 1).await;
            match code {
                Some(code) => exchange.reset(code),
                None => driver.abort(),
            }
            let line = world.logged(&[path]).await;
            assert!(line.ends_with(expected), "{line}");
        }
    });
}

#[test]
fn relayed_connections_have_lines_of_the_same_format() {
    local(async {
        let mut world = World::unconfigured();
        world.put_service("server", 96, AppProtocol::Tcp);
        let endpoint = world.put_plain_endpoint("server", "app", 3);
        world.log_in(Encoding::Text, "");
        world.configure().await;
        assert!(world.ask(world.vip()).await.is_err());
        let line = world.logged(&["inbound-vip|80|tcp|", "UF"]).await;
        assert!(
            line.contains("] \"- - -\" 0 UF - - \"connect_to_"),
            "{line}"
        );
        greet_and_echo(TcpListener::bind(endpoint).await.unwrap(), "");
        let mut stream = world.stream().await;
        talk(&mut stream, "hello", "hello").await;
        stream.shutdown().await.unwrap();
        assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);
        let line = world
            .logged(&["inbound-vip|80|tcp|", &endpoint.to_string(), " 5 5 "])
            .await;
        assert!(line.contains("] \"- - -\" 0 - - - \"-\" 5 5 "), "{line}");
        assert!(!line.contains("connection complete"), "{line}");
    });
}

#[test]
fn a_format_that_changes_holds_for_the_next_request_of_an_open_connection() {
    local(async {
        let mut world = World::start().await;
        let _application = Application::plain(world.endpoint(), Protocol::Http1, tell).await;
        let client = connection(world.stream().await, Protocol::Http1);
        assert_eq!(get(&client, "GET", "/first").await.0, 200);
        world.logged(&["request complete", "/first"]).await;
        world.log_in(Encoding::Text, "%UPSTREAM_HOST% served %REQ(:PATH)%");
        world.configure().await;
        assert_eq!(get(&client, "GET", "/second").await.0, 200);
        let line = world.logged(&["/second"]).await;
        assert_eq!(line, format!("{} served /second", world.endpoint()));
    });
}
