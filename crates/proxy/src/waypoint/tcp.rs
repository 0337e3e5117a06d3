//! A connection that no proxy looks into: policies judge it once, then its bytes are relayed.

use std::cell::Cell;
use std::mem;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use lateen_config::l7::RequestRules;
use lateen_exchange::Hold;
use lateen_hbone::{Forwarded, Incoming, Status, Stream};
use lateen_relay::{Duplex, Meter, Relay, Socket};
use lateen_telemetry::{Connection, Failure, Labels, Opening, Reporter, ResponseFlags, Security};
use lateen_types::Strng;
use tokio::io::AsyncReadExt as _;

use super::choose::{Tried, choose};
use super::connection_log;
use super::dial::{Origin, Terms, open};
use super::endpoint::Endpoint;
use super::listing::Seat;
use super::policy::{Judge, Verdict};
use super::relays::{CHANGED, DRAINED, Denial, Tracked};
use super::session::Session;
use super::upstream::{Assigned, Wire};
use crate::describe;

/// The sentence for a connection in which a lenient server may find a request that nobody searched for tokens.
const UNCLEAR: &str = "connection closed due to policy rejection: requests for the service are searched for tokens, and this is no valid request but may be taken for one; name the protocol of the port, such as by appProtocol, if it is not HTTP";

/// The reason to deny a connection whose server name policies compare and nobody could read.
const UNREAD: &str = "policies compare the server name (connection.sni), and the client's first bytes of TLS could not be read, or took more than 10 seconds";

/// Endpoints that are tried for a connection.
const ATTEMPTS: usize = 3;

/// A connection to an endpoint, for one connection of a client. Dropped, it is neither counted nor logged.
pub(super) struct Server {
    session: Rc<Session>,
    wire: Wire,
    /// Its place in the tunnels to the endpoint, if there are any.
    assigned: Option<Assigned>,
    endpoint: SocketAddr,
    /// The facts of the connection, which is counted once it is relayed: its client may turn out to send requests.
    opening: Box<Opening>,
    tracked: Tracked,
    seat: Seat,
    /// What the server said before its client did.
    greeting: Bytes,
    /// The bytes of the client before the relay began. In a box, for most connections begin without it.
    first: Option<Box<First>>,
}

/// The first bytes of a client, for which its account pays until the server has taken all of them.
struct First {
    bytes: Bytes,
    /// Bytes that the server has not taken.
    left: u64,
    _hold: Hold,
}

/// Connects a stream of a port that its owner keeps from proxies. It is answered when the endpoint is connected, so that the
/// client sees a refused connection as one. A failure is told.
pub(super) async fn admit(
    session: Rc<Session>,
    mut incoming: Incoming,
) -> Option<(Server, Stream)> {
    let connected = tokio::select! {
        connected = reach(&session) => connected,
        // Nobody waits for the endpoint any more.
        () = incoming.cancelled() => {
            refuse(&session, abandoned());
            return None;
        }
    };
    match connected {
        Ok(server) => match incoming.accept(None) {
            Ok(stream) => return Some((server, stream)),
            Err(error) => server.end(ResponseFlags::ConnectionFailure, error.to_string()),
        },
        Err(failure) => {
            let status = match failure.flags {
                ResponseFlags::Denied => Status::Unauthorized,
                _ => Status::Unavailable,
            };
            refuse(&session, failure);
            incoming.refuse(status);
        }
    }
    None
}

/// Connects a stream that was accepted already. A failure is told, and ends the stream.
pub(super) async fn connect(session: &Rc<Session>) -> Option<Server> {
    match reach(session).await {
        Ok(server) => Some(server),
        Err(failure) => {
            refuse(session, failure);
            None
        }
    }
}

/// Asks the policies, and connects to an endpoint.
pub(super) async fn reach(session: &Rc<Session>) -> Result<Server, Failure> {
    let start = Instant::now();
    let failed = |reason: String| Failure {
        flags: ResponseFlags::ConnectionFailure,
        reason,
    };
    let waypoint = &session.waypoint;
    let Some(view) = waypoint.view().await else {
        return Err(failed(
            "the control plane has sent no configuration".to_owned(),
        ));
    };
    let rules = Arc::clone(view.request_rules(session.service_key()));
    if let Verdict::Denied { reason, .. } = Judge::stream(&rules, &session.peer_facts()) {
        return Err(rejection(&reason));
    }
    let mut tried = Tried::default();
    let mut attempts = 0;
    let mut last = None;
    loop {
        let host = || session.server_name();
        let known = match choose(session, &view, &mut tried, None, host).await {
            Ok(known) => known,
            Err(why) => return Err(failed(last.unwrap_or_else(|| why.to_string()))),
        };
        let endpoint = &known.endpoint;
        attempts += 1;
        let source = session.tunnel.peer.identity();
        let assigned = waypoint.upstreams.assign(&endpoint.hop, source);
        let terms = Terms {
            owner: assigned.as_ref().and_then(Assigned::owner).cloned(),
            group: None,
            sockets: waypoint.sockets,
            limit: view.mesh.connect_timeout,
        };
        match open(waypoint, &endpoint.hop, origin(session), terms).await {
            Ok(wire) => {
                let mut opening = opening(session, Some(endpoint), start);
                if let Some(far_end) = wire.far_end() {
                    opening.destination_name = far_end.party.workload.clone();
                    opening.labels.destination = far_end.party.clone();
                }
                // Without the name, which may be read later, the rules have not decided.
                let has_name = !session.lacks_server_name(&rules);
                let admitted = has_name.then_some(rules);
                return Ok(Server {
                    session: Rc::clone(session),
                    wire,
                    assigned,
                    endpoint: endpoint.hop.application(),
                    opening: Box::new(opening),
                    tracked: Tracked::new(session, admitted),
                    seat: waypoint.listing.enter(session.about("TCP")),
                    greeting: Bytes::new(),
                    first: None,
                });
            }
            Err(error) if error.blames_endpoint() && attempts < ATTEMPTS => {
                tracing::debug!(%error, "trying another endpoint");
                waypoint.metrics.connect_retried();
                tried.add(endpoint);
                last = Some(error.to_string());
            }
            Err(error) => return Err(failed(error.to_string())),
        }
    }
}

/// The origin that the endpoint's proxy is told: the client, as the client's own proxy told of it.
fn origin(session: &Session) -> Origin {
    let service = session.destination.target.service();
    Origin {
        baggage: session
            .metadata
            .baggage
            .as_ref()
            .map(|baggage| Strng::from(baggage.to_string())),
        forwarded: Some(Forwarded {
            client: Some(session.tunnel.client),
            host: session
                .metadata
                .host
                .clone()
                .or_else(|| service.map(|service| service.hostname.to_string())),
        }),
    }
}

fn opening(session: &Session, endpoint: Option<&Endpoint>, start: Instant) -> Opening {
    let workload = endpoint.and_then(|endpoint| endpoint.workload.as_ref());
    let service = session.destination.target.service();
    Opening {
        start,
        source: session.tunnel.client,
        source_name: session.source_name.clone(),
        destination: endpoint.map_or(session.destination.address, |endpoint| {
            endpoint.hop.application()
        }),
        hbone: Some(session.destination.address.to_string().into()),
        destination_name: workload.and_then(|workload| describe::some(&workload.name)),
        labels: Labels {
            reporter: Reporter::Waypoint,
            source: session.source.clone(),
            service: service.map(|service| describe::service(service)),
            destination: workload
                .map(|workload| describe::party(workload, Some(workload.identity.clone())))
                .unwrap_or_default(),
            flags: ResponseFlags::None,
            security: Security::MutualTls,
        },
        trace: None,
    }
}

/// Counts and logs a connection that reaches no endpoint.
pub(super) fn refuse(session: &Session, failure: Failure) {
    let opening = opening(session, None, Instant::now());
    let connection = Connection::open(&session.waypoint.metrics, opening);
    connection_log::finish(session, connection, None, Err(failure));
}

/// The failure of a connection that policies deny.
fn rejection(reason: &str) -> Failure {
    Failure {
        flags: ResponseFlags::Denied,
        reason: format!("connection closed due to policy rejection: {reason}"),
    }
}

/// The failure of a connection whose client has not waited for an endpoint.
pub(super) fn abandoned() -> Failure {
    unconnected("the client left before an endpoint was connected")
}

/// The failure of a connection that the waypoint does not keep until there is an endpoint.
pub(super) fn let_go() -> Failure {
    unconnected("the waypoint drains, or the service has left it, before an endpoint was connected")
}

fn unconnected(reason: &str) -> Failure {
    Failure {
        flags: ResponseFlags::ConnectionFailure,
        reason: reason.to_owned(),
    }
}

/// Refuses a connection that may have requests, where those are searched for tokens.
pub(super) fn refuse_unclear(session: &Session) {
    refuse(
        session,
        Failure {
            flags: ResponseFlags::Denied,
            reason: UNCLEAR.to_owned(),
        },
    );
}

/// Refuses a connection whose server name policies compare and nobody could read.
pub(super) fn refuse_unread(session: &Session) {
    refuse(session, rejection(UNREAD));
}

/// Refuses a connection whose first bytes have no room in its client's account.
pub(super) fn refuse_full(session: &Session, first: &str) {
    let reason = format!(
        "the client's {first} had no room, since its connections hold as much as they may; its requests should be read, or LATEEN_HTTP_BUFFERS be raised"
    );
    refuse(
        session,
        Failure {
            flags: ResponseFlags::ConnectionFailure,
            reason,
        },
    );
}

impl Server {
    /// What the server said before its client did.
    pub(super) fn greeting(&self) -> &[u8] {
        &self.greeting
    }

    /// Waits until the server speaks or ends. Its first bytes are kept for the client. Dropped before, nothing was read.
    pub(super) async fn speaks(&mut self) {
        let mut greeting = BytesMut::new();
        // An end, too, is for the client to see.
        let _ = self.wire.read_buf(&mut greeting).await;
        self.greeting = greeting.freeze();
    }

    /// Relays behind bytes that were taken from the client. `hold` pays for them until the server has taken them.
    pub(super) fn relay_behind(
        mut self,
        bytes: Bytes,
        hold: Hold,
        stream: Stream,
    ) -> impl Future<Output = ()> {
        self.first = (!bytes.is_empty()).then(|| {
            Box::new(First {
                left: bytes.len() as u64,
                bytes,
                _hold: hold,
            })
        });
        self.relay(stream)
    }

    /// Relays until both sides have ended.
    pub(super) async fn relay(self, stream: Stream) {
        if self.is_denied() {
            return self.end(ResponseFlags::Denied, CHANGED.to_owned());
        }
        let Self {
            session,
            wire,
            assigned: _assigned,
            endpoint,
            opening,
            tracked,
            seat,
            greeting,
            mut first,
        } = self;
        let connection = Connection::open(&session.waypoint.metrics, *opening);
        let said = first.as_mut().map(|first| mem::take(&mut first.bytes));
        let said = (said.unwrap_or_default(), greeting);
        let counted = Counted {
            connection,
            seat,
            first: Cell::new(first),
        };
        let (connection, ended) = match wire {
            Wire::Tunnel(server) | Wire::Inner(server, _) => {
                run(&session, &tracked, (stream, server), said, counted).await
            }
            Wire::Plain(server) => {
                let server = Socket::from(server);
                run(&session, &tracked, (stream, server), said, counted).await
            }
            #[cfg(feature = "measured")]
            Wire::Memory(_) => unreachable!("connections in memory carry requests alone"),
        };
        connection_log::finish(&session, connection, Some(endpoint), ended);
    }

    /// True if the policies in force deny the connection.
    fn is_denied(&self) -> bool {
        let judge = |rules: &RequestRules| judge_again(&self.session, rules);
        self.tracked.denial(judge).is_some()
    }

    /// Judges the connection by its client's server name, which became known after it was opened. A denial is told, and ends it.
    pub(super) fn judged_by_name(self) -> Option<Self> {
        let judge = |rules: &RequestRules| judge_again(&self.session, rules);
        match self.tracked.denial(judge) {
            Some(Denial::Policy { reason, .. }) => {
                self.finish(Err(rejection(&reason)));
                None
            }
            Some(Denial::Unbound) | None => Some(self),
        }
    }

    /// Ends the connection of a client that has said nothing.
    pub(super) fn end_unused(self) {
        self.finish(Ok(()));
    }

    fn end(self, flags: ResponseFlags, reason: String) {
        self.finish(Err(Failure { flags, reason }));
    }

    fn finish(self, outcome: Result<(), Failure>) {
        let connection = Connection::open(&self.session.waypoint.metrics, *self.opening);
        connection_log::finish(&self.session, connection, Some(self.endpoint), outcome);
    }
}

/// Decides about a connection by rules that have not judged it yet. If they decide by a server name that nobody has read, it ends: the
/// client may open another, whose name is read.
fn judge_again(session: &Session, rules: &RequestRules) -> Verdict {
    if session.lacks_server_name(rules) {
        return Verdict::Denied {
            policy: None,
            reason: UNREAD.to_owned(),
        };
    }
    Judge::stream_again(rules, &session.peer_facts())
}

/// Counts a relay's bytes.
struct Counted {
    connection: Connection,
    seat: Seat,
    first: Cell<Option<Box<First>>>,
}

impl Meter for Counted {
    fn sent(&self, bytes: u64) {
        self.connection.add_received(bytes);
        self.seat.add_received(bytes);
        if let Some(mut first) = self.first.take() {
            first.left = first.left.saturating_sub(bytes);
            self.first.set(Some(first).filter(|first| first.left > 0));
        }
    }

    fn received(&self, bytes: u64) {
        self.connection.add_sent(bytes);
        self.seat.add_sent(bytes);
    }
}

/// Relays until both sides have ended, or something ends them. `said` is what each side said before.
fn run<A: Duplex, B: Duplex>(
    session: &Session,
    tracked: &Tracked,
    (client, server): (A, B),
    said: (Bytes, Bytes),
    counted: Counted,
) -> impl Future<Output = (Connection, Result<(), Failure>)> {
    let waypoint = &session.waypoint;
    let mut relay = Relay::new(client, server, counted)
        .behind(said.0, said.1)
        .limited(waypoint.limits);
    // An async function would keep room for the two streams beside the relay.
    async move {
        let ended = tokio::select! {
            biased;
            () = waypoint.is_cut() => Err((ResponseFlags::ConnectionFailure, DRAINED)),
            _ = tracked.denied(|rules| judge_again(session, rules)) => {
                Err((ResponseFlags::Denied, CHANGED))
            }
            outcome = &mut relay => Ok(outcome),
        };
        if ended.is_err() {
            relay.abort();
        }
        let Counted { connection, .. } = relay.into_meter();
        let (flags, reason) = match ended {
            Ok(outcome) => match outcome.error {
                None => return (connection, Ok(())),
                Some(error) => (ResponseFlags::ConnectionFailure, error.to_string()),
            },
            Err((flags, reason)) => (flags, reason.to_owned()),
        };
        (connection, Err(Failure { flags, reason }))
    }
}
