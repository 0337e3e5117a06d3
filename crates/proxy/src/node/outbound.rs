//! The way out of a pod: find out who dials where, choose the next hop, go there, relay.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use lateen_config::Workload;
use lateen_config::route::{self, Route, Tunnel, Via};
use lateen_hbone::{Authority, ConnectRequest, Forwarded, PoolError, PoolKey, Stream, TraceParent};
use lateen_telemetry::{Connection, Reporter};
use lateen_types::{Strng, ports};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::describe::{Outbound, baggage};
use super::dial::{DialError, dial};
use super::{Arrival, Refusal, finish, relay};
use crate::live::{Outgoing, Tracked};
use crate::pod::Pod;
use crate::tunnels::End;
use crate::worker::Worker;

/// Where a connection goes, once that is known.
struct Plan {
    source: Arc<Workload>,
    route: Route,
}

/// What a connection leaves behind in counters and tables, as long as it lives.
struct Known {
    connection: Box<Connection>,
    tracked: Tracked,
}

/// The next hop, ready for bytes.
enum Reached {
    Tunnel(Stream),
    Plain(TcpStream),
}

/// Serves a connection that a process of the pod opened.
pub(super) async fn serve(worker: Rc<Worker>, arrival: Arrival) {
    let Some((arrival, known, plan)) = Box::pin(choose(&worker, arrival)).await else {
        return;
    };
    let Known {
        connection,
        tracked,
    } = known;
    let outcome = match Box::pin(reach(&worker, &arrival, plan)).await {
        Ok(Reached::Tunnel(stream)) => {
            relay(arrival.stream, stream, &connection, &tracked, worker.limits).await
        }
        Ok(Reached::Plain(stream)) => {
            relay(arrival.stream, stream, &connection, &tracked, worker.limits).await
        }
        Err(refusal) => Err(reset(arrival, refusal)),
    };
    finish(&worker, *connection, tracked, outcome);
}

/// The client of a connection that leads nowhere sees a reset, as it would without a proxy.
fn reset(mut arrival: Arrival, refusal: Refusal) -> Refusal {
    lateen_relay::Duplex::abort(&mut arrival.stream);
    refusal
}

/// Finds the source and the next hop; a connection without one ends here.
async fn choose(worker: &Worker, arrival: Arrival) -> Option<(Arrival, Known, Box<Plan>)> {
    let start = Instant::now();
    let destination = match arrival.destination() {
        Ok(destination) => destination,
        Err(error) => {
            tracing::debug!(%error, "an outbound connection was gone at once");
            return None;
        }
    };
    let refuse = |arrival: Arrival, why: Refusal| {
        arrival.refuse(worker, destination, Reporter::Source, &why);
        None
    };
    let local = arrival
        .stream
        .local_addr()
        .map(lateen_capture::socket::canonical);
    if local.is_ok_and(|local| local == destination && ports::is_proxys_own(local.port())) {
        return refuse(arrival, Refusal::Loop(destination));
    }
    let (snapshot, source) = match worker.workload_of(&arrival.pod).await {
        Ok(found) => found,
        Err(why) => return refuse(arrival, why),
    };
    let choice = route::outbound(&snapshot, &source, destination, &|_| false, &mut |n| {
        worker.random_below(n)
    });
    let route = match choice {
        Ok(choice) => choice.route,
        Err(why) => return refuse(arrival, why.into()),
    };
    let (address, hbone) = match &route {
        Route::Tunnel(tunnel) => (tunnel.hbone, Some(tunnel.authority.to_string())),
        Route::Plain { target, .. } | Route::Passthrough { target, .. } => (*target, None),
        Route::Resolve(resolve) => {
            return refuse(arrival, Refusal::Unresolved(Arc::clone(&resolve.hostname)));
        }
    };
    let (workload, service) = (route.workload(), route.service());
    let tracked = worker.live.depart(Outgoing {
        pod: Arc::clone(&arrival.pod),
        source: arrival.peer,
        wanted: destination,
        hop: address,
        tunnelled: hbone.is_some(),
    });
    let opening = Outbound {
        start,
        client: arrival.peer,
        source: &source,
        destination: workload.map(AsRef::as_ref),
        service: service.map(AsRef::as_ref),
        address,
        hbone,
    }
    .opening();
    let connection = Box::new(Connection::open(&worker.metrics, opening));
    let known = Known {
        connection,
        tracked,
    };
    Some((arrival, known, Box::new(Plan { source, route })))
}

/// Goes to the next hop.
async fn reach(
    worker: &Rc<Worker>,
    arrival: &Arrival,
    plan: Box<Plan>,
) -> Result<Reached, Refusal> {
    let Plan { source, route } = *plan;
    match route {
        Route::Tunnel(Tunnel {
            service,
            hbone,
            authority,
            identities,
            via,
            ..
        }) => {
            if matches!(via, Via::Gateway(_)) {
                return Err(Refusal::GatewayUnsupported);
            }
            let request = ConnectRequest {
                authority: match authority {
                    route::Authority::Address(address) => Authority::from(address),
                    route::Authority::Host { hostname, port } => Authority::Name {
                        name: hostname.to_ascii_lowercase(),
                        port,
                    },
                },
                baggage: Some(Strng::from(baggage(&source).to_string())),
                forwarded: Some(Forwarded {
                    client: Some(arrival.peer),
                    host: service.map(|service| service.hostname.to_string()),
                }),
                traceparent: Some(TraceParent::random()),
                network: None,
            };
            let key = PoolKey {
                source: source.identity.clone(),
                destinations: identities.into(),
                address: hbone,
                source_ip: arrival.peer.ip(),
            };
            worker.tunnels_from(&arrival.pod, key.source_ip);
            tunnel(worker, &arrival.pod, &key, &request)
                .await
                .map(Reached::Tunnel)
        }
        Route::Resolve(resolve) => Err(Refusal::Unresolved(resolve.hostname)),
        Route::Plain { target, .. } | Route::Passthrough { target, .. } => {
            let stream = dial(&arrival.pod.sockets, None, target, worker.patience.peer).await?;
            Ok(Reached::Plain(stream))
        }
    }
}

/// A stream to the next hop, on a tunnel that may have been there before.
async fn tunnel(
    worker: &Rc<Worker>,
    pod: &Pod,
    key: &PoolKey,
    request: &ConnectRequest,
) -> Result<Stream, Refusal> {
    let dial_tunnel = || {
        let (certificates, patience) = (worker.certificates.clone(), worker.patience.peer);
        let sockets = Arc::clone(&pod.sockets);
        let (identity, destinations) = (key.source.clone(), Arc::clone(&key.destinations));
        let hbone = key.address;
        let (tunnels, key) = (worker.tunnels.clone(), key.clone());
        async move {
            let credentials = certificates
                .get(&identity)
                .await
                .map_err(|error| DialError::Identity(Arc::new(error)))?;
            let stream: TcpStream =
                dial(&sockets, None, hbone, patience)
                    .await
                    .map_err(|error| match error {
                        DialError::Timeout(address) => DialError::TunnelTimeout(address),
                        other => other,
                    })?;
            let handshake = lateen_tls::connect(&credentials, stream, &destinations);
            match timeout(patience, handshake).await {
                Ok(Ok((stream, session))) => {
                    tracing::debug!(peer = %session, key_exchange = session.key_exchange(), "tunnel opened");
                    Ok(tunnels.enter(stream, session, End::Outbound(key)))
                }
                Ok(Err(error)) => Err(DialError::Tls(Arc::new(error))),
                Err(_) => Err(DialError::TunnelTimeout(hbone)),
            }
        }
    };
    // A dial, a handshake and the peer's own dial, each bounded; a peer that answers nothing else bounds none of them.
    let patience = 3 * worker.patience.peer;
    match timeout(patience, worker.pool.connect(key, request, dial_tunnel)).await {
        Ok(Ok((stream, _answer))) => Ok(stream),
        Ok(Err(PoolError::Dial(error))) => Err(Refusal::Dial(error)),
        Ok(Err(PoolError::Handshake(error))) => Err(Refusal::Tunnel(error)),
        Ok(Err(PoolError::Connect(error))) => Err(Refusal::Connect(error)),
        Err(_) => Err(Refusal::Dial(DialError::Timeout(key.address))),
    }
}
