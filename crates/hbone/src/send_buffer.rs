//! Send budget: a limit on the bytes that wait here for peers that do not read. It counts the bytes that streams have handed to
//! their tunnel and that the wire has not taken, and the bytes that relays hold back because of them.
//!
//! Flow control alone does not bound this: a peer may grant windows without end and read nothing.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lateen_exchange::StalledWindow;

/// What a tunnel may have waiting whatever others have: it always moves on.
const FLOOR: usize = 64 * 1024;
/// Claims are rounded up to this, so that few of them are made.
const CLAIM: usize = 256 * 1024;

/// Bytes that may wait for slow peers, on all tunnels that share it; clones share it too.
///
/// What waits is at most this and 64 KiB for each tunnel, and for each stalled stream what its relay reads before it
/// learns that there is no room, 4 KiB when the budget is spent. A spent budget makes applications wait, not fail.
///
/// Answers to what a peer sends, such as those to its PINGs, are not claimed from it: of a peer that leaves 32 KiB of them
/// nothing more is read, so that each tunnel has these and what one read brings forth besides.
#[derive(Debug, Clone)]
pub struct SendBudget(Arc<Ledger>);

#[derive(Debug)]
struct Ledger {
    limit: usize,
    granted: AtomicUsize,
}

impl SendBudget {
    /// The bytes that a process grants unless told otherwise: 64 MiB.
    pub const DEFAULT: usize = 64 << 20;

    /// A budget of so many bytes.
    pub fn new(bytes: usize) -> Self {
        SendBudget(Arc::new(Ledger {
            limit: bytes,
            granted: AtomicUsize::new(0),
        }))
    }

    /// Bytes that all tunnels may have together.
    pub fn limit(&self) -> usize {
        self.0.limit
    }

    /// Bytes that tunnels have now.
    pub fn granted(&self) -> usize {
        self.0.granted.load(Ordering::Relaxed)
    }

    fn claim(&self, bytes: usize) -> bool {
        let grant = |granted: usize| {
            granted
                .checked_add(bytes)
                .filter(|after| *after <= self.0.limit)
        };
        self.0
            .granted
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, grant)
            .is_ok()
    }

    fn release(&self, bytes: usize) {
        self.0.granted.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Default for SendBudget {
    fn default() -> Self {
        SendBudget::new(SendBudget::DEFAULT)
    }
}

/// One tunnel's account.
#[derive(Debug)]
pub(crate) struct SendBuffer {
    budget: SendBudget,
    /// Most bytes that may wait on this tunnel.
    most: usize,
    /// Waiting in the HTTP/2 core and below it.
    queued: Cell<usize>,
    /// Waiting in relays.
    held: Cell<usize>,
    /// Taken from the budget, for what goes beyond the floor.
    claimed: Cell<usize>,
    /// The window that the peer gives us.
    window: StalledWindow,
}

impl SendBuffer {
    pub(crate) fn new(budget: &SendBudget, most: usize) -> Self {
        SendBuffer {
            budget: budget.clone(),
            most: most.max(FLOOR),
            queued: Cell::new(0),
            held: Cell::new(0),
            claimed: Cell::new(0),
            window: StalledWindow::default(),
        }
    }

    /// Bytes that wait in the HTTP/2 core and below it.
    pub(crate) fn queued(&self) -> usize {
        self.queued.get()
    }

    /// True if more waits than a tunnel that is read from leaves waiting.
    pub(crate) fn congested(&self) -> bool {
        self.queued.get() > self.most / 2
    }

    /// True if the peer withholds its window from all streams, see [`StalledWindow`].
    pub(crate) fn withheld(&self) -> bool {
        self.window.withheld()
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

    /// What a relay had better not exceed when it reads for a stream of this tunnel.
    pub(crate) fn advice(&self) -> usize {
        let waits = self.queued.get() + self.held.get();
        if waits < FLOOR {
            return usize::MAX;
        }
        let left = self.budget.0.limit.saturating_sub(self.budget.granted());
        (self.most.saturating_sub(waits)).min(left / 4)
    }

    /// So much waits on the tunnel in all, as its owner counts it; the peer's window holds it up, or not.
    pub(crate) fn owe(&self, queued: usize, held_up: bool) {
        self.window.set(!held_up);
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

    /// The tunnel is over: nothing waits for it any more.
    pub(crate) fn close(&self) {
        self.queued.set(0);
        self.settle();
    }
}

impl Drop for SendBuffer {
    fn drop(&mut self) {
        self.budget.release(self.claimed.get());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Hands over as much as there is room for, a frame at a time.
    fn fill(send_buffer: &SendBuffer) {
        while let room @ 1.. = send_buffer.paid(16 * 1024) {
            send_buffer.owe(send_buffer.queued() + room, false);
        }
    }

    #[test]
    fn a_spent_budget_leaves_every_tunnel_its_floor() {
        let budget = SendBudget::new(CLAIM);
        let greedy = SendBuffer::new(&budget, 4 << 20);
        assert_eq!(greedy.paid(10 << 20), FLOOR);
        fill(&greedy);
        assert_eq!(budget.granted(), CLAIM);
        assert_eq!(greedy.queued(), FLOOR + CLAIM);
        let modest = SendBuffer::new(&budget, 4 << 20);
        assert_eq!(modest.paid(1 << 20), FLOOR);
        drop(greedy);
        assert_eq!(budget.granted(), 0);
    }

    #[test]
    fn what_relays_hold_does_not_stop_a_stream_that_is_read() {
        let budget = SendBudget::new(CLAIM);
        let send_buffer = SendBuffer::new(&budget, 1 << 20);
        for _ in 0..100 {
            send_buffer.hold(0, CLAIM);
        }
        assert_eq!(send_buffer.advice(), 0);
        assert!(send_buffer.paid(1000) > 0);
    }

    proptest! {
        /// Whatever streams do, what is claimed covers what waits, as far as there is a budget, and nothing stays behind.
        #[test]
        fn accounts_are_exact(
            limit in 0usize..3_000_000,
            steps in prop::collection::vec((0u8..4, 0usize..5, 0usize..400_000), 0..200),
        ) {
            let budget = SendBudget::new(limit);
            let send_buffer = SendBuffer::new(&budget, 1 << 20);
            let mut held = [0usize; 5];
            for (what, stream, bytes) in steps {
                match what {
                    0 | 1 => {
                        let room = send_buffer.paid(bytes);
                        prop_assert!(room <= bytes);
                        send_buffer.owe(send_buffer.queued() + room, false);
                        let beyond = send_buffer.queued().saturating_sub(FLOOR);
                        prop_assert!(beyond <= send_buffer.claimed.get());
                    }
                    2 => send_buffer.owe(send_buffer.queued() - bytes.min(send_buffer.queued()), false),
                    _ => {
                        send_buffer.hold(held[stream], bytes);
                        held[stream] = bytes;
                    }
                }
                prop_assert!(budget.granted() <= limit);
                prop_assert_eq!(budget.granted(), send_buffer.claimed.get());
            }
            for bytes in held {
                send_buffer.hold(bytes, 0);
            }
            send_buffer.close();
            prop_assert_eq!(budget.granted(), 0);
        }
    }
}
