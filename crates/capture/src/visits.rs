//! Errands in pods' namespaces that no dial waits for, on a thread of their own: what one pod asks for there keeps nobody
//! from sockets and listeners. What is done there is not known here.

use std::fmt;
use std::io;
use std::sync::OnceLock;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};

use crate::netns::Netns;

/// Visits that may wait for their turn. The last of them waits for a few milliseconds, and with it a connection's bytes.
const WAITING: usize = 64;

/// Something to be done in a pod's namespace; it is told the thread's home.
pub(crate) type Visit = Box<dyn FnOnce(&Netns) + Send>;

/// The thread, which starts with the first visit.
pub(crate) struct Visits {
    home: Netns,
    thread: OnceLock<Option<SyncSender<Visit>>>,
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
            thread: OnceLock::new(),
        }
    }

    /// Has it done soon.
    ///
    /// # Errors
    /// [`io::ErrorKind::ResourceBusy`]: many wait already; or there is no thread.
    pub(crate) fn send(&self, visit: Visit) -> io::Result<()> {
        let Some(thread) = self.thread.get_or_init(|| start(self.home.clone())) else {
            return Err(io::Error::other("no thread could be started for it"));
        };
        thread.try_send(visit).map_err(|error| match error {
            TrySendError::Full(_) => io::Error::new(
                io::ErrorKind::ResourceBusy,
                format!("{WAITING} visits to pods' namespaces wait already"),
            ),
            TrySendError::Disconnected(_) => io::Error::other("the visiting thread has ended"),
        })
    }
}

fn start(home: Netns) -> Option<SyncSender<Visit>> {
    let (visits, inbox) = sync_channel::<Visit>(WAITING);
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
    match started {
        Ok(_) => Some(visits),
        Err(error) => {
            tracing::warn!(%error, "no thread for visits to pods' namespaces");
            None
        }
    }
}
