//! One stream of a tunnel: select its destination, find its protocol, serve it.

use std::future::{Future, pending};
use std::io;
use std::pin::Pin;
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

/// The rest of a stream's life, once its protocol is known.
type Rest = Pin<Box<dyn Future<Output = ()>>>;

/// Serves a stream to its end, or refuses it.
pub(super) fn serve(
    waypoint: Rc<Waypoint>,
    tunnel: Rc<TunnelPeer>,
    incoming: Incoming,
) -> impl Future<Output = ()> {
    // Each part has a box that ends with it. A connection that waits for its next request keeps no room for its beginning.
    let begun = Box::pin(begin_stream(waypoint, tunnel, incoming));
    async move {
        if let Some(rest) = begun.await {
            rest.await;
        }
    }
}

/// Finds the destination and the protocol of a stream. Returns what is left to do, if it was not refused.
async fn begin_stream(
    waypoint: Rc<Waypoint>,
    tunnel: Rc<TunnelPeer>,
    incoming: Incoming,
) -> Option<Rest> {
    let session = match open(&waypoint, &tunnel, &incoming).await {
        Ok(session) => session,
        Err(refused) => {
            let status = refused.status();
            tell(&tunnel, &incoming, status, &refused);
            incoming.refuse(status);
            return None;
        }
    };
    match session.destination.protocol {
        PortProtocol::Tls if session.destination.names_host => {
            let stream = accept(&session, incoming)?;
            Box::pin(begin_tls(session, stream)).await
        }
        PortProtocol::Tcp | PortProtocol::Tls => {
            let (server, stream) = Box::pin(tcp::admit(session, incoming)).await?;
            Some(Box::pin(server.relay(stream)))
        }
        PortProtocol::Http1 | PortProtocol::Http2 | PortProtocol::Grpc => {
            let stream = accept(&session, incoming)?;
            begin_http(session, stream).await
        }
        PortProtocol::Unknown => {
            let stream = accept(&session, incoming)?;
            Box::pin(detect(session, stream)).await
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

/// Begins a stream of a port whose owner says HTTP, of whichever version the client speaks.
async fn begin_http(session: Rc<Session>, mut stream: Stream) -> Option<Rest> {
    let begun = tokio::select! {
        biased;
        begun = begin(&mut stream) => Some(begun),
        () = session.waypoint.ends_idle() => None,
        () = silent(session.waypoint.timeouts.idle) => None,
    };
    let Some(begun) = begun else {
        close(stream).await;
        return None;
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
            Some(Box::pin(http::serve(
                session,
                Rewound::new(bytes, stream),
                protocol,
            )))
        }
        Err(error) => {
            gone(&session, &error);
            None
        }
    }
}

/// Begins a TLS connection whose server name is the host that it is for. Its bytes are relayed as they are.
async fn begin_tls(session: Rc<Session>, mut stream: Stream) -> Option<Rest> {
    let mut hold = Hold::new(&session.tunnel.account);
    let read = tokio::select! {
        biased;
        read = hello(&mut stream, &mut hold) => Some(read),
        () = session.waypoint.ends_idle() => None,
    };
    let Some(read) = read else {
        close(stream).await;
        return None;
    };
    match read {
        Ok((bytes, ServerName::Known(name))) => {
            session.set_server_name(name);
            let server = tcp::connect(&session).await?;
            // `hold` ends with this function: a relay sends the bytes at once.
            return Some(Box::pin(server.relay_behind(bytes, stream)));
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
    None
}

/// Begins a stream of a port whose protocol nobody names. Where the client waits for its server to speak first, that is
/// dialled, and the first of the two that speaks decides.
async fn detect(session: Rc<Session>, mut stream: Stream) -> Option<Rest> {
    let silence = session.waypoint.timeouts.silence;
    let (begun, server) = match timeout(silence, begin(&mut stream)).await {
        Ok(begun) => (begun, None),
        Err(_) => {
            let mut server = tcp::connect(&session).await?;
            let spoken = tokio::select! {
                biased;
                spoken = server.speaks_before(begin(&mut stream)) => spoken,
                // Nobody waits for anything.
                () = session.waypoint.ends_idle() => {
                    server.leave();
                    close(stream).await;
                    return None;
                }
            };
            match spoken {
                Some(begun) => (begun, Some(server)),
                None if may_be_settings(server.greeting()) && session.looks_for_tokens().await => {
                    server.leave();
                    tcp::refuse_unclear(&session);
                    return None;
                }
                None => return Some(Box::pin(server.relay(stream))),
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
            gone(&session, &error);
            return None;
        }
    };
    let protocol = match detected {
        Detected::Http1 => Protocol::Http1,
        Detected::Http2 => Protocol::Http2,
        Detected::Undecided => {
            if let Some(server) = server {
                server.leave();
            }
            tcp::refuse_full(&session, "first line");
            return None;
        }
        Detected::Other if may_be_request(&bytes) && session.looks_for_tokens().await => {
            if let Some(server) = server {
                server.leave();
            }
            tcp::refuse_unclear(&session);
            return None;
        }
        Detected::Other => {
            let server = match server {
                Some(server) => server,
                None => tcp::connect(&session).await?,
            };
            return Some(Box::pin(server.relay_behind(bytes, stream)));
        }
    };
    if let Some(server) = server {
        // Requests have connections of their own.
        server.leave();
    }
    // `hold` ends with this function: the connection reads the first bytes at once, and charges them.
    Some(Box::pin(http::serve(
        session,
        Rewound::new(bytes, stream),
        protocol,
    )))
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The size of the future that a function returns, in bytes.
    fn size<A, B, C, F>(_: impl FnOnce(A, B, C) -> F) -> usize {
        size_of::<F>()
    }

    /// A connection that waits for its next request has these two futures, and no others. The allocator gives the second 896 bytes.
    #[test]
    fn a_connection_that_waits_keeps_no_room_for_its_beginning() {
        assert!(size(serve) <= 64, "{}", size(serve));
        let http = size(http::serve::<Rewound<Stream>>);
        assert!(http <= 896, "{http}");
    }
}
