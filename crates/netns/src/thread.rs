//! Namespace thread, which makes sockets in pods' network namespaces. Only it and the thread of `netns_tasks.rs` enter them.

use std::io;
use std::sync::{Arc, Weak, mpsc};

use tokio::sync::oneshot;

use crate::dns::DnsSockets;
use crate::listeners::{self, Listeners};
use crate::netns::Netns;
use crate::netns_tasks::{NetnsTask, NetnsTasks};
use crate::options::Options;
use crate::socket::Kind;

/// A handle on the thread, cheap to clone; the thread ends when the last handle is gone.
#[derive(Clone, Debug)]
pub struct NamespaceThread {
    errands: mpsc::Sender<Errand>,
    tasks: Arc<NetnsTasks>,
}

/// What the thread is asked to do.
pub(crate) enum Errand {
    Listen {
        pod: Netns,
        options: Options,
        answer: oneshot::Sender<io::Result<Listeners>>,
    },
    ListenDns {
        pod: Netns,
        options: Options,
        answer: oneshot::Sender<io::Result<DnsSockets>>,
    },
    Refill(Weak<dyn Refill>, Kind),
}

/// Prepared sockets of a pod, which the thread fills up.
pub(crate) trait Refill: Send + Sync {
    /// Makes sockets of this kind. Called on the namespace thread, whose home is given.
    fn refill(self: Arc<Self>, kind: Kind, home: &Netns);
}

impl NamespaceThread {
    /// Starts the thread in the calling thread's network namespace, its home.
    ///
    /// # Errors
    /// The process may not change its namespace (CAP_SYS_ADMIN is missing), or the thread cannot be started.
    pub fn start() -> io::Result<Self> {
        let home = Netns::current()?;
        let tasks = Arc::new(NetnsTasks::from(home.clone()));
        let (errands, inbox) = mpsc::channel();
        let (ready, started) = mpsc::channel();
        std::thread::Builder::new()
            .name("namespace".into())
            .spawn(move || {
                // Entering the home namespace changes nothing but needs the same right as entering a pod's.
                let able = home.within(&home, || ());
                let go_on = able.is_ok();
                // `start` waits for this word.
                let _ = ready.send(able);
                if go_on {
                    run(&home, &inbox);
                }
            })?;
        started
            .recv()
            .unwrap_or_else(|_| Err(io::Error::other("the namespace thread did not start")))
            .map_err(|error| {
                io::Error::new(
                    error.kind(),
                    format!("enter a network namespace: {error}; the proxy needs CAP_SYS_ADMIN"),
                )
            })?;
        Ok(Self { errands, tasks })
    }

    /// Opens the listeners of a pod.
    ///
    /// # Errors
    /// The namespace cannot be entered, or a port is taken.
    pub async fn open_listeners(&self, pod: &Netns, options: Options) -> io::Result<Listeners> {
        let (answer, outcome) = oneshot::channel();
        self.send(Errand::Listen {
            pod: pod.clone(),
            options,
            answer,
        });
        outcome.await.unwrap_or_else(|_| Err(ended()))
    }

    /// Opens a pod's sockets for DNS alone, for a pod whose listeners were taken over from a process that served none.
    ///
    /// # Errors
    /// The namespace cannot be entered, or a port is taken.
    pub async fn open_dns(&self, pod: &Netns, options: Options) -> io::Result<DnsSockets> {
        let (answer, outcome) = oneshot::channel();
        self.send(Errand::ListenDns {
            pod: pod.clone(),
            options,
            answer,
        });
        outcome.await.unwrap_or_else(|_| Err(ended()))
    }

    pub(crate) fn send(&self, errand: Errand) {
        // The thread ends only with its last handle or with the process; whoever waits sees the dropped answer.
        let _ = self.errands.send(errand);
    }

    /// See [`NetnsTasks::send`].
    pub(crate) fn visit(&self, task: NetnsTask) -> io::Result<()> {
        self.tasks.send(task)
    }
}

fn ended() -> io::Error {
    io::Error::other("the namespace thread has ended; the proxy is stopping")
}

fn run(home: &Netns, inbox: &mpsc::Receiver<Errand>) {
    while let Ok(errand) = inbox.recv() {
        match errand {
            Errand::Listen {
                pod,
                options,
                answer,
            } => {
                // A caller that has given up closes the listeners by dropping them.
                let _ = answer.send(listeners::open_listeners(&pod, home, &options));
            }
            Errand::ListenDns {
                pod,
                options,
                answer,
            } => {
                let _ = answer.send(listeners::open_dns(&pod, home, &options));
            }
            Errand::Refill(pool, kind) => {
                if let Some(pool) = pool.upgrade() {
                    pool.refill(kind, home);
                }
            }
        }
    }
}
