//! The interface between a worker and the role that it serves connections in.

use std::convert::Infallible;
use std::future::pending;
use std::hash::Hash;
use std::rc::Rc;

use lateen_accept::Accepted;
use lateen_config::Snapshot;

use crate::worker::Worker;

/// The behaviour of a worker: how it serves a connection, and what follows from a new configuration. A value of the role
/// lives on its worker's thread and never leaves it.
pub trait Role: Sized + 'static {
    /// Settings and shared state that a worker's role is made of.
    type Config: Send + 'static;
    /// The label of a listener. Every connection that is accepted there carries it.
    type Listener: Clone + Send + 'static;
    /// The owner of connections. Owners share a worker's time in equal parts, however many connections each has.
    type GroupKey: Clone + Eq + Hash + 'static;
    /// A message of the role's own to a worker.
    type Request: Send + 'static;

    /// Makes the role, on its worker's thread and outside the runtime.
    fn start(config: Self::Config, worker: Rc<Worker<Self::GroupKey>>) -> Self;

    /// The owner of a listener's connections.
    fn group_key(listener: &Self::Listener) -> &Self::GroupKey;

    /// Begins to serve a connection, in a task of its owner's group. `lateen_executor::spawn_local` adds further tasks to it.
    fn serve(self: Rc<Self>, accepted: Accepted<Self::Listener>);

    /// Acts on a configuration that has just come into force. `before` is the one that it replaces.
    fn installed(&self, before: Option<&Snapshot>, now: &Snapshot);

    /// Answers a message to this worker. It runs between other tasks and must not block.
    fn handle(&self, request: Self::Request);

    /// Does the role's recurring work for as long as the worker runs. It belongs to no group.
    fn maintain(self: Rc<Self>) -> impl Future<Output = Infallible> {
        pending()
    }
}
