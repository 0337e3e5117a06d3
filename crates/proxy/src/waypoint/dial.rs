//! New byte streams to endpoints: on a pooled tunnel where the endpoint is in the mesh, in a tunnel inside such a tunnel where it is
//! on another network, else by TCP.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use lateen_config::next_hop;
use lateen_executor::SharedGroup;
use lateen_hbone::{
    Authority, Budgeted, ConnectRequest, Forwarded, PoolKey, RetryBudget, Stream, Users,
};
use lateen_telemetry::Reporter;
use lateen_tls::TlsStream;
use lateen_types::{Strng, WorkloadUid};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};

use super::hop::{Hop, InnerHop};
use super::sockets::Sockets;
use super::state::Waypoint;
use super::upstream::{FarEnd, Owner, UpstreamError, Wire};
use crate::describe;
use crate::inner_tunnel::{InnerError, InnerTunnel};
use crate::tunnels::{End, Guarded};

/// What the endpoint's proxy is told about the origin of a stream. Only a relayed connection has one origin; a stream for
/// requests carries those of many.
#[derive(Clone, Debug, Default)]
pub(super) struct Origin {
    /// The source workload's description.
    pub(super) baggage: Option<Strng>,
    /// The client's address, and the service that it addressed.
    pub(super) forwarded: Option<Forwarded>,
}

/// The terms on which a stream is opened: the tunnels, and the time for it.
pub(super) struct Terms {
    /// The owner of the tunnels to the endpoint; `None`: all sources share them.
    pub(super) owner: Option<Rc<Owner>>,
    /// The group that drives a tunnel of this stream alone, where several clients use the stream.
    pub(super) group: Option<SharedGroup>,
    /// Options of a connection in plain text.
    pub(super) sockets: Sockets,
    /// The time of a connection with its handshake. The far end of a tunnel has as long again for its own connection.
    pub(super) limit: Duration,
}

/// Opens a byte stream to an endpoint.
///
/// # Errors
/// See [`UpstreamError`]; no byte of a client was sent.
pub(super) async fn open(
    waypoint: &Waypoint,
    hop: &Hop,
    origin: Origin,
    Terms {
        owner,
        group,
        sockets,
        limit,
    }: Terms,
) -> Result<Wire, UpstreamError> {
    let Some(tunnel) = &hop.tunnel else {
        let deadline = Instant::now() + limit;
        let connected = connect(hop.address, deadline, sockets).await;
        return connected.map(Wire::Plain);
    };
    let uid = &waypoint.own.uid;
    let users = match owner.as_deref() {
        None => Users::All,
        Some(Owner::Source(_)) => Users::One,
        Some(Owner::Namespace(..)) => Users::Few,
    };
    let (pod, reader) = match &owner {
        None => (uid.clone(), uid.clone()),
        Some(owner) => (owner.pod(uid), owner.reader(uid)),
    };
    let key = PoolKey {
        source: waypoint.own.identity.clone(),
        destinations: Arc::clone(&tunnel.identities),
        address: hop.address,
        pod,
        users,
    };
    let request = ConnectRequest {
        authority: match &tunnel.authority {
            next_hop::Authority::Address(address) => Authority::from(*address),
            next_hop::Authority::Host { hostname, port } => Authority::Name {
                name: hostname.to_ascii_lowercase(),
                port: *port,
            },
        },
        baggage: origin.baggage,
        forwarded: origin.forwarded,
        traceparent: None,
        network: None,
    };
    let budget = RetryBudget::default();
    let dial = || dial(waypoint, &key, &reader, limit);
    let opened = waypoint.pool.connect(&key, &request, &budget, dial);
    let stream = match timeout(2 * limit, opened).await {
        Ok(Ok((stream, _))) => stream,
        Ok(Err(error)) => {
            let error = UpstreamError::of(error, hop.address);
            return Err(match &owner {
                None => error,
                Some(owner) => error.of_owner(owner),
            });
        }
        Err(_) => return Err(UpstreamError::Timeout(hop.address)),
    };
    match &tunnel.inner {
        None => Ok(Wire::Tunnel(stream)),
        Some(inner) => {
            let asked = (request, limit, group);
            let key = PoolKey { pod: reader, ..key };
            Box::pin(through(waypoint, key, stream, inner, asked)).await
        }
    }
}

/// A second tunnel inside `outer`, which the gateway of another network leads to an endpoint of its choice. The pod in `key` is the name
/// of the waypoint's pod for the receive budget.
async fn through(
    waypoint: &Waypoint,
    key: PoolKey,
    outer: Stream,
    inner: &InnerHop,
    (request, limit, group): (ConnectRequest, Duration, Option<SharedGroup>),
) -> Result<Wire, UpstreamError> {
    let credentials = waypoint
        .certificates
        .get(&key.source)
        .await
        .map_err(|error| UpstreamError::Identity(Arc::new(error)))?;
    let request = ConnectRequest {
        network: Some(Arc::clone(&inner.network)),
        ..request
    };
    let tunnel = InnerTunnel {
        credentials: &credentials,
        metrics: &waypoint.metrics,
        tunnels: &waypoint.tunnels,
        revocations: &waypoint.revocations,
        settings: &waypoint.outbound,
        key: PoolKey {
            destinations: Arc::clone(&inner.identities),
            ..key
        },
        limit,
        group,
    };
    let carrier = outer.carrier();
    let slow = || UpstreamError::InnerSlow(Arc::clone(&inner.to));
    match timeout(2 * limit, tunnel.open(outer, &request)).await {
        Ok(Ok(inside)) => {
            let party = describe::claimed(inside.baggage.as_ref(), Some(inside.identity));
            let party = waypoint.metrics.claims().admit(party);
            let number = waypoint.numbers.party(&party);
            Ok(Wire::Inner(
                inside.stream,
                Rc::new(FarEnd {
                    party,
                    number,
                    outer: carrier,
                }),
            ))
        }
        Ok(Err(InnerError::Tls(error))) => Err(UpstreamError::Inner(Arc::new(error))),
        Ok(Err(InnerError::Tunnel(error))) => Err(UpstreamError::Tunnel(Rc::new(error))),
        Ok(Err(InnerError::Connect(error))) => Err(UpstreamError::Refused(Rc::new(error))),
        Ok(Err(InnerError::Slow)) | Err(_) => Err(slow()),
    }
}

async fn connect(
    address: SocketAddr,
    deadline: Instant,
    sockets: Sockets,
) -> Result<TcpStream, UpstreamError> {
    let failed = |source| UpstreamError::Connect {
        address,
        source: Arc::new(source),
    };
    match timeout_at(deadline, TcpStream::connect(address)).await {
        Ok(Ok(stream)) => {
            stream.set_nodelay(true).map_err(failed)?;
            sockets.set_on(&stream).map_err(failed)?;
            Ok(stream)
        }
        Ok(Err(error)) => Err(failed(error)),
        Err(_) => Err(UpstreamError::Timeout(address)),
    }
}

type Proven = Budgeted<Guarded<TlsStream<TcpStream>>>;

/// Opens a tunnel's connection, with the waypoint's identity. `reader` is the name of the waypoint's pod for the receive budget.
fn dial(
    waypoint: &Waypoint,
    key: &PoolKey,
    reader: &WorkloadUid,
    limit: Duration,
) -> impl Future<Output = Result<Proven, UpstreamError>> + 'static {
    let certificates = waypoint.certificates.clone();
    let (tunnels, key, reader) = (waypoint.tunnels.clone(), key.clone(), reader.clone());
    let (revocations, sockets) = (waypoint.revocations.clone(), waypoint.sockets);
    let (metrics, budget) = (
        Arc::clone(&waypoint.metrics),
        waypoint.outbound.budget.clone(),
    );
    async move {
        let credentials = certificates
            .get(&key.source)
            .await
            .map_err(|error| UpstreamError::Identity(Arc::new(error)))?;
        let deadline = Instant::now() + limit;
        let stream = connect(key.address, deadline, sockets).await?;
        let handshake = lateen_tls::connect(&credentials, stream, &key.destinations);
        let (stream, session) = match timeout_at(deadline, handshake).await {
            Ok(Ok(agreed)) => agreed,
            Ok(Err(error)) => return Err(UpstreamError::Tls(Arc::new(error))),
            Err(_) => return Err(UpstreamError::Timeout(key.address)),
        };
        metrics.tunnel_opened(Reporter::Source);
        // Charged to the endpoint that the peer proved to be.
        let budget = budget.between(session.peer().identity(), reader.as_str());
        let io = tunnels.enter(stream, session, End::Outbound(key), &revocations);
        Ok(Budgeted {
            io,
            budget,
            below: Guarded::OUTER,
        })
    }
}

#[cfg(test)]
mod tests {
    use lateen_netns::Keepalive;
    use socket2::SockRef;
    use tokio::net::TcpListener;

    use super::*;

    /// The options of a connection: the times of keepalive, if it is on, and TCP_USER_TIMEOUT.
    async fn options(sockets: Sockets) -> (Option<(Duration, Duration, u32)>, Option<Duration>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        let stream = connect(address, deadline, sockets).await.unwrap();
        let socket = SockRef::from(&stream);
        assert!(socket.tcp_nodelay().unwrap());
        let keepalive = socket.keepalive().unwrap().then(|| {
            (
                socket.tcp_keepalive_time().unwrap(),
                socket.tcp_keepalive_interval().unwrap(),
                socket.tcp_keepalive_retries().unwrap(),
            )
        });
        (keepalive, socket.tcp_user_timeout().unwrap())
    }

    #[tokio::test]
    async fn a_connection_of_requests_gives_up_an_endpoint_that_vanished() {
        let seconds = Duration::from_secs;
        let sockets = Sockets {
            keepalive: Some(Keepalive::default()),
            user_timeout: false,
        };
        let relayed = Some((seconds(180), seconds(180), 9));
        assert_eq!(options(sockets).await, (relayed, None));
        let of_requests = Some((seconds(30), seconds(10), 9));
        // An endpoint that only reads late is not given up.
        assert_eq!(options(sockets.for_requests()).await, (of_requests, None));
        let asked = Sockets {
            user_timeout: true,
            ..sockets
        };
        let both = (of_requests, Some(seconds(120)));
        assert_eq!(options(asked.for_requests()).await, both);
    }

    #[tokio::test]
    async fn options_of_a_connection_are_those_of_the_environment() {
        let seconds = Duration::from_secs;
        let keepalive = Keepalive {
            time: seconds(20),
            interval: seconds(5),
            retries: 2,
        };
        let sockets = Sockets {
            keepalive: Some(keepalive),
            user_timeout: true,
        };
        let set = Some((seconds(20), seconds(5), 2));
        assert_eq!(options(sockets).await, (set, Some(seconds(30))));
        let off = Sockets::default();
        assert_eq!(options(off).await, (None, None));
        assert_eq!(options(off.for_requests()).await, (None, None));
    }
}
