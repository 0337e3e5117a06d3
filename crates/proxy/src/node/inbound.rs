//! The way into a pod through a tunnel: prove both sides, take requests, decide about each, reach the application, say
//! so, relay.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lateen_capture::Held;
use lateen_config::route::{self, Handover, InboundRefusal, inbound_service};
use lateen_config::{Snapshot, Workload};
use lateen_hbone::{self as hbone, CloseReason, Incoming, Status, Stream};
use lateen_proxy_protocol::{Header, Tlv, encode};
use lateen_relay::Socket;
use lateen_telemetry::{Connection, Reporter};
use lateen_tls::TlsStream;
use lateen_types::VerifiedPeer;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::describe::{Inbound, baggage};
use super::dial::dial;
use super::{Arrival, Refusal, admit, finish, refuse, relay};
use crate::live::{Facts, Tracked};
use crate::pod::Pod;
use crate::tunnels::{End, Guarded, Retirement};
use crate::worker::Worker;

type Tunnel = hbone::Connection<Guarded<TlsStream<TcpStream>>>;

/// What all requests of one tunnel share.
pub(super) struct Session {
    worker: Rc<Worker>,
    pod: Arc<Pod>,
    peer: VerifiedPeer,
    client: SocketAddr,
    local: SocketAddr,
    /// The tunnel's number on its worker.
    number: u64,
}

/// Serves a tunnel that another proxy opened to the pod.
pub(super) async fn serve(worker: Rc<Worker>, arrival: Arrival) {
    let Arrival {
        pod,
        stream,
        peer: client,
        _counted,
    } = arrival;
    let local = match stream.local_addr() {
        Ok(local) => lateen_capture::socket::canonical(local),
        Err(error) => {
            tracing::debug!(%error, "a tunnel was gone at once");
            return;
        }
    };
    let (tunnel, peer, retirement) = match Box::pin(handshake(&worker, &pod, stream)).await {
        Ok(proven) => proven,
        Err(why) => {
            refuse(&worker, &pod, client, local, Reporter::Destination, &why);
            return;
        }
    };
    let session = Rc::new(Session {
        number: worker.live.number_tunnel(),
        worker,
        pod,
        peer,
        client,
        local,
    });
    let ended = requests(&session, tunnel, retirement).await;
    let reason = CloseReason::of(&ended);
    let metrics = &session.worker.metrics;
    metrics.tunnel_closed(Reporter::Destination, reason.as_str());
    match (ended, reason) {
        (Err(error), CloseReason::Abuse(_)) => {
            let peer = session.peer.identity();
            tracing::warn!(%client, %peer, reason = reason.as_str(), %error, "an inbound tunnel was cut");
        }
        (Err(error), _) => tracing::debug!(peer = %client, %error, "an inbound tunnel ended"),
        (Ok(()), _) => {}
    }
}

/// TLS with the pod's own certificate, then HTTP/2; a peer that dawdles is cut.
async fn handshake(
    worker: &Worker,
    pod: &Pod,
    stream: TcpStream,
) -> Result<(Tunnel, VerifiedPeer, Retirement), Refusal> {
    let (_, workload) = worker.workload_of(pod).await?;
    let credentials = worker.certificates.get(&workload.identity).await?;
    let agree = async {
        let (stream, session) = lateen_tls::accept(&credentials, stream).await?;
        let peer = session.peer().clone();
        tracing::debug!(%peer, key_exchange = session.key_exchange(), "tunnel accepted");
        let end = End::Inbound(workload.identity.clone());
        let stream = worker
            .tunnels
            .enter(stream, session, end, &worker.revocations);
        let retirement = stream.retirement();
        let settings = hbone::Settings {
            budget: worker.server.budget.share(&peer.identity().to_string()),
            ..worker.server.clone()
        };
        let tunnel = hbone::Connection::accept(stream, settings)
            .await
            .map_err(|error| Refusal::Tunnel(Rc::new(error)))?;
        Ok((tunnel, peer, retirement))
    };
    timeout(worker.patience.peer, agree)
        .await
        .unwrap_or(Err(Refusal::Slow))
}

/// Takes requests until the peer has no more, the pod is released, a certificate is replaced or the process ends; open
/// streams finish either way.
async fn requests(
    session: &Rc<Session>,
    mut tunnel: Tunnel,
    retirement: Retirement,
) -> Result<(), hbone::TunnelError> {
    let mut leaving = pin!(leaving(&session.pod));
    loop {
        let incoming = tokio::select! {
            incoming = tunnel.next() => incoming?,
            () = &mut leaving => break,
            () = session.worker.draining() => break,
            () = retirement.due() => break,
        };
        match incoming {
            Some(incoming) => take(session, incoming),
            None => return Ok(()),
        }
    }
    tunnel.drain();
    // Requests that crossed our GOAWAY are still served: the peer has sent them in good faith.
    while let Some(incoming) = tunnel.next().await? {
        take(session, incoming);
    }
    Ok(())
}

/// Resolves when a tunnel to the pod has to end. One that is opened while the pod is being deleted comes from a peer that
/// has not heard: it may send what it opened the tunnel for.
async fn leaving(pod: &Pod) {
    const UNHEARD: Duration = Duration::from_secs(1);
    if pod.is_leaving() {
        // Released meanwhile or not: the peer had its time.
        let _ = timeout(UNHEARD, pod.released()).await;
    } else {
        pod.leaving().await;
    }
}

fn take(session: &Rc<Session>, incoming: Incoming) {
    lateen_fair::spawn_local(connect(Rc::clone(session), Box::new(incoming)));
}

/// A request whose two ends are known, before anybody decided about it.
struct Known {
    snapshot: Arc<Snapshot>,
    workload: Arc<Workload>,
    tracked: Tracked,
    connection: Box<Connection>,
    held: Held,
    handover: Option<Handover>,
}

/// Serves one request: one connection of an application at the other end.
pub(super) async fn connect(session: Rc<Session>, incoming: Box<Incoming>) {
    let Some((incoming, known)) = Box::pin(recognise(&session, incoming)).await else {
        return;
    };
    let joined = Box::pin(join(&session, incoming, &known)).await;
    let Known {
        snapshot,
        workload,
        tracked,
        connection,
        held: _held,
        handover: _,
    } = known;
    // A connection that only relays must not keep an old configuration in memory.
    drop((snapshot, workload));
    let outcome = match joined {
        Ok((stream, application)) => {
            relay(
                stream,
                Socket::from(application),
                &connection,
                &tracked,
                session.worker.limits,
            )
            .await
        }
        Err(refusal) => Err(refusal),
    };
    finish(&session.worker, *connection, tracked, outcome);
}

/// Finds out for what the request is; one that is for nothing that we serve ends here.
async fn recognise(session: &Session, incoming: Box<Incoming>) -> Option<(Box<Incoming>, Known)> {
    let start = Instant::now();
    let Session {
        worker,
        pod,
        peer,
        client,
        local,
        number,
    } = session;
    let turn_away = |incoming: Box<Incoming>, why: Refusal, status: Status| {
        refuse(worker, pod, *client, *local, Reporter::Destination, &why);
        incoming.refuse(status);
        None
    };
    let Some(held) = pod.share.take(1) else {
        return turn_away(
            incoming,
            Refusal::NoRoom(pod.uid.clone()),
            Status::Unavailable,
        );
    };
    let (mut snapshot, mut workload) = match worker.workload_of(pod).await {
        Ok(found) => found,
        Err(why) => return turn_away(incoming, why, Status::Unavailable),
    };
    let authority = incoming.authority.to_string();
    let mut checked = route::inbound(&snapshot, &workload, local.ip(), &authority);
    if let (Err(InboundRefusal::Unknown(want)), Some(lookups)) = (&checked, &worker.lookups) {
        // Nothing may be concluded before the answer is there.
        if let Err(why) = lookups.ask(&pod.uid, want).await {
            return turn_away(incoming, why.into(), Status::Unavailable);
        }
        (snapshot, workload) = match worker.workload_of(pod).await {
            Ok(found) => found,
            Err(why) => return turn_away(incoming, why, Status::Unavailable),
        };
        checked = route::inbound(&snapshot, &workload, local.ip(), &authority);
    }
    let inbound = match checked {
        Ok(inbound) => inbound,
        Err(why) => {
            let status = status(&why);
            return turn_away(incoming, why.into(), status);
        }
    };
    let named = incoming
        .forwarded
        .as_ref()
        .and_then(|forwarded| forwarded.host.as_deref());
    let service = inbound
        .service
        .as_ref()
        .or_else(|| inbound_service(&snapshot, &workload, named, inbound.target.port()));
    let through_gateway = incoming
        .network
        .as_ref()
        .is_some_and(|network| !network.eq_ignore_ascii_case(&worker.network));
    let opening = Inbound {
        start,
        client: *client,
        network: &worker.network,
        peer: Some(peer.identity()),
        baggage: incoming.baggage.as_ref(),
        through_gateway,
        destination: &workload,
        service: service.map(AsRef::as_ref),
        address: *local,
        hbone: Some(authority),
        trace: Some(worker.sampler.follow(incoming.traceparent.as_ref())),
    }
    .opening(&snapshot, worker.metrics.claims());
    let connection = Box::new(Connection::open(&worker.metrics, opening));
    let tracked = worker.live.enter(Facts {
        pod: Arc::clone(pod),
        peer: Some(peer.clone()),
        source: *client,
        destination: inbound.target,
    });
    tracked.through(*number);
    Some((
        incoming,
        Known {
            snapshot,
            workload,
            tracked,
            connection,
            held,
            handover: inbound.handover,
        },
    ))
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
        reached = reach(session, known) => reached,
        // Nobody waits for the application any more.
        () = incoming.cancelled() => return Err(Refusal::Cancelled),
    };
    match reached {
        Ok(application) => {
            let stream = incoming.accept(Some(&baggage(&known.workload).to_string()))?;
            Ok((stream, application))
        }
        Err(refusal) => {
            incoming.refuse(match refusal {
                Refusal::Denied(_) => Status::Unauthorized,
                _ => Status::Unavailable,
            });
            Err(refusal)
        }
    }
}

/// Asks the policies and connects to the application: as if the client itself did, or with a header that tells of it.
async fn reach(session: &Session, known: &Known) -> Result<TcpStream, Refusal> {
    let facts = known.tracked.facts();
    admit(
        &session.worker,
        &known.snapshot,
        &known.workload,
        &known.tracked,
        &known.connection,
    )?;
    let patience = session.worker.patience.peer;
    let sockets = &session.pod.sockets;
    match &known.handover {
        None => {
            let source = Some(session.client.ip());
            Ok(dial(sockets, source, facts.destination, patience).await?)
        }
        Some(handover) => {
            let header = header(session, handover)?;
            let mut stream = dial(sockets, None, handover.dial, patience).await?;
            let written = timeout(patience, stream.write_all(&header)).await;
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
fn header(session: &Session, handover: &Handover) -> Result<Vec<u8>, Refusal> {
    let mut header = Header::relayed(session.client, handover.destination);
    header
        .tlvs
        .push(Tlv::source_identity(&session.peer.identity().uri()));
    if let Some(hostname) = &handover.hostname {
        header.tlvs.push(Tlv::hostname(hostname));
    }
    Ok(encode(&header)?)
}
