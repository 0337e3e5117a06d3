//! A tunnel that a source's proxy opened: prove both sides, then take the streams that it asks for.

use std::cell::RefCell;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;

use lateen_accept::LoadGuard;
use lateen_hbone::{self as hbone, CloseReason};
use lateen_telemetry::Reporter;
use lateen_tls::{TlsError, TlsStream};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::session::TunnelPeer;
use super::state::Waypoint;
use super::stream;
use super::tunnel_quotas::{CountedTunnel, TooManyTunnels};
use super::turns::Peer;
use crate::counted::Counted;
use crate::tunnels::{End, Guarded, Retirement};

type Tunnel = hbone::Connection<Guarded<TlsStream<TcpStream>>>;

/// Why a handshake failed.
#[derive(Debug, thiserror::Error)]
enum Unproven {
    #[error("identity error: {0}")]
    Identity(#[from] lateen_identity::FetchError),
    #[error("tls error: {0}")]
    Tls(#[from] TlsError),
    #[error(transparent)]
    TooMany(#[from] TooManyTunnels),
    #[error("http2 handshake failed: {0}")]
    Tunnel(#[from] hbone::TunnelError),
    #[error(
        "the peer did not finish the handshake of its tunnel in time; it may be stuck, or no proxy"
    )]
    Slow,
}

/// A tunnel whose two sides are proven.
struct Proven {
    tunnel: Tunnel,
    peer: TunnelPeer,
    retirement: Retirement,
    counted: Counted,
    place: CountedTunnel,
}

/// Serves a connection. What follows its handshake takes the turns of its peer's identity.
pub(super) async fn serve(
    waypoint: Rc<Waypoint>,
    stream: TcpStream,
    client: SocketAddr,
    load: LoadGuard,
) {
    let local = match stream.local_addr() {
        Ok(local) => lateen_accept::canonical(local),
        Err(error) => return tracing::debug!(%error, "a tunnel was gone at once"),
    };
    let agreed = timeout(
        waypoint.timeouts.handshake,
        Box::pin(handshake(&waypoint, stream, (client, local))),
    );
    match agreed.await.unwrap_or(Err(Unproven::Slow)) {
        Ok(proven) => {
            let identity = proven.peer.peer.identity().clone();
            let turns = waypoint.turns.clone();
            turns.serve(Peer::Identity(identity), async move {
                carry(waypoint, proven).await;
                drop(load);
            });
        }
        Err(error) => {
            tracing::error!(target: "access", { src.addr = %client, dst.addr = %local, direction = "inbound", %error }, "connection failed");
        }
    }
}

/// TLS with the waypoint's own certificate, then HTTP/2.
async fn handshake(
    waypoint: &Waypoint,
    stream: TcpStream,
    (client, local): (SocketAddr, SocketAddr),
) -> Result<Proven, Unproven> {
    stream.set_nodelay(true).map_err(hbone::TunnelError::Io)?;
    let own = &waypoint.own.identity;
    let credentials = waypoint.certificates.get(own).await?;
    let (stream, session) = lateen_tls::accept(&credentials, stream).await?;
    let peer = session.peer().clone();
    tracing::debug!(%peer, key_exchange = session.key_exchange(), "tunnel accepted");
    let counted = Counted::opened(&waypoint.metrics, Reporter::Destination);
    let place = match waypoint.tunnel_quotas.take(peer.identity()) {
        Ok(place) => place,
        Err(error) => {
            counted.ended(CloseReason::TooManyTunnels);
            return Err(error.into());
        }
    };
    let settings = hbone::Settings {
        budget: waypoint
            .inbound
            .budget
            .between(peer.identity(), waypoint.own.uid.as_str()),
        ..waypoint.inbound.clone()
    };
    let end = End::Inbound(own.clone());
    let stream = waypoint
        .tunnels
        .enter(stream, session, end, &waypoint.revocations);
    let retirement = stream.retirement();
    match hbone::Connection::accept(stream, settings).await {
        Ok(mut tunnel) => {
            tunnel.ask(Guarded::OUTER);
            Ok(Proven {
                tunnel,
                peer: TunnelPeer::new(waypoint, peer, client, local),
                retirement,
                counted,
                place,
            })
        }
        Err(error) => {
            counted.ended(error.close_reason());
            Err(error.into())
        }
    }
}

/// Carries a tunnel's streams until it ends.
async fn carry(waypoint: Rc<Waypoint>, proven: Proven) {
    let Proven {
        tunnel,
        peer,
        retirement,
        counted,
        place: _place,
    } = proven;
    let peer = Rc::new(peer);
    let tunnel = RefCell::new(tunnel);
    let ended = tokio::select! {
        biased;
        () = waypoint.is_cut() => Ok(()),
        ended = streams(&waypoint, &peer, &tunnel, &retirement) => ended,
    };
    let reason = CloseReason::of(&ended);
    counted.ended(reason);
    match (ended, reason) {
        (Err(error), CloseReason::Abuse(_)) => {
            let (client, identity) = (peer.client, peer.peer.identity());
            tracing::warn!(%client, peer = %identity, reason = reason.as_str(), %error, "an inbound tunnel was cut");
        }
        (Err(error), _) => {
            tracing::debug!(peer = %peer.client, %error, "an inbound tunnel ended");
        }
        (Ok(()), _) => {}
    }
}

/// Takes streams until the peer has no more, a certificate is replaced or the process ends; open streams finish either way.
async fn streams(
    waypoint: &Rc<Waypoint>,
    peer: &Rc<TunnelPeer>,
    tunnel: &RefCell<Tunnel>,
    retirement: &Retirement,
) -> Result<(), hbone::TunnelError> {
    let next = || poll_fn(move |cx| tunnel.borrow_mut().poll_next(cx));
    let take = |incoming| {
        let served = stream::serve(Rc::clone(waypoint), Rc::clone(peer), incoming);
        lateen_executor::spawn_local(served);
    };
    let mut leaving = pin!(leaving(waypoint));
    loop {
        let incoming = tokio::select! {
            incoming = next() => incoming?,
            () = &mut leaving => break,
            () = retirement.due() => break,
        };
        match incoming {
            Some(incoming) => take(incoming),
            None => return Ok(()),
        }
    }
    tunnel.borrow_mut().drain();
    // Requests that cross our GOAWAY are still served: the peer has sent them in good faith. A tunnel without streams ends in any
    // case, see [`hbone::Connection::drain`].
    while let Some(incoming) = next().await? {
        take(incoming);
    }
    Ok(())
}

/// Resolves when a tunnel has to end because the process does. One that is opened while the process drains comes from a proxy that
/// has not heard: it may ask for what it opened the tunnel for. A proxy that repeats no request would lose that one.
async fn leaving(waypoint: &Waypoint) {
    if waypoint.worker.is_draining() {
        sleep(waypoint.timeouts.last_request).await;
    } else {
        waypoint.worker.draining().await;
    }
}
