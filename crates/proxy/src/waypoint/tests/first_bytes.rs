//! Connections that are relayed behind the bytes by which their protocol was detected.

use std::net::SocketAddr;
use std::time::Duration;

use lateen_hbone::Stream;
use lateen_proto::l7::Action;
use lateen_proto::workload::AppProtocol;
use socket2::{Domain, Socket, Type};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::bounds::stream_of;
use super::connections::greet_and_echo;
use super::policy::from;
use super::world::{World, local};
use crate::testing::{soon, until};
use crate::waypoint::Accounts;

#[test]
fn first_bytes_of_any_length_are_relayed_as_a_whole() {
    local(async {
        let world = World::start().await;
        let listener = TcpListener::bind(world.endpoint()).await.unwrap();
        greet_and_echo(listener, "");
        for length in [64, 65, 517, 100_000] {
            let mut said = vec![0x16];
            said.extend((1..length).map(|n| n as u8));
            let mut stream = world.stream().await;
            stream.write_all(&said).await.unwrap();
            let mut heard = vec![0; length];
            soon("an echo", stream.read_exact(&mut heard))
                .await
                .unwrap();
            assert!(heard == said, "{length} bytes");
        }
    });
}

/// More bytes than a first line of HTTP may have, and fewer than the window of a new stream.
const LONG_LINE: usize = 61 * 1024;

/// A listener whose connections have room for less than [`LONG_LINE`] in the kernel.
pub fn narrow(address: SocketAddr) -> TcpListener {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    // The kernel lets a new connection hold some segments, which have 64 KiB over loopback.
    socket.set_tcp_mss(536).unwrap();
    socket.set_recv_buffer_size(1).unwrap();
    socket.set_nonblocking(true).unwrap();
    // The next test may have the same address.
    socket.set_reuse_address(true).unwrap();
    socket.bind(&address.into()).unwrap();
    socket.listen(1).unwrap();
    TcpListener::from_std(socket.into()).unwrap()
}

/// A waypoint whose endpoint does not read the first bytes of a client, and the two ends of their connection.
async fn unread() -> (World, Accounts, Stream, TcpStream) {
    let accounts = Accounts::default();
    let mut world = World::limited(|config| config.accounts = accounts.clone()).await;
    world.put_service("server", 96, AppProtocol::Unknown);
    world.configure().await;
    let listener = narrow(world.endpoint());
    let mut stream = stream_of(&world, "client").await;
    let line = [b"GET ".to_vec(), vec![b'a'; LONG_LINE]].concat();
    soon("a write", stream.write_all(&line)).await.unwrap();
    let (endpoint, _) = soon("the endpoint is dialled", listener.accept())
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    (world, accounts, stream, endpoint)
}

#[test]
fn a_client_that_leaves_ends_its_connection_though_nobody_takes_its_first_bytes() {
    local(async {
        let (world, accounts, stream, _endpoint) = unread().await;
        drop(stream);
        world.logged(&["connection complete", "error="]).await;
        until("nothing is held", || accounts.held() == 0).await;
    });
}

#[test]
fn a_later_policy_cuts_a_connection_though_nobody_takes_its_first_bytes() {
    local(async {
        let (mut world, accounts, mut stream, _endpoint) = unread().await;
        world.put_policy("nobody", Action::Allow, vec![from("nobody")]);
        world.configure().await;
        let read = soon("the cut", stream.read(&mut [0])).await;
        assert!(read.is_err(), "it is reset: {read:?}");
        world
            .logged(&["connection complete", "due to policy change"])
            .await;
        until("nothing is held", || accounts.held() == 0).await;
    });
}

#[test]
fn the_end_of_a_drain_cuts_a_connection_though_nobody_takes_its_first_bytes() {
    local(async {
        let (world, _, _stream, _endpoint) = unread().await;
        world.cut().await;
        world
            .logged(&["connection complete", "connection drain"])
            .await;
    });
}

#[test]
fn an_account_pays_for_first_bytes_until_the_endpoint_has_taken_them() {
    local(async {
        let (_world, accounts, _stream, mut endpoint) = unread().await;
        assert!(accounts.held() >= LONG_LINE, "{}", accounts.held());
        let mut heard = vec![0; "GET ".len() + LONG_LINE];
        soon("the first bytes", endpoint.read_exact(&mut heard))
            .await
            .unwrap();
        assert!(heard.starts_with(b"GET a") && heard.ends_with(b"aa"));
        until("nothing is held", || accounts.held() == 0).await;
    });
}
