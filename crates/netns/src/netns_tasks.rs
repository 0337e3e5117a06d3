//! Tasks in pods' network namespaces that no dial waits for. They have a thread of their own: a slow task delays neither sockets
//! nor listeners.

use std::fmt;
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Mutex, PoisonError};

use crate::netns::Netns;

/// Most tasks that wait for their turn. The last of them waits for a few milliseconds, and with it a connection's bytes.
const WAITING: usize = 64;

/// A task. It gets the thread's home, and enters the pod's namespace itself.
pub(crate) type NetnsTask = Box<dyn FnOnce(&Netns) + Send>;

/// Starts a thread that does the tasks it receives.
type Start = fn(Netns, Receiver<NetnsTask>) -> io::Result<()>;

/// Sender of tasks to the thread, which starts with the first one.
pub(crate) struct NetnsTasks {
    home: Netns,
    start: Start,
    thread: Mutex<Thread>,
}

enum Thread {
    None,
    /// There was none to be had when it was last tried; that has been said.
    Refused,
    Runs(SyncSender<NetnsTask>),
}

impl fmt::Debug for NetnsTasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NetnsTasks")
            .field("home", &self.home)
            .finish_non_exhaustive()
    }
}

impl NetnsTasks {
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
    pub(crate) fn send(&self, task: NetnsTask) -> io::Result<()> {
        self.thread()?.try_send(task).map_err(|error| match error {
            TrySendError::Full(_) => io::Error::new(
                io::ErrorKind::ResourceBusy,
                format!("{WAITING} visits to pods' namespaces wait already"),
            ),
            TrySendError::Disconnected(_) => io::Error::other("the visiting thread has ended"),
        })
    }

    /// The thread, which is started if none runs: a limit of threads that was reached once may not be the next time.
    fn thread(&self) -> io::Result<SyncSender<NetnsTask>> {
        // Nothing inside leaves it half-changed.
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if let Thread::Runs(tasks) = &*thread {
            return Ok(tasks.clone());
        }
        let (tasks, inbox) = sync_channel(WAITING);
        match (self.start)(self.home.clone(), inbox) {
            Ok(()) => {
                *thread = Thread::Runs(tasks.clone());
                Ok(tasks)
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

fn start(home: Netns, inbox: Receiver<NetnsTask>) -> io::Result<()> {
    let run = move || {
        // Whoever starts it may be anywhere.
        if let Err(error) = home.within(&home, || ()) {
            tracing::warn!(%error, "the visiting thread cannot enter network namespaces");
            return;
        }
        while let Ok(task) = inbox.recv() {
            task(&home);
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
        let tasks = NetnsTasks {
            // Without the right to enter namespaces, which this needs not.
            start: |home, inbox| match STARTED.fetch_add(1, Ordering::Relaxed) {
                0 => Err(io::Error::from_raw_os_error(libc::EAGAIN)),
                _ => {
                    std::thread::spawn(move || inbox.iter().for_each(|task| task(&home)));
                    Ok(())
                }
            },
            ..NetnsTasks::from(Netns::current().unwrap())
        };
        let (done, outcome) = channel();
        let visit = || {
            let done = done.clone();
            tasks.send(Box::new(move |_| done.send(()).unwrap()))
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
