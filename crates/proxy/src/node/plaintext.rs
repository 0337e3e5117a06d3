//! The way into a pod without a tunnel: the client has proved no identity, so the policies decide without a peer.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use futures_util::FutureExt as _;
use lateen_config::next_hop::inbound_service;
use lateen_config::{Snapshot, Workload};
use lateen_relay::{Socket, reset_on_close};
use lateen_telemetry::{Connection, Reporter};
use lateen_types::ports;
use tokio::net::TcpStream;

use super::arrival::{Arrival, admit, finish};
use super::describe::Inbound;
use super::dial::dial;
use super::refusal::Refusal;
use super::relaying::{Records, relay};
use super::state::Node;
use crate::connection_table::Facts;

/// A connection whose two ends are known, before anybody decided about it.
struct Known {
    snapshot: Arc<Snapshot>,
    workload: Arc<Workload>,
    records: Records,
}

/// Serves a connection that came to the pod without a tunnel.
pub(super) fn serve(node: Rc<Node>, arrival: Arrival) -> impl Future<Output = ()> {
    // Boxed before there is a future that would have room for the arrival for as long as it relays.
    let prepared = Box::pin(prepare(node, arrival));
    async move {
        let Some((node, arrival, application, records)) = prepared.await else {
            return;
        };
        carry(node, arrival, application, records).await;
    }
}

/// Relays to the application. All it is given is moved to where it is used.
fn carry(
    node: Rc<Node>,
    arrival: Arrival,
    application: TcpStream,
    records: Records,
) -> impl Future<Output = ()> {
    let Arrival {
        stream,
        _counted: counted,
        ..
    } = arrival;
    let (client, application) = (Socket::from(stream), Socket::from(application));
    relay(client, application, records, node.limits).map(move |(records, outcome)| {
        finish(&node, records, outcome);
        drop(counted);
    })
}

/// Finds out for whom the connection is and reaches the application; one that does not get so far ends here.
async fn prepare(
    node: Rc<Node>,
    arrival: Arrival,
) -> Option<(Rc<Node>, Arrival, TcpStream, Records)> {
    let (arrival, known) = recognise(Rc::clone(&node), arrival).await?;
    match reach(&node, &arrival, &known).await {
        Ok(application) => Some((node, arrival, application, known.records)),
        Err(refusal) => {
            reset_on_close(&arrival.stream);
            finish(&node, known.records, Err(refusal));
            None
        }
    }
}

/// Finds out for whom the connection is; one that is for nobody ends here.
async fn recognise(node: Rc<Node>, arrival: Arrival) -> Option<(Arrival, Known)> {
    let node = &*node;
    let start = Instant::now();
    let destination = match arrival.destination() {
        Ok(destination) => destination,
        Err(error) => {
            tracing::debug!(%error, "a plaintext connection was gone at once");
            return None;
        }
    };
    if ports::is_proxys_own(destination.port()) {
        arrival.refuse(
            node,
            destination,
            Reporter::Destination,
            &Refusal::Loop(destination),
        );
        return None;
    }
    let (snapshot, workload) = match node.workload_of(&arrival.pod).await {
        Ok(found) => found,
        Err(why) => {
            arrival.refuse(node, destination, Reporter::Destination, &why);
            return None;
        }
    };
    let service = inbound_service(&snapshot, &workload, None, destination.port());
    let opening = Inbound {
        start,
        client: arrival.peer,
        network: &node.network,
        peer: None,
        baggage: None,
        through_gateway: false,
        destination: &workload,
        service: service.map(AsRef::as_ref),
        address: destination,
        hbone: None,
        trace: Some(node.sampler.begin().1),
    }
    .opening(&snapshot, node.metrics.claims());
    let connection = Box::new(Connection::open(&node.metrics, opening));
    let facts = Facts {
        pod: Arc::clone(&arrival.pod),
        peer: None,
        source: arrival.peer,
        destination,
    };
    let tracked = node.connections.enter(facts, 0);
    Some((
        arrival,
        Known {
            snapshot,
            workload,
            records: Records {
                connection,
                tracked,
            },
        },
    ))
}

/// Asks the policies and connects to the application, as if the client itself did.
async fn reach(node: &Node, arrival: &Arrival, known: &Known) -> Result<TcpStream, Refusal> {
    let facts = known.records.tracked.facts();
    if known.workload.believes_headers_at(facts.destination.port()) {
        return Err(Refusal::Unproven(facts.destination));
    }
    admit(node, &known.snapshot, &known.workload, &known.records)?;
    Ok(dial(
        &arrival.pod.sockets,
        Some(arrival.peer.ip()),
        facts.destination,
        node.timeouts.peer,
    )
    .await?)
}
