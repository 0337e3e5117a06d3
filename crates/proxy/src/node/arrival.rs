//! First and last step of every connection of a pod: an accepted socket with its destination, refusal before it counts as
//! opened, admission by policies, and the record of its end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use lateen_accept::LoadGuard;
use lateen_config::{Snapshot, Workload};
use lateen_policy::{Decision, DryRun};
use lateen_relay::reset_on_close;
use lateen_telemetry::{Connection, Failure, Reporter};
use lateen_types::Direction;
use tokio::net::TcpStream;

use super::describe;
use super::refusal::Refusal;
use super::relaying::Records;
use super::state::{Node, OpenSocket};
use crate::connection_table::{Denial, Ending, Facts, Judgement, Listed, NAMED, State};
use crate::pod::Pod;

/// A connection that has just been accepted for a pod.
pub(super) struct Arrival {
    pub(super) pod: Arc<Pod>,
    pub(super) stream: TcpStream,
    pub(super) peer: SocketAddr,
    /// Boxed: it is only kept, and an arrival moves a few times.
    pub(super) _counted: Box<(OpenSocket, LoadGuard)>,
}

impl Arrival {
    /// Where the client wanted to go: the original destination, or the local address of a connection that was not
    /// redirected.
    pub(super) fn destination(&self) -> Result<SocketAddr, Refusal> {
        lateen_netns::original_destination(&self.stream)
            .or_else(|_| self.stream.local_addr().map(lateen_accept::canonical))
            .map_err(Refusal::Gone)
    }

    /// Ends a connection that cannot be served before both of its ends are known. The client sees a reset, not an
    /// orderly end that could be taken for an empty answer.
    pub(super) fn refuse(
        self,
        node: &Node,
        destination: SocketAddr,
        reporter: Reporter,
        why: &Refusal,
    ) {
        refuse(node, &self.pod, (self.peer, destination), reporter, why, 0);
        reset_on_close(&self.stream);
    }
}

/// Counts and logs a connection between two addresses that is refused before it counts as opened. `pair` is the number that
/// its sender gave it, 0 if none.
pub(super) fn refuse(
    node: &Node,
    pod: &Arc<Pod>,
    (client, destination): (SocketAddr, SocketAddr),
    reporter: Reporter,
    why: &Refusal,
    pair: u64,
) {
    let labels = describe::unopened(node, pod, client.ip(), reporter, why.flags());
    node.metrics.refused(labels);
    node.metrics
        .tell_refused(client, destination, reporter, &why.to_string());
    node.connections.refused(pod, why.fault(), || {
        let listed = Listed {
            id: 0,
            pair,
            pod: Arc::clone(pod),
            direction: match reporter {
                Reporter::Source => Direction::Outbound,
                Reporter::Destination | Reporter::Waypoint => Direction::Inbound,
            },
            source: client,
            wanted: None,
            destination,
            tunnelled: false,
            peer: None,
            tunnel: None,
            judgement: Judgement::default(),
            state: State::Opening,
            age: Duration::ZERO,
            to_server: 0,
            to_client: 0,
        };
        (listed, ending(why))
    });
}

/// Whether the policies let an inbound connection in.
pub(super) fn admit(
    node: &Node,
    snapshot: &Snapshot,
    workload: &Workload,
    records: &Records,
) -> Result<(), Refusal> {
    let facts = records.tracked.facts();
    let hits = facts.dry_run(snapshot, workload);
    let mut judgement = Judgement::default();
    if !hits.is_empty() {
        rehearse(node, facts, &records.connection, &hits);
        judgement.would_deny = Denial::rehearsed(&hits, snapshot, workload);
    }
    match facts.decide(snapshot, workload) {
        Decision::Allow { by } => {
            judgement.allowed_by = by;
            records.tracked.admitted(judgement);
            Ok(())
        }
        Decision::Deny { by } => {
            judgement.denied = Some(Denial::new(&by, snapshot, workload));
            records.tracked.refused(judgement);
            Err(Refusal::Denied(by))
        }
    }
}

/// Counts the decisions of policies in dry run, and writes the first [`NAMED`] of them to the log.
fn rehearse(node: &Node, facts: &Facts, connection: &Connection, hits: &[DryRun]) {
    let mut notes = Vec::with_capacity(hits.len().min(NAMED + 1));
    for (index, hit) in hits.iter().enumerate() {
        let (policy, decision) = match hit {
            DryRun::WouldDeny(name) => (name.to_string(), "deny"),
            DryRun::WouldAllow(name) => (name.to_string(), "allow"),
            DryRun::NoAllowWouldMatch => (String::new(), "deny"),
        };
        node.metrics.dry_run(&policy, decision);
        if index >= NAMED {
            continue;
        }
        tracing::info!(target: "policy", source = %facts.source, destination = %facts.destination, "{hit}");
        notes.push(match hit {
            DryRun::NoAllowWouldMatch => "deny: no allow policy matches".to_owned(),
            _ => format!("{decision} by {policy}"),
        });
    }
    if hits.len() > NAMED {
        notes.push(format!("and {} more", hits.len() - NAMED));
    }
    connection.note_dry_run(notes.join(", "));
}

/// How a connection ended, for those who watch.
pub(super) fn ending(why: &Refusal) -> Ending {
    Ending {
        fault: why.fault(),
        flags: why.flags(),
        reason: why.to_string().into(),
    }
}

/// What the log, the counters and the table make of the end of a connection.
pub(super) fn finish(node: &Node, records: Records, outcome: Result<(), Refusal>) {
    let Records {
        connection,
        tracked,
    } = records;
    if let Err(Refusal::Cut(reason)) = &outcome {
        node.metrics.connection_cut(reason.as_str());
    }
    let ending = |why| (Refusal::fault(why), || ending(why));
    tracked.leave(outcome.as_ref().err().map(ending));
    connection.finish(outcome.map_err(|refusal| Failure {
        flags: refusal.flags(),
        reason: refusal.to_string(),
    }));
}
