//! Limits on the number of a client's tunnels and connections, and the turns of handshakes.

use std::net::SocketAddr;

use lateen_exchange::Protocol;
use lateen_hbone::{ConnectError, ConnectRequest, Stream, Tunnel};
use lateen_proto::workload::AppProtocol;
use lateen_testkit::identity;
use tokio::io::{AsyncReadExt as _, duplex};
use tokio::net::{TcpSocket, TcpStream};

use super::application::{Application, tell};
use super::bounds::{stream_in, stream_of, stream_of_stranger};
use super::talk;
use super::world::{World, local};
use crate::testing::{soon, until};
use crate::waypoint::{Accounts, TunnelQuotas};

const REQUEST: &str = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";

async fn ask(world: &World, tunnel: &Tunnel) -> Result<Stream, u16> {
    let request = ConnectRequest::new(world.vip());
    match soon("an answer to CONNECT", tunnel.connect(&request)).await {
        Ok((stream, _)) => Ok(stream),
        Err(ConnectError::Refused { status }) => Err(status),
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn a_tunnel_beyond_the_share_of_its_identity_is_closed_at_once() {
    local(async {
        let world = World::limited(|config| config.tunnel_quotas = TunnelQuotas::new(2)).await;
        let _application = Application::plain(world.endpoint(), Protocol::Http1, tell).await;
        let first = world.tunnel("greedy").await;
        let mut second = stream_of(&world, "greedy").await;
        let mut further = world.proven(&identity("greedy")).await;
        let ended = soon("the end", further.read(&mut [0; 64])).await;
        assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
        world
            .logged(&["connection failed", "too many tunnels", "/sa/greedy has 2"])
            .await;
        let closed = |reason: &str| {
            let reason = format!("reason=\"{reason}\"");
            world.metric("lateen_tunnels_closed_total", &[&reason])
        };
        assert_eq!(closed("too_many_tunnels"), Some(1.0));
        // Tunnels that are open go on, and other identities have a share of their own.
        talk(&mut second, REQUEST, "HTTP/1.1 200 ").await;
        talk(
            &mut stream_of(&world, "other").await,
            REQUEST,
            "HTTP/1.1 200 ",
        )
        .await;
        drop(first);
        until("the first one is gone", || closed("done").is_some()).await;
        talk(
            &mut stream_of(&world, "greedy").await,
            REQUEST,
            "HTTP/1.1 200 ",
        )
        .await;
    });
}

#[test]
fn a_connection_beyond_the_share_of_its_identity_is_refused_whatever_its_protocol() {
    local(async {
        for protocol in [AppProtocol::Http11, AppProtocol::Tcp, AppProtocol::Unknown] {
            // Three for an identity, six for its namespace, twelve for all.
            let accounts = Accounts::new(12 * 512);
            let mut world = World::limited(|config| config.accounts = accounts.clone()).await;
            world.put_service("server", 96, protocol);
            world.configure().await;
            let _application = Application::plain(world.endpoint(), Protocol::Http1, tell).await;
            let [one, two] = [world.tunnel("greedy").await, world.tunnel("greedy").await];
            let mut open = Vec::new();
            for tunnel in [&one, &two, &two] {
                open.push(ask(&world, tunnel).await.unwrap());
            }
            for tunnel in [&one, &two] {
                assert_eq!(ask(&world, tunnel).await.err(), Some(503), "{protocol:?}");
            }
            let line = world
                .logged(&["connection failed", "status=503", "/sa/greedy"])
                .await;
            assert!(line.contains("too many connections"), "{line}");
            assert_eq!(accounts.connections(), 3);
            let neighbour = world.tunnel("neighbour").await;
            for _ in 0..3 {
                open.push(stream_in(&world, &neighbour).await);
            }
            let late = world.tunnel("late").await;
            assert_eq!(ask(&world, &late).await.err(), Some(503), "{protocol:?}");
            let mut stranger = stream_of_stranger(&world).await;
            talk(&mut stranger, REQUEST, "HTTP/1.1 200 ").await;
            drop((open, stranger));
            until("all are gone", || accounts.connections() == 0).await;
            let mut again = ask(&world, &one).await.unwrap();
            talk(&mut again, REQUEST, "HTTP/1.1 200 ").await;
        }
    });
}

/// The first bytes of a client's TLS.
async fn client_hello(world: &World) -> Vec<u8> {
    let credentials = world.ca.credentials(&identity("client"));
    let (ours, mut theirs) = duplex(16 * 1024);
    let gate = [identity("gate")];
    let mut hello = Vec::with_capacity(16 * 1024);
    tokio::select! {
        _ = lateen_tls::connect(&credentials, ours, &gate) => panic!("nobody answers"),
        read = theirs.read_buf(&mut hello) => assert!(read.unwrap() > 0),
    }
    hello
}

async fn dial(world: &World, from: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(from).unwrap();
    socket.connect(world.gate()).await.unwrap()
}

#[test]
fn handshakes_of_one_address_delay_no_tunnel_of_another() {
    const HELLOS: usize = 200;
    local(async {
        let world = World::start().await;
        let hello = client_hello(&world).await;
        let mut flood = Vec::new();
        for _ in 0..HELLOS {
            let stream = dial(&world, (world.ip(7, 7), 0).into()).await;
            stream.writable().await.unwrap();
            flood.push(stream);
        }
        // All at once, so that the waypoint has them before it has the tunnel.
        for stream in &flood {
            assert_eq!(stream.try_write(&hello).unwrap(), hello.len());
        }
        let _tunnel = world.tunnel("honest").await;
        let answered = flood.iter().filter(|stream| {
            let read = stream.try_read(&mut [0; 16]);
            read.is_ok_and(|read| read > 0)
        });
        let answered = answered.count();
        assert!(answered < HELLOS, "the tunnel waited for {answered} others");
    });
}
