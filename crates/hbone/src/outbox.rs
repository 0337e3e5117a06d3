//! How much may wait here for peers that do not read: what streams have handed to their tunnel and the wire has not
//! taken, counted stream by stream, and what their relays hold back because of it.
//!
//! Flow control alone does not bound this: a peer may grant windows without end and read nothing.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use crate::credit::Credit;
use crate::guard::Passing;

/// What a tunnel may have waiting whatever others have: it always moves on.
const FLOOR: usize = 64 * 1024;
/// Claims are rounded up to this, so that few of them are made.
const CLAIM: usize = 256 * 1024;

/// Bytes that may wait for slow peers, on all tunnels that share it; clones share it too.
///
/// What waits is at most this and 64 KiB for each tunnel, and for each stalled stream what its relay reads before it
/// learns that there is no room, 4 KiB when the budget is spent. A spent budget makes applications wait, not fail.
#[derive(Debug, Clone)]
pub struct SendBudget(Arc<Ledger>);

#[derive(Debug)]
struct Ledger {
    limit: usize,
    lent: AtomicUsize,
}

impl SendBudget {
    /// What a process lends unless told otherwise: 64 MiB.
    pub const DEFAULT: usize = 64 << 20;

    /// A budget of so many bytes.
    pub fn new(bytes: usize) -> Self {
        SendBudget(Arc::new(Ledger {
            limit: bytes,
            lent: AtomicUsize::new(0),
        }))
    }

    /// Bytes that all tunnels may have together.
    pub fn limit(&self) -> usize {
        self.0.limit
    }

    /// Bytes that tunnels have now.
    pub fn lent(&self) -> usize {
        self.0.lent.load(Ordering::Relaxed)
    }

    fn claim(&self, bytes: usize) -> bool {
        let lend = |lent: usize| {
            lent.checked_add(bytes)
                .filter(|after| *after <= self.0.limit)
        };
        self.0
            .lent
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, lend)
            .is_ok()
    }

    fn release(&self, bytes: usize) {
        self.0.lent.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Default for SendBudget {
    fn default() -> Self {
        SendBudget::new(SendBudget::DEFAULT)
    }
}

/// One tunnel's account.
#[derive(Debug)]
pub(crate) struct Outbox {
    budget: SendBudget,
    /// Most bytes that may wait on this tunnel.
    most: usize,
    /// Waiting in the HTTP/2 layer.
    queued: Cell<usize>,
    /// Waiting in relays.
    held: Cell<usize>,
    /// Taken from the budget, for what goes beyond the floor.
    claimed: Cell<usize>,
    streams: RefCell<HashMap<u32, Entry>>,
    /// Streams that wait for room.
    waiting: Cell<usize>,
    credit: Credit,
}

#[derive(Debug, Default)]
struct Entry {
    queued: usize,
    waker: Option<Waker>,
    /// The stream was dropped; the entry stays until its bytes have left.
    dropped: bool,
    /// Waits until nothing is queued.
    parting: Option<Waker>,
    /// Nothing more of it goes out: it has nothing queued, and nothing that it does counts any more.
    closed: bool,
}

impl Outbox {
    pub(crate) fn new(budget: &SendBudget, most: usize) -> Self {
        Outbox {
            budget: budget.clone(),
            most: most.max(FLOOR),
            queued: Cell::new(0),
            held: Cell::new(0),
            claimed: Cell::new(0),
            streams: RefCell::default(),
            waiting: Cell::new(0),
            credit: Credit::new(),
        }
    }

    /// Bytes that wait in the HTTP/2 layer.
    pub(crate) fn queued(&self) -> usize {
        self.queued.get()
    }

    /// True if more waits than a tunnel that is read from leaves waiting.
    pub(crate) fn congested(&self) -> bool {
        self.queued.get() > self.most / 2
    }

    /// True if the peer withholds its window from all streams, see [`Credit`].
    pub(crate) fn withheld(&self) -> bool {
        self.credit.withheld()
    }

    /// Makes sure that `total` bytes are paid for.
    fn afford(&self, total: usize) -> bool {
        let missing = total.saturating_sub(FLOOR + self.claimed.get());
        if missing == 0 {
            return true;
        }
        // A part of the last claim may be all that is left.
        for claim in [missing.next_multiple_of(CLAIM), missing] {
            if self.budget.claim(claim) {
                self.claimed.set(self.claimed.get() + claim);
                return true;
            }
        }
        false
    }

    /// Gives back what is no longer needed.
    fn settle(&self) {
        let needed = (self.queued.get() + self.held.get()).saturating_sub(FLOOR);
        let excess = self
            .claimed
            .get()
            .saturating_sub(needed.next_multiple_of(CLAIM));
        if excess > 0 {
            self.claimed.set(self.claimed.get() - excess);
            self.budget.release(excess);
        }
    }

    /// A stream begins. Those that did not, or whose end passed, have no account: the HTTP/2 layer takes nothing of them.
    pub(crate) fn open(&self, stream: u32) {
        self.streams.borrow_mut().insert(stream, Entry::default());
    }

    /// Room for at most `wanted` bytes of a stream; at least one when ready. A stream without an account does not wait:
    /// the HTTP/2 layer knows why there will be no room.
    pub(crate) fn poll_room(
        &self,
        cx: &mut Context<'_>,
        stream: u32,
        wanted: usize,
    ) -> Poll<usize> {
        let queued = self.queued.get();
        let room = self.most.saturating_sub(queued).min(wanted);
        if room > 0 && self.afford(queued + self.held.get() + room) {
            return Poll::Ready(room);
        }
        // The floor is there for every tunnel, and what relays hold does not count against it.
        let room = FLOOR.saturating_sub(queued).min(wanted);
        if room > 0 {
            return Poll::Ready(room);
        }
        let mut streams = self.streams.borrow_mut();
        let Some(entry) = streams.get_mut(&stream).filter(|entry| !entry.closed) else {
            return Poll::Ready(wanted);
        };
        if entry.waker.replace(cx.waker().clone()).is_none() {
            self.waiting.set(self.waiting.get() + 1);
        }
        Poll::Pending
    }

    /// What a relay had better not exceed when it reads for a stream of this tunnel.
    pub(crate) fn advice(&self) -> usize {
        let waits = self.queued.get() + self.held.get();
        if waits < FLOOR {
            return usize::MAX;
        }
        let left = self.budget.0.limit.saturating_sub(self.budget.lent());
        (self.most.saturating_sub(waits)).min(left / 4)
    }

    /// Bytes of a stream that wait; registered for when there are none.
    pub(crate) fn left(&self, cx: &mut Context<'_>, stream: u32) -> usize {
        let mut streams = self.streams.borrow_mut();
        let Some(entry) = streams.get_mut(&stream).filter(|entry| entry.queued > 0) else {
            return 0;
        };
        entry.parting = Some(cx.waker().clone());
        entry.queued
    }

    /// A stream handed over so many bytes.
    pub(crate) fn queue(&self, stream: u32, bytes: usize) {
        let mut streams = self.streams.borrow_mut();
        if let Some(entry) = streams.get_mut(&stream).filter(|entry| !entry.closed) {
            entry.queued += bytes;
            self.queued.set(self.queued.get() + bytes);
        }
    }

    /// So much waits on the tunnel in all, as its owner counts it; the peer's window holds it up, or not.
    pub(crate) fn owe(&self, queued: usize, held_up: bool) {
        self.credit.set(!held_up);
        let before = self.queued.replace(queued);
        if queued < before {
            self.settle();
        }
    }

    /// How much of `room` the budget pays for.
    pub(crate) fn paid(&self, room: usize) -> usize {
        let queued = self.queued.get();
        if room > 0 && self.afford(queued + self.held.get() + room) {
            return room;
        }
        // The floor is there for every tunnel, and what relays hold does not count against it.
        room.min(FLOOR.saturating_sub(queued))
    }

    /// A stream's relay holds `now` bytes back; it held `before`.
    pub(crate) fn hold(&self, before: usize, now: usize) {
        self.held.set(self.held.get() + now - before);
        if now < before {
            self.settle();
        } else {
            // They are there already: a budget that has nothing left makes the next read a small one.
            self.afford(self.queued.get() + self.held.get());
        }
    }

    /// Something passed on the wire; the HTTP/2 layer has acted on it if it ends a stream.
    pub(crate) fn passed(&self, passing: Passing) {
        let mut streams = self.streams.borrow_mut();
        let gone = match passing {
            Passing::Sent(stream, bytes) => {
                self.credit.sent(bytes);
                streams.get_mut(&stream).map_or(0, |entry| {
                    let gone = entry.queued.min(bytes as usize);
                    entry.queued -= gone;
                    if entry.queued == 0
                        && let Some(waker) = entry.parting.take()
                    {
                        waker.wake();
                    }
                    gone
                })
            }
            Passing::Granted(bytes) => {
                self.credit.granted(bytes);
                0
            }
            Passing::Closed(stream) => match streams.get_mut(&stream) {
                Some(entry) => {
                    let gone = self.end(entry);
                    if entry.dropped {
                        streams.remove(&stream);
                    }
                    gone
                }
                None => 0,
            },
            Passing::Away(last) => {
                let mut gone = 0;
                streams.retain(|stream, entry| {
                    if *stream > last {
                        gone += self.end(entry);
                    }
                    !(entry.closed && entry.dropped)
                });
                gone
            }
        };
        drop(streams);
        if gone > 0 {
            self.queued.set(self.queued.get() - gone);
            self.settle();
            self.wake();
        }
    }

    /// Nothing more of a stream goes out: returns what it had queued, and lets it see why.
    fn end(&self, entry: &mut Entry) -> usize {
        entry.closed = true;
        if let Some(waker) = entry.parting.take() {
            waker.wake();
        }
        if let Some(waker) = entry.waker.take() {
            self.waiting.set(self.waiting.get() - 1);
            waker.wake();
        }
        std::mem::take(&mut entry.queued)
    }

    /// A stream is dropped.
    pub(crate) fn forget(&self, stream: u32) {
        let mut streams = self.streams.borrow_mut();
        let Some(entry) = streams.get_mut(&stream) else {
            return;
        };
        if entry.waker.take().is_some() {
            self.waiting.set(self.waiting.get() - 1);
        }
        entry.parting = None;
        entry.dropped = true;
        if entry.queued == 0 {
            streams.remove(&stream);
        }
        // It may have found room that it did not use.
        self.settle();
    }

    /// The tunnel is over: nothing waits for it any more.
    pub(crate) fn close(&self) {
        for entry in self.streams.borrow_mut().values_mut() {
            entry.queued = 0;
            entry.closed = true;
            if let Some(waker) = entry.parting.take() {
                waker.wake();
            }
        }
        self.queued.set(0);
        self.settle();
        self.wake();
    }

    /// Wakes those that wait, once there is enough room to be worth it.
    fn wake(&self) {
        if self.waiting.get() == 0 || self.queued.get() > FLOOR / 2 && self.congested() {
            return;
        }
        self.waiting.set(0);
        for entry in self.streams.borrow_mut().values_mut() {
            if let Some(waker) = entry.waker.take() {
                waker.wake();
            }
        }
    }
}

/// Closes an outbox when its tunnel's task is over, however it ends.
#[derive(Debug)]
pub(crate) struct CloseOnDrop(pub(crate) Rc<Outbox>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        self.budget.release(self.claimed.get());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cx() -> Context<'static> {
        Context::from_waker(Waker::noop())
    }

    #[test]
    fn a_spent_budget_leaves_every_tunnel_its_floor() {
        let budget = SendBudget::new(CLAIM);
        let greedy = Outbox::new(&budget, 4 << 20);
        greedy.open(1);
        let room = greedy.poll_room(&mut cx(), 1, 10 << 20);
        assert_eq!(room, Poll::Ready(FLOOR));
        greedy.queue(1, FLOOR);
        while let Poll::Ready(room) = greedy.poll_room(&mut cx(), 1, 16 * 1024) {
            greedy.queue(1, room);
        }
        assert_eq!(budget.lent(), CLAIM);
        assert_eq!(greedy.queued(), FLOOR + CLAIM);
        let modest = Outbox::new(&budget, 4 << 20);
        assert_eq!(modest.poll_room(&mut cx(), 1, 1 << 20), Poll::Ready(FLOOR));
        drop(greedy);
        assert_eq!(budget.lent(), 0);
    }

    #[test]
    fn what_relays_hold_does_not_stop_a_stream_that_is_read() {
        let budget = SendBudget::new(CLAIM);
        let outbox = Outbox::new(&budget, 1 << 20);
        for _ in 0..100 {
            outbox.hold(0, CLAIM);
        }
        assert_eq!(outbox.advice(), 0);
        assert!(outbox.poll_room(&mut cx(), 7, 1000).is_ready());
    }

    #[test]
    fn a_stream_that_waits_is_woken_when_bytes_have_left() {
        use std::sync::atomic::AtomicBool;
        struct Flag(AtomicBool);
        impl std::task::Wake for Flag {
            fn wake(self: Arc<Self>) {
                self.0.store(true, Ordering::SeqCst);
            }
        }
        let outbox = Outbox::new(&SendBudget::default(), FLOOR);
        outbox.open(1);
        outbox.open(3);
        outbox.queue(1, FLOOR);
        let flag = Arc::new(Flag(AtomicBool::new(false)));
        let waker = Waker::from(Arc::clone(&flag));
        let mut cx = Context::from_waker(&waker);
        assert!(outbox.poll_room(&mut cx, 3, 10).is_pending());
        outbox.passed(Passing::Sent(1, FLOOR as u32));
        assert!(flag.0.load(Ordering::SeqCst));
        assert_eq!(outbox.poll_room(&mut cx, 3, 10), Poll::Ready(10));
    }

    proptest! {
        /// Whatever streams do, the sums agree with the parts and nothing stays behind: not of streams that go on after
        /// their end has passed, each alone or all beyond the last that a GOAWAY names.
        #[test]
        fn accounts_are_exact(
            limit in 0usize..3_000_000,
            steps in prop::collection::vec((0u8..8, 0u32..5, 0usize..400_000), 0..200),
        ) {
            let budget = SendBudget::new(limit);
            let outbox = Outbox::new(&budget, 1 << 20);
            let mut cx = cx();
            let (mut queued, mut held) = ([0usize; 5], [0usize; 5]);
            let (mut closed, mut dropped) = ([false; 5], [false; 5]);
            (0..5).for_each(|stream| outbox.open(stream));
            for (what, stream, bytes) in steps {
                let at = stream as usize;
                match what {
                    // Who is dropped does nothing more, and its number does not come again.
                    0..=2 if !dropped[at] => if let Poll::Ready(room) = outbox.poll_room(&mut cx, stream, bytes.max(1)) {
                        prop_assert!(room > 0 && room <= bytes.max(1));
                        outbox.queue(stream, room);
                        if !closed[at] {
                            queued[at] += room;
                        }
                    } else {
                        prop_assert!(!closed[at], "a stream that is over waits");
                    },
                    3 => {
                        let n = bytes.min(queued[at]);
                        outbox.passed(Passing::Sent(stream, n as u32));
                        queued[at] -= n;
                    }
                    4 if !dropped[at] => {
                        outbox.hold(held[at], bytes);
                        held[at] = bytes;
                    }
                    5 => {
                        outbox.passed(Passing::Closed(stream));
                        (queued[at], closed[at]) = (0, true);
                    }
                    6 if bytes % 4 == 0 => {
                        outbox.passed(Passing::Away(stream));
                        (at + 1..5).for_each(|beyond| (queued[beyond], closed[beyond]) = (0, true));
                    }
                    7 => {
                        outbox.hold(held[at], 0);
                        held[at] = 0;
                        outbox.forget(stream);
                        dropped[at] = true;
                    }
                    _ => {}
                }
                prop_assert_eq!(outbox.queued(), queued.iter().sum::<usize>());
                prop_assert!(outbox.queued() <= 1 << 20);
                prop_assert!(budget.lent() <= limit);
                prop_assert_eq!(budget.lent(), outbox.claimed.get());
            }
            for stream in 0..5 {
                outbox.hold(held[stream as usize], 0);
                outbox.forget(stream);
                if !closed[stream as usize] {
                    outbox.passed(Passing::Closed(stream));
                }
            }
            prop_assert_eq!(outbox.queued(), 0);
            prop_assert!(outbox.streams.borrow().is_empty());
            prop_assert_eq!(outbox.waiting.get(), 0);
            prop_assert_eq!(budget.lent(), 0);
        }
    }
}
