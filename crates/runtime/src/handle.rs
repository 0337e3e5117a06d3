//! The mailbox of a worker: what other threads send to it.

use std::fmt;
use std::sync::Arc;

use lateen_accept::{Accepted, acceptor};
use lateen_config::Snapshot;
use tokio::sync::{mpsc, oneshot};

use crate::role::Role;

/// A message to a worker.
pub(crate) enum Message<R: Role> {
    Serve(Accepted<R::Listener>),
    Install(Arc<Snapshot>, oneshot::Sender<()>),
    Request(R::Request),
    Drain,
    Stop,
}

pub(crate) type Inbox<R> = mpsc::UnboundedReceiver<Message<R>>;

/// The sending end of a worker's mailbox, for any thread. Clones are cheap. A worker that has ended drops every message.
pub struct WorkerHandle<R: Role>(mpsc::UnboundedSender<Message<R>>);

impl<R: Role> Clone for WorkerHandle<R> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<R: Role> fmt::Debug for WorkerHandle<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WorkerHandle")
    }
}

impl<R: Role> WorkerHandle<R> {
    pub(crate) fn new() -> (Self, Inbox<R>) {
        let (sender, inbox) = mpsc::unbounded_channel();
        (Self(sender), inbox)
    }

    fn send(&self, message: Message<R>) {
        // A worker that has ended drops its messages, which closes connections and wakes those who ask.
        let _ = self.0.send(message);
    }

    /// Gives it a connection.
    pub fn serve(&self, accepted: Accepted<R::Listener>) {
        self.send(Message::Serve(accepted));
    }

    /// A function that gives it connections, for the acceptor's thread.
    pub fn sink(&self) -> acceptor::Sink<R::Listener> {
        let worker = self.clone();
        Box::new(move |accepted| worker.serve(accepted))
    }

    /// Puts a configuration in force. The receiver resolves once it is in force, and fails if the worker has ended.
    pub fn install(&self, snapshot: Arc<Snapshot>) -> oneshot::Receiver<()> {
        let (done, installed) = oneshot::channel();
        self.send(Message::Install(snapshot, done));
        installed
    }

    /// Sends it a request that has no answer.
    pub fn tell(&self, request: R::Request) {
        self.send(Message::Request(request));
    }

    /// Sends it a request and waits for the answer. Returns `None` if the worker has ended.
    pub async fn ask<T>(
        &self,
        request: impl FnOnce(oneshot::Sender<T>) -> R::Request,
    ) -> Option<T> {
        let (sender, answer) = oneshot::channel();
        self.tell(request(sender));
        answer.await.ok()
    }

    /// Begins the end of the process: peers are asked to leave, and connections finish.
    pub fn drain(&self) {
        self.send(Message::Drain);
    }

    /// Ends the worker with every connection that is left.
    pub fn stop(&self) {
        self.send(Message::Stop);
    }
}
