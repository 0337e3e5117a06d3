//! The thread of a worker, from its start to the end of its last task.

use std::io;
use std::rc::Rc;
use std::thread::JoinHandle;
use std::time::Duration;

use lateen_accept::acceptor::{OwnAcceptor, Watching};
use lateen_executor::Executor;
use tokio::sync::oneshot;

use crate::handle::{Inbox, Message, WorkerHandle};
use crate::role::Role;
use crate::worker::Worker;

/// Settings of one worker.
pub struct WorkerConfig<R: Role> {
    /// The worker's number in its process, from 0. Its thread is named after it.
    pub index: usize,
    /// The scheduler's slice of the worker's thread; `None` leaves it to the system.
    pub slice: Option<Duration>,
    /// The acceptor of a process with one worker. Several workers are given connections by the acceptor's thread.
    pub acceptor: Option<OwnAcceptor<R::Listener>>,
    /// Told when this worker can accept no more. The acceptor's thread reports the same by itself.
    pub accept_failed: Option<oneshot::Sender<io::Error>>,
    /// The role's own settings.
    pub role: R::Config,
}

/// A worker whose thread does not run yet. Its handle can be given away first.
pub struct UnstartedWorker<R: Role> {
    handle: WorkerHandle<R>,
    inbox: Inbox<R>,
}

impl<R: Role> Default for UnstartedWorker<R> {
    fn default() -> Self {
        let (handle, inbox) = WorkerHandle::new();
        Self { handle, inbox }
    }
}

impl<R: Role> UnstartedWorker<R> {
    /// The sending end of its mailbox.
    pub fn handle(&self) -> WorkerHandle<R> {
        self.handle.clone()
    }

    /// Starts the thread.
    ///
    /// # Errors
    /// The system has no thread or descriptor to give, or nothing to wait for connections with.
    pub fn start(self, config: WorkerConfig<R>) -> io::Result<JoinHandle<()>> {
        let inbox = self.inbox;
        let WorkerConfig {
            index,
            slice,
            acceptor,
            accept_failed,
            role,
        } = config;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let listeners = {
            let _runtime = runtime.enter();
            let watched = acceptor.map(OwnAcceptor::watch);
            watched.transpose().map_err(unwatched)?
        };
        std::thread::Builder::new()
            .name(format!("worker-{index}"))
            .spawn(move || {
                crate::slice::begin(slice);
                let executor = Executor::default();
                let worker = Rc::new(Worker::new(index, executor.groups()));
                let role = Rc::new(R::start(role, Rc::clone(&worker)));
                let maintaining = Rc::clone(&role).maintain();
                let accepting = accept(
                    Rc::clone(&role),
                    Rc::clone(&worker),
                    listeners,
                    accept_failed,
                );
                runtime.block_on(executor.run_until(async {
                    tokio::select! {
                        () = receive(role, worker, inbox) => {}
                        never = maintaining => match never {},
                        () = accepting => {}
                    }
                }));
                // Sockets and timers that tasks hold belong to the runtime.
                let _runtime = runtime.enter();
                drop(executor);
            })
    }
}

fn unwatched(error: io::Error) -> io::Error {
    let what = format!(
        "the worker cannot wait for connections: {error}; raise fs.epoll.max_user_watches or the proxy's limit of memory"
    );
    io::Error::new(error.kind(), what)
}

/// Accepts connections for ever, if this worker has the acceptor. Accepting is work of the listener's owner, whether
/// connections are served or reset: an owner that opens many at once delays its own connections only.
async fn accept<R: Role>(
    role: Rc<R>,
    worker: Rc<Worker<R::GroupKey>>,
    listeners: Option<Watching<R::Listener>>,
    failed: Option<oneshot::Sender<io::Error>>,
) {
    if let Some(listeners) = listeners {
        let accepting = listeners.run(|waiting| {
            let group = worker.group_of(R::group_key(waiting.tag()));
            let role = Rc::clone(&role);
            group.spawn(waiting.accept(move |accepted| Rc::clone(&role).serve(accepted)));
        });
        let Err(error) = accepting.await;
        if let Some(failed) = failed {
            // The process is about to end if nobody listens.
            let _ = failed.send(unwatched(error));
        }
    }
    std::future::pending().await
}

/// Reads the mailbox until the worker is stopped.
async fn receive<R: Role>(role: Rc<R>, worker: Rc<Worker<R::GroupKey>>, mut inbox: Inbox<R>) {
    while let Some(message) = inbox.recv().await {
        match message {
            Message::Serve(accepted) => {
                let group = worker.group_of(R::group_key(&accepted.tag));
                let role = Rc::clone(&role);
                // The registration with the runtime, too, is the owner's work.
                group.spawn(async move { role.serve(accepted) });
            }
            Message::Install(snapshot, done) => {
                let before = worker.replace(&snapshot);
                role.installed(before.as_deref(), &snapshot);
                worker.tell_installed();
                // The publisher may have stopped waiting.
                let _ = done.send(());
            }
            Message::Request(request) => role.handle(request),
            Message::Drain => worker.drain(),
            Message::Stop => return,
        }
    }
}
