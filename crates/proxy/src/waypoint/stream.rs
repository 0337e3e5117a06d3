//! One stream of a tunnel: select its destination, find its protocol, serve it.

use std::future::{Future, pending, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use lateen_config::PortProtocol;
use lateen_config::l7::Standing;
use lateen_exchange::{Hold, Protocol};
use lateen_hbone::{Incoming, Status, Stream};
use lateen_http::Detected;
use lateen_telemetry::{Failure, ResponseFlags};
use tokio::io::AsyncWriteExt as _;
use tokio::time::{sleep, timeout};

use super::destination::{Refused, select};
use super::leaving::Watched;
use super::rewound::Rewound;
use super::session::{Session, TunnelPeer};
use super::sniff::{
    First, ServerName, begin, decide, decide_version, hello, may_be_request, may_be_settings,
    may_be_tls,
};
use super::state::Waypoint;
use super::tcp::Server;
use super::{http, tcp};

/// The time in which most clients have spoken.
const AT_ONCE: Duration = Duration::from_secs(1);

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
        PortProtocol::Tls
            if session.destination.names_host || session.reads_server_name().await =>
        {
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
    // Before the first wait, so that streams which wait are counted, too.
    let place = tunnel.account.connect();
    let place = place.ok_or(Refused::TooManyConnections)?;
    let view = waypoint.view().await.ok_or(Refused::NotConfigured)?;
    let selected = select(&view, &waypoint.own, &incoming.authority)?;
    let (baggage, forwarded) = (incoming.baggage.as_ref(), incoming.forwarded.as_ref());
    let metadata = tunnel.metadata.of(baggage, forwarded);
    let session = Session::new(waypoint, tunnel, &view, selected, metadata, place);
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
        () = silent(&session) => None,
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

/// Begins a TLS connection whose server name is the host that it is for, or is compared by policies. Its bytes are relayed as they are.
async fn begin_tls(session: Rc<Session>, mut stream: Stream) -> Option<Rest> {
    let mut hold = Hold::new(&session.tunnel.account);
    let read = tokio::select! {
        biased;
        read = read_name(&session, &mut stream, BytesMut::new(), &mut hold) => Some(read),
        () = session.waypoint.ends_idle() => None,
    };
    match read {
        Some(Ok(Some(bytes))) => {
            let server = tcp::connect(&session).await?;
            return Some(Box::pin(server.relay_behind(bytes, hold, stream)));
        }
        Some(Ok(None)) => {}
        Some(Err(error)) => gone(&session, &error),
        None => close(stream).await,
    }
    None
}

/// Reads the server name of a TLS client, behind the bytes that it has sent already. Returns its first bytes; `None` if it is refused.
///
/// # Errors
/// The stream broke.
async fn read_name(
    session: &Session,
    stream: &mut Stream,
    begun: BytesMut,
    hold: &mut Hold,
) -> io::Result<Option<Bytes>> {
    let (bytes, name) = hello(stream, begun, hold).await?;
    match name {
        ServerName::Known(name) => session.set_server_name(Some(name)),
        ServerName::NoRoom => {
            tcp::refuse_full(session, "ClientHello");
            return Ok(None);
        }
        ServerName::Unnamed | ServerName::Unread if session.destination.names_host => {
            let reason = "the client's first bytes are no TLS with a server name, and the service has no address of its own";
            let failure = Failure {
                flags: ResponseFlags::ConnectionFailure,
                reason: reason.to_owned(),
            };
            tcp::refuse(session, failure);
            return Ok(None);
        }
        ServerName::Unnamed => session.set_server_name(None),
        // The server may find the name that a policy denies.
        ServerName::Unread if session.decides_by_server_name().await => {
            tcp::refuse_unread(session);
            return Ok(None);
        }
        ServerName::Unread => {}
    }
    Ok(Some(bytes))
}

/// Begins a stream of a port whose protocol nobody names. Where the client waits for its server to speak first, that is
/// dialled, and the first of the two that speaks decides.
async fn detect(session: Rc<Session>, mut stream: Stream) -> Option<Rest> {
    let silence = session.waypoint.timeouts.silence;
    let mut reach = Reach::Unasked;
    let begun = match timeout(silence, begin(&mut stream)).await {
        Ok(begun) => begun,
        Err(_) => {
            reach = Reach::of(&session);
            match (hear(&session, &mut stream, &mut reach).await, reach) {
                (Heard::Client(begun), known) => {
                    reach = known;
                    begun
                }
                (Heard::Server, Reach::Open(server)) => {
                    // Clients of TLS speak first.
                    session.set_server_name(None);
                    if may_be_settings(server.greeting()) && session.looks_for_tokens().await {
                        tcp::refuse_unclear(&session);
                        return None;
                    }
                    return Some(Box::pin(server.relay(stream)));
                }
                // Dropped, the stream is reset: the client sees the refusal.
                (Heard::Server, reach) => {
                    reach.end(&session);
                    return None;
                }
                (Heard::Nobody, reach) => {
                    reach.end(&session);
                    close(stream).await;
                    return None;
                }
            }
        }
    };
    let mut hold = Hold::new(&session.tunnel.account);
    let first = match begun {
        Ok(begun) => {
            reach
                .settle_during(decide(&mut stream, begun, &mut hold))
                .await
        }
        Err(error) => Err(error),
    };
    let First { detected, bytes } = match first {
        Ok(first) => first,
        Err(error) => {
            reach.abandon(&session);
            gone(&session, &error);
            return None;
        }
    };
    let protocol = match detected {
        Detected::Http1 => Protocol::Http1,
        Detected::Http2 => Protocol::Http2,
        Detected::Undecided => {
            tcp::refuse_full(&session, "first line");
            return None;
        }
        Detected::Other if may_be_request(&bytes) && session.looks_for_tokens().await => {
            tcp::refuse_unclear(&session);
            return None;
        }
        Detected::Other if may_be_tls(&bytes) && session.reads_server_name().await => {
            let named = read_name(&session, &mut stream, bytes.into(), &mut hold);
            let bytes = match reach.settle_during(named).await {
                Ok(bytes) => bytes?,
                Err(error) => {
                    reach.abandon(&session);
                    gone(&session, &error);
                    return None;
                }
            };
            let server = reach.server_of_named(&session).await?;
            return Some(Box::pin(server.relay_behind(bytes, hold, stream)));
        }
        Detected::Other => {
            if !may_be_tls(&bytes) {
                session.set_server_name(None);
            }
            let server = reach.server(&session).await?;
            return Some(Box::pin(server.relay_behind(bytes, hold, stream)));
        }
    };
    // `reach` and `hold` end with this function: requests have connections of their own, and the connection charges the first bytes,
    // which it reads at once.
    Some(Box::pin(http::serve(
        session,
        Rewound::new(bytes, stream),
        protocol,
    )))
}

/// The side of a silent client's connection that was heard first.
enum Heard {
    /// The client spoke, has ended, or broke off.
    Client(io::Result<BytesMut>),
    /// The server spoke or has ended, or the client's connection was refused.
    Server,
    /// Nobody waits for anything, and the client is to leave.
    Nobody,
}

/// Waits for a silent client and its server. A client whose connection is refused is heard for a while: it may be slow with its first
/// request, which has a policy's answer or other endpoints to come.
async fn hear(session: &Rc<Session>, stream: &mut Stream, reach: &mut Reach) -> Heard {
    let server = async {
        reach.settle().await;
        match &mut *reach {
            Reach::Open(server) => server.speaks().await,
            _ => sleep(session.waypoint.timeouts.refused).await,
        }
    };
    tokio::select! {
        biased;
        begun = begin(stream) => Heard::Client(begun),
        () = server => Heard::Server,
        () = session.waypoint.ends_idle() => Heard::Nobody,
        () = gone_from_here(session) => Heard::Nobody,
    }
}

/// The connection to an endpoint, for a client that may not speak HTTP. Dropped, it ends unnoticed: its client is served or refused
/// without it.
enum Reach {
    /// Nobody has asked for it.
    Unasked,
    /// It is being opened.
    Opening(Pin<Box<dyn Future<Output = Result<Server, Failure>>>>),
    Open(Box<Server>),
    Refused(Failure),
}

impl Reach {
    /// Begins to open it.
    fn of(session: &Rc<Session>) -> Self {
        let session = Rc::clone(session);
        Self::Opening(Box::pin(async move { tcp::reach(&session).await }))
    }

    /// Resolves when it is no longer being opened. Dropped before, it goes on at the next call.
    async fn settle(&mut self) {
        if let Self::Opening(opening) = self {
            *self = match opening.await {
                Ok(server) => Self::Open(Box::new(server)),
                Err(failure) => Self::Refused(failure),
            };
        }
    }

    /// Does `work`, and settles meanwhile: a tunnel that is being opened may be awaited by others.
    async fn settle_during<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        tokio::select! {
            biased;
            done = &mut work => done,
            () = self.settle() => work.await,
        }
    }

    /// The connection, for a client whose server name became known after it was asked for. A failure is told.
    async fn server_of_named(mut self, session: &Rc<Session>) -> Option<Server> {
        self.settle().await;
        match self {
            Self::Open(server) => server.judged_by_name(),
            // The policies may admit the name.
            Self::Refused(failure) if failure.flags == ResponseFlags::Denied => {
                tcp::connect(session).await
            }
            other => other.server(session).await,
        }
    }

    /// The connection, for a client that speaks no HTTP. A failure is told.
    async fn server(mut self, session: &Rc<Session>) -> Option<Server> {
        if let Self::Unasked = self {
            return tcp::connect(session).await;
        }
        self.settle().await;
        match self {
            Self::Open(server) => Some(*server),
            other => {
                other.end(session);
                None
            }
        }
    }

    /// Ends the connection of a client that has left. A failure is told.
    fn abandon(self, session: &Session) {
        match self {
            Self::Opening(_) => tcp::refuse(session, tcp::abandoned()),
            other => other.end(session),
        }
    }

    /// Ends the connection of a client that has said nothing. A failure is told.
    fn end(self, session: &Session) {
        match self {
            Self::Unasked => {}
            Self::Opening(_) => tcp::refuse(session, tcp::let_go()),
            Self::Open(server) => server.end_unused(),
            Self::Refused(failure) => tcp::refuse(session, failure),
        }
    }
}

/// Resolves when a client has said nothing for too long, or its destination is gone from this waypoint.
async fn silent(session: &Rc<Session>) {
    let limit = session.waypoint.timeouts.idle;
    // Most clients speak at once, and need no place among the connections that look at each configuration.
    let first = limit.map_or(AT_ONCE, |limit| limit.min(AT_ONCE));
    sleep(first).await;
    let rest = async {
        match limit {
            Some(limit) => sleep(limit - first).await,
            None => pending().await,
        }
    };
    tokio::select! {
        () = gone_from_here(session) => {}
        () = rest => {}
    }
}

/// Resolves when the destination is gone from this waypoint. A first request would be refused then.
async fn gone_from_here(session: &Rc<Session>) {
    let watched = Watched::new(session);
    poll_fn(|cx| match watched.poll_standing(cx) {
        Standing::Unbound => Poll::Ready(()),
        Standing::Bound | Standing::Leaving => Poll::Pending,
    })
    .await;
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
