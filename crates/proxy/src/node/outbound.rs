//! The way out of a pod: find the client and its destination, reach a next hop, relay.

use std::rc::Rc;
use std::time::Instant;

use futures_util::FutureExt as _;
use futures_util::future::Either;
use lateen_telemetry::Reporter;
use lateen_types::ports;

use super::arrival::{Arrival, finish};
use super::attempt::{Next, Reached, Wanted, reach};
use super::refusal::Refusal;
use super::relaying::{Both, Records, relay, relay_both};
use super::same_node::handover::Stay;
use super::same_node::splice::relay_joined;
use super::state::Node;
use lateen_relay::Socket;

/// Serves a connection that a process of the pod opened.
pub(super) fn serve(node: Rc<Node>, arrival: Arrival) -> impl Future<Output = ()> {
    // Boxed before there is a future that would have room for the arrival for as long as it relays.
    let prepared = Box::pin(prepare(node, arrival));
    async move {
        let Some((node, arrival, next, records)) = prepared.await else {
            return;
        };
        carry(node, arrival, next, records).await;
    }
}

/// Relays to the next hop, whatever it is. All it is given is moved to where it is used: what an async fn had left of it would
/// be room that each connection has for nothing.
fn carry(
    node: Rc<Node>,
    arrival: Arrival,
    next: Next,
    records: Records,
) -> impl Future<Output = ()> {
    let Arrival {
        pod,
        stream,
        _counted: counted,
        ..
    } = arrival;
    let (client, limits) = (Socket::from(stream), node.limits);
    let relayed = match next {
        Next::Tunnel(stream) => {
            let relayed = relay(client, stream, records, limits);
            Either::Left(Either::Left(relayed.map(alone)))
        }
        Next::Plain(stream) => {
            let relayed = relay(client, Socket::from(stream), records, limits);
            Either::Left(Either::Right(relayed.map(alone)))
        }
        Next::Near(near) if node.accelerator.is_some() => {
            let relayed = relay_joined(Rc::clone(&node), client, near, pod, records);
            Either::Right(Either::Left(relayed.map(alone)))
        }
        Next::Near(near) => {
            let (application, there, stay) = near.parts();
            let relayed = relay_both(client, application, Both(records, there), limits);
            Either::Right(Either::Right(relayed.map(
                |(Both(records, there), [ended, at_destination])| {
                    (records, ended, Some((stay, there, at_destination)))
                },
            )))
        }
    };
    relayed.map(move |(records, ended, destination)| {
        if let Some((stay, records, ended)) = destination {
            stay.finish(&node, records, ended);
        }
        finish(&node, records, ended);
        drop(counted);
    })
}

/// How a connection ended; the destination's end of it as well, if that is ours to tell.
type Ended = (
    Records,
    Result<(), Refusal>,
    Option<(Stay, Records, Result<(), Refusal>)>,
);

/// The end of a connection whose other end is not ours, or has been told of.
fn alone((records, ended): (Records, Result<(), Refusal>)) -> Ended {
    (records, ended, None)
}

/// Finds the source and reaches the next hop; a connection without one ends here. Its client sees a reset, as it would
/// without a proxy.
async fn prepare(own: Rc<Node>, arrival: Arrival) -> Option<(Rc<Node>, Arrival, Next, Records)> {
    let node = &own;
    let start = Instant::now();
    let destination = match arrival.destination() {
        Ok(destination) => destination,
        Err(error) => {
            tracing::debug!(%error, "an outbound connection was gone at once");
            return None;
        }
    };
    let refuse = |arrival: Arrival, why: Refusal| {
        arrival.refuse(node, destination, Reporter::Source, &why);
        None
    };
    let local = arrival.stream.local_addr().map(lateen_accept::canonical);
    if local.is_ok_and(|local| local == destination && ports::is_proxys_own(local.port())) {
        return refuse(arrival, Refusal::Loop(destination));
    }
    let (snapshot, source) = match node.workload_of(&arrival.pod).await {
        Ok(found) => found,
        Err(why) => return refuse(arrival, why),
    };
    let wanted = Wanted {
        start,
        destination,
        snapshot,
        source,
    };
    match Box::pin(reach(node, &arrival, wanted)).await {
        Reached::Yes(next, records) => Some((own, arrival, next, records)),
        Reached::No(refusal, records) => {
            lateen_relay::reset_on_close(&arrival.stream);
            finish(node, records, Err(refusal));
            None
        }
        Reached::Nowhere(why) => refuse(arrival, why),
    }
}
