//! Requests and answers that pass the waypoint.

use bytes::Bytes;
use lateen_exchange::Protocol;
use lateen_http::{Known, Limits, RawTrailers, Trailers, Version};
use lateen_proto::workload::AppProtocol;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::spawn_local;

use super::application::{Application, echo, tell};
use super::world::{World, local};
use super::{answer, connection, get, head, talk};
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

/// A client of HTTP/1 that closes its side may still wait for the answer (RFC 9112 §9.6); a reset of HTTP/2 is clear.
#[test]
fn an_http2_client_that_resets_its_request_ends_it_at_the_endpoint() {
    local(async {
        let world = World::start().await;
        let protocol = Protocol::Http2;
        let (told, mut gone) = tokio::sync::mpsc::unbounded_channel();
        let handler = move |_, exchange: lateen_exchange::server::Exchange| {
            let told = told.clone();
            async move {
                let error = std::future::poll_fn(|cx| exchange.poll_gone(cx)).await;
                told.send(error.to_string()).unwrap();
                Err(error)
            }
        };
        let _application = Application::plain(world.endpoint(), protocol, handler).await;
        let client = connection(world.stream().await, protocol);
        let exchange = client.request(&head("GET", "/slow", &[]), None).unwrap();
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        drop((exchange, client));
        soon("the endpoint hears of it", gone.recv()).await.unwrap();
        world.logged(&["/slow", "flags=\"DC\""]).await;
    });
}
