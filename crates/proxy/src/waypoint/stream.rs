//! One stream of a tunnel: select its destination, find its protocol, serve it.

use std::future::pending;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use lateen_config::PortProtocol;
use lateen_exchange::{Hold, Protocol};
use lateen_hbone::{Incoming, Status, Stream};
use lateen_http::Detected;
use lateen_telemetry::{Failure, ResponseFlags};
use tokio::io::AsyncWriteExt as _;
use tokio::time::{sleep, timeout};

use super::destination::{Refused, select};
use super::rewound::Rewound;
use super::session::{Session, TunnelPeer};
use super::sniff::{
    First, ServerName, begin, decide, decide_version, hello, may_be_request, may_be_settings,
};
use super::state::Waypoint;
use super::{http, tcp};

/// Serves a stream to its end, or refuses it.
pub(super) async fn serve(waypoint: Rc<Waypoint>, tunnel: Rc<TunnelPeer>, incoming: Incoming) {
    let session = match open(&waypoint, &tunnel, &incoming).await {
        Ok(session) => session,
        Err(refused) => {
            let status = refused.status();
            tell(&tunnel, &incoming, status, &refused);
            return incoming.refuse(status);
        }
    };
    match session.destination.protocol {
        PortProtocol::Tls if session.destination.names_host => {
            if let Some(stream) = accept(&session, incoming) {
                serve_tls(session, stream).await;
            }
        }
        PortProtocol::Tcp | PortProtocol::Tls => tcp::admit(session, incoming).await,
        PortProtocol::Http1 | PortProtocol::Http2 | PortProtocol::Grpc => {
            if let Some(stream) = accept(&session, incoming) {
                serve_http(session, stream).await;
            }
        }
        PortProtocol::Unknown => {
            if let Some(stream) = accept(&session, incoming) {
                detect(session, stream).await;
            }
        }
    }
}

/// The facts of the stream.
async fn open(
    waypoint: &Rc<Waypoint>,
    tunnel: &Rc<TunnelPeer>,
    incoming: &Incoming,
) -> Result<Rc<Session>, Refused> {
    let view = waypoint.view().await.ok_or(Refused::NotConfigured)?;
    let destination = select(&view, &waypoint.own, &incoming.authority)?;
    let said = (incoming.baggage.clone(), incoming.forwarded.clone());
    let session = Session::new(waypoint, tunnel, &view, destination, said);
    Ok(Rc::new(session))
}

/// Writes a refused request to the access log.
fn tell(tunnel: &TunnelPeer, incoming: &Incoming, status: Status, refused: &Refused) {
    tracing::error!(
        target: "access",
        {
            src.addr = %tunnel.client,
            src.identity = %tunnel.peer.identity(),
            dst.addr = %tunnel.local,
            dst.hbone_addr = %incoming.authority,
            direction = "inbound",
            status = status.code(),
            error = %refused,
        },
        "connection failed"
    );
}

/// Answers the CONNECT request of a stream whose protocol its first bytes tell.
fn accept(session: &Session, incoming: Incoming) -> Option<Stream> {
    match incoming.accept(None) {
        Ok(stream) => Some(stream),
        Err(error) => {
            tracing::debug!(client = %session.tunnel.client, %error, "a stream was gone before it was answered");
            None
        }
    }
}

/// Serves a stream of a port whose owner says HTTP, of whichever version the client speaks.
async fn serve_http(session: Rc<Session>, mut stream: Stream) {
    let begun = tokio::select! {
        biased;
        begun = begin(&mut stream) => begun,
        () = session.waypoint.ends_idle() => return close(stream).await,
        () = silent(session.waypoint.timeouts.idle) => return close(stream).await,
    };
    let first = match begun {
        Ok(begun) => decide_version(&mut stream, begun).await,
        Err(error) => Err(error),
    };
    match first {
        Ok(First { detected, bytes }) => {
            let protocol = match detected {
                Detected::Http2 => Protocol::Http2,
                // What is no HTTP is answered with 400.
                _ => Protocol::Http1,
            };
            http::serve(session, Rewound::new(bytes, stream), protocol).await;
        }
        Err(error) => gone(&session, &error),
    }
}

/// Serves a TLS connection whose server name is the host that it is for. Its bytes are relayed as they are.
async fn serve_tls(session: Rc<Session>, mut stream: Stream) {
    let mut hold = Hold::new(&session.tunnel.account);
    let read = tokio::select! {
        biased;
        read = hello(&mut stream, &mut hold) => read,
        () = session.waypoint.ends_idle() => return close(stream).await,
    };
    match read {
        Ok((bytes, ServerName::Known(name))) => {
            session.set_server_name(name);
            let server = tcp::connect(&session).await;
            drop(hold);
            if let Some(server) = server {
                server.relay_behind(bytes, stream).await;
            }
        }
        Ok((_, ServerName::NoRoom)) => tcp::refuse_full(&session, "ClientHello"),
        Ok((_, ServerName::Unnamed)) => {
            let reason = "the client's first bytes are no TLS with a server name, and the service has no address of its own";
            let failure = Failure {
                flags: ResponseFlags::ConnectionFailure,
                reason: reason.to_owned(),
            };
            tcp::refuse(&session, failure);
        }
        Err(error) => gone(&session, &error),
    }
}

/// Serves a stream of a port whose protocol nobody names. Where the client waits for its server to speak first, that is
/// dialled, and the first of the two that speaks decides.
async fn detect(session: Rc<Session>, mut stream: Stream) {
    let silence = session.waypoint.timeouts.silence;
    let (begun, server) = match timeout(silence, begin(&mut stream)).await {
        Ok(begun) => (begun, None),
        Err(_) => {
            let Some(mut server) = tcp::connect(&session).await else {
                return;
            };
            let spoken = tokio::select! {
                biased;
                spoken = server.speaks_before(begin(&mut stream)) => spoken,
                // Nobody waits for anything.
                () = session.waypoint.ends_idle() => {
                    server.leave();
                    return close(stream).await;
                }
            };
            match spoken {
                Some(begun) => (begun, Some(server)),
                None if may_be_settings(server.greeting()) && session.looks_for_tokens().await => {
                    server.leave();
                    return tcp::refuse_unclear(&session);
                }
                None => return server.relay(stream).await,
            }
        }
    };
    let mut hold = Hold::new(&session.tunnel.account);
    let first = match begun {
        Ok(begun) => decide(&mut stream, begun, &mut hold).await,
        Err(error) => Err(error),
    };
    let First { detected, bytes } = match first {
        Ok(first) => first,
        Err(error) => {
            if let Some(server) = server {
                server.leave();
            }
            return gone(&session, &error);
        }
    };
    let protocol = match detected {
        Detected::Http1 => Protocol::Http1,
        Detected::Http2 => Protocol::Http2,
        Detected::Undecided => {
            if let Some(server) = server {
                server.leave();
            }
            return tcp::refuse_full(&session, "first line");
        }
        Detected::Other if may_be_request(&bytes) && session.looks_for_tokens().await => {
            if let Some(server) = server {
                server.leave();
            }
            return tcp::refuse_unclear(&session);
        }
        Detected::Other => {
            let server = match server {
                Some(server) => Some(server),
                None => tcp::connect(&session).await,
            };
            drop(hold);
            if let Some(server) = server {
                server.relay_behind(bytes, stream).await;
            }
            return;
        }
    };
    if let Some(server) = server {
        // Requests have connections of their own.
        server.leave();
    }
    // The connection has room for them, reads them at once, and charges them.
    drop(hold);
    http::serve(session, Rewound::new(bytes, stream), protocol).await;
}

/// Resolves when a client has said nothing for too long.
async fn silent(limit: Option<Duration>) {
    match limit {
        Some(limit) => sleep(limit).await,
        None => pending().await,
    }
}

/// Ends a stream on which nothing was said.
async fn close(mut stream: Stream) {
    // A client that is gone needs no end.
    let _ = stream.shutdown().await;
}

fn gone(session: &Session, error: &io::Error) {
    tracing::debug!(client = %session.tunnel.client, %error, "a client left before it spoke");
}
