//! Acceptor thread: it waits on the listeners of all pods and gives each new connection to the least loaded worker. The balance
//! is exact, whichever listener a connection came through.
//!
//! A connection beyond its pod's quota, or beyond the process's, is accepted and reset at once. In the listener's queue it
//! would keep other connections waiting.
//!
//! A process with one worker has no acceptor thread: its worker accepts by itself ([`OwnAcceptor`]).

mod loads;
mod own;
mod shared;
mod work;

pub use loads::{LoadGuard, Loads};
pub use own::{OwnAcceptor, Waiting, Watching};
pub use shared::Accepted;

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use lateen_os::set_slice;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::eventfd::{EfdFlags, EventFd};

use self::shared::{Listener, Registered, Shared, WAKE};
use self::work::Work;
use crate::fd_quota::FdQuota;

/// Takes connections to one worker. Must not block, and must not register or drop a registration.
pub type Sink<T> = Box<dyn Fn(Accepted<T>) + Send>;

/// The running acceptor. Dropping it stops the thread and closes the listeners that are still registered.
#[derive(Debug)]
pub struct Acceptor<T: Send + 'static> {
    shared: Arc<Shared<T>>,
    loads: Arc<Loads>,
    thread: Option<JoinHandle<()>>,
}

/// A listener that connections are accepted from until this is dropped, which closes it. What was accepted by then counts
/// as load, and nothing is accepted after: whoever reads no load from then on leaves nobody behind.
#[derive(Debug)]
pub struct Registration<T: Send + 'static> {
    shared: Arc<Shared<T>>,
    id: u64,
}

impl<T: Clone + Send + Sync + 'static> Acceptor<T> {
    /// Starts the thread with its scheduler's slice (see [`set_slice`]); `sinks[i]` takes the connections of worker `i`. The thread
    /// calls `failed` if it can wait for connections no longer, so that a process that accepts none does not stay ready.
    ///
    /// # Errors
    /// The kernel has no descriptor or thread to give.
    ///
    /// # Panics
    /// Without any sink.
    pub fn start(
        sinks: Vec<Sink<T>>,
        slice: Option<Duration>,
        failed: impl FnOnce(io::Error) + Send + 'static,
    ) -> io::Result<Self> {
        assert!(!sinks.is_empty(), "an acceptor needs at least one worker");
        let (mut acceptor, work) = Self::new(sinks.len(), EpollFlags::EPOLLIN)?;
        acceptor.thread = Some(spawn(work, sinks, slice, failed)?);
        Ok(acceptor)
    }

    /// Without a thread, for a worker that is the only one: it accepts by itself, and nothing is handed from one thread to
    /// another.
    ///
    /// # Errors
    /// The kernel has no descriptor to give.
    pub fn without_thread() -> io::Result<(Self, OwnAcceptor<T>)> {
        // Told once of what has come: a listener that waits for its pod's turn is not looked at meanwhile.
        let (acceptor, work) = Self::new(1, EpollFlags::EPOLLIN | EpollFlags::EPOLLET)?;
        Ok((acceptor, OwnAcceptor::new(work)))
    }

    fn new(workers: usize, events: EpollFlags) -> io::Result<(Self, Work<T>)> {
        let shared = Arc::new(Shared {
            epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?,
            events,
            wake: EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?,
            listeners: Mutex::new(Registered {
                next: 0,
                by_id: HashMap::new(),
            }),
        });
        shared
            .epoll
            .add(&shared.wake, EpollEvent::new(EpollFlags::EPOLLIN, WAKE))?;
        let loads = Loads::new(workers);
        let work = Work::new(Arc::clone(&shared), Arc::clone(&loads))?;
        let acceptor = Self {
            shared,
            loads,
            thread: None,
        };
        Ok((acceptor, work))
    }

    /// Accepts from `listener`, which must be non-blocking, and gives each connection `tag`. Each takes `cost`
    /// descriptors, its own among them, of `quota`; those that find too few left there are reset.
    ///
    /// # Errors
    /// epoll refuses the descriptor.
    pub fn register(
        &self,
        listener: OwnedFd,
        tag: T,
        quota: &Arc<FdQuota>,
        cost: u32,
    ) -> io::Result<Registration<T>> {
        let mut listeners = self.shared.lock();
        let id = listeners.next;
        listeners.next += 1;
        let listener = Listener {
            socket: listener,
            tag,
            quota: Arc::clone(quota),
            cost,
        };
        self.shared.epoll.add(
            listener.socket.as_fd(),
            EpollEvent::new(self.shared.events, id),
        )?;
        listeners.by_id.insert(id, listener);
        drop(listeners);
        Ok(Registration {
            shared: Arc::clone(&self.shared),
            id,
        })
    }

    /// The load of each worker.
    pub fn loads(&self) -> &Arc<Loads> {
        &self.loads
    }
}

/// Starts the thread, which accepts until it is told to end or can wait for connections no longer.
fn spawn<T: Clone + Send + Sync + 'static>(
    mut work: Work<T>,
    sinks: Vec<Sink<T>>,
    slice: Option<Duration>,
    failed: impl FnOnce(io::Error) + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new()
        .name("acceptor".into())
        .spawn(move || {
            set_slice(slice);
            let give = |accepted: Accepted<T>| sinks[accepted.load.worker()](accepted);
            if let Err(error) = work.accept_all(&give) {
                failed(error);
            }
        })
}

impl<T: Send + 'static> Drop for Acceptor<T> {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            // A full counter cannot be: it is written once.
            let _ = self.shared.wake.write(1);
            // A thread that panicked has said so already.
            let _ = thread.join();
        }
        self.shared.lock().by_id.clear();
    }
}

impl<T: Send + 'static> Drop for Registration<T> {
    fn drop(&mut self) {
        if let Some(listener) = self.shared.lock().by_id.remove(&self.id) {
            // Closing removes it only with the last duplicate, and others may have one.
            let _ = self.shared.epoll.delete(listener.socket.as_fd());
        }
    }
}

#[cfg(test)]
mod tests;
