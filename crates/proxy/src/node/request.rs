//! Messages to the workers of the node role: pods that leave, connections that are cut, and questions of operators.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use lateen_runtime::WorkerHandle;
use lateen_types::WorkloadUid;
use tokio::sync::oneshot;

use super::ejection::Ejected;
use super::state::Node;
use crate::connection_table::{Cut, Listed, Totals, Watch, Watcher};
use crate::pod::Pod;

/// The sending end of a node worker's mailbox.
pub type NodeHandle = WorkerHandle<Node>;

/// A message to a worker of the node role.
pub enum Request {
    /// A pod was let go.
    Released(Arc<Pod>),
    /// A pod that was deleted has no process any more, and is about to have no network.
    Gone(Arc<Pod>),
    /// Answers with the connections that it serves.
    Connections(oneshot::Sender<Vec<Listed>>),
    /// Answers with the endpoints that it leaves out.
    Ejected(oneshot::Sender<Vec<Ejected>>),
    /// Answers with the sums of each pod's connections.
    Pods(oneshot::Sender<HashMap<WorkloadUid, PodUse>>),
    /// Reports every connection that opens or closes, until the watch is dropped.
    Watch(Watcher),
    /// Cuts every connection that is left, and answers with their number.
    Cut(Cut, oneshot::Sender<usize>),
    /// Ends the tunnels whose peer is revoked by now.
    CutRevoked,
}

/// The sums of a pod's connections on one worker.
#[derive(Clone, Copy, Debug, Default)]
pub struct PodUse {
    /// Numbers of connections and bytes.
    pub totals: Totals,
    /// How long their tasks have run.
    pub used: Duration,
}

impl PodUse {
    /// Adds the sums of another worker.
    pub fn add(&mut self, other: &Self) {
        self.totals.open += other.totals.open;
        self.totals.opened += other.totals.opened;
        self.totals.denied += other.totals.denied;
        self.totals.failed += other.totals.failed;
        self.totals.received += other.totals.received;
        self.totals.sent += other.totals.sent;
        self.used += other.used;
    }
}

/// Reports every connection that opens or closes on these workers, from now on until the watch is dropped. At most
/// `capacity` events wait for their reader; further events are lost and counted. Costs nothing while nobody watches.
pub fn watch(workers: &[NodeHandle], capacity: usize) -> Watch {
    let (watcher, watch) = Watch::new(capacity);
    for worker in workers {
        worker.tell(Request::Watch(watcher.clone()));
    }
    watch
}
