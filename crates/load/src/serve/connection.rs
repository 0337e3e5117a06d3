//! One connection of the service: TLS, the detection of its protocol, and its end.

use std::pin::pin;
use std::rc::Rc;

use lateen_exchange::Protocol;
use tokio::net::TcpStream;
use tokio::task::yield_now;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::context::{Session, World};
use super::http;
use super::wire::{Stream, Wire};

/// The first bytes of a client that speaks HTTP/2 (RFC 9113 §3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Serves HTTP of either version, with TLS if there is an acceptor.
pub async fn serve(tcp: TcpStream, tls: Option<TlsAcceptor>, world: Rc<World>) {
    // The event loop looks for a signal first: requests that come behind it are the last of their connections.
    yield_now().await;
    let session = Session::new(world);
    let stream = match tls {
        None => Stream::Left(tcp),
        Some(acceptor) => {
            let limit = session.world.timeouts.request;
            tokio::select! {
                biased;
                shaken = timeout(limit, acceptor.accept(tcp)) => match shaken {
                    Ok(Ok(tls)) => Stream::Right(Box::new(tls)),
                    _ => return,
                },
                () = session.world.stop.cancelled() => return,
            }
        }
    };
    let mut wire = Wire::new(stream, session.facts.clone());
    if let Some(protocol) = detect(&mut wire, &session).await {
        http::serve(wire, session, protocol).await;
    }
}

/// Reads until the protocol is known. None if the connection ends before.
async fn detect(wire: &mut Wire, session: &Session) -> Option<Protocol> {
    tokio::select! {
        biased;
        filled = wire.fill() => if !filled.ok()? {
            return None;
        },
        _ = pin!(session.clone().ending()) => return None,
    }
    let limit = session.world.timeouts.request;
    let detected = timeout(limit, async {
        loop {
            match judge(wire.begin()) {
                Some(protocol) => return Some(protocol),
                None if wire.fill().await.ok()? => {}
                None => return None,
            }
        }
    });
    detected.await.ok()?
}

/// The protocol of a stream that begins so; none while it could be either.
fn judge(begin: &[u8]) -> Option<Protocol> {
    if begin.starts_with(PREFACE) {
        Some(Protocol::Http2)
    } else if PREFACE.starts_with(begin) {
        None
    } else {
        Some(Protocol::Http1)
    }
}
