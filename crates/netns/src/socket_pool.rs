//! A small pool of prepared sockets per pod, so that dialling needs no visit to the pod's namespace.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use crate::netns::Netns;
use crate::options::Options;
use crate::socket::{self, Kind};
use crate::thread::{Errand, NamespaceThread, Restock};

/// Sockets kept ready of each kind that a pod has used.
const KEEP: usize = 8;
/// Upper end of a restock, reached when dialling outruns the namespace thread.
const MOST: usize = 64;
/// How long nobody may have taken a socket of a kind before its shelf is given back.
const IDLE: Duration = Duration::from_secs(300);
/// What stays of an idle shelf, so that the next dial does not wait.
const LEAST: usize = 1;

const KINDS: usize = 6;

/// One pod's sockets: non-blocking, marked, neither bound nor connected; those for TCP have TCP_NODELAY and keepalive set.
///
/// Dropping the pool closes what is on its shelves; a socket in it would keep the pod's namespace alive.
#[derive(Debug)]
pub struct SocketPool {
    pod: Netns,
    options: Options,
    thread: NamespaceThread,
    shelves: Mutex<[Shelf; KINDS]>,
}

#[derive(Debug, Default)]
struct Shelf {
    ready: VecDeque<OwnedFd>,
    waiting: VecDeque<oneshot::Sender<io::Result<OwnedFd>>>,
    /// A restock is under way.
    ordered: bool,
    /// Sockets to have after a restock; doubles when an empty shelf was met.
    target: usize,
    /// The fewest that were ready after a taker since the last look; `None` when nobody came.
    fewest: Option<usize>,
    /// When a look first found that nobody had come.
    quiet: Option<Instant>,
}

impl Shelf {
    fn tidy(&mut self, now: Instant) -> VecDeque<OwnedFd> {
        let spare = match self.fewest.take() {
            Some(fewest) => {
                self.quiet = None;
                fewest.saturating_sub(KEEP)
            }
            None => {
                let since = *self.quiet.get_or_insert(now);
                match now.saturating_duration_since(since) >= IDLE {
                    true => self.ready.len().saturating_sub(LEAST),
                    false => 0,
                }
            }
        };
        // A restock that is under way may go by the target from before: what it makes is tidied away later.
        self.target = self.target.saturating_sub(spare).max(LEAST);
        self.ready.split_off(self.ready.len().saturating_sub(spare))
    }
}

impl SocketPool {
    /// An empty pool of sockets in `pod`; the first taker of a kind waits for the namespace thread.
    pub fn new(pod: Netns, options: Options, thread: NamespaceThread) -> Arc<Self> {
        Arc::new(Self {
            pod,
            options,
            thread,
            shelves: Mutex::default(),
        })
    }

    /// The namespace that the sockets live in.
    pub fn netns(&self) -> &Netns {
        &self.pod
    }

    /// Orders sockets of this kind ahead of need.
    pub fn prepare(self: &Arc<Self>, kind: Kind) {
        let mut shelves = self.lock();
        self.order(&mut shelves[kind as usize], kind);
    }

    /// A socket that nobody else has; waits only when the shelf is empty.
    ///
    /// # Errors
    /// The pod's namespace cannot be entered or makes no sockets, or the namespace thread has ended.
    pub async fn take(self: &Arc<Self>, kind: Kind) -> io::Result<OwnedFd> {
        let answer = {
            let mut shelves = self.lock();
            let shelf = &mut shelves[kind as usize];
            let taken = shelf.ready.pop_front();
            let left = shelf.ready.len();
            shelf.fewest = Some(shelf.fewest.map_or(left, |fewest| fewest.min(left)));
            if shelf.ready.len() < KEEP / 2 {
                self.order(shelf, kind);
            }
            if let Some(socket) = taken {
                return Ok(socket);
            }
            shelf.target = (shelf.target * 2).min(MOST);
            let (sender, answer) = oneshot::channel();
            shelf.waiting.push_back(sender);
            answer
        };
        answer.await.unwrap_or_else(|_| {
            Err(io::Error::other(
                "the namespace thread has ended; the proxy is stopping",
            ))
        })
    }

    /// Does something in the pod's namespace that no dial waits for. All pods share the thread that does it: it is to be done in
    /// microseconds.
    ///
    /// # Errors
    /// [`io::ErrorKind::ResourceBusy`]: many wait for the thread already, or none is to be had for the moment; or the pod's
    /// namespace cannot be entered, or the thread has ended.
    pub async fn visit<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        let (answer, outcome) = oneshot::channel();
        let pod = self.pod.clone();
        self.thread.visit(Box::new(move |home| {
            // A caller that has given up needs no answer.
            let _ = answer.send(pod.within(home, work));
        }))?;
        outcome.await.unwrap_or_else(|_| {
            Err(io::Error::other(
                "the visiting thread has ended; the proxy is stopping",
            ))
        })
    }

    /// Gives back what nobody needs, to be called every minute or so: all but one socket of a kind that nobody has taken
    /// for five minutes, and of the others what lay untouched since the last call, beyond what is kept at least. Returns
    /// how many sockets were closed.
    pub fn tidy(&self, now: Instant) -> usize {
        let spare: Vec<_> = self
            .lock()
            .iter_mut()
            .flat_map(|shelf| shelf.tidy(now))
            .collect();
        // Closed when nobody waits for the lock.
        spare.len()
    }

    fn order(self: &Arc<Self>, shelf: &mut Shelf, kind: Kind) {
        if !shelf.ordered {
            shelf.target = shelf.target.max(KEEP);
            shelf.ordered = true;
            self.thread
                .send(Errand::Restock(Arc::downgrade(self) as _, kind));
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, [Shelf; KINDS]> {
        // Nothing inside a critical section can leave a shelf half-changed.
        self.shelves.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Restock for SocketPool {
    /// Makes the missing sockets in one visit, and serves those who wait first.
    fn restock(self: Arc<Self>, kind: Kind, home: &Netns) {
        let wanted = {
            let mut shelves = self.lock();
            let shelf = &mut shelves[kind as usize];
            shelf.ordered = false;
            shelf.target + shelf.waiting.len() - shelf.ready.len().min(shelf.target)
        };
        let bare = self
            .pod
            .within(home, || {
                (0..wanted).map(|_| socket::bare(kind)).collect::<Vec<_>>()
            })
            .unwrap_or_else(|error| vec![Err(error)]);
        let mut failure = None;
        let mut made = VecDeque::new();
        for socket in bare {
            match socket.and_then(|socket| socket::finish(socket, kind, &self.options)) {
                Ok(socket) => made.push_back(socket),
                Err(error) => failure = Some(error),
            }
        }
        let mut shelves = self.lock();
        let shelf = &mut shelves[kind as usize];
        while let Some(socket) = made.pop_front() {
            hand_out(shelf, socket);
        }
        if let Some(error) = failure {
            let text = format!("make a socket in the pod's namespace: {error}");
            for waiter in shelf.waiting.drain(..) {
                // A taker that has given up needs no answer.
                let _ = waiter.send(Err(io::Error::new(error.kind(), text.clone())));
            }
        }
        if !shelf.waiting.is_empty() {
            self.order(shelf, kind);
        }
    }
}

fn hand_out(shelf: &mut Shelf, socket: OwnedFd) {
    let mut socket = socket;
    while let Some(waiter) = shelf.waiting.pop_front() {
        match waiter.send(Ok(socket)) {
            Ok(()) => return,
            Err(Ok(back)) => socket = back,
            Err(Err(_)) => return,
        }
    }
    shelf.ready.push_back(socket);
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn socket() -> OwnedFd {
        std::net::UdpSocket::bind("127.0.0.1:0").unwrap().into()
    }

    fn shelf(ready: usize) -> Shelf {
        Shelf {
            ready: (0..ready).map(|_| socket()).collect(),
            target: ready,
            ..Shelf::default()
        }
    }

    #[test]
    fn a_shelf_that_nobody_comes_to_is_given_back_after_five_minutes() {
        let start = Instant::now();
        let mut shelf = shelf(MOST);
        for minute in 0..5 {
            assert!(shelf.tidy(start + minute * MINUTE).is_empty());
        }
        // Somebody came: it begins anew.
        shelf.fewest = Some(3);
        assert!(shelf.tidy(start + 5 * MINUTE).is_empty());
        for minute in 6..11 {
            assert!(shelf.tidy(start + minute * MINUTE).is_empty(), "{minute}");
        }
        assert_eq!(shelf.tidy(start + 11 * MINUTE).len(), MOST - LEAST);
        assert_eq!((shelf.ready.len(), shelf.target), (LEAST, LEAST));
        assert!(shelf.tidy(start + 60 * MINUTE).is_empty());
    }

    #[test]
    fn what_a_burst_left_is_given_back_while_the_shelf_is_in_use() {
        let now = Instant::now();
        let mut shelf = shelf(MOST);
        // Ten were out at most, and no more is made when the next ones go.
        shelf.fewest = Some(MOST - 10);
        assert_eq!(shelf.tidy(now).len(), MOST - 10 - KEEP);
        assert_eq!((shelf.ready.len(), shelf.target), (10 + KEEP, 10 + KEEP));
        // All that is kept at least was needed.
        shelf.fewest = Some(KEEP);
        assert!(shelf.tidy(now).is_empty());
    }
}
