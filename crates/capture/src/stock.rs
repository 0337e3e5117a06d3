//! A small stock of prepared sockets per pod, so that dialling needs no visit to the pod's namespace.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::oneshot;

use crate::netns::Netns;
use crate::socket::Options;
use crate::thread::{Errand, NamespaceThread};

/// Sockets kept ready of each kind that a pod has used.
const KEEP: usize = 8;
/// Upper end of a restock, reached when dialling outruns the namespace thread.
const MOST: usize = 64;

/// What a socket is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// IPv4, marked as the proxy's own.
    Outbound,
    /// IPv4, marked, and may bind addresses that are not the pod's: towards the application, from the client's address.
    Transparent,
    /// As `Outbound`, for IPv6.
    Outbound6,
    /// As `Transparent`, for IPv6.
    Transparent6,
    /// UDP over IPv4, marked as the proxy's own.
    Datagram,
    /// As `Datagram`, for IPv6.
    Datagram6,
}

const KINDS: usize = 6;

/// One pod's sockets: non-blocking, marked, neither bound nor connected; those for TCP have TCP_NODELAY and keepalive set.
///
/// Dropping the stock closes what is on its shelves; a socket in it would keep the pod's namespace alive.
#[derive(Debug)]
pub struct Stock {
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
}

impl Stock {
    /// An empty stock of sockets in `pod`; the first taker of a kind waits for the namespace thread.
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

    fn order(self: &Arc<Self>, shelf: &mut Shelf, kind: Kind) {
        if !shelf.ordered {
            shelf.target = shelf.target.max(KEEP);
            shelf.ordered = true;
            self.thread
                .send(Errand::Restock(Arc::downgrade(self), kind));
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, [Shelf; KINDS]> {
        // Nothing inside a critical section can leave a shelf half-changed.
        self.shelves.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The namespace thread's side: makes what is missing in one visit, serves those who wait first.
pub(crate) fn restock(stock: &Weak<Stock>, kind: Kind, home: &Netns) {
    let Some(stock) = stock.upgrade() else {
        return;
    };
    let wanted = {
        let mut shelves = stock.lock();
        let shelf = &mut shelves[kind as usize];
        shelf.ordered = false;
        shelf.target + shelf.waiting.len() - shelf.ready.len().min(shelf.target)
    };
    let bare = stock
        .pod
        .within(home, || {
            (0..wanted)
                .map(|_| crate::socket::bare(kind))
                .collect::<Vec<_>>()
        })
        .unwrap_or_else(|error| vec![Err(error)]);
    let mut failure = None;
    let mut made = VecDeque::new();
    for socket in bare {
        match socket.and_then(|socket| crate::socket::finish(socket, kind, &stock.options)) {
            Ok(socket) => made.push_back(socket),
            Err(error) => failure = Some(error),
        }
    }
    let mut shelves = stock.lock();
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
        stock.order(shelf, kind);
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
