//! Stream of connection events for a watcher. It is bounded: a slow watcher loses events, and delays nobody else.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use super::{Ending, Listed};

/// Something happened to a connection.
#[derive(Clone, Debug)]
pub enum Event {
    /// Both of its ends are known and, if it is inbound, policies admit it.
    Opened(Listed),
    /// It ended; and how, if it did not end well.
    Closed(Listed, Option<Box<Ending>>),
}

/// A worker's end of a [`Watch`]; clones go to all workers.
#[derive(Clone, Debug)]
pub struct Watcher {
    events: mpsc::Sender<Event>,
    missed: Arc<AtomicU64>,
}

/// Events of all workers that were given its [`Watcher`]. Dropping it ends the watch.
#[derive(Debug)]
pub struct Watch {
    events: mpsc::Receiver<Event>,
    missed: Arc<AtomicU64>,
}

impl Watch {
    /// A watch that holds at most `capacity` events that nobody has read yet; what comes beyond is missed and counted.
    pub fn new(capacity: usize) -> (Watcher, Self) {
        let (sender, events) = mpsc::channel(capacity.max(1));
        let missed = Arc::<AtomicU64>::default();
        let watcher = Watcher {
            events: sender,
            missed: Arc::clone(&missed),
        };
        (watcher, Self { events, missed })
    }

    /// The next event; `None` when every worker has ended.
    pub async fn next(&mut self) -> Option<Event> {
        self.events.recv().await
    }

    /// Events that were lost so far because nobody read in time.
    pub fn missed(&self) -> u64 {
        self.missed.load(Ordering::Relaxed)
    }
}

impl Watcher {
    /// False when nobody listens any more.
    pub(super) fn tell(&self, event: &Event) -> bool {
        match self.events.try_send(event.clone()) {
            Ok(()) => true,
            Err(TrySendError::Full(_)) => {
                self.missed.fetch_add(1, Ordering::Relaxed);
                true
            }
            Err(TrySendError::Closed(_)) => false,
        }
    }
}
