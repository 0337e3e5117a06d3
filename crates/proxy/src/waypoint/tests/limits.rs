//! The turns of handshakes.

use std::net::SocketAddr;

use lateen_testkit::identity;
use tokio::io::{AsyncReadExt as _, duplex};
use tokio::net::{TcpSocket, TcpStream};

use super::world::{World, local};

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
