//! Upgrades and CONNECT through the waypoint.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use lateen_exchange::{Protocol, Tunnel, client};
use lateen_hbone::Stream;
use lateen_http::WebSocketKey;
use lateen_proto::l7::Action;
use lateen_proto::workload::AppProtocol;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, spawn_local};

use super::first_bytes::narrow;
use super::hostile::raw;
use super::policy::{from, method, path};
use super::world::{World, local};
use super::{connection, get, head, talk};
use crate::testing::{soon, until};
use crate::waypoint::Accounts;

/// The fields of a WebSocket handshake (RFC 6455 §1.3).
const HANDSHAKE: [(&str, &str); 4] = [
    ("connection", "upgrade"),
    ("upgrade", "websocket"),
    ("sec-websocket-version", "13"),
    ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
];

/// Reads a head.
pub(super) async fn read_head(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

/// An endpoint that accepts each WebSocket and each CONNECT, and sends back the bytes that come behind.
async fn accept_relays(world: &World) {
    let listener = TcpListener::bind(world.endpoint()).await.unwrap();
    spawn_local(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            spawn_local(async move {
                let answer = answer_to(&read_head(&mut stream).await);
                stream.write_all(answer.as_bytes()).await.unwrap();
                let (mut from, mut to) = stream.split();
                // A relay that was cut breaks off here.
                let _ = tokio::io::copy(&mut from, &mut to).await;
            });
        }
    });
}

/// The answer that accepts a CONNECT or a handshake. A waypoint sends a key of its own for a client of HTTP/2.
fn answer_to(head: &str) -> String {
    if head.starts_with("CONNECT ") {
        return "HTTP/1.1 200 OK\r\n\r\n".to_owned();
    }
    let lines = head.lines().filter_map(|line| line.split_once(": "));
    let mut keys = lines.filter(|(name, _)| name.eq_ignore_ascii_case("sec-websocket-key"));
    let (_, key) = keys.next().unwrap();
    let random: [u8; 16] = STANDARD.decode(key).unwrap().try_into().unwrap();
    let accept = WebSocketKey::of(random).accept();
    let accept = String::from_utf8_lossy(accept.as_bytes());
    format!(
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-accept: {accept}\r\n\r\n"
    )
}

/// The head of a request of HTTP/1.
fn request(line: &str, fields: &[(&str, &str)]) -> String {
    let fields: String = fields
        .iter()
        .map(|(name, value)| format!("{name}: {value}\r\n"))
        .collect();
    format!("{line} HTTP/1.1\r\nhost: a:80\r\n{fields}\r\n")
}

/// A relay of HTTP/1 behind a request, after a few bytes.
async fn relay(world: &World, line: &str, fields: &[(&str, &str)]) -> Stream {
    let mut stream = world.stream().await;
    stream
        .write_all(request(line, fields).as_bytes())
        .await
        .unwrap();
    let head = soon("a head", read_head(&mut stream)).await;
    assert!(
        head.starts_with("HTTP/1.1 101") || head.starts_with("HTTP/1.1 200"),
        "{head}"
    );
    talk(&mut stream, "hello", "hello").await;
    stream
}

async fn web_socket(world: &World, path: &str) -> Stream {
    relay(world, &format!("GET {path}"), &HANDSHAKE).await
}

async fn tunnel(world: &World) -> Stream {
    relay(world, "CONNECT a:80", &[]).await
}

async fn is_cut(stream: &mut Stream) {
    let read = soon("the cut", stream.read(&mut [0])).await;
    assert!(read.is_err(), "it is reset: {read:?}");
}

#[test]
fn a_later_policy_cuts_the_web_sockets_that_it_denies_and_no_other() {
    local(async {
        let mut world = World::start().await;
        accept_relays(&world).await;
        let mut denied = web_socket(&world, "/admin/chat?room=1").await;
        let mut other = web_socket(&world, "/chat").await;
        world.put_policy("no-admin", Action::Deny, vec![path("/admin")]);
        world.configure().await;
        is_cut(&mut denied).await;
        let line = world.logged(&["/admin/chat", "status=101"]).await;
        for part in [
            "policy=default/no-admin",
            "connection closed due to policy change",
            "bytes_recv=",
        ] {
            assert!(line.contains(part), "{line}");
        }
        talk(&mut other, "still", "still").await;
    });
}

#[test]
fn a_later_policy_cuts_tunnels_of_connect_by_their_method() {
    local(async {
        let mut world = World::start().await;
        accept_relays(&world).await;
        let mut denied = tunnel(&world).await;
        let mut other = web_socket(&world, "/chat").await;
        world.put_policy("no-tunnels", Action::Deny, vec![method("CONNECT")]);
        world.configure().await;
        is_cut(&mut denied).await;
        world
            .logged(&["method=\"CONNECT\"", "policy=default/no-tunnels"])
            .await;
        talk(&mut other, "still", "still").await;
    });
}

#[test]
fn a_refused_tunnel_is_not_200_though_its_request_says_that_it_is_a_call_of_grpc() {
    local(async {
        let grpc = ("content-type", "application/grpc");
        let mut world = World::start().await;
        world.put_policy("nobody", Action::Allow, vec![from("nobody")]);
        world.configure().await;
        for line in ["CONNECT a:80", "GET /chat"] {
            let mut stream = world.stream().await;
            let mut fields = vec![grpc];
            if line.starts_with("GET") {
                fields.extend(HANDSHAKE);
            }
            stream
                .write_all(request(line, &fields).as_bytes())
                .await
                .unwrap();
            let head = soon("a head", read_head(&mut stream)).await;
            assert!(head.starts_with("HTTP/1.1 403 "), "{line}: {head}");
        }
        let client = connection(world.stream().await, Protocol::Http2);
        until("extended CONNECT is allowed", || {
            client.allows_extended_connect()
        })
        .await;
        let [a, b, c, d] = HANDSHAKE;
        let handshake = head("GET", "/chat", &[a, b, c, d, grpc]);
        let exchange = client.request(&handshake, None).unwrap();
        let answer = soon("an answer", exchange.answer()).await.unwrap();
        assert_eq!(answer.status().code(), 403);
    });
}

/// Some proxies tell that a tunnel has no content.
#[test]
fn an_accepted_connect_that_tells_a_length_opens_its_tunnel() {
    local(async {
        let world = World::start().await;
        raw(world.endpoint(), |_, mut stream| async move {
            read_head(&mut stream).await;
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
            stream.write_all(answer).await.unwrap();
            let (mut from, mut to) = stream.split();
            let _ = tokio::io::copy(&mut from, &mut to).await;
        })
        .await;
        let mut stream = world.stream().await;
        let request = request("CONNECT a:80", &[]);
        stream.write_all(request.as_bytes()).await.unwrap();
        let head = soon("a head", read_head(&mut stream)).await;
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        assert!(!head.contains("content-length"), "{head}");
        talk(&mut stream, "hello", "hello").await;
    });
}

#[test]
fn a_web_socket_goes_on_while_each_change_admits_it_and_ends_with_the_first_that_does_not() {
    local(async {
        let mut world = World::start().await;
        accept_relays(&world).await;
        let mut relay = web_socket(&world, "/chat").await;
        for principal in ["client", "client", "another"] {
            world.rules.clear();
            world.put_policy("friends", Action::Allow, vec![from(principal)]);
            world.configure().await;
            if principal == "client" {
                talk(&mut relay, "on", "on").await;
            }
        }
        is_cut(&mut relay).await;
        world.logged(&["/chat", "none allowed"]).await;
    });
}

#[test]
fn a_cut_relay_over_http2_leaves_the_requests_of_its_connection_alone() {
    local(async {
        let mut world = World::start().await;
        accept_relays(&world).await;
        let client = connection(world.stream().await, Protocol::Http2);
        until("extended CONNECT is allowed", || {
            client.allows_extended_connect()
        })
        .await;
        let handshake = head("GET", "/admin", &HANDSHAKE);
        let exchange = client.request(&handshake, None).unwrap();
        let answer = soon("an answer", exchange.answer()).await.unwrap();
        assert_eq!(answer.status().code(), 200);
        let mut relay = exchange.into_tunnel().unwrap();
        relay.write_all(b"hello").await.unwrap();
        soon("an echo", relay.read_exact(&mut [0; 5]))
            .await
            .unwrap();
        world.put_policy("no-admin", Action::Deny, vec![path("/admin")]);
        world.configure().await;
        let read = soon("the cut", relay.read(&mut [0])).await;
        assert!(read.is_err(), "it is reset: {read:?}");
        // Its answer comes from the same policy, on the same connection.
        assert_eq!(get(&client, "GET", "/admin").await.0, 403);
    });
}

#[test]
fn a_web_socket_is_cut_once_its_service_is_gone_from_here() {
    local(async {
        let mut world = World::unconfigured();
        world.put_unbound_service("server", 96, AppProtocol::Unknown);
        world.put_plain_endpoint("server", "app", 3);
        world.bind("server");
        world.configure().await;
        accept_relays(&world).await;
        let mut relay = web_socket(&world, "/chat").await;
        world.leave("server");
        world.configure().await;
        talk(&mut relay, "on", "on").await;
        world.unbind("server");
        world.configure().await;
        is_cut(&mut relay).await;
        world.logged(&["/chat", "no longer bound"]).await;
    });
}

#[test]
fn a_web_socket_is_accepted_by_the_endpoint_and_its_bytes_pass_until_both_sides_end() {
    local(async {
        let world = World::start().await;
        let listener = TcpListener::bind(world.endpoint()).await.unwrap();
        let served = spawn_local(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let head = read_head(&mut stream).await.to_ascii_lowercase();
            assert!(head.contains("upgrade: websocket"), "{head}");
            // RFC 6455 §1.3.
            stream
                .write_all(b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\nhello")
                .await
                .unwrap();
            let mut said = Vec::new();
            stream.read_to_end(&mut said).await.unwrap();
            said
        });
        let mut stream = world.stream().await;
        let request = "GET /chat HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
        talk(&mut stream, request, "HTTP/1.1 101 Switching Protocols\r\n").await;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        talk(&mut stream, "and good", "hello").await;
        stream.write_all(b"bye").await.unwrap();
        stream.shutdown().await.unwrap();
        assert_eq!(served.await.unwrap(), b"and goodbye");
        world.logged(&["/chat", "status=101", "flags=\"-\""]).await;
    });
}

#[test]
fn the_flag_of_a_relay_behind_an_upgrade_tells_which_side_broke_off() {
    local(async {
        let world = World::start().await;
        accept_relays(&world).await;
        drop(web_socket(&world, "/left").await);
        let line = world.logged(&["/left", "status=101"]).await;
        assert!(line.contains("flags=\"DC\""), "{line}");
        let world = World::start().await;
        let listener = TcpListener::bind(world.endpoint()).await.unwrap();
        spawn_local(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let answer = answer_to(&read_head(&mut stream).await);
            stream.write_all(answer.as_bytes()).await.unwrap();
            // Closed with bytes that it has not read, a connection is reset.
            stream.peek(&mut [0]).await.unwrap();
        });
        let mut stream = world.stream().await;
        let fields: String = HANDSHAKE
            .iter()
            .map(|(name, value)| format!("{name}: {value}\r\n"))
            .collect();
        let request = format!("GET /broken HTTP/1.1\r\nhost: a:80\r\n{fields}\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        soon("a head", read_head(&mut stream)).await;
        stream.write_all(b"hello").await.unwrap();
        is_cut(&mut stream).await;
        let line = world.logged(&["/broken", "status=101"]).await;
        assert!(line.contains("flags=\"UC\""), "{line}");
    });
}

#[test]
fn an_upgrade_that_the_endpoint_declines_is_an_ordinary_answer() {
    local(async {
        let world = World::start().await;
        let listener = TcpListener::bind(world.endpoint()).await.unwrap();
        spawn_local(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            read_head(&mut stream).await;
            stream
                .write_all(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\n\r\nno")
                .await
                .unwrap();
            let _ = stream.read_u8().await;
        });
        let mut stream = world.stream().await;
        let request = "GET /chat HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
        talk(&mut stream, request, "HTTP/1.1 403 Forbidden\r\n").await;
    });
}

#[test]
fn a_relay_behind_an_upgrade_whose_client_has_ended_does_not_wait_for_a_silent_endpoint() {
    local(async {
        let world = World::limited(|config| {
            let half_closed = Some(Duration::from_millis(300));
            config.limits = lateen_relay::Limits::new(None, half_closed);
        })
        .await;
        let listener = TcpListener::bind(world.endpoint()).await.unwrap();
        spawn_local(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let answer = answer_to(&read_head(&mut stream).await);
            stream.write_all(answer.as_bytes()).await.unwrap();
            // It neither reads nor ends.
            std::future::pending::<()>().await;
        });
        let mut stream = world.stream().await;
        let fields: String = HANDSHAKE
            .iter()
            .map(|(name, value)| format!("{name}: {value}\r\n"))
            .collect();
        let request = format!("GET /silent HTTP/1.1\r\nhost: a:80\r\n{fields}\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let head = soon("a head", read_head(&mut stream)).await;
        assert!(head.starts_with("HTTP/1.1 101"), "{head}");
        stream.shutdown().await.unwrap();
        let words = ["/silent", "status=101", "half-close time-out"];
        world.logged(&words).await;
    });
}

/// A relay of HTTP/2 to an endpoint that accepts it, and then reads nothing and says nothing.
async fn unread_relay(world: &World, path: &str) -> (client::Handle, Tunnel) {
    let listener = TcpListener::bind(world.endpoint()).await.unwrap();
    spawn_local(async move {
        let mut unread = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            let answer = answer_to(&read_head(&mut stream).await);
            stream.write_all(answer.as_bytes()).await.unwrap();
            unread.push(stream);
        }
    });
    let client = connection(world.stream().await, Protocol::Http2);
    until("extended CONNECT is allowed", || {
        client.allows_extended_connect()
    })
    .await;
    let handshake = head("GET", path, &HANDSHAKE);
    let exchange = client.request(&handshake, None).unwrap();
    let answer = soon("an answer", exchange.answer()).await.unwrap();
    assert_eq!(answer.status().code(), 200);
    (client, exchange.into_tunnel().unwrap())
}

#[test]
fn a_client_that_leaves_ends_its_relay_though_the_endpoint_reads_nothing() {
    local(async {
        let world = World::start().await;
        let (_client, mut relay) = unread_relay(&world, "/unread").await;
        // Until nothing is taken any more.
        let wait = Duration::from_millis(500);
        while let Ok(written) = tokio::time::timeout(wait, relay.write_all(&[7; 65_536])).await {
            written.unwrap();
        }
        drop(relay);
        // The line is written when the relay ends.
        world.logged(&["/unread", "bytes_recv="]).await;
    });
}

#[test]
fn a_client_that_has_said_all_and_leaves_ends_its_relay_though_the_endpoint_says_nothing() {
    local(async {
        let world = World::start().await;
        let (_client, mut relay) = unread_relay(&world, "/silent").await;
        relay.write_all(b"hello").await.unwrap();
        relay.shutdown().await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
        drop(relay);
        world.logged(&["/silent", "bytes_recv="]).await;
    });
}

/// More bytes than the kernel holds for [`narrow`], and fewer than a connection of HTTP/1 may have waiting beside them.
const LAST: usize = 200 * 1024;

/// A relay whose endpoint has ended its direction, and whose client has said all and ended as well. The endpoint goes on with `serve`.
async fn half_ended<T: 'static, F: Future<Output = T> + 'static>(
    world: &World,
    serve: impl FnOnce(TcpStream) -> F + 'static,
) -> (Stream, JoinHandle<T>) {
    let listener = narrow(world.endpoint());
    let served = spawn_local(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let answer = answer_to(&read_head(&mut stream).await);
        stream.write_all(answer.as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
        serve(stream).await
    });
    let mut stream = world.stream().await;
    let request = "CONNECT a:80 HTTP/1.1\r\nhost: a:80\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let head = soon("a head", read_head(&mut stream)).await;
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    soon("a write", stream.write_all(&[7; LAST])).await.unwrap();
    stream.shutdown().await.unwrap();
    (stream, served)
}

#[test]
fn an_endpoint_that_has_ended_gets_the_last_byte_of_the_client_though_it_reads_late() {
    local(async {
        let world = World::start().await;
        let (_stream, served) = half_ended(&world, |mut stream| async move {
            tokio::time::sleep(Duration::from_millis(500)).await;
            let mut heard = Vec::new();
            let _ = stream.read_to_end(&mut heard).await;
            heard.len()
        })
        .await;
        assert_eq!(soon("the end", served).await.unwrap(), LAST);
        world
            .logged(&["method=\"CONNECT\"", "status=200", "flags=\"-\""])
            .await;
    });
}

#[test]
fn last_bytes_that_an_endpoint_does_not_take_are_given_up_after_the_half_close_limit() {
    local(async {
        let world = World::limited(|config| {
            let half_closed = Some(Duration::from_millis(300));
            config.limits = lateen_relay::Limits::new(None, half_closed);
        })
        .await;
        let (_stream, _served) = half_ended(&world, |stream| async move {
            let _unread = stream;
            std::future::pending::<()>().await;
        })
        .await;
        let words = [
            "method=\"CONNECT\"",
            "flags=\"UC\"",
            "the endpoint took nothing",
        ];
        world.logged(&words).await;
    });
}

#[test]
fn last_bytes_that_an_endpoint_does_not_take_end_with_a_drain() {
    local(async {
        let accounts = Accounts::default();
        let world = World::limited(|config| config.accounts = accounts.clone()).await;
        let (stream, _served) = half_ended(&world, |stream| async move {
            let _unread = stream;
            std::future::pending::<()>().await;
        })
        .await;
        drop(stream);
        // The relay has all bytes of the client, and waits for the endpoint alone.
        tokio::time::sleep(Duration::from_millis(500)).await;
        world.cut().await;
        let words = [
            "method=\"CONNECT\"",
            "flags=\"DC\"",
            "connection closed due to connection drain",
        ];
        world.logged(&words).await;
        until("nothing is held", || accounts.held() == 0).await;
    });
}
