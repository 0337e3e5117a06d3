//! Hostile clients: none gets around a policy, forges an identity, or hides one request in another.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::net::SocketAddr;
use std::rc::Rc;

use lateen_exchange::{Protocol, server};
use lateen_http::{Canonical, FramedRequest};
use lateen_proto::l7::{Action, Condition, Operation, PathMatch, Rule, StringMatch, Value};
use lateen_proto::l7::{condition, path_match, string_match, value};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::spawn_local;

use super::application::{Application, tell};
use super::policy::from;
use super::world::{SILENCE, World, local};
use super::{answer, connection, get, head, talk};
use crate::testing::{soon, until};

const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";

/// The fields of a WebSocket handshake.
const HANDSHAKE: [(&str, &str); 4] = [
    ("connection", "Upgrade"),
    ("upgrade", "websocket"),
    ("sec-websocket-version", "13"),
    ("sec-websocket-key", KEY),
];

fn exact(text: &str) -> StringMatch {
    StringMatch {
        r#match: Some(string_match::Match::Exact(text.to_owned())),
    }
}

/// Requests whose path begins so.
fn below(prefix: &str) -> Rule {
    let text = StringMatch {
        r#match: Some(string_match::Match::Prefix(prefix.to_owned())),
    };
    Rule {
        to: vec![Operation {
            paths: vec![PathMatch {
                r#match: Some(path_match::Match::Text(text)),
            }],
            ..Operation::default()
        }],
        ..Rule::default()
    }
}

/// Requests with this field.
fn with_field(name: &str, content: &str) -> Rule {
    Rule {
        when: vec![Condition {
            attribute: Some(condition::Attribute::Header(name.to_owned())),
            values: vec![Value {
                value: Some(value::Value::Text(exact(content))),
            }],
            ..Condition::default()
        }],
        ..Rule::default()
    }
}

/// Serves each connection to `address` with bytes of the test's own.
pub(super) async fn raw<F>(
    address: SocketAddr,
    serve: impl Fn(usize, TcpStream) -> F + 'static,
) -> Rc<Cell<usize>>
where
    F: Future<Output = ()> + 'static,
{
    let listener = TcpListener::bind(address).await.unwrap();
    let accepted = Rc::new(Cell::new(0));
    let count = Rc::clone(&accepted);
    spawn_local(async move {
        while let Ok((stream, _)) = listener.accept().await {
            count.set(count.get() + 1);
            spawn_local(serve(count.get(), stream));
        }
    });
    accepted
}

/// Reads the head of a request. None at the end of the connection.
pub(super) async fn read_head(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    Some(String::from_utf8_lossy(&head).into_owned())
}

/// Answers every request with its target, and the first one of each connection with `first`.
pub(super) async fn answer_first(mut stream: TcpStream, first: &'static str) {
    let mut answered = false;
    while let Some(head) = read_head(&mut stream).await {
        let target = head.split(' ').nth(1).unwrap_or_default().to_owned();
        let usual = format!(
            "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{target}",
            target.len()
        );
        let text = if answered { &*usual } else { first };
        answered = true;
        if stream.write_all(text.as_bytes()).await.is_err() {
            return;
        }
    }
}

#[test]
fn a_rule_about_upgrades_sees_them_in_both_protocols() {
    local(async {
        let mut world = World::start().await;
        world.put_policy(
            "plain",
            Action::Deny,
            vec![with_field("upgrade", "websocket")],
        );
        world.configure().await;
        for protocol in [Protocol::Http1, Protocol::Http2] {
            let application = Application::plain(world.endpoint(), protocol, tell).await;
            let client = connection(world.stream().await, protocol);
            assert_eq!(get(&client, "GET", "/").await.0, 200);
            until("the settings are known", || {
                protocol == Protocol::Http1 || client.allows_extended_connect()
            })
            .await;
            let exchange = client
                .request(&head("GET", "/chat", &HANDSHAKE), None)
                .unwrap();
            let (denied, _) = answer(&exchange).await;
            assert_eq!(denied.status().code(), 403, "{protocol:?}");
            assert_eq!(application.requests.get(), 1);
        }
    });
}

#[test]
fn a_connect_does_not_get_around_rules_about_requests() {
    local(async {
        for (action, rule, is_admitted) in [
            (Action::Deny, below("/admin"), false),
            (Action::Deny, with_field("x-a", "b"), false),
            (Action::Allow, below("/"), false),
            (Action::Deny, from("nobody"), true),
            (Action::Allow, from("client"), true),
        ] {
            let mut world = World::start().await;
            world.put_policy("rules", action, vec![rule.clone()]);
            world.configure().await;
            let asked = raw(world.endpoint(), |_, mut stream| async move {
                let _ = read_head(&mut stream).await;
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await;
                let _ = read_head(&mut stream).await;
            })
            .await;
            let mut stream = world.stream().await;
            let request = "CONNECT server:80 HTTP/1.1\r\nhost: server:80\r\n\r\n";
            let expected = if is_admitted {
                "HTTP/1.1 200 "
            } else {
                "HTTP/1.1 403 "
            };
            talk(&mut stream, request, expected).await;
            assert_eq!(asked.get(), usize::from(is_admitted), "{action:?} {rule:?}");
        }
        let mut world = World::start().await;
        world.put_token_rule("tokens");
        world.configure().await;
        let mut stream = world.stream().await;
        let request = "CONNECT server:80 HTTP/1.1\r\nhost: server:80\r\n\r\n";
        talk(&mut stream, request, "HTTP/1.1 403 ").await;
    });
}

#[test]
fn a_pipelined_request_is_judged_by_itself() {
    local(async {
        let mut world = World::start().await;
        world.put_policy("no-admin", Action::Deny, vec![below("/admin")]);
        world.configure().await;
        let application = Application::plain(world.endpoint(), Protocol::Http1, tell).await;
        let mut stream = world.stream().await;
        let requests = "POST /public HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\nGET /admin HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
        stream.write_all(requests.as_bytes()).await.unwrap();
        let mut told = String::new();
        soon("both answers", stream.read_to_string(&mut told))
            .await
            .unwrap();
        assert!(told.starts_with("HTTP/1.1 200 "), "{told}");
        assert!(told.contains("HTTP/1.1 403 "), "{told}");
        assert_eq!(application.requests.get(), 1);
    });
}

/// A forged token must not reach an application that leaves tokens to the waypoint.
#[test]
fn text_that_a_lenient_server_takes_for_a_request_is_not_relayed_past_the_search_for_tokens() {
    local(async {
        let rest = "\r\nhost: a\r\nauthorization: Bearer forged\r\n\r\n";
        for line in [
            "\r\nGET / HTTP/1.1",
            "GET / HTTP/1.1 ",
            "GET\t/ HTTP/1.1",
            "GET /\u{1} HTTP/1.1",
            "\u{b}GET / HTTP/1.1",
        ] {
            let mut world = World::start().await;
            world.put_token_rule("tokens");
            world.configure().await;
            let asked = raw(world.endpoint(), |_, stream| {
                answer_first(stream, "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
            })
            .await;
            let mut stream = world.stream().await;
            stream
                .write_all(format!("{line}{rest}").as_bytes())
                .await
                .unwrap();
            let mut told = Vec::new();
            let _ = soon("the end", stream.read_to_end(&mut told)).await;
            let told = String::from_utf8_lossy(&told).into_owned();
            assert!(!told.contains(" 200 "), "{line:?}: {told}");
            assert_eq!(asked.get(), 0, "{line:?}");
        }
        // What is no text goes on.
        let mut world = World::start().await;
        world.put_token_rule("tokens");
        world.configure().await;
        let listener = TcpListener::bind(world.endpoint()).await.unwrap();
        super::connections::greet_and_echo(listener, "");
        let mut stream = world.stream().await;
        talk(&mut stream, "\u{16}\u{3}\u{1}", "\u{16}\u{3}\u{1}").await;
    });
}

#[test]
fn a_silent_client_of_http2_is_not_relayed_past_the_search_for_tokens() {
    local(async {
        for searched in [true, false] {
            let mut world = World::start().await;
            if searched {
                world.put_token_rule("tokens");
            }
            world.configure().await;
            raw(world.endpoint(), |_, mut stream| async move {
                // SETTINGS without entries.
                let _ = stream.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await;
                let _ = stream.read_u8().await;
            })
            .await;
            let mut stream = world.stream().await;
            tokio::time::sleep(2 * SILENCE).await;
            let heard = soon("the end, or settings", stream.read_u8()).await;
            assert_eq!(heard.is_ok(), !searched, "{heard:?}");
            if searched {
                // One connection of a client is counted once, as refused.
                let closed = |flags| {
                    let label = format!("response_flags=\"{flags}\"");
                    world.metric("istio_tcp_connections_closed_total", &[&label])
                };
                until("it is counted", || closed("DENY") == Some(1.0)).await;
                assert_eq!(closed("-"), None);
            }
        }
    });
}

#[test]
fn a_websocket_of_http2_opens_at_an_endpoint_of_http1() {
    local(async {
        let world = World::start().await;
        let accept = |request: FramedRequest, exchange: server::Exchange| async move {
            assert_eq!(request.length(), lateen_http::Length::None);
            let Canonical::Request(head) = super::canonical(request) else {
                panic!("no CONNECT is asked for")
            };
            exchange.accept(&head)?;
            let mut tunnel = exchange.into_tunnel().unwrap();
            let mut said = [0; 5];
            tunnel.read_exact(&mut said).await.unwrap();
            tunnel.write_all(&said).await.unwrap();
            let _ = tunnel.read_u8().await;
            Ok::<(), lateen_exchange::Error>(())
        };
        let _application = Application::plain(world.endpoint(), Protocol::Http1, accept).await;
        let client = connection(world.stream().await, Protocol::Http2);
        until("the settings are known", || {
            client.allows_extended_connect()
        })
        .await;
        let exchange = client
            .request(&head("GET", "/chat", &HANDSHAKE), None)
            .unwrap();
        let first = soon("an answer", exchange.answer()).await.unwrap();
        assert_eq!(first.status().code(), 200);
        let mut tunnel = exchange.into_tunnel().unwrap();
        tunnel.write_all(b"hello").await.unwrap();
        let mut heard = [0; 5];
        soon("the echo", tunnel.read_exact(&mut heard))
            .await
            .unwrap();
        assert_eq!(&heard, b"hello");
    });
}

/// To a client of HTTP/2 every status of success opens the tunnel, and the content would be frames of the WebSocket.
#[test]
fn an_ordinary_answer_does_not_open_a_websocket_of_http2() {
    local(async {
        let world = World::start().await;
        let _application = Application::plain(world.endpoint(), Protocol::Http1, tell).await;
        let client = connection(world.stream().await, Protocol::Http2);
        until("the settings are known", || {
            client.allows_extended_connect()
        })
        .await;
        let exchange = client
            .request(&head("GET", "/chat", &HANDSHAKE), None)
            .unwrap();
        let (declined, _) = answer(&exchange).await;
        assert_eq!(declined.status().code(), 502);
        world.logged(&["/chat", "status=502", "WebSocket"]).await;
        // One of HTTP/1 is told what the endpoint said.
        let client = connection(world.stream().await, Protocol::Http1);
        let exchange = client
            .request(&head("GET", "/plain", &HANDSHAKE), None)
            .unwrap();
        let (plain, content) = answer(&exchange).await;
        assert_eq!(
            (plain.status().code(), &content[..]),
            (200, &b"GET /plain"[..])
        );
    });
}

#[test]
fn an_application_that_reads_underscores_as_hyphens_gets_no_forged_framing_or_identity() {
    local(async {
        let world = World::start().await;
        let heads = Rc::new(RefCell::new(Vec::new()));
        let seen = Rc::clone(&heads);
        raw(world.endpoint(), move |_, mut stream| {
            let seen = Rc::clone(&seen);
            async move {
                while let Some(head) = read_head(&mut stream).await {
                    seen.borrow_mut().push(head.to_ascii_lowercase());
                    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
                    let _ = stream.write_all(answer).await;
                }
            }
        })
        .await;
        let mut stream = world.stream().await;
        let forged = "GET / HTTP/1.1\r\nhost: a\r\ncontent_length: 5\r\nTransfer_Encoding: chunked\r\nx_forwarded_client_cert: URI=spiffe://admin\r\nx-forwarded-client-cert: URI=spiffe://admin\r\nx_user: kept\r\n\r\n";
        talk(&mut stream, forged, "HTTP/1.1 200 ").await;
        assert_eq!(heads.borrow().len(), 1);
        for head in heads.borrow().iter() {
            assert!(head.contains("x_user: kept"), "{head}");
            for name in [
                "content_length",
                "transfer_encoding",
                "client_cert",
                "client-cert",
            ] {
                assert!(!head.contains(name), "{head}");
            }
        }
    });
}

#[test]
fn trailers_forge_no_framing_or_identity_for_an_application_that_reads_underscores_as_hyphens() {
    local(async {
        let world = World::start().await;
        let contents = Rc::new(RefCell::new(String::new()));
        let seen = Rc::clone(&contents);
        raw(world.endpoint(), move |_, mut stream| {
            let seen = Rc::clone(&seen);
            async move {
                let _ = read_head(&mut stream).await;
                // Chunks and trailers end as a head does.
                let content = read_head(&mut stream).await.unwrap_or_default();
                seen.borrow_mut().push_str(&content.to_ascii_lowercase());
                let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
                let _ = stream.write_all(answer).await;
            }
        })
        .await;
        let mut stream = world.stream().await;
        let forged = "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\nx_forwarded_client_cert: URI=spiffe://admin\r\nContent_Length: 5\r\nx_user: kept\r\n\r\n";
        talk(&mut stream, forged, "HTTP/1.1 200 ").await;
        let content = contents.borrow();
        assert!(content.contains("x_user: kept"), "{content}");
        for name in ["client_cert", "content_length"] {
            assert!(!content.contains(name), "{content}");
        }
    });
}
