//! Requests and answers that pass the waypoint.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::LocalBoxFuture;
use lateen_exchange::{Error, Protocol, client, server};
use lateen_h2::Code;
use lateen_http::{
    Canonical, FieldValue, FramedRequest, Known, Length, Limits, RawTrailers, Status, Trailers,
    Version,
};
use lateen_proto::l7::Action;
use lateen_proto::workload::AppProtocol;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::spawn_local;

use super::application::{Application, break_off, echo, tell};
use super::policy::method;
use super::world::{World, local};
use super::{answer, canonical, connection, get, head, talk};
use crate::testing::{soon, until};

#[test]
fn requests_of_one_connection_share_a_connection_to_the_endpoint() {
    local(async {
        let world = World::start().await;
        let application = Application::plain(world.endpoint(), Protocol::Http1, tell).await;
        let client = connection(world.stream().await, Protocol::Http1);
        for n in 0..5 {
            let path = format!("/items/{n}?a=b");
            let (status, text) = get(&client, "GET", &path).await;
            assert_eq!((status, text), (200, format!("GET {path}")));
        }
        assert_eq!(application.requests.get(), 5);
        assert_eq!(application.connections.get(), 1);
        let labels = [
            "reporter=\"waypoint\"",
            "response_code=\"200\"",
            "source_workload=\"client\"",
            "destination_workload=\"app\"",
            "destination_service=\"server.default.svc.cluster.local\"",
            "request_protocol=\"http\"",
            "connection_security_policy=\"mutual_tls\"",
        ];
        until("five requests are counted", || {
            world.metric("istio_requests_total", &labels) == Some(5.0)
        })
        .await;
        let line = world
            .logged(&["request complete", "/items/4", "status=200"])
            .await;
        for part in [
            "method=\"GET\"",
            "src.workload=\"client\"",
            "dst.workload=\"app\"",
        ] {
            assert!(line.contains(part), "{part}: {line}");
        }
    });
}

#[test]
fn an_endpoint_in_the_mesh_sees_the_waypoints_identity_and_its_own_address() {
    local(async {
        let mut world = World::unconfigured();
        world.put_service("server", 96, AppProtocol::Unknown);
        let endpoint = world.put_mesh_endpoint("server", "app", 3);
        world.configure().await;
        let application =
            Application::in_mesh(&world.ca, "app", endpoint, Protocol::Http1, tell).await;
        let client = connection(world.stream().await, Protocol::Http1);
        for _ in 0..3 {
            assert_eq!(get(&client, "GET", "/").await, (200, "GET /".to_owned()));
        }
        let gate = "spiffe://cluster.local/ns/default/sa/gate";
        let asked = application.asked.borrow().clone();
        assert_eq!(asked, [(gate.to_owned(), endpoint.to_string())]);
    });
}

/// Makes requests, each of which is answered, until the application has been asked for `asked` streams and one tunnel is left.
pub async fn ask_until(application: &Application, client: &client::Handle, asked: usize) {
    let test = async {
        while application.asked.borrow().len() < asked || application.tunnels.get() > 1 {
            assert_eq!(get(client, "POST", "/").await.0, 200);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    soon("a new stream", test).await;
    assert_eq!(application.asked.borrow().len(), asked);
}

/// The peer ends such a tunnel after a time, with the requests that are on it then.
#[test]
fn requests_leave_a_tunnel_that_takes_no_more_streams() {
    local(async {
        for (port, protocol) in [
            (AppProtocol::Http11, Protocol::Http1),
            (AppProtocol::Http2, Protocol::Http2),
        ] {
            let mut world = World::unconfigured();
            world.put_service("server", 96, port);
            let endpoint = world.put_mesh_endpoint("server", "app", 3);
            world.configure().await;
            let application =
                Application::in_mesh(&world.ca, "app", endpoint, protocol, tell).await;
            let client = connection(world.stream().await, Protocol::Http1);
            ask_until(&application, &client, 1).await;
            application.drain.notify_waiters();
            ask_until(&application, &client, 2).await;
        }
    });
}

#[test]
fn http2_goes_on_as_http2_where_the_port_names_no_protocol_and_many_requests_share_it() {
    local(async {
        let world = World::start().await;
        let application = Application::plain(world.endpoint(), Protocol::Http2, tell).await;
        let client = connection(world.stream().await, Protocol::Http2);
        let asked = (0..20).map(|n| {
            let client = client.clone();
            async move { get(&client, "GET", &format!("/{n}")).await }
        });
        for (n, answered) in futures_util::future::join_all(asked)
            .await
            .into_iter()
            .enumerate()
        {
            assert_eq!(answered, (200, format!("GET /{n}")));
        }
        assert_eq!(application.connections.get(), 1);
        assert_eq!(application.requests.get(), 20);
    });
}

#[test]
fn http1_goes_on_as_http2_to_a_port_that_says_so() {
    local(async {
        let mut world = World::unconfigured();
        world.put_service("server", 96, AppProtocol::Http2);
        let endpoint = world.put_plain_endpoint("server", "app", 3);
        world.configure().await;
        let _application = Application::plain(endpoint, Protocol::Http2, tell).await;
        let client = connection(world.stream().await, Protocol::Http1);
        let exchange = client.request(&head("GET", "/", &[]), None).unwrap();
        let (answered, _) = answer(&exchange).await;
        let version = lateen_http::FieldName::new("x-version").unwrap();
        assert_eq!(
            answered.fields().named(&version).next(),
            Some(&b"Http2"[..])
        );
    });
}

/// RFC 9110 §6.6.1.
#[test]
fn answer_without_a_date_gets_one_and_no_other_does() {
    const OLD: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    local(async {
        for protocol in [Protocol::Http1, Protocol::Http2] {
            let mut world = World::start().await;
            world.put_policy("no-delete", Action::Deny, vec![method("DELETE")]);
            world.configure().await;
            let dated = |request: FramedRequest, exchange: server::Exchange| async move {
                let Canonical::Request(head) = canonical(request) else {
                    panic!("no CONNECT is sent")
                };
                let date = [(Known::Date.into(), FieldValue::new(OLD).unwrap())];
                let is_dated = head.path().target() == b"/dated";
                let fields = if is_dated { &date[..] } else { &[] };
                exchange.reply(Status::OK, fields, Length::Known(0))?;
                exchange.finish()
            };
            let _application = Application::plain(world.endpoint(), protocol, dated).await;
            let client = connection(world.stream().await, protocol);
            for (method, path, is_made) in [
                ("GET", "/", true),
                ("GET", "/dated", false),
                ("DELETE", "/", true),
            ] {
                let exchange = client.request(&head(method, path, &[]), None).unwrap();
                exchange.finish().unwrap();
                let (answered, _) = answer(&exchange).await;
                let dates: Vec<_> = answered.fields().all(Known::Date).collect();
                assert_eq!(dates.len(), 1, "{protocol:?} {method} {path}");
                let text = String::from_utf8_lossy(dates[0]);
                assert_eq!(text != OLD, is_made, "{text}");
                assert!(text.len() == OLD.len() && text.ends_with(" GMT"), "{text}");
            }
        }
    });
}

pub fn trailers() -> Trailers {
    let mut raw =
        RawTrailers::new("grpc-status7".into(), Version::Http11, Limits::default()).unwrap();
    raw.field(0..11, 11..12).unwrap();
    raw.canonical()
}

#[test]
fn messages_and_status_of_grpc_pass_and_are_counted() {
    local(async {
        let world = World::start().await;
        let _application = Application::plain(world.endpoint(), Protocol::Http2, echo).await;
        let client = connection(world.stream().await, Protocol::Http2);
        let fields = [
            ("content-type", "application/grpc"),
            ("te", "trailers"),
            ("transfer-encoding", "chunked"),
        ];
        let exchange = client
            .request(&head("POST", "/shop.Cart/Add", &fields), None)
            .unwrap();
        // Two messages in three pieces.
        for piece in [&b"\0\0\0\0\x03ab"[..], &b"c\0\0\0"[..], &b"\0\x01d"[..]] {
            exchange.send(Bytes::from_static(piece)).await.unwrap();
        }
        exchange.finish_with(&trailers()).unwrap();
        let (answered, content) = answer(&exchange).await;
        assert_eq!(answered.status().code(), 200);
        assert_eq!(content, b"\0\0\0\0\x03abc\0\0\0\0\x01d");
        let ended = exchange.trailers().unwrap();
        assert_eq!(ended.fields().get(Known::GrpcStatus), Some(&b"7"[..]));
        let labels = [
            "reporter=\"waypoint\"",
            "request_protocol=\"grpc\"",
            "grpc_response_status=\"7\"",
        ];
        until("the messages are counted", || {
            world.metric("istio_request_messages_total", &labels) == Some(2.0)
                && world.metric("istio_response_messages_total", &labels) == Some(2.0)
        })
        .await;
    });
}

#[test]
fn trailers_of_a_request_count_among_its_bytes() {
    local(async {
        let world = World::start().await;
        let _application = Application::plain(world.endpoint(), Protocol::Http2, echo).await;
        let client = connection(world.stream().await, Protocol::Http2);
        let mut bytes = Vec::new();
        for (path, has_trailers) in [("/none", false), ("/some", true)] {
            let fields = [("te", "trailers"), ("transfer-encoding", "chunked")];
            let exchange = client.request(&head("POST", path, &fields), None).unwrap();
            match has_trailers {
                true => exchange.finish_with(&trailers()).unwrap(),
                false => exchange.finish().unwrap(),
            }
            assert_eq!(answer(&exchange).await.0.status().code(), 200);
            drop(exchange);
            let line = world.logged(&["request complete", path]).await;
            let (_, rest) = line.split_once("bytes_recv=").unwrap();
            let number = rest.split(' ').next().unwrap();
            bytes.push(number.parse::<usize>().unwrap());
        }
        assert_eq!(bytes[1] - bytes[0], trailers().fields().lines_len());
    });
}

#[test]
fn head_has_no_content_and_large_content_passes_both_ways() {
    local(async {
        for protocol in [Protocol::Http1, Protocol::Http2] {
            let world = World::start().await;
            let _application = Application::plain(world.endpoint(), protocol, tell).await;
            let client = connection(world.stream().await, protocol);
            assert_eq!(get(&client, "HEAD", "/x").await, (200, String::new()));
        }
        for protocol in [Protocol::Http1, Protocol::Http2] {
            let world = World::start().await;
            let _application = Application::plain(world.endpoint(), protocol, echo).await;
            let client = connection(world.stream().await, protocol);
            let content = Bytes::from(vec![7; 3_000_000]);
            let length = content.len().to_string();
            let fields = [("content-length", &*length)];
            let exchange = client.request(&head("PUT", "/", &fields), None).unwrap();
            let sent = async {
                exchange.send(content.clone()).await.unwrap();
                exchange.finish().unwrap();
            };
            let ((), (answered, echoed)) = tokio::join!(sent, answer(&exchange));
            assert_eq!(answered.status().code(), 200);
            assert!(echoed == content, "{protocol:?}");
        }
    });
}

#[test]
fn informational_answers_pass_before_the_final_one() {
    local(async {
        let world = World::start().await;
        let listener = TcpListener::bind(world.endpoint()).await.unwrap();
        spawn_local(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = vec![0; 1000];
            let _ = stream.read(&mut request).await.unwrap();
            stream
                .write_all(b"HTTP/1.1 103 Early Hints\r\nlink: </a.css>\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n")
                .await
                .unwrap();
            // The connection stays.
            let _ = stream.read(&mut request).await;
        });
        let client = connection(world.stream().await, Protocol::Http1);
        let exchange = client.request(&head("GET", "/", &[]), None).unwrap();
        let first = soon("a first answer", exchange.answer()).await.unwrap();
        assert_eq!(first.status().code(), 103);
        let (last, content) = answer(&exchange).await;
        assert_eq!((last.status().code(), content), (204, Vec::new()));
    });
}

#[test]
fn a_client_that_waits_for_status_100_gets_it() {
    local(async {
        let world = World::start().await;
        let _application = Application::plain(world.endpoint(), Protocol::Http1, echo).await;
        let mut stream = world.stream().await;
        let request =
            "POST / HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n";
        talk(&mut stream, request, "HTTP/1.1 100 Continue\r\n\r\n").await;
        talk(&mut stream, "ok", "HTTP/1.1 200 OK\r\n").await;
    });
}

/// The end of a request in an application.
type Handled = LocalBoxFuture<'static, Result<(), Error>>;

/// Answers nothing, and tells when the client is gone.
fn wait_until_gone() -> (
    impl Fn(FramedRequest, server::Exchange) -> Handled + Clone,
    UnboundedReceiver<Error>,
) {
    let (told, gone) = tokio::sync::mpsc::unbounded_channel();
    let handler = move |_, exchange: lateen_exchange::server::Exchange| {
        let told = told.clone();
        let wait: Handled = Box::pin(async move {
            let error = std::future::poll_fn(|cx| exchange.poll_gone(cx)).await;
            told.send(error.clone()).unwrap();
            Err(error)
        });
        wait
    };
    (handler, gone)
}

/// As with Envoy: whether the client closes both directions or one cannot be told apart in time.
#[test]
fn an_http1_client_that_closes_its_side_has_left_its_request() {
    local(async {
        for (port, protocol) in [
            (AppProtocol::Unknown, Protocol::Http1),
            (AppProtocol::Http2, Protocol::Http2),
        ] {
            let mut world = World::unconfigured();
            world.put_service("server", 96, port);
            let endpoint = world.put_plain_endpoint("server", "app", 3);
            world.configure().await;
            let (handler, mut gone) = wait_until_gone();
            let application = Application::plain(endpoint, protocol, handler).await;
            let mut stream = world.stream().await;
            let request = "GET /waits HTTP/1.1\r\nhost: a\r\n\r\n";
            stream.write_all(request.as_bytes()).await.unwrap();
            until("it has come", || application.requests.get() == 1).await;
            stream.shutdown().await.unwrap();
            let error = soon("the endpoint hears of it", gone.recv()).await.unwrap();
            match protocol {
                Protocol::Http1 => assert!(matches!(error, Error::Connection(_)), "{error}"),
                Protocol::Http2 => {
                    assert!(matches!(error, Error::Reset(Code::CANCEL)), "{error}");
                }
            }
            let mut answer = Vec::new();
            soon("the end", stream.read_to_end(&mut answer))
                .await
                .unwrap();
            assert_eq!(answer, b"");
            world.logged(&["/waits", "flags=\"DC\"", "status=0"]).await;
        }
    });
}

#[test]
fn a_call_of_grpc_that_its_client_cancels_is_reset_at_the_endpoint_and_its_connection_goes_on() {
    local(async {
        let world = World::start().await;
        let (handler, mut gone) = wait_until_gone();
        let application = Application::plain(world.endpoint(), Protocol::Http2, handler).await;
        let client = connection(world.stream().await, Protocol::Http2);
        let fields = [
            ("content-type", "application/grpc"),
            ("te", "trailers"),
            ("transfer-encoding", "chunked"),
        ];
        let call = || {
            client
                .request(&head("POST", "/a.B/Wait", &fields), None)
                .unwrap()
        };
        let (cancelled, other) = (call(), call());
        for call in [&cancelled, &other] {
            call.send(Bytes::from_static(b"\0\0\0\0\x01a"))
                .await
                .unwrap();
        }
        until("both are there", || application.requests.get() == 2).await;
        cancelled.reset(Code::CANCEL);
        let error = soon("the endpoint hears of it", gone.recv()).await.unwrap();
        assert!(matches!(error, Error::Reset(Code::CANCEL)), "{error}");
        // The other call on the same connections is untouched.
        other.send(Bytes::from_static(b"\0\0\0\0\0")).await.unwrap();
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        assert!(gone.try_recv().is_err());
        assert_eq!(application.connections.get(), 1);
        drop(other);
        let line = world.logged(&["/a.B/Wait", "flags=\"DR\""]).await;
        assert!(line.contains("status=0"), "{line}");
    });
}

#[test]
fn an_answer_that_its_client_resets_halfway_is_reset_at_the_endpoint() {
    local(async {
        let world = World::start().await;
        let (told, mut failed) = tokio::sync::mpsc::unbounded_channel();
        let flood = move |_, exchange: lateen_exchange::server::Exchange| {
            let told = told.clone();
            async move {
                exchange.reply(lateen_http::Status::OK, &[], lateen_http::Length::Delimited)?;
                loop {
                    if let Err(error) = exchange.send(Bytes::from_static(&[7; 4096])).await {
                        told.send(()).unwrap();
                        return Err(error);
                    }
                }
            }
        };
        let _application = Application::plain(world.endpoint(), Protocol::Http2, flood).await;
        let client = connection(world.stream().await, Protocol::Http2);
        let exchange = client.request(&head("GET", "/flood", &[]), None).unwrap();
        exchange.finish().unwrap();
        let answered = soon("an answer", exchange.answer()).await.unwrap();
        assert_eq!(answered.status().code(), 200);
        let _ = soon("content", exchange.data()).await.unwrap().unwrap();
        drop(exchange);
        soon("the endpoint hears of it", failed.recv())
            .await
            .unwrap();
        world
            .logged(&["/flood", "flags=\"DR\"", "status=200"])
            .await;
    });
}

#[test]
fn a_reset_of_the_endpoint_behind_its_head_reaches_the_client_with_its_code() {
    local(async {
        let world = World::start().await;
        let is_read = Rc::new(Cell::new(false));
        let seen = Rc::clone(&is_read);
        let code = Code::ENHANCE_YOUR_CALM;
        let breaks = move |_, exchange| break_off(exchange, Rc::clone(&seen), code);
        let _application = Application::plain(world.endpoint(), Protocol::Http2, breaks).await;
        let client = connection(world.stream().await, Protocol::Http2);
        let exchange = client.request(&head("GET", "/breaks", &[]), None).unwrap();
        exchange.finish().unwrap();
        let _ = soon("an answer", exchange.answer()).await.unwrap();
        let content = soon("content", exchange.data()).await.unwrap();
        assert_eq!(content.as_deref(), Some(&b"some"[..]));
        is_read.set(true);
        let error = soon("the reset", exchange.data()).await.unwrap_err();
        assert!(
            matches!(error, Error::Reset(told) if told == code),
            "{error}"
        );
    });
}

#[test]
fn a_call_of_grpc_that_its_endpoint_cancels_at_the_deadline_has_the_status_of_deadlines() {
    local(async {
        let world = World::start().await;
        let cancels = |_, exchange: lateen_exchange::server::Exchange| async move {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            exchange.reset(Code::CANCEL);
            Ok(())
        };
        let _application = Application::plain(world.endpoint(), Protocol::Http2, cancels).await;
        let client = connection(world.stream().await, Protocol::Http2);
        for (path, timeout, status, flags) in [
            ("/a.B/Late", Some("20m"), &b"4"[..], "UT"),
            ("/a.B/Early", Some("1H"), b"14", "UR"),
            ("/a.B/Never", None, b"14", "UR"),
            ("/a.B/Broken", Some("20"), b"14", "UR"),
        ] {
            let mut fields = vec![("content-type", "application/grpc"), ("te", "trailers")];
            fields.extend(timeout.map(|timeout| ("grpc-timeout", timeout)));
            let call = client.request(&head("POST", path, &fields), None).unwrap();
            call.finish().unwrap();
            let (answered, _) = answer(&call).await;
            assert_eq!(
                answered.fields().get(Known::GrpcStatus),
                Some(status),
                "{path}"
            );
            world.logged(&[path, &format!("flags=\"{flags}\"")]).await;
        }
    });
}

#[test]
fn an_http2_client_that_resets_its_request_ends_it_at_the_endpoint() {
    local(async {
        let world = World::start().await;
        let protocol = Protocol::Http2;
        let (handler, mut gone) = wait_until_gone();
        let application = Application::plain(world.endpoint(), protocol, handler).await;
        let client = connection(world.stream().await, protocol);
        let exchange = client.request(&head("GET", "/slow", &[]), None).unwrap();
        until("it has come", || application.requests.get() == 1).await;
        drop((exchange, client));
        soon("the endpoint hears of it", gone.recv()).await.unwrap();
        world.logged(&["/slow", "flags=\"DR\""]).await;
    });
}
