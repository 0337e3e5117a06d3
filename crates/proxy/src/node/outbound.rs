//! The way out of a pod: find out who dials where, reach a next hop, relay.

use std::rc::Rc;
use std::time::Instant;

use lateen_telemetry::Reporter;
use lateen_types::ports;

use super::attempt::{Known, Next, Reached, Wanted, reach};
use super::straight::relay_joined;
use super::{Arrival, Refusal, finish, relay, relay_both};
use crate::worker::Worker;
use lateen_relay::Socket;

/// Serves a connection that a process of the pod opened.
pub(super) fn serve(worker: Rc<Worker>, arrival: Arrival) -> impl Future<Output = ()> {
    // Boxed before there is a future that would have room for the arrival for as long as it relays.
    let prepared = Box::pin(prepare(Rc::clone(&worker), arrival));
    async move {
        let Some((arrival, next, known)) = prepared.await else {
            return;
        };
        let Known {
            connection,
            tracked,
        } = known;
        let (client, limits) = (Socket::from(arrival.stream), worker.limits);
        let outcome = match next {
            Next::Tunnel(stream) => relay(client, stream, &connection, &tracked, limits).await,
            Next::Plain(stream) => {
                relay(client, Socket::from(stream), &connection, &tracked, limits).await
            }
            Next::Near(near) if worker.accelerator.is_some() => {
                let source = (&*connection, &tracked);
                relay_joined(&worker, client, near, &arrival.pod, source).await
            }
            Next::Near(near) => {
                let (application, destination) = near.parts();
                let source = (&*connection, &tracked);
                let of = (&*destination.connection, &destination.tracked);
                let [ended, there] = relay_both(client, application, source, of, limits).await;
                destination.finish(&worker, there);
                ended
            }
        };
        finish(&worker, *connection, tracked, outcome);
    }
}

/// Finds the source and reaches the next hop; a connection without one ends here. Its client sees a reset, as it would
/// without a proxy.
async fn prepare(worker: Rc<Worker>, arrival: Arrival) -> Option<(Arrival, Next, Known)> {
    let worker = &worker;
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
    let wanted = Wanted {
        start,
        destination,
        snapshot,
        source,
    };
    match Box::pin(reach(worker, &arrival, wanted)).await {
        Reached::Yes(next, known) => Some((arrival, next, known)),
        Reached::No(refusal, known) => {
            lateen_relay::reset_on_close(&arrival.stream);
            finish(worker, *known.connection, known.tracked, Err(refusal));
            None
        }
        Reached::Nowhere(why) => refuse(arrival, why),
    }
}
