//! Connections of applications through the waypoint: plain TCP, the end of the process, memory, and turns.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use lateen_exchange::Protocol;
use lateen_http::Length;
use lateen_netns::Keepalive;
use lateen_proto::l7::Action;
use lateen_proto::l7::access_log::Encoding;
use lateen_proto::workload::AppProtocol;
use lateen_testkit::wds;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::spawn_local;

use super::application::{Application, tell};
use super::hostile::{answer_first, raw};
use super::policy::{from, path};
use super::world::{SILENCE, World, local};
use super::{connection, get, head, talk};
use crate::testing::{soon, until};

/// Echoes what comes on `listener`, behind a greeting.
pub fn greet_and_echo(listener: TcpListener, greeting: &'static str) {
    spawn_local(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            spawn_local(async move {
                stream.write_all(greeting.as_bytes()).await.unwrap();
                let (mut read, mut write) = stream.split();
                let _ = tokio::io::copy(&mut read, &mut write).await;
            });
        }
    });
}

#[test]
fn tcp_is_relayed_whether_the_port_says_so_or_its_first_bytes_do() {
    local(async {
        for protocol in [AppProtocol::Tcp, AppProtocol::Unknown] {
            let mut world = World::unconfigured();
            world.put_service("server", 96, protocol);
            let endpoint = world.put_plain_endpoint("server", "app", 3);
            world.configure().await;
            greet_and_echo(TcpListener::bind(endpoint).await.unwrap(), "");
            let mut stream = world.stream().await;
            talk(&mut stream, "*1\r\n$4\r\nPING\r\n", "*1\r\n$4\r\nPING\r\n").await;
            drop(stream);
            let line = world
                .logged(&["connection complete", &endpoint.to_string()])
                .await;
            assert!(line.contains("bytes_recv=14"), "{line}");
            let labels = ["reporter=\"waypoint\"", "destination_workload=\"app\""];
            assert_eq!(
                world.metric("istio_tcp_connections_opened_total", &labels),
                Some(1.0)
            );
        }
    });
}

/// The time to the next keepalive probe of our connection to an address (proc_net_tcp(5)); none while the kernel waits for something else.
fn next_probe(to: SocketAddr) -> Option<Duration> {
    const KEEPALIVE: &str = "02";
    let IpAddr::V4(ip) = to.ip() else {
        panic!("the net has addresses of IPv4");
    };
    let remote = format!("{:08X}:{:04X}", u32::from_ne_bytes(ip.octets()), to.port());
    let table = std::fs::read_to_string("/proc/thread-self/net/tcp").unwrap();
    table.lines().find_map(|line| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let (timer, left) = fields[5].split_once(':')?;
        let is_ours = fields[2] == remote && timer == KEEPALIVE;
        let hundredths = u64::from_str_radix(left, 16).ok()?;
        is_ours.then(|| Duration::from_millis(10 * hundredths))
    })
}

#[test]
fn a_plain_connection_of_requests_probes_its_endpoint_sooner_than_a_relayed_one() {
    local(async {
        let mut world = World::limited(|config| {
            config.sockets.keepalive = Some(Keepalive {
                time: Duration::from_secs(3600),
                ..Keepalive::default()
            });
        })
        .await;
        let relayed = world.put_plain_endpoint("other", "other", 4);
        world.put_service("other", 97, AppProtocol::Tcp);
        world.configure().await;
        let _application = Application::plain(world.endpoint(), Protocol::Http1, tell).await;
        greet_and_echo(TcpListener::bind(relayed).await.unwrap(), "");
        let client = connection(world.stream().await, Protocol::Http1);
        assert_eq!(get(&client, "GET", "/").await.0, 200);
        let vip = SocketAddr::from((world.ip(97, 1), 80));
        let mut stream = world.ask(vip).await.unwrap();
        talk(&mut stream, "one", "one").await;
        for (endpoint, is_relayed) in [(world.endpoint(), false), (relayed, true)] {
            let probe = || next_probe(endpoint);
            until("the kernel waits for its probe alone", || probe().is_some()).await;
            let left = probe().unwrap();
            assert_eq!(left > Duration::from_secs(30), is_relayed, "{left:?}");
        }
    });
}

#[test]
fn requests_of_an_open_connection_go_to_the_endpoints_that_the_service_has_by_then() {
    local(async {
        for protocol in [Protocol::Http1, Protocol::Http2] {
            let mut world = World::start().await;
            let first = Application::plain(world.endpoint(), protocol, tell).await;
            let client = connection(world.stream().await, protocol);
            for _ in 0..2 {
                assert_eq!(get(&client, "GET", "/").await.0, 200);
            }
            let second = world.put_plain_endpoint("server", "app", 4);
            world.configure().await;
            let second = Application::plain(second, protocol, tell).await;
            assert_eq!(get(&client, "GET", "/").await.0, 200);
            assert_eq!((first.requests.get(), second.requests.get()), (2, 1));
            world
                .resources
                .retain(|(name, _)| *name != wds::uid("default", "app"));
            world.configure().await;
            assert_eq!(get(&client, "GET", "/").await.0, 503);
        }
    });
}

#[test]
fn a_server_that_speaks_first_is_heard_though_nobody_names_its_protocol() {
    local(async {
        let world = World::start().await;
        let listener = TcpListener::bind(world.endpoint()).await.unwrap();
        greet_and_echo(listener, "220 ready\r\n");
        let mut stream = world.stream().await;
        talk(&mut stream, "", "220 ready\r\n").await;
        talk(&mut stream, "EHLO me\r\n", "EHLO me\r\n").await;
    });
}

#[test]
fn a_client_that_was_silent_for_long_may_still_speak_http() {
    local(async {
        let world = World::start().await;
        let _application = Application::plain(world.endpoint(), Protocol::Http1, tell).await;
        let mut stream = world.stream().await;
        tokio::time::sleep(2 * SILENCE).await;
        let request = "GET /late HTTP/1.1\r\nhost: a\r\n\r\n";
        talk(&mut stream, request, "HTTP/1.1 200 OK\r\n").await;
        drop(stream);
        world.logged(&["request complete", "/late"]).await;
        let opened = world.metric("istio_tcp_connections_opened_total", &[]);
        assert_eq!(opened, None, "no connection was relayed");
    });
}

#[test]
fn requests_behind_a_silence_are_requests_though_the_endpoint_refused() {
    local(async {
        for protocol in [Protocol::Http1, Protocol::Http2] {
            let world = World::start().await;
            let stream = world.stream().await;
            // The endpoint is dialled by then, and nobody listens.
            tokio::time::sleep(2 * SILENCE).await;
            let client = connection(stream, protocol);
            assert_eq!(get(&client, "GET", "/early").await.0, 503);
            world.logged(&["request complete", "/early"]).await;
            let _application = Application::plain(world.endpoint(), protocol, tell).await;
            assert_eq!(get(&client, "GET", "/late").await.0, 200);
            let opened = world.metric("istio_tcp_connections_opened_total", &[]);
            assert_eq!(opened, None, "no connection was relayed");
        }
    });
}

#[test]
fn requests_behind_a_silence_are_judged_though_a_policy_denies_connections() {
    local(async {
        let mut world = World::start().await;
        world.put_policy("open", Action::Allow, vec![path("/open")]);
        world.configure().await;
        let application = Application::plain(world.endpoint(), Protocol::Http1, tell).await;
        let stream = world.stream().await;
        tokio::time::sleep(2 * SILENCE).await;
        let client = connection(stream, Protocol::Http1);
        assert_eq!(get(&client, "GET", "/closed").await.0, 403);
        assert_eq!(get(&client, "GET", "/open").await.0, 200);
        assert_eq!(application.requests.get(), 1);
        // Other protocols still have no way through.
        let mut stream = world.stream().await;
        tokio::time::sleep(2 * SILENCE).await;
        stream.write_all(b"\x01secret").await.unwrap();
        assert!(soon("the end", stream.read(&mut [0])).await.is_err());
        world
            .logged(&["connection complete", "policy rejection"])
            .await;
        assert_eq!(application.connections.get(), 1);
    });
}

#[test]
fn a_client_that_speaks_while_its_endpoint_is_dialled_is_heard() {
    local(async {
        let mut world = World::unconfigured();
        world.put_service("server", 96, AppProtocol::Unknown);
        let endpoint = world.put_mesh_endpoint("server", "dead", 3);
        // The clients below have spoken long before.
        world.settings().connect_timeout_ms = 10_000;
        world.configure().await;
        // It takes connections, and says nothing.
        let proxy = SocketAddr::new(endpoint.ip(), 15008);
        let _silent = TcpListener::bind(proxy).await.unwrap();
        let mut late = world.stream().await;
        let mut other = world.stream().await;
        tokio::time::sleep(2 * SILENCE).await;
        other.write_all(b"\x01").await.unwrap();
        talk(&mut late, "GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 400 ").await;
        let failed = "istio_tcp_connections_closed_total";
        assert_eq!(world.metric(failed, &[]), None, "the dial goes on");
        assert!(soon("the end", other.read(&mut [0])).await.is_err());
        world
            .logged(&["connection complete", "did not answer in time"])
            .await;
    });
}

#[test]
fn a_client_whose_connection_is_refused_is_not_heard_for_ever() {
    local(async {
        let world = World::start().await;
        let mut silent = world.stream().await;
        let mut left = world.stream().await;
        tokio::time::sleep(2 * SILENCE).await;
        left.shutdown().await.unwrap();
        for stream in [&mut left, &mut silent] {
            let read = soon("the refusal", stream.read(&mut [0])).await;
            assert!(read.is_err(), "it is reset: {read:?}");
        }
        world
            .logged(&["connection complete", "error=", "refused"])
            .await;
        let labels = ["reporter=\"waypoint\"", "response_flags=\"CONNECT\""];
        until("each is counted once", || {
            world.metric("istio_tcp_connections_closed_total", &labels) == Some(2.0)
        })
        .await;
    });
}

#[test]
fn a_client_that_leaves_while_its_endpoint_is_dialled_is_counted_and_logged() {
    local(async {
        for protocol in [AppProtocol::Tcp, AppProtocol::Unknown] {
            let mut world = World::unconfigured();
            world.put_service("server", 96, protocol);
            let endpoint = world.put_mesh_endpoint("server", "dead", 3);
            world.settings().connect_timeout_ms = 60_000;
            world.configure().await;
            // It takes connections, and says nothing.
            let proxy = SocketAddr::new(endpoint.ip(), 15008);
            let silent = TcpListener::bind(proxy).await.unwrap();
            let asked = async {
                // An answer comes at once where the first bytes decide.
                let _stream = world.stream().await;
                std::future::pending::<()>().await;
            };
            let _dialled = tokio::select! {
                () = asked => unreachable!("it waits for ever"),
                dialled = soon("the endpoint is dialled", silent.accept()) => dialled.unwrap(),
            };
            world
                .logged(&["connection complete", "error=", "the client left before"])
                .await;
            let labels = ["reporter=\"waypoint\"", "response_flags=\"CONNECT\""];
            until("it is counted", || {
                world.metric("istio_tcp_connections_closed_total", &labels) == Some(1.0)
            })
            .await;
        }
    });
}

#[test]
fn a_tcp_port_whose_endpoint_is_dead_refuses_the_stream() {
    local(async {
        let mut world = World::unconfigured();
        world.put_service("server", 96, AppProtocol::Tcp);
        world.put_plain_endpoint("server", "dead", 3);
        world.configure().await;
        assert!(world.ask(world.vip()).await.is_err());
        world
            .logged(&["connection complete", "error=", "refused"])
            .await;
    });
}

#[test]
fn a_drain_lets_requests_finish_and_tells_clients_to_leave() {
    local(async {
        let world = World::start().await;
        let slow = |_, exchange: lateen_exchange::server::Exchange| async move {
            tokio::time::sleep(Duration::from_millis(300)).await;
            exchange.reply(lateen_http::Status::OK, &[], Length::Known(0))?;
            exchange.finish()
        };
        for protocol in [Protocol::Http1, Protocol::Http2] {
            let world = match protocol {
                Protocol::Http1 => &world,
                Protocol::Http2 => &World::start().await,
            };
            let _application = Application::plain(world.endpoint(), protocol, slow).await;
            let client = connection(world.stream().await, protocol);
            let idle = connection(world.stream().await, protocol);
            assert_eq!(get(&idle, "GET", "/before").await.0, 200);
            let exchange = client.request(&head("GET", "/slow", &[]), None).unwrap();
            until("the tunnel is there", || world.tunnels() == 1).await;
            tokio::time::sleep(Duration::from_millis(100)).await;
            world.drain();
            let (answered, _) = super::answer(&exchange).await;
            assert_eq!(answered.status().code(), 200);
            drop(exchange);
            until("the client is told to leave", || client.is_closed()).await;
            until("the other client is told to leave", || idle.is_closed()).await;
            until("the tunnel ends", || world.tunnels() == 0).await;
        }
    });
}

#[test]
fn a_request_that_was_on_its_way_when_the_drain_began_is_answered() {
    local(async {
        let world = World::start().await;
        let _application = Application::plain(world.endpoint(), Protocol::Http1, tell).await;
        let client = connection(world.stream().await, Protocol::Http1);
        assert_eq!(get(&client, "GET", "/before").await.0, 200);
        world.drain();
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(get(&client, "GET", "/on-its-way").await.0, 200);
        until("the client is told to leave", || client.is_closed()).await;
    });
}

#[test]
fn a_tunnel_that_is_opened_in_a_drain_gets_the_answer_that_it_was_opened_for() {
    local(async {
        for protocol in [Protocol::Http1, Protocol::Http2] {
            let world = World::start().await;
            let _application = Application::plain(world.endpoint(), protocol, tell).await;
            world.drain();
            tokio::time::sleep(Duration::from_millis(100)).await;
            let tunnel = world.tunnel("client").await;
            // The proxy asks, and its client speaks, when a GOAWAY would have come.
            tokio::time::sleep(Duration::from_millis(100)).await;
            let request = lateen_hbone::ConnectRequest::new(world.vip());
            let (stream, _) = tunnel.connect(&request).await.unwrap();
            tokio::time::sleep(Duration::from_millis(100)).await;
            let client = connection(stream, protocol);
            assert_eq!(get(&client, "GET", "/late").await.0, 200, "{protocol:?}");
            until("the client is told to leave", || client.is_closed()).await;
            until("the tunnel ends", || world.tunnels() == 0).await;
        }
    });
}

#[test]
fn clients_that_never_spoke_do_not_hold_a_drain() {
    local(async {
        for protocol in [AppProtocol::Unknown, AppProtocol::Http11] {
            let mut world = World::unconfigured();
            world.put_service("server", 96, protocol);
            let endpoint = world.put_plain_endpoint("server", "app", 3);
            world.configure().await;
            greet_and_echo(TcpListener::bind(endpoint).await.unwrap(), "");
            let mut silent = world.stream().await;
            tokio::time::sleep(2 * SILENCE).await;
            world.drain();
            let read = soon("the end", silent.read(&mut [0])).await;
            assert!(matches!(read, Ok(0)), "{protocol:?}: {read:?}");
            drop(silent);
            until("the tunnel ends", || world.tunnels() == 0).await;
        }
    });
}

#[test]
fn a_policy_that_comes_later_cuts_the_relayed_connections_that_it_denies() {
    local(async {
        let mut world = World::unconfigured();
        world.put_service("server", 96, AppProtocol::Tcp);
        let endpoint = world.put_plain_endpoint("server", "app", 3);
        world.configure().await;
        greet_and_echo(TcpListener::bind(endpoint).await.unwrap(), "");
        let mut client = world.stream().await;
        let stranger = world.tunnel("stranger").await;
        let request = lateen_hbone::ConnectRequest::new(world.vip());
        let (mut stranger, _) = stranger.connect(&request).await.unwrap();
        talk(&mut client, "one", "one").await;
        talk(&mut stranger, "one", "one").await;
        world.put_policy("friends", Action::Allow, vec![from("client")]);
        world.configure().await;
        let read = soon("the cut", stranger.read(&mut [0])).await;
        assert!(read.is_err(), "it is reset: {read:?}");
        let line = world
            .logged(&["connection complete", "sa/stranger", "due to policy change"])
            .await;
        assert!(line.contains("\terror\t"), "{line}");
        let labels = ["reporter=\"waypoint\"", "response_flags=\"DENY\""];
        until("it is counted", || {
            world.metric("istio_tcp_connections_closed_total", &labels) == Some(1.0)
        })
        .await;
        // The other one goes on, also when a policy of another service comes.
        talk(&mut client, "two", "two").await;
        world.put_unbound_service("other", 97, AppProtocol::Unknown);
        world.configure().await;
        talk(&mut client, "three", "three").await;
    });
}

#[test]
fn a_policy_that_comes_before_the_first_byte_keeps_that_from_the_server() {
    local(async {
        let mut world = World::start().await;
        let listener = TcpListener::bind(world.endpoint()).await.unwrap();
        let (dialled, is_dialled) = tokio::sync::oneshot::channel();
        let heard = spawn_local(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            dialled.send(()).unwrap();
            let mut heard = Vec::new();
            let _ = stream.read_to_end(&mut heard).await;
            heard
        });
        let mut client = world.stream().await;
        // It might speak first.
        soon("the server is dialled", is_dialled).await.unwrap();
        world.put_policy("nobody", Action::Allow, vec![from("nobody")]);
        world.configure().await;
        client.write_all(b"\x01secret").await.unwrap();
        let read = soon("the cut", client.read(&mut [0])).await;
        assert!(!matches!(read, Ok(1..)), "{read:?}");
        assert_eq!(soon("the end", heard).await.unwrap(), b"");
        world
            .logged(&["connection complete", "due to policy change"])
            .await;
    });
}

#[test]
fn what_is_left_at_the_deadline_is_cut_and_logged() {
    local(async {
        let format = "%DOWNSTREAM_REMOTE_ADDRESS% %REQ(:PATH)% %RESPONSE_CODE% %RESPONSE_FLAGS% %RESPONSE_CODE_DETAILS%";
        let own = [
            "request complete",
            "/for-ever",
            "status=0",
            "flags=\"DC\"",
            "error=\"connection closed due to connection drain\"",
        ];
        let envoys = ["/for-ever 0 DC downstream_local_disconnect(connection_drain)"];
        for (format, words) in [(None, &own[..]), (Some(format), &envoys[..])] {
            for protocol in [Protocol::Http1, Protocol::Http2] {
                let mut world = World::start().await;
                if let Some(format) = format {
                    world.log_in(Encoding::Text, format);
                    world.configure().await;
                }
                let never = |_, exchange: lateen_exchange::server::Exchange| async move {
                    Err(std::future::poll_fn(|cx| exchange.poll_gone(cx)).await)
                };
                let application = Application::plain(world.endpoint(), protocol, never).await;
                let client = connection(world.stream().await, protocol);
                let exchange = client
                    .request(&head("GET", "/for-ever", &[]), None)
                    .unwrap();
                until("it has come", || application.requests.get() == 1).await;
                world.cut().await;
                assert!(soon("the end", exchange.answer()).await.is_err());
                world.logged(words).await;
                until("the tunnel ends", || world.tunnels() == 0).await;
            }
        }
    });
}

#[test]
fn a_client_that_does_not_read_stops_its_server_within_bounds() {
    local(async {
        let world = World::start().await;
        let sent = std::rc::Rc::new(std::cell::Cell::new(0_usize));
        let counted = std::rc::Rc::clone(&sent);
        let flood = move |_, exchange: lateen_exchange::server::Exchange| {
            let sent = std::rc::Rc::clone(&counted);
            async move {
                exchange.reply(lateen_http::Status::OK, &[], Length::Delimited)?;
                loop {
                    exchange
                        .send(bytes::Bytes::from_static(&[7; 65_536]))
                        .await?;
                    sent.set(sent.get() + 65_536);
                }
            }
        };
        let _application = Application::plain(world.endpoint(), Protocol::Http2, flood).await;
        let client = connection(world.stream().await, Protocol::Http2);
        let exchange = client.request(&head("GET", "/flood", &[]), None).unwrap();
        let _ = soon("an answer", exchange.answer()).await.unwrap();
        let mut before = usize::MAX;
        while before != sent.get() {
            before = sent.get();
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        // The windows of two connections and two tunnels, and what the kernel holds.
        assert!(before < 24 << 20, "{before} bytes were taken");
        // Other requests of the same client go on.
        let other = connection(world.stream().await, Protocol::Http2);
        let exchange = other.request(&head("GET", "/other", &[]), None).unwrap();
        let head = soon("an answer", exchange.answer()).await.unwrap();
        assert_eq!(head.status().code(), 200);
    });
}

#[test]
fn peers_of_every_identity_are_served_and_forgotten_with_their_tunnels() {
    local(async {
        let world = World::start().await;
        let _application = Application::plain(world.endpoint(), Protocol::Http1, tell).await;
        for account in ["one", "two", "three"] {
            let tunnel = world.tunnel(account).await;
            let request = lateen_hbone::ConnectRequest::new(world.vip());
            let (stream, _) = tunnel.connect(&request).await.unwrap();
            let client = connection(stream, Protocol::Http1);
            assert_eq!(get(&client, "GET", "/").await.0, 200);
            let line = world
                .logged(&["request complete", &format!("sa/{account}")])
                .await;
            assert!(line.contains("status=200"), "{line}");
        }
        until("all tunnels end", || world.tunnels() == 0).await;
    });
}

#[test]
fn a_connection_that_its_server_ends_soon_gets_no_late_request() {
    local(async {
        for (told, pause, connections) in [
            ("", 0, 1),
            ("keep-alive: timeout=30\r\n", 0, 1),
            ("keep-alive: timeout=2\r\n", 1100, 2),
            // A request within a second could meet the end.
            ("keep-alive: timeout=1\r\n", 0, 2),
            ("keep-alive: timeout=0\r\n", 0, 2),
        ] {
            let world = World::start().await;
            let first = format!("HTTP/1.1 200 OK\r\n{told}content-length: 0\r\n\r\n");
            let first: &'static str = first.leak();
            let accepted = raw(world.endpoint(), move |_, stream| {
                answer_first(stream, first)
            })
            .await;
            let client = connection(world.stream().await, Protocol::Http1);
            assert_eq!(get(&client, "POST", "/").await.0, 200);
            tokio::time::sleep(Duration::from_millis(pause)).await;
            assert_eq!(get(&client, "POST", "/").await.0, 200);
            assert_eq!(accepted.get(), connections, "{told:?}");
        }
    });
}
