//! Bounds on clients: the memory that they may hold, the time that they may be silent, and the resets that others may feel. And
//! the PeerAuthentications of endpoints in plain text.

use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use lateen_exchange::{Error, Protocol, server};
use lateen_hbone::{ConnectRequest, Stream, Tunnel};
use lateen_http::{Canonical, FieldName, FieldValue, FramedRequest, Length, Status};
use lateen_proto::l7::access_log::Encoding;
use lateen_proto::workload::AppProtocol;
use lateen_testkit::wds;
use lateen_types::Identity;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::application::{Application, tell};
use super::world::{World, local};
use super::{answer, connection, get, head, head_of, talk};
use crate::testing::{soon, until};
use crate::waypoint::{Accounts, Timeouts};

const MIB: usize = 1 << 20;

/// Answers with a mebibyte.
async fn generous(_: FramedRequest, exchange: server::Exchange) -> Result<(), Error> {
    exchange.reply(Status::OK, &[], Length::Known(MIB as u64))?;
    for _ in 0..64 {
        exchange.send(Bytes::from(vec![7; 16 * 1024])).await?;
    }
    exchange.finish()
}

/// Answers `/`, and has other requests wait until their client is gone.
async fn reserved(request: FramedRequest, exchange: server::Exchange) -> Result<(), Error> {
    let lateen_http::Canonical::Request(head) = super::canonical(request) else {
        panic!("no CONNECT is asked for")
    };
    if head.path().target() != b"/" {
        return Err(poll_fn(|cx| exchange.poll_gone(cx)).await);
    }
    exchange.reply(Status::OK, &[], Length::Known(0))?;
    exchange.finish()
}

/// Answers with 8 KiB, which is one piece.
async fn modest(_: FramedRequest, exchange: server::Exchange) -> Result<(), Error> {
    exchange.reply(Status::OK, &[], Length::Known(8192))?;
    exchange.send(Bytes::from(vec![7; 8192])).await?;
    exchange.finish()
}

/// The bytes of an HTTP/2 client that grants no windows and makes so many requests.
fn without_windows(requests: u32) -> Vec<u8> {
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    // SETTINGS_INITIAL_WINDOW_SIZE is 0.
    bytes.extend([0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0]);
    for n in 0..requests {
        // GET, http, / and the authority `a`. The request ends with its head.
        let block = [0x82, 0x86, 0x84, 0x01, 1, b'a'];
        bytes.extend([0, 0, block.len() as u8, 1, 0x5]);
        bytes.extend((2 * n + 1).to_be_bytes());
        bytes.extend(block);
    }
    bytes
}

/// A stream to the service `server` in a tunnel of its own.
pub async fn stream_of(world: &World, account: &str) -> Stream {
    stream_in(world, &world.tunnel(account).await).await
}

/// The same of a client in another namespace.
pub async fn stream_of_stranger(world: &World) -> Stream {
    let identity = Identity::new("cluster.local", "elsewhere", "client").unwrap();
    stream_in(world, &world.tunnel_of(&identity).await).await
}

pub async fn stream_in(world: &World, tunnel: &Tunnel) -> Stream {
    let request = ConnectRequest::new(world.vip());
    let (stream, _) = soon("an answer to CONNECT", tunnel.connect(&request))
        .await
        .unwrap();
    stream
}

#[test]
fn a_client_that_reads_nothing_holds_no_more_than_its_share_in_all_its_tunnels() {
    local(async {
        let accounts = Accounts::new(2 * MIB);
        let world = World::limited(|config| config.accounts = accounts.clone()).await;
        let _application = Application::plain(world.endpoint(), Protocol::Http2, generous).await;
        let mut clients = Vec::new();
        for _ in 0..4 {
            let client = connection(stream_of(&world, "client").await, Protocol::Http2);
            let requests: Vec<_> = (0..30)
                .map(|_| client.request(&head("GET", "/", &[]), None).unwrap())
                .collect();
            clients.push((client, requests));
        }
        until("the client holds something", || accounts.held() > MIB / 4).await;
        let other = connection(stream_of(&world, "other").await, Protocol::Http2);
        for _ in 0..5 {
            let exchange = other.request(&head("GET", "/", &[]), None).unwrap();
            let (head, content) = answer(&exchange).await;
            assert_eq!((head.status(), content.len()), (Status::OK, MIB));
            // A quarter is the client's, and the other one is read.
            assert!(accounts.held() <= MIB, "{}", accounts.held());
        }
        drop((clients, other));
        until("all of it is free", || accounts.held() == 0).await;
    });
}

#[test]
fn content_on_its_way_between_two_connections_is_charged() {
    local(async {
        let accounts = Accounts::default();
        let world = World::limited(|config| config.accounts = accounts.clone()).await;
        let application = Application::plain(world.endpoint(), Protocol::Http2, modest).await;
        let stream = stream_of(&world, "client").await;
        let (mut read, mut write) = tokio::io::split(stream);
        // It takes heads, and whatever needs no window.
        let reading = tokio::task::spawn_local(async move {
            let mut buffer = [0; 4096];
            while let Ok(1..) = read.read(&mut buffer).await {}
        });
        write.write_all(&without_windows(100)).await.unwrap();
        until("all requests have come", || {
            application.requests.get() == 100
        })
        .await;
        until("the answers are charged", || {
            accounts.held() >= 100 * 8192 / 2
        })
        .await;
        reading.abort();
        drop(write);
        until("all of it is free", || accounts.held() == 0).await;
    });
}

#[test]
fn heads_of_answers_that_are_kept_for_the_log_are_charged() {
    local(async {
        const LARGE: usize = 20_000;
        let accounts = Accounts::default();
        let mut world = World::limited(|config| config.accounts = accounts.clone()).await;
        world.log_in(
            Encoding::Text,
            "%RESP(x-large):3% %DOWNSTREAM_LOCAL_ADDRESS%",
        );
        world.configure().await;
        let begin = |_, exchange: server::Exchange| async move {
            let value = FieldValue::new(Bytes::from(vec![b'a'; LARGE])).unwrap();
            let fields = [(FieldName::new("x-large").unwrap(), value)];
            exchange.reply(Status::OK, &fields, Length::Delimited)?;
            Err(std::future::poll_fn(|cx| exchange.poll_gone(cx)).await)
        };
        let _application = Application::plain(world.endpoint(), Protocol::Http2, begin).await;
        let client = connection(world.stream().await, Protocol::Http2);
        let open: Vec<_> = (0..5)
            .map(|_| client.request(&head("GET", "/", &[]), None).unwrap())
            .collect();
        for exchange in &open {
            let answered = soon("an answer", exchange.answer()).await.unwrap();
            assert_eq!(answered.status(), Status::OK);
        }
        let held = accounts.held();
        assert!(held >= 5 * LARGE, "{held} bytes are charged");
        drop(open);
        until("all of it is free", || accounts.held() == 0).await;
        world.logged(&["aaa "]).await;
    });
}

#[test]
fn heads_of_answers_that_a_client_does_not_read_stay_within_its_account() {
    local(async {
        let accounts = Accounts::new(4 * MIB);
        let world = World::limited(|config| config.accounts = accounts.clone()).await;
        let large = |_, exchange: server::Exchange| async move {
            let value = FieldValue::new(Bytes::from(vec![b'a'; 20_000])).unwrap();
            let fields = [(FieldName::new("x-large").unwrap(), value)];
            exchange.reply(Status::OK, &fields, Length::None)
        };
        let application = Application::plain(world.endpoint(), Protocol::Http2, large).await;
        let mut clients = Vec::new();
        for _ in 0..4 {
            let mut stream = stream_of(&world, "client").await;
            stream.write_all(&without_windows(100)).await.unwrap();
            clients.push(stream);
        }
        until("all requests have come", || {
            application.requests.get() == 400
        })
        .await;
        // The answers to the last ones are on their way.
        let other = connection(stream_of_stranger(&world).await, Protocol::Http2);
        for _ in 0..5 {
            let exchange = other.request(&head("GET", "/", &[]), None).unwrap();
            assert_eq!(answer(&exchange).await.0.status(), Status::OK);
        }
        // A quarter is the client's. Heads that are on their way to it are not counted.
        assert!(accounts.held() <= MIB + MIB / 2, "{}", accounts.held());
        drop((clients, other));
        until("all of it is free", || accounts.held() == 0).await;
    });
}

#[test]
fn a_client_that_says_nothing_is_let_go_and_a_slow_head_gets_408() {
    local(async {
        let world = World::limited(|config| {
            config.timeouts = Timeouts {
                // A head that begins late on a busy machine is no silence.
                idle: Some(Duration::from_secs(5)),
                head: Duration::from_millis(300),
                ..config.timeouts
            };
        })
        .await;
        let mut silent = world.stream().await;
        let mut rest = Vec::new();
        soon("the end", silent.read_to_end(&mut rest))
            .await
            .unwrap();
        assert_eq!(rest, b"");
        let mut slow = world.stream().await;
        slow.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n")
            .await
            .unwrap();
        soon("an answer", slow.read_to_end(&mut rest))
            .await
            .unwrap();
        let told = String::from_utf8_lossy(&rest);
        assert!(told.starts_with("HTTP/1.1 408 "), "{told}");
        let line = world.logged(&["request complete", "status=408"]).await;
        assert!(line.contains("LATEEN_HTTP_HEAD_TIMEOUT"), "{line}");
    });
}

#[test]
fn a_first_line_without_end_is_charged_whether_its_port_has_a_protocol_or_not() {
    local(async {
        for protocol in [AppProtocol::Http11, AppProtocol::Unknown] {
            let accounts = Accounts::default();
            let mut world = World::limited(|config| config.accounts = accounts.clone()).await;
            world.put_service("server", 96, protocol);
            world.configure().await;
            let mut clients = Vec::new();
            for _ in 0..20 {
                let mut stream = world.stream().await;
                stream.write_all(b"GET /").await.unwrap();
                stream.write_all(&[b'a'; 48 * 1024]).await.unwrap();
                clients.push(stream);
            }
            let charged = until("they are charged", || accounts.held() >= 20 * 40 * 1024);
            // Sooner than a first line is given up, after ten seconds.
            let charged = tokio::time::timeout(Duration::from_secs(9), charged).await;
            assert!(charged.is_ok(), "{} bytes are charged", accounts.held());
            drop(clients);
            until("all of it is free", || accounts.held() == 0).await;
        }
    });
}

#[test]
fn first_lines_beyond_the_account_of_their_client_end_their_connections() {
    local(async {
        let accounts = Accounts::new(MIB);
        let mut world = World::limited(|config| config.accounts = accounts.clone()).await;
        world.put_service("server", 96, AppProtocol::Unknown);
        world.configure().await;
        let _application = Application::plain(world.endpoint(), Protocol::Http1, tell).await;
        let mut clients = Vec::new();
        for _ in 0..20 {
            let mut stream = world.stream().await;
            stream.write_all(b"GET /").await.unwrap();
            // The waypoint may have ended it.
            let _ = stream.write_all(&[b'a'; 48 * 1024]).await;
            clients.push(stream);
        }
        world
            .logged(&["connection complete", "LATEEN_HTTP_BUFFERS"])
            .await;
        // The client's identity has 256 KiB, and a line goes beyond by what one read brings.
        assert!(accounts.held() <= MIB / 4, "{}", accounts.held());
        let mut other = stream_of(&world, "other").await;
        let request = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";
        talk(&mut other, request, "HTTP/1.1 200 ").await;
    });
}

#[test]
fn a_source_that_cancels_much_has_connections_of_its_own_and_is_served() {
    local(async {
        let world = World::limited(|_| ()).await;
        let application = Application::plain(world.endpoint(), Protocol::Http2, reserved).await;
        let noisy = connection(stream_of(&world, "client").await, Protocol::Http2);
        let other = connection(stream_of_stranger(&world).await, Protocol::Http2);
        assert_eq!(get(&other, "GET", "/").await.0, 200);
        for _ in 0..4 {
            let before = application.requests.get();
            let requests: Vec<_> = (0..20)
                .map(|_| noisy.request(&head("GET", "/never", &[]), None).unwrap())
                .collect();
            until("they have come", || {
                application.requests.get() >= before + 20
            })
            .await;
            drop(requests);
        }
        // The first 50 were cancelled on the connection that both share.
        until("it has a connection of its own", || {
            application.connections.get() == 2
        })
        .await;
        assert_eq!(get(&noisy, "GET", "/").await.0, 200);
        assert_eq!(get(&other, "GET", "/").await.0, 200);
        assert_eq!(application.connections.get(), 2);
    });
}

#[test]
fn a_connection_has_room_for_many_subscriptions_and_for_other_calls() {
    local(async {
        let world = World::limited(|_| ()).await;
        let application = Application::plain(world.endpoint(), Protocol::Http2, reserved).await;
        let http2 = lateen_h2::Config {
            max_streams: 2000,
            ..lateen_h2::Config::requests()
        };
        let config = lateen_exchange::Config {
            http2: http2.share(),
            ..lateen_exchange::Config::new(Protocol::Http2)
        };
        let (client, driver) =
            lateen_exchange::client::open(stream_of(&world, "client").await, config);
        tokio::task::spawn_local(driver);
        assert_eq!(get(&client, "GET", "/").await.0, 200);
        // All of them may be cancelled at once, as by deadlines at an endpoint that hangs.
        for round in 1..=3 {
            let subscriptions: Vec<_> = (0..999)
                .map(|_| client.request(&head("GET", "/never", &[]), None).unwrap())
                .collect();
            until("they have come", || {
                application.requests.get() == 1000 * round
            })
            .await;
            assert_eq!(get(&client, "GET", "/").await.0, 200);
            drop(subscriptions);
        }
        assert!(!client.is_closed());
    });
}

#[test]
fn uploads_that_an_early_answer_cuts_short_count_as_resets() {
    local(async {
        let world = World::limited(|_| ()).await;
        let application = Application::plain(world.endpoint(), Protocol::Http2, reserved).await;
        let noisy = connection(stream_of(&world, "client").await, Protocol::Http2);
        for _ in 0..60 {
            let upload = head("POST", "/", &[("content-length", "9")]);
            let exchange = noisy.request(&upload, None).unwrap();
            assert_eq!(exchange.answer().await.unwrap().status(), Status::OK);
        }
        let other = connection(stream_of_stranger(&world).await, Protocol::Http2);
        assert_eq!(get(&other, "GET", "/").await.0, 200);
        assert_eq!(application.connections.get(), 2);
    });
}

/// Begins an answer of 16 KiB with a half of it, and does not end it.
async fn halting(_: FramedRequest, exchange: server::Exchange) -> Result<(), Error> {
    exchange.reply(Status::OK, &[], Length::Known(16384))?;
    exchange.send(Bytes::from(vec![7; 8192])).await?;
    std::future::pending().await
}

#[test]
fn answers_that_have_no_room_in_the_account_of_their_client_count_as_resets() {
    local(async {
        let accounts = Accounts::new(MIB);
        let world = World::limited(|config| config.accounts = accounts.clone()).await;
        let application = Application::plain(world.endpoint(), Protocol::Http2, halting).await;
        // A client that takes heads alone fills the account of its identity, which has 256 KiB.
        let stream = stream_of(&world, "client").await;
        let (mut read, mut write) = tokio::io::split(stream);
        let reading = tokio::task::spawn_local(async move {
            let mut buffer = [0; 4096];
            while let Ok(1..) = read.read(&mut buffer).await {}
        });
        write.write_all(&without_windows(40)).await.unwrap();
        until("the account is full", || accounts.held() >= MIB / 4 - 8192).await;
        let noisy = connection(stream_of(&world, "client").await, Protocol::Http2);
        for _ in 0..60 {
            let exchange = noisy.request(&head("GET", "/", &[]), None).unwrap();
            exchange.finish().unwrap();
            let ended = async { while let Ok(Some(_)) = exchange.data().await {} };
            soon("the end", ended).await;
        }
        assert_eq!(application.connections.get(), 2);
        reading.abort();
    });
}

#[test]
fn tunnels_that_their_client_resets_count_as_resets() {
    local(async {
        let world = World::limited(|_| ()).await;
        let gone = Rc::new(Cell::new(0));
        let counted = Rc::clone(&gone);
        let accept = move |_, exchange: server::Exchange| {
            let gone = Rc::clone(&counted);
            async move {
                exchange.reply(Status::OK, &[], Length::None)?;
                let error = poll_fn(|cx| exchange.poll_gone(cx)).await;
                gone.set(gone.get() + 1);
                Err(error)
            }
        };
        let application = Application::plain(world.endpoint(), Protocol::Http2, accept).await;
        let noisy = connection(stream_of(&world, "client").await, Protocol::Http2);
        let Canonical::Connect(head) = head_of("CONNECT", "a:80", "a:80", &[]) else {
            panic!("it is a CONNECT")
        };
        for n in 0..60 {
            let exchange = noisy.connect(&head).unwrap();
            let answer = soon("an answer", exchange.answer()).await.unwrap();
            assert_eq!(answer.status(), Status::OK);
            drop(exchange);
            until("the endpoint sees the reset", || gone.get() > n).await;
        }
        assert_eq!(application.connections.get(), 2);
    });
}

#[test]
fn plain_text_is_not_sent_where_a_peer_authentication_demands_mtls() {
    local(async {
        let mut world = World::start().await;
        let strict = |world: &mut World, name: &str, number: u8| {
            let ip = world.ip(number, 1);
            let mut workload = wds::plain(wds::workload(name, "n2", ip));
            workload.authorization_policies =
                vec!["istio-system/istio_converted_static_strict".to_owned()];
            world.put_workload(wds::serving(workload, "server", 80, 8080));
        };
        world.put_service("server", 96, AppProtocol::Http11);
        strict(&mut world, "app", 3);
        world.configure().await;
        let application = Application::plain(world.endpoint(), Protocol::Http1, tell).await;
        let client = connection(world.stream().await, Protocol::Http1);
        // Later requests of the same configuration do not look at the endpoint again, and have the same reason.
        for path in ["/refused", "/again"] {
            assert_eq!(get(&client, "GET", path).await.0, 503);
            let line = world.logged(&[path, "status=503", "flags=\"UH\""]).await;
            for part in [
                "PeerAuthentication",
                "istio_converted_static_strict",
                "PERMISSIVE",
            ] {
                assert!(line.contains(part), "{line}");
            }
        }
        assert_eq!(application.connections.get(), 0);
        // Of several endpoints the others serve.
        let open = world.put_plain_endpoint("server", "open", 4);
        world.configure().await;
        let other = Application::plain(open, Protocol::Http1, tell).await;
        for _ in 0..8 {
            assert_eq!(get(&client, "GET", "/").await.0, 200);
        }
        assert_eq!((application.requests.get(), other.requests.get()), (0, 8));
        // Connections without HTTP are refused as well.
        world.put_service("server", 96, AppProtocol::Tcp);
        strict(&mut world, "open", 4);
        world.configure().await;
        assert!(world.ask(world.vip()).await.is_err());
        world.logged(&["connection complete", "demands mTLS"]).await;
    });
}
