//! Peer proxies of the tests: they take tunnels, record the requests, and echo the bytes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lateen_hbone::{Baggage, Connection, Forwarded, Incoming, Settings, Stream};
use lateen_testkit::identity;
use lateen_tls::Credentials;
use lateen_types::Strng;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::task::{LocalSet, spawn_local};

use super::fixture::Mesh;

/// A request that a peer was asked.
#[derive(Debug)]
pub struct Seen {
    /// Of the identity that proved itself.
    pub peer: String,
    /// Whether it came through the tunnel of another request.
    pub inner: bool,
    pub authority: String,
    pub baggage: Option<Baggage>,
    pub forwarded: Option<Forwarded>,
    pub network: Option<Strng>,
}

/// A waypoint of this service account at `address`.
pub async fn waypoint(mesh: &Mesh, account: &str, address: SocketAddr) -> UnboundedReceiver<Seen> {
    start(mesh, account, None, address, Arc::default()).await
}

/// A gateway to another network: whatever it is asked for, it leads to a workload of the service account `behind`.
pub async fn gateway(
    mesh: &Mesh,
    account: &str,
    behind: &str,
    address: SocketAddr,
) -> UnboundedReceiver<Seen> {
    start(mesh, account, Some(behind), address, Arc::default()).await
}

/// A peer of this service account that takes one request of each tunnel and dies with it, unanswered.
pub async fn dying(mesh: &Mesh, account: &str, address: SocketAddr) -> UnboundedReceiver<Seen> {
    mortal(mesh, account, address, Arc::new(true.into())).await
}

/// A peer of this service account that serves until it is told that it `dies`: from then on as [`dying`] does.
pub async fn mortal(
    mesh: &Mesh,
    account: &str,
    address: SocketAddr,
    dies: Arc<AtomicBool>,
) -> UnboundedReceiver<Seen> {
    start(mesh, account, None, address, dies).await
}

#[derive(Clone)]
struct Peer {
    credentials: Arc<Credentials>,
    behind: Option<Arc<Credentials>>,
    seen: UnboundedSender<Seen>,
    dies: Arc<AtomicBool>,
}

async fn start(
    mesh: &Mesh,
    account: &str,
    behind: Option<&str>,
    address: SocketAddr,
    dies: Arc<AtomicBool>,
) -> UnboundedReceiver<Seen> {
    let (seen, requests) = mpsc::unbounded_channel();
    let peer = Peer {
        credentials: mesh.ca.credentials(&identity(account)),
        behind: behind.map(|account| mesh.ca.credentials(&identity(account))),
        seen,
        dies,
    };
    let listener = std::net::TcpListener::bind(address).unwrap();
    listener.set_nonblocking(true).unwrap();
    // Streams stay on one thread, and a test's own is busy with the test. It ends with the process.
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(LocalSet::new().run_until(async move {
            let listener = TcpListener::from_std(listener).unwrap();
            while let Ok((stream, _)) = listener.accept().await {
                let peer = peer.clone();
                spawn_local(async move {
                    if let Ok((stream, session)) =
                        lateen_tls::accept(&peer.credentials, stream).await
                    {
                        let who = session.peer().to_string();
                        let tunnel = Connection::accept(stream, Settings::server()).await;
                        serve(peer, tunnel.unwrap(), who, false).await;
                    }
                });
            }
        }));
    });
    requests
}

async fn serve<IO>(peer: Peer, mut tunnel: Connection<IO>, who: String, inner: bool)
where
    IO: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + 'static,
{
    while let Ok(Some(incoming)) = tunnel.next().await {
        if peer.dies.load(Ordering::Relaxed) {
            return note(&peer, &incoming, &who, inner);
        }
        let stream = answer(&peer, incoming, &who, inner);
        match &peer.behind {
            Some(behind) if !inner => {
                let (peer, behind) = (peer.clone(), Arc::clone(behind));
                spawn_local(async move {
                    if let Ok((stream, session)) = lateen_tls::accept(&behind, stream).await {
                        let who = session.peer().to_string();
                        let tunnel = Connection::accept(stream, Settings::server()).await;
                        Box::pin(serve(peer, tunnel.unwrap(), who, true)).await;
                    }
                });
            }
            _ => {
                spawn_local(echo(stream));
            }
        }
    }
}

fn answer(peer: &Peer, incoming: Incoming, who: &str, inner: bool) -> Stream {
    note(peer, &incoming, who, inner);
    let baggage = "k8s.cluster.name=far,k8s.namespace.name=there,k8s.deployment.name=behind";
    incoming.accept(Some(baggage)).unwrap()
}

fn note(peer: &Peer, incoming: &Incoming, who: &str, inner: bool) {
    let seen = Seen {
        peer: who.to_owned(),
        inner,
        authority: incoming.authority.to_string(),
        baggage: incoming.baggage.clone(),
        forwarded: incoming.forwarded.clone(),
        network: incoming.network.clone(),
    };
    // The test may have ended.
    let _ = peer.seen.send(seen);
}

async fn echo(mut stream: Stream) {
    let mut bytes = [0; 1024];
    while let Ok(n @ 1..) = stream.read(&mut bytes).await {
        if stream.write_all(&bytes[..n]).await.is_err() {
            return;
        }
    }
    let _ = stream.shutdown().await;
}
