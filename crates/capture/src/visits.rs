//! Errands in pods' namespaces that no dial waits for, on a thread of their own: what one pod asks for there keeps nobody
//! from sockets and listeners. What is done there is not known here.

use std::fmt;
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Mutex, PoisonError};

use crate::netns::Netns;

/// Visits that may wait for their turn. The last of them waits for a few milliseconds, and with it a connection's bytes.
const WAITING: usize = 64;

/// Something to be done in a pod's namespace; it is told the thread's home.
pub(crate) type Visit = Box<dyn FnOnce(&Netns) + Send>;

/// How a thread is had that does what is sent to it.
type Start = fn(Netns, Receiver<Visit>) -> io::Result<()>;

/// The thread, which starts with the first visit.
pub(crate) struct Visits {
    home: Netns,
    start: Start,
    thread: Mutex<Thread>,
}

enum Thread {
    None,
    /// There was none to be had when it was last tried; that has been said.
    Refused,
    Runs(SyncSender<Visit>),
}

impl fmt::Debug for Visits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Visits")
            .field("home", &self.home)
            .finish_non_exhaustive()
    }
}

impl Visits {
    pub(crate) fn from(home: Netns) -> Self {
        Self {
            home,
            start,
            thread: Mutex::new(Thread::None),
        }
    }

    /// Has it done soon.
    ///
    /// # Errors
    /// [`io::ErrorKind::ResourceBusy`]: many wait already, or there is no thread to be had for the moment; or it has ended.
    pub(crate) fn send(&self, visit: Visit) -> io::Result<()> {
        self.thread()?.try_send(visit).map_err(|error| match error {
            TrySendError::Full(_) => io::Error::new(
                io::ErrorKind::ResourceBusy,
                format!("{WAITING} visits to pods' namespaces wait already"),
            ),
            TrySendError::Disconnected(_) => io::Error::other("the visiting thread has ended"),
        })
    }

    /// The thread, which is started if none runs: a limit of threads that was reached once may not be the next time.
    fn thread(&self) -> io::Result<SyncSender<Visit>> {
        // Nothing inside leaves it half-changed.
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if let Thread::Runs(visits) = &*thread {
            return Ok(visits.clone());
        }
        let (visits, inbox) = sync_channel(WAITING);
        match (self.start)(self.home.clone(), inbox) {
            Ok(()) => {
                *thread = Thread::Runs(visits.clone());
                Ok(visits)
            }
            Err(error) => {
                if !matches!(*thread, Thread::Refused) {
                    tracing::warn!(%error, "no thread for visits to pods' namespaces");
                }
                *thread = Thread::Refused;
                Err(io::Error::new(
                    io::ErrorKind::ResourceBusy,
                    format!("start a thread for visits to pods' namespaces: {error}"),
                ))
            }
        }
    }
}

fn start(home: Netns, inbox: Receiver<Visit>) -> io::Result<()> {
    let run = move || {
        // Whoever starts it may be anywhere.
        if let Err(error) = home.within(&home, || ()) {
            tracing::warn!(%error, "the visiting thread cannot enter network namespaces");
            return;
        }
        while let Ok(visit) = inbox.recv() {
            visit(&home);
        }
    };
    let started = std::thread::Builder::new().name("visits".into()).spawn(run);
    started.map(drop)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn a_thread_that_could_not_be_had_once_is_had_with_a_later_visit() {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let visits = Visits {
            // Without the right to enter namespaces, which this needs not.
            start: |home, inbox| match STARTED.fetch_add(1, Ordering::Relaxed) {
                0 => Err(io::Error::from_raw_os_error(libc::EAGAIN)),
                _ => {
                    std::thread::spawn(move || inbox.iter().for_each(|visit| visit(&home)));
                    Ok(())
                }
            },
            ..Visits::from(Netns::current().unwrap())
        };
        let (done, outcome) = channel();
        let visit = || {
            let done = done.clone();
            visits.send(Box::new(move |_| done.send(()).unwrap()))
        };
        let refused = visit().unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ResourceBusy, "worth a try");
        for _ in 0..2 {
            visit().unwrap();
            outcome.recv().unwrap();
        }
        assert_eq!(STARTED.load(Ordering::Relaxed), 2, "one thread is enough");
    }
}
