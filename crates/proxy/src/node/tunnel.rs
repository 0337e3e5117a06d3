//! Streams to other proxies: on a pooled tunnel to a workload or its waypoint, or in a tunnel of its own inside a pooled one
//! through the gateway of another network.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use lateen_config::Workload;
use lateen_config::next_hop::{self, Inner, Tunnel, Via};
use lateen_hbone::{
    Authority, Baggage, Budget, Budgeted, ConnectRequest, Forwarded, PoolError, PoolKey,
    RetryBudget, Stream, TraceParent, Users,
};
use lateen_telemetry::Reporter;
use lateen_tls::{Session, TlsStream};
use lateen_types::{Identity, Strng, WorkloadUid};
use tokio::net::TcpStream;
use tokio::time::{timeout, timeout_at};

use super::arrival::Arrival;
use super::describe::baggage;
use super::dial::{DialError, dial};
use super::refusal::Refusal;
use super::state::Node;
use crate::inner_tunnel::{InnerError, InnerTunnel};
use crate::pod::Pod;
use crate::tunnels::{End, Guarded};

/// Who serves a connection that went to another network, where this proxy knows nobody.
pub(super) struct FarEnd {
    /// What it proved.
    pub(super) identity: Identity,
    /// What it says about itself.
    pub(super) baggage: Option<Baggage>,
}

/// A stream for a connection.
pub(super) struct Opened {
    pub(super) stream: Stream,
    /// The number of the tunnel to the next hop, which other connections share.
    pub(super) tunnel: u64,
    /// Who serves, where only that can say it.
    pub(super) far_end: Option<FarEnd>,
}

/// What is asked of a next hop.
pub(super) struct Asked<'a> {
    pub(super) tunnel: Tunnel,
    pub(super) context: TraceParent,
    /// What the connection met with elsewhere.
    pub(super) retry_budget: &'a RetryBudget,
}

/// Opens a stream for a connection.
pub(super) async fn open(
    node: &Rc<Node>,
    arrival: &Arrival,
    source: &Workload,
    asked: Asked<'_>,
    deadline: Instant,
) -> Result<Opened, Refusal> {
    let Asked {
        tunnel,
        context,
        retry_budget,
    } = asked;
    let Tunnel {
        service,
        hbone,
        authority,
        identities,
        via,
        ..
    } = tunnel;
    let request = ConnectRequest {
        authority: spelt(authority),
        baggage: Some(Strng::from(baggage(source).to_string())),
        forwarded: Some(Forwarded {
            client: Some(arrival.peer),
            host: service.map(|service| service.hostname.to_string()),
        }),
        traceparent: Some(context),
        network: None,
    };
    let key = key(&arrival.pod, source, identities, hbone);
    let reach = async {
        let stream = pooled(node, &arrival.pod, &key, &request, retry_budget).await?;
        let tunnel = stream.tunnel();
        let (stream, far_end) = match via {
            Via::Direct | Via::Waypoint(_) => (stream, None),
            Via::Gateway(inner) => {
                let (stream, far_end) =
                    Box::pin(through(node, key, stream, *inner, request, retry_budget)).await?;
                (stream, Some(far_end))
            }
        };
        Ok(Opened {
            stream,
            tunnel,
            far_end,
        })
    };
    match timeout_at(deadline.into(), reach).await {
        Ok(opened) => opened,
        Err(_) => Err(Refusal::Dial(DialError::Timeout(hbone))),
    }
}

/// What connections share a tunnel by.
pub(super) fn key(
    pod: &Pod,
    source: &Workload,
    identities: Vec<Identity>,
    address: SocketAddr,
) -> PoolKey {
    PoolKey {
        source: source.identity.clone(),
        destinations: identities.into(),
        address,
        pod: pod.uid.clone(),
        users: Users::All,
    }
}

pub(super) fn spelt(authority: next_hop::Authority) -> Authority {
    match authority {
        next_hop::Authority::Address(address) => Authority::from(address),
        next_hop::Authority::Host { hostname, port } => Authority::Name {
            name: hostname.to_ascii_lowercase(),
            port,
        },
    }
}

/// A stream to the next hop, on a tunnel that may have been there before.
async fn pooled(
    node: &Rc<Node>,
    pod: &Pod,
    key: &PoolKey,
    request: &ConnectRequest,
    retry_budget: &RetryBudget,
) -> Result<Stream, Refusal> {
    let dial_tunnel = || dial_tunnel(node, pod, key);
    match node
        .pool
        .connect(key, request, retry_budget, dial_tunnel)
        .await
    {
        Ok((stream, _answer)) => Ok(stream),
        Err(PoolError::Dial(error)) => Err(Refusal::Dial(error)),
        Err(PoolError::Handshake(error)) => Err(Refusal::Tunnel(error)),
        Err(PoolError::Full) => Err(Refusal::TunnelsFull(key.address)),
        Err(PoolError::Connect(error)) => Err(Refusal::Connect(error)),
    }
}

/// A connection to a tunnel's far end, which has proven itself.
pub(super) type Proven = Budgeted<Guarded<TlsStream<TcpStream>>>;

/// Dials a tunnel: it is what comes of it that counts as opened.
pub(super) fn dial_tunnel(
    node: &Node,
    pod: &Pod,
    key: &PoolKey,
) -> impl Future<Output = Result<Proven, DialError>> + 'static {
    let (certificates, peer_timeout) = (node.certificates.clone(), node.timeouts.peer);
    let sockets = Arc::clone(&pod.sockets);
    // It outlives the connection that needs it first, and serves others of the pod: it counts for itself.
    let held = pod
        .share
        .take(1)
        .ok_or_else(|| DialError::NoRoom(pod.uid.clone()));
    let (identity, destinations) = (key.source.clone(), Arc::clone(&key.destinations));
    let hbone = key.address;
    let (tunnels, key) = (node.tunnels.clone(), key.clone());
    let revocations = node.revocations.clone();
    let metrics = Arc::clone(&node.metrics);
    let (budget, reader) = (node.inner.budget.clone(), pod.uid.clone());
    async move {
        let held = held?;
        let credentials = certificates
            .get(&identity)
            .await
            .map_err(|error| DialError::Identity(Arc::new(error)))?;
        let stream: TcpStream =
            dial(&sockets, None, hbone, peer_timeout)
                .await
                .map_err(|error| match error {
                    DialError::Timeout(address) => DialError::TunnelTimeout(address),
                    other => other,
                })?;
        let handshake = lateen_tls::connect(&credentials, stream, &destinations);
        match timeout(peer_timeout, handshake).await {
            Ok(Ok((stream, session))) => {
                tracing::debug!(peer = %session, key_exchange = session.key_exchange(), "tunnel opened");
                metrics.tunnel_opened(Reporter::Source);
                let budget = charged(&budget, &session, &reader);
                let end = End::Outbound(key);
                let io = tunnels
                    .enter(stream, session, end, &revocations)
                    .charged(held);
                let below = Guarded::OUTER;
                Ok(Budgeted { io, budget, below })
            }
            Ok(Err(error)) => Err(DialError::Tls(Arc::new(error))),
            Err(_) => Err(DialError::TunnelTimeout(hbone)),
        }
    }
}

/// What a tunnel grants its window from: charged to whom the peer proved to be, not to whom it might have been, and to the
/// pod that reads.
pub(super) fn charged(budget: &Budget, session: &Session, reader: &WorkloadUid) -> Budget {
    budget.between(session.peer().identity(), reader.as_str())
}

/// A second tunnel inside `outer`, which the gateway leads to an endpoint of its choice: never shared, because other
/// connections are to go to other endpoints.
async fn through(
    node: &Node,
    key: PoolKey,
    outer: Stream,
    inner: Inner,
    request: ConnectRequest,
    retry_budget: &RetryBudget,
) -> Result<(Stream, FarEnd), Refusal> {
    let credentials = node.certificates.get(&key.source).await?;
    let request = ConnectRequest {
        authority: spelt(inner.authority),
        network: Some(Arc::clone(&inner.network)),
        ..request
    };
    let tunnel = InnerTunnel {
        credentials: &credentials,
        metrics: &node.metrics,
        tunnels: &node.tunnels,
        revocations: &node.revocations,
        settings: &node.inner,
        key: PoolKey {
            destinations: inner.identities.into(),
            ..key
        },
        limit: node.timeouts.peer,
        group: None,
    };
    match tunnel.open(outer, &request).await {
        Ok(inside) => Ok((
            inside.stream,
            FarEnd {
                identity: inside.identity,
                baggage: inside.baggage,
            },
        )),
        Err(InnerError::Tls(error)) => Err(Refusal::Inner(Arc::new(error))),
        Err(InnerError::Slow) => Err(Refusal::InnerSlow(inner.network)),
        Err(InnerError::Tunnel(error)) => Err(Refusal::Tunnel(Rc::new(error))),
        Err(InnerError::Connect(error)) => {
            retry_budget.note(&error);
            Err(Refusal::Connect(Rc::new(error)))
        }
    }
}
