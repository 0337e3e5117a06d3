//! The way into a pod through a tunnel: prove both sides, take requests, decide about each, reach the application, answer,
//! relay.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use lateen_accept::Held;
use lateen_config::next_hop::{self, Handover, InboundRefusal, inbound_service};
use lateen_config::{Snapshot, Workload};
use lateen_hbone::{self as hbone, Baggage, CloseReason, Incoming, Status, Stream, TraceParent};
use lateen_proxy_protocol::{Header, Tlv, encode};
use lateen_relay::Socket;
use lateen_telemetry::{Connection, Reporter};
use lateen_tls::TlsStream;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::arrival::{Arrival, admit, finish, refuse};
use super::describe::{Inbound, baggage};
use super::dial::dial;
use super::refusal::Refusal;
use super::relaying::{Records, relay};
use super::state::Node;
use super::tunnel::charged;
use crate::connection_table::Facts;
use crate::counted::Counted;
use crate::local_tunnels::{Ends, TunnelRegistration};
use crate::pod::Pod;
use crate::tunnels::{End, Guarded, Retirement};

type Tunnel = hbone::Connection<Guarded<TlsStream<TcpStream>>>;

/// What all requests of one tunnel share.
pub(super) struct Session {
    node: Rc<Node>,
    ends: Arc<Ends>,
    /// The tunnel's number on this worker.
    number: u64,
}

/// What a request asks for, and what its sender says about it, which proves nothing.
pub(super) struct Request<'a> {
    pub(super) authority: String,
    pub(super) baggage: Option<&'a Baggage>,
    /// The service that the application addressed.
    pub(super) service: Option<&'a str>,
    pub(super) trace: Option<&'a TraceParent>,
    /// The network where it began, if it came through a gateway.
    pub(super) network: Option<&'a str>,
}

impl<'a> Request<'a> {
    fn of(incoming: &'a Incoming) -> Self {
        let forwarded = incoming.forwarded.as_ref();
        Self {
            authority: incoming.authority.to_string(),
            baggage: incoming.baggage.as_ref(),
            service: forwarded.and_then(|forwarded| forwarded.host.as_deref()),
            trace: incoming.traceparent.as_ref(),
            network: incoming.network.as_deref(),
        }
    }
}

/// Serves a tunnel that another proxy opened to the pod.
pub(super) async fn serve(node: Rc<Node>, arrival: Arrival) {
    let Arrival {
        pod,
        stream,
        peer: client,
        _counted,
    } = arrival;
    let local = match stream.local_addr() {
        Ok(local) => lateen_accept::canonical(local),
        Err(error) => {
            tracing::debug!(%error, "a tunnel was gone at once");
            return;
        }
    };
    let between = (client, local);
    let (tunnel, proven) = match Box::pin(handshake(&node, &pod, stream, between)).await {
        Ok(agreed) => agreed,
        Err(why) => {
            refuse(&node, &pod, between, Reporter::Destination, &why, 0);
            return;
        }
    };
    let Proven {
        ends,
        retirement,
        registration,
        counted,
    } = proven;
    let session = Rc::new(Session {
        number: node.connections.number_tunnel(),
        node,
        ends,
    });
    let ended = requests(&session, tunnel, retirement, registration).await;
    let reason = CloseReason::of(&ended);
    counted.ended(reason);
    match (ended, reason) {
        (Err(error), CloseReason::Abuse(_)) => {
            let peer = session.ends.peer.identity();
            tracing::warn!(%client, %peer, reason = reason.as_str(), %error, "an inbound tunnel was cut");
        }
        (Err(error), _) => tracing::debug!(peer = %client, %error, "an inbound tunnel ended"),
        (Ok(()), _) => {}
    }
}

/// What a handshake leaves.
struct Proven {
    ends: Arc<Ends>,
    retirement: Retirement,
    /// Its place where ends in this process meet.
    registration: Option<TunnelRegistration>,
    counted: Counted,
}

/// TLS with the pod's own certificate, then HTTP/2; a peer that dawdles is cut.
async fn handshake(
    node: &Node,
    pod: &Arc<Pod>,
    stream: TcpStream,
    (client, local): (SocketAddr, SocketAddr),
) -> Result<(Tunnel, Proven), Refusal> {
    let (_, workload) = node.workload_of(pod).await?;
    let credentials = node.certificates.get(&workload.identity).await?;
    let agree = async {
        let (stream, session) = lateen_tls::accept(&credentials, stream).await?;
        let peer = session.peer().clone();
        tracing::debug!(%peer, key_exchange = session.key_exchange(), "tunnel accepted");
        let counted = Counted::opened(&node.metrics, Reporter::Destination);
        let budget = charged(&node.server.budget, &session, &pod.uid);
        let end = End::Inbound(workload.identity.clone());
        let stream = node.tunnels.enter(stream, session, end, &node.revocations);
        let retirement = stream.retirement();
        let ends = Arc::new(Ends {
            pod: Arc::clone(pod),
            peer,
            client,
            local,
        });
        // Before anything is said in the tunnel.
        let local_tunnels = node.same_node.as_ref();
        let registration = local_tunnels
            .map(|same_node| same_node.local_tunnels.register(&ends, stream.session()));
        let settings = hbone::Settings {
            budget,
            ..node.server.clone()
        };
        match hbone::Connection::accept(stream, settings).await {
            Ok(mut tunnel) => {
                tunnel.ask(Guarded::OUTER);
                let proven = Proven {
                    ends,
                    retirement,
                    registration,
                    counted,
                };
                Ok((tunnel, proven))
            }
            Err(error) => {
                counted.ended(error.close_reason());
                Err(Refusal::Tunnel(Rc::new(error)))
            }
        }
    };
    timeout(node.timeouts.peer, agree)
        .await
        .unwrap_or(Err(Refusal::Slow))
}

/// Takes requests until the peer has no more, the pod leaves, a certificate is replaced or the process ends; open
/// streams finish either way.
async fn requests(
    session: &Rc<Session>,
    mut tunnel: Tunnel,
    retirement: Retirement,
    registration: Option<TunnelRegistration>,
) -> Result<(), hbone::TunnelError> {
    let mut leaving = pin!(leaving(&session.ends.pod));
    loop {
        let incoming = tokio::select! {
            incoming = tunnel.next() => incoming?,
            () = &mut leaving => break,
            () = session.node.worker.draining() => break,
            () = retirement.due() => break,
        };
        match incoming {
            Some(incoming) => take(session, incoming),
            None => return Ok(()),
        }
    }
    if let Some(registration) = &registration {
        // What was handed over beside the tunnel rests on it, as streams would: it stays until the last of them ends.
        let mut unused = pin!(registration.retire());
        loop {
            let incoming = tokio::select! {
                biased;
                () = &mut unused => break,
                incoming = tunnel.next() => incoming?,
            };
            match incoming {
                Some(incoming) => take(session, incoming),
                None => return Ok(()),
            }
        }
    }
    tunnel.drain();
    // Requests that crossed our GOAWAY are still served: the peer has sent them in good faith.
    while let Some(incoming) = tunnel.next().await? {
        take(session, incoming);
    }
    Ok(())
}

/// Resolves when a tunnel to the pod has to end. If the pod is leaving already, the peer has not heard of it. It then has a second to
/// send the request that it opened the tunnel for.
pub(super) async fn leaving(pod: &Pod) {
    const UNHEARD: Duration = Duration::from_secs(1);
    match pod.is_leaving() {
        true => tokio::time::sleep(UNHEARD).await,
        false => pod.leaving().await,
    }
}

fn take(session: &Rc<Session>, incoming: Incoming) {
    lateen_executor::spawn_local(connect(Rc::clone(session), Box::new(incoming)));
}

/// A request whose two ends are known, before anybody decided about it.
pub(super) struct Known {
    snapshot: Arc<Snapshot>,
    workload: Arc<Workload>,
    pub(super) records: Records,
    pub(super) held: Held,
    handover: Option<Handover>,
}

/// Serves one request: one connection of an application at the other end.
pub(super) fn connect(session: Rc<Session>, incoming: Box<Incoming>) -> impl Future<Output = ()> {
    // Boxed before there is a future that would have room for it for as long as it relays.
    let taken = Box::pin(take_in(session, incoming));
    async move {
        let Some((session, taken)) = taken.await else {
            return;
        };
        carry(session, taken).await;
    }
}

/// A request that was answered. It keeps no configuration: one that only relays must not hold an old one in memory.
struct Taken {
    records: Records,
    held: Held,
    stream: Stream,
    application: TcpStream,
}

/// Relays to the application. All it is given is moved to where it is used.
fn carry(session: Rc<Session>, taken: Taken) -> impl Future<Output = ()> {
    let Taken {
        records,
        held,
        stream,
        application,
    } = taken;
    let limits = session.node.limits;
    relay(stream, Socket::from(application), records, limits).map(move |(records, outcome)| {
        finish(&session.node, records, outcome);
        drop(held);
    })
}

/// Looks at a request and answers it; one that does not reach its application ends here.
async fn take_in(session: Rc<Session>, incoming: Box<Incoming>) -> Option<(Rc<Session>, Taken)> {
    let Session { node, ends, number } = &*session;
    let known = match recognise(node, ends, *number, Request::of(&incoming)).await {
        Ok(known) => known,
        Err(status) => {
            incoming.refuse(status);
            return None;
        }
    };
    match join(&session, incoming, &known).await {
        Ok((stream, application)) => {
            let taken = Taken {
                records: known.records,
                held: known.held,
                stream,
                application,
            };
            Some((session, taken))
        }
        Err(refusal) => {
            finish(node, known.records, Err(refusal));
            None
        }
    }
}

/// Finds out for what a request is that came by the tunnel of this number, between these ends. One that is for nothing that
/// we serve ends here, with the answer that its sender gets.
pub(super) async fn recognise(
    node: &Node,
    ends: &Ends,
    number: u64,
    request: Request<'_>,
) -> Result<Known, Status> {
    let start = Instant::now();
    let Ends {
        pod,
        peer,
        client,
        local,
    } = ends;
    let pair = request.trace.map_or(0, TraceParent::span);
    let turn_away = |why: Refusal, status: Status| {
        let between = (*client, *local);
        refuse(node, pod, between, Reporter::Destination, &why, pair);
        Err(status)
    };
    let Some(held) = pod.share.take(1) else {
        return turn_away(Refusal::NoRoom(pod.uid.clone()), Status::Unavailable);
    };
    let (mut snapshot, mut workload) = match node.workload_of(pod).await {
        Ok(found) => found,
        Err(why) => return turn_away(why, Status::Unavailable),
    };
    let authority = request.authority;
    let mut checked = next_hop::inbound(&snapshot, &workload, local.ip(), &authority);
    if let (Err(InboundRefusal::Unknown(want)), Some(lookups)) = (&checked, &node.lookups) {
        // Nothing may be concluded before the answer is there.
        if let Err(why) = lookups.ask(&pod.uid, want).await {
            return turn_away(why.into(), Status::Unavailable);
        }
        (snapshot, workload) = match node.workload_of(pod).await {
            Ok(found) => found,
            Err(why) => return turn_away(why, Status::Unavailable),
        };
        checked = next_hop::inbound(&snapshot, &workload, local.ip(), &authority);
    }
    let inbound = match checked {
        Ok(inbound) => inbound,
        Err(why) => {
            let status = status(&why);
            return turn_away(why.into(), status);
        }
    };
    let service = inbound
        .service
        .as_ref()
        .or_else(|| inbound_service(&snapshot, &workload, request.service, inbound.target.port()));
    let through_gateway = request
        .network
        .is_some_and(|network| !network.eq_ignore_ascii_case(&node.network));
    let opening = Inbound {
        start,
        client: *client,
        network: &node.network,
        peer: Some(peer.identity()),
        baggage: request.baggage,
        through_gateway,
        destination: &workload,
        service: service.map(AsRef::as_ref),
        address: *local,
        hbone: Some(authority),
        trace: Some(node.sampler.follow(request.trace)),
    }
    .opening(&snapshot, node.metrics.claims());
    let connection = Box::new(Connection::open(&node.metrics, opening));
    let facts = Facts {
        pod: Arc::clone(pod),
        peer: Some(peer.clone()),
        source: *client,
        destination: inbound.target,
    };
    let tracked = node.connections.enter(facts, pair);
    tracked.through(number);
    Ok(Known {
        snapshot,
        workload,
        records: Records {
            connection,
            tracked,
        },
        held,
        handover: inbound.handover,
    })
}

fn status(why: &InboundRefusal) -> Status {
    match why.status() {
        400 => Status::BadRequest,
        _ => Status::Unavailable,
    }
}

/// Answers the request: 200 when the policies admit it and the application is connected, and not before.
async fn join(
    session: &Session,
    mut incoming: Box<Incoming>,
    known: &Known,
) -> Result<(Stream, TcpStream), Refusal> {
    let reached = tokio::select! {
        reached = reach(&session.node, &session.ends, known) => reached,
        // Nobody waits for the application any more.
        () = incoming.cancelled() => return Err(Refusal::Cancelled),
    };
    match reached {
        Ok(application) => {
            let stream = incoming.accept(Some(&baggage(&known.workload).to_string()))?;
            Ok((stream, application))
        }
        Err(refusal) => {
            incoming.refuse(answer(&refusal));
            Err(refusal)
        }
    }
}

/// What the sender of a request is told of why it is not served.
pub(super) fn answer(refusal: &Refusal) -> Status {
    match refusal {
        Refusal::Denied(_) => Status::Unauthorized,
        _ => Status::Unavailable,
    }
}

/// Asks the policies and connects to the application: as if the client itself did, or with a header that tells of it.
pub(super) async fn reach(node: &Node, ends: &Ends, known: &Known) -> Result<TcpStream, Refusal> {
    let facts = known.records.tracked.facts();
    admit(node, &known.snapshot, &known.workload, &known.records)?;
    let peer_timeout = node.timeouts.peer;
    let sockets = &ends.pod.sockets;
    match &known.handover {
        None => {
            let source = Some(ends.client.ip());
            Ok(dial(sockets, source, facts.destination, peer_timeout).await?)
        }
        Some(handover) => {
            let header = header(ends, handover)?;
            let mut stream = dial(sockets, None, handover.dial, peer_timeout).await?;
            let written = timeout(peer_timeout, stream.write_all(&header)).await;
            let failed = |source| Refusal::Handover {
                address: handover.dial,
                source,
            };
            written
                .map_err(|_| failed(io::ErrorKind::TimedOut.into()))?
                .map_err(failed)?;
            Ok(stream)
        }
    }
}

/// The PROXY header of a connection that is handed over: between whom it is, who the source proved to be, and which
/// hostname was asked for.
fn header(ends: &Ends, handover: &Handover) -> Result<Vec<u8>, Refusal> {
    let mut header = Header::relayed(ends.client, handover.destination);
    header
        .tlvs
        .push(Tlv::source_identity(&ends.peer.identity().uri()));
    if let Some(hostname) = &handover.hostname {
        header.tlvs.push(Tlv::hostname(hostname));
    }
    Ok(encode(&header)?)
}
