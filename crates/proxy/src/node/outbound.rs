//! The way out of a pod: find out who dials where, choose the next hop, go there, relay.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use lateen_config::Workload;
use lateen_config::route::{self, Route};
use lateen_hbone::{Authority, ConnectRequest, Forwarded, PoolError, PoolKey, Stream, TraceParent};
use lateen_telemetry::{Connection, Reporter};
use lateen_types::{Identity, Strng, ports};
use tokio::net::TcpStream;

use super::describe::{Outbound, baggage};
use super::dial::{DialError, dial};
use super::{Arrival, Refusal, relay, verdict};
use crate::worker::Worker;

/// Where a connection goes, once that is known.
struct Plan {
    source: Arc<Workload>,
    route: Route,
    connection: Box<Connection>,
}

/// Serves a connection that a process of the pod opened.
pub(super) async fn serve(worker: Rc<Worker>, arrival: Arrival) {
    let Some((arrival, plan)) = Box::pin(choose(&worker, arrival)).await else {
        return;
    };
    let Plan {
        source,
        route,
        connection,
    } = *plan;
    let outcome = match route {
        Route::Tunnel { .. } => match Box::pin(tunnel(&worker, &arrival, &source, route)).await {
            Ok(stream) => relay(arrival.stream, stream, &connection).await,
            Err(refusal) => Err(reset(arrival, refusal)),
        },
        Route::Plain { target, .. } | Route::Passthrough { target } => {
            match Box::pin(dial(
                &arrival.pod.sockets,
                None,
                target,
                worker.patience.peer,
            ))
            .await
            {
                Ok(stream) => relay(arrival.stream, stream, &connection).await,
                Err(error) => Err(reset(arrival, error.into())),
            }
        }
    };
    connection.finish(verdict(outcome));
}

/// The client of a connection that leads nowhere sees a reset, as it would without a proxy.
fn reset(mut arrival: Arrival, refusal: Refusal) -> Refusal {
    lateen_relay::Duplex::abort(&mut arrival.stream);
    refusal
}

/// Finds the source and the next hop; a connection without one ends here.
async fn choose(worker: &Worker, arrival: Arrival) -> Option<(Arrival, Box<Plan>)> {
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
    let route = match route::outbound(&snapshot, &source, destination, &mut |n| {
        worker.random_below(n)
    }) {
        Ok(route) => route,
        Err(why) => return refuse(arrival, why.into()),
    };
    let known = match &route {
        Route::Tunnel {
            workload,
            service,
            hbone,
            authority,
            ..
        } => (
            Some(workload),
            service.as_ref(),
            *hbone,
            Some(authority.clone()),
        ),
        Route::Plain {
            workload,
            service,
            target,
        } => (Some(workload), service.as_ref(), *target, None),
        Route::Passthrough { target } => (None, None, *target, None),
    };
    let (workload, service, address, hbone) = known;
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
    Some((
        arrival,
        Box::new(Plan {
            source,
            route,
            connection,
        }),
    ))
}

/// A stream to the next hop, on a tunnel that may have been there before.
async fn tunnel(
    worker: &Rc<Worker>,
    arrival: &Arrival,
    source: &Workload,
    route: Route,
) -> Result<Stream, Refusal> {
    let Route::Tunnel {
        service,
        hbone,
        target,
        identities,
        ..
    } = route
    else {
        unreachable!("only tunnel routes come here");
    };
    let destinations: Arc<[Identity]> = identities.into();
    let key = PoolKey {
        source: source.identity.clone(),
        destinations: Arc::clone(&destinations),
        address: hbone,
        source_ip: arrival.peer.ip(),
    };
    let request = ConnectRequest {
        authority: Authority::from(target),
        baggage: Some(Strng::from(baggage(source).to_string())),
        forwarded: Some(Forwarded {
            client: Some(arrival.peer),
            host: service.map(|service| service.hostname.to_string()),
        }),
        traceparent: Some(TraceParent::random()),
        network: None,
    };
    let dial_tunnel = || {
        let (certificates, patience) = (worker.certificates.clone(), worker.patience.peer);
        let sockets = Arc::clone(&arrival.pod.sockets);
        let (identity, destinations) = (key.source.clone(), Arc::clone(&destinations));
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
            match tokio::time::timeout(
                patience,
                lateen_tls::connect(&credentials, stream, &destinations),
            )
            .await
            {
                Ok(Ok((stream, _peer))) => Ok(stream),
                Ok(Err(error)) => Err(DialError::Tls(Arc::new(error))),
                Err(_) => Err(DialError::TunnelTimeout(hbone)),
            }
        }
    };
    match worker.pool.connect(&key, &request, dial_tunnel).await {
        Ok((stream, _answer)) => Ok(stream),
        Err(PoolError::Dial(error)) => Err(Refusal::Dial(error)),
        Err(PoolError::Handshake(error)) => Err(Refusal::Tunnel(error)),
        Err(PoolError::Connect(error)) => Err(Refusal::Connect(error)),
    }
}
