//! A peer that does not use our client: requests with any authority, and listeners that never answer.

use std::net::{IpAddr, SocketAddr};

use lateen_hbone::{Authority, ConnectError, ConnectRequest, Settings, client};
use lateen_testkit::identity;
use lateen_tls::TlsStream;
use socket2::{Domain, Socket, Type};
use tokio::io::unix::AsyncFd;
use tokio::net::TcpStream;
use tokio::task::LocalSet;

use super::fixture::{Mesh, soon};

/// A tunnel of the client's identity from `source`, before a word of HTTP/2.
pub async fn proven(mesh: &Mesh, source: IpAddr) -> TlsStream<TcpStream> {
    let credentials = mesh.ca.credentials(&identity("client"));
    let stream = mesh.dial_from(source, mesh.hbone()).await.unwrap();
    let (stream, _) = lateen_tls::connect(&credentials, stream, &[identity("server")])
        .await
        .unwrap();
    stream
}

/// The status that each authority is answered with, on one tunnel of the client's.
pub async fn ask(mesh: &Mesh, authorities: &[String]) -> Vec<u16> {
    let requests = authorities
        .iter()
        .map(|authority| ConnectRequest::new(authority.parse::<Authority>().unwrap()))
        .collect();
    request(mesh, mesh.client_ip(), requests).await
}

/// The status that each request is answered with, on one tunnel of the client's identity from `source`.
pub async fn request(mesh: &Mesh, source: IpAddr, requests: Vec<ConnectRequest>) -> Vec<u16> {
    let stream = proven(mesh, source).await;
    LocalSet::new()
        .run_until(async {
            let (tunnel, driver) = client::handshake(stream, Settings::client()).await.unwrap();
            tokio::task::spawn_local(driver);
            let mut statuses = Vec::new();
            for request in requests {
                let answer = soon("an answer", tunnel.connect(&request)).await;
                statuses.push(match answer {
                    Ok(_) => 200,
                    Err(ConnectError::Refused { status }) => status,
                    Err(error) => panic!("{error}"),
                });
            }
            statuses
        })
        .await
}

/// Gives one request up once `begun` says that it arrived, and waits until `ended` says that it is over; the tunnel
/// stays all the while.
pub async fn give_up<B: Future, E: Future>(mesh: &Mesh, authority: &str, begun: B, ended: E) {
    let stream = proven(mesh, mesh.client_ip()).await;
    LocalSet::new()
        .run_until(async {
            let (tunnel, driver) = client::handshake(stream, Settings::client()).await.unwrap();
            tokio::task::spawn_local(driver);
            let request = ConnectRequest::new(authority.parse::<Authority>().unwrap());
            tokio::select! {
                answer = tunnel.connect(&request) => panic!("answered: {answer:?}"),
                _ = begun => {}
            }
            ended.await;
        })
        .await;
}

/// A listener that accepts nothing and whose backlog is full: the kernel drops further SYNs.
pub async fn full_listener(address: SocketAddr) -> Vec<Socket> {
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    // Connections of an earlier run may still be in TIME_WAIT there.
    listener.set_reuse_address(true).unwrap();
    listener.bind(&address.into()).unwrap();
    listener.listen(0).unwrap();
    listener.set_nonblocking(true).unwrap();
    // A socket that owns its descriptor keeps the promise that the other constructor asks for in an unsafe block.
    #[expect(deprecated)]
    let listener = AsyncFd::new(listener).unwrap();
    let mut held = Vec::new();
    for _ in 0..4 {
        let filler = Socket::new(Domain::IPV4, Type::STREAM.nonblocking(), None).unwrap();
        // In progress, or done: either way it takes a place.
        let _ = filler.connect(&address.into());
        held.push(filler);
    }
    // A busy kernel takes its time, and until one of them is in the queue it answers others too.
    let full = soon("the backlog is full", listener.readable()).await;
    full.unwrap().retain_ready();
    held.push(listener.into_inner());
    held
}
