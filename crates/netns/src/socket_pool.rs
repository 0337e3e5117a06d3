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
use crate::thread::{Errand, NamespaceThread, Refill};

/// Sockets kept ready of each kind that a pod has used.
const KEEP: usize = 8;
/// Upper end of a refill, reached when dialling outruns the namespace thread.
const MOST: usize = 64;
/// How long nobody may have taken a socket of a kind before its free list is shortened.
const IDLE: Duration = Duration::from_secs(300);
/// Length of an idle free list, so that the next dial does not wait.
const LEAST: usize = 1;

const KINDS: usize = 6;

/// One pod's sockets: non-blocking, marked, neither bound nor connected; those for TCP have TCP_NODELAY and keepalive set.
///
/// Dropping the pool closes the sockets of its free lists; a socket in it would keep the pod's namespace alive.
#[derive(Debug)]
pub struct SocketPool {
    pod: Netns,
    options: Options,
    thread: NamespaceThread,
    free_lists: Mutex<[FreeList; KINDS]>,
}

#[derive(Debug, Default)]
struct FreeList {
    ready: VecDeque<OwnedFd>,
    waiting: VecDeque<oneshot::Sender<io::Result<OwnedFd>>>,
    /// A refill is under way.
    ordered: bool,
    /// Sockets to have after a refill; doubles when the list was found empty.
    target: usize,
    /// The fewest that were ready after a taker since the last look; `None` when nobody came.
    fewest: Option<usize>,
    /// When a look first found that nobody had come.
    quiet: Option<Instant>,
}

impl FreeList {
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
        // A refill that is under way may go by the target from before: what it makes is tidied away later.
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
            free_lists: Mutex::default(),
        })
    }

    /// The namespace that the sockets live in.
    pub fn netns(&self) -> &Netns {
        &self.pod
    }

    /// Orders sockets of this kind ahead of need.
    pub fn prepare(self: &Arc<Self>, kind: Kind) {
        let mut free_lists = self.lock();
        self.order(&mut free_lists[kind as usize], kind);
    }

    /// A socket that nobody else has; waits only when the free list is empty.
    ///
    /// # Errors
    /// The pod's namespace cannot be entered or makes no sockets, or the namespace thread has ended.
    pub async fn take(self: &Arc<Self>, kind: Kind) -> io::Result<OwnedFd> {
        let answer = {
            let mut free_lists = self.lock();
            let list = &mut free_lists[kind as usize];
            let taken = list.ready.pop_front();
            let left = list.ready.len();
            list.fewest = Some(list.fewest.map_or(left, |fewest| fewest.min(left)));
            if list.ready.len() < KEEP / 2 {
                self.order(list, kind);
            }
            if let Some(socket) = taken {
                return Ok(socket);
            }
            list.target = (list.target * 2).min(MOST);
            let (sender, answer) = oneshot::channel();
            list.waiting.push_back(sender);
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
            .flat_map(|list| list.tidy(now))
            .collect();
        // Closed when nobody waits for the lock.
        spare.len()
    }

    fn order(self: &Arc<Self>, list: &mut FreeList, kind: Kind) {
        if !list.ordered {
            list.target = list.target.max(KEEP);
            list.ordered = true;
            self.thread
                .send(Errand::Refill(Arc::downgrade(self) as _, kind));
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, [FreeList; KINDS]> {
        // Nothing inside a critical section can leave a list half-changed.
        self.free_lists
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Refill for SocketPool {
    /// Makes the missing sockets in one visit, and serves those who wait first.
    fn refill(self: Arc<Self>, kind: Kind, home: &Netns) {
        let wanted = {
            let mut free_lists = self.lock();
            let list = &mut free_lists[kind as usize];
            list.ordered = false;
            list.target + list.waiting.len() - list.ready.len().min(list.target)
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
        let mut free_lists = self.lock();
        let list = &mut free_lists[kind as usize];
        while let Some(socket) = made.pop_front() {
            hand_out(list, socket);
        }
        if let Some(error) = failure {
            let text = format!("make a socket in the pod's namespace: {error}");
            for waiter in list.waiting.drain(..) {
                // A taker that has given up needs no answer.
                let _ = waiter.send(Err(io::Error::new(error.kind(), text.clone())));
            }
        }
        if !list.waiting.is_empty() {
            self.order(list, kind);
        }
    }
}

fn hand_out(list: &mut FreeList, socket: OwnedFd) {
    let mut socket = socket;
    while let Some(waiter) = list.waiting.pop_front() {
        match waiter.send(Ok(socket)) {
            Ok(()) => return,
            Err(Ok(back)) => socket = back,
            Err(Err(_)) => return,
        }
    }
    list.ready.push_back(socket);
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn socket() -> OwnedFd {
        std::net::UdpSocket::bind("127.0.0.1:0").unwrap().into()
    }

    fn list(ready: usize) -> FreeList {
        FreeList {
            ready: (0..ready).map(|_| socket()).collect(),
            target: ready,
            ..FreeList::default()
        }
    }

    #[test]
    fn an_unused_free_list_is_shortened_after_five_minutes() {
        let start = Instant::now();
        let mut list = list(MOST);
        for minute in 0..5 {
            assert!(list.tidy(start + minute * MINUTE).is_empty());
        }
        // Somebody came: it begins anew.
        list.fewest = Some(3);
        assert!(list.tidy(start + 5 * MINUTE).is_empty());
        for minute in 6..11 {
            assert!(list.tidy(start + minute * MINUTE).is_empty(), "{minute}");
        }
        assert_eq!(list.tidy(start + 11 * MINUTE).len(), MOST - LEAST);
        assert_eq!((list.ready.len(), list.target), (LEAST, LEAST));
        assert!(list.tidy(start + 60 * MINUTE).is_empty());
    }

    #[test]
    fn sockets_of_a_past_burst_are_closed_while_the_free_list_is_in_use() {
        let now = Instant::now();
        let mut list = list(MOST);
        // Ten were out at most, and no more is made when the next ones go.
        list.fewest = Some(MOST - 10);
        assert_eq!(list.tidy(now).len(), MOST - 10 - KEEP);
        assert_eq!((list.ready.len(), list.target), (10 + KEEP, 10 + KEEP));
        // All that is kept at least was needed.
        list.fewest = Some(KEEP);
        assert!(list.tidy(now).is_empty());
    }
}
