//! How much unread data peers may have us hold: credit is lent from a budget before it is granted.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::stream::Load;

/// The window that every connection has from its start (RFC 9113 §6.9.2); it is not taken from a budget.
pub(crate) const FLOOR: u32 = 65_535;

/// Credit that the tunnels of a process share; clones share it too.
///
/// What peers can make a process hold unread is at most the budget and 64 KiB for each of its tunnels,
/// whatever they do and however many tunnels they open; in memory, at most about twice that. No tunnel
/// takes more than a quarter of what it finds, so that a peer that reads nothing leaves some to others.
#[derive(Debug, Clone)]
pub struct Budget(Arc<Ledger>);

#[derive(Debug)]
struct Ledger {
    limit: usize,
    lent: AtomicUsize,
}

impl Budget {
    /// What a process lends unless told otherwise: 64 MiB.
    pub const DEFAULT: usize = 64 << 20;

    /// A budget of so many bytes.
    pub fn new(bytes: usize) -> Self {
        Budget(Arc::new(Ledger {
            limit: bytes,
            lent: AtomicUsize::new(0),
        }))
    }

    /// Bytes that tunnels have now.
    pub fn lent(&self) -> usize {
        self.0.lent.load(Ordering::Relaxed)
    }

    /// Lends to a tunnel that has `own` and wants `wanted`; returns how much more it has now.
    fn claim(&self, own: u32, wanted: u32) -> u32 {
        let own = own as usize;
        let more = |lent: usize| {
            let share = (self.0.limit.saturating_sub(lent) + own) / 4;
            share.min(wanted as usize).saturating_sub(own)
        };
        let lent = self
            .0
            .lent
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |lent| {
                Some(lent + more(lent)).filter(|after| *after > lent)
            });
        lent.map_or(0, |before| more(before) as u32)
    }

    fn release(&self, bytes: u32) {
        self.0.lent.fetch_sub(bytes as usize, Ordering::Relaxed);
    }
}

impl Default for Budget {
    fn default() -> Self {
        Budget::new(Budget::DEFAULT)
    }
}

/// One tunnel's connection window. HTTP/2 counts unread bytes of a stream against the connection too, so
/// it grows with the streams: those that nobody reads stall themselves and, while credit lasts, not their neighbours.
#[derive(Debug)]
pub(crate) struct Windows {
    budget: Budget,
    per_stream: u32,
    most: u32,
    /// Taken from the budget: what the peer may use beyond the floor.
    lent: u32,
    /// What the peer is to have beyond the floor. Below `lent` while it has credit that cannot be
    /// called back (RFC 9113 §6.9): it goes back to the budget as the peer uses it up.
    target: u32,
    /// [`Load::read`] when `lent` was last settled.
    settled: u64,
}

impl Windows {
    pub(crate) fn new(budget: &Budget, per_stream: u32, most: u32) -> Self {
        Windows {
            budget: budget.clone(),
            per_stream,
            // An HTTP/2 window is a positive 32-bit number.
            most: most.min(i32::MAX as u32 - FLOOR),
            lent: 0,
            target: 0,
            settled: 0,
        }
    }

    fn wanted(&self, load: &Load) -> u32 {
        let streams = u32::try_from(load.active()).unwrap_or(u32::MAX);
        self.per_stream.saturating_mul(streams).min(self.most)
    }

    /// The connection window for the streams there are, if it is to be larger now.
    pub(crate) fn grow(&mut self, load: &Load) -> Option<u32> {
        let wanted = self.wanted(load);
        if wanted <= self.target {
            return None;
        }
        self.settle(load);
        if wanted > self.lent {
            self.lent += self.budget.claim(self.lent, wanted);
        }
        let target = wanted.min(self.lent);
        (target > self.target).then(|| self.aim(target))
    }

    /// The connection window for the streams that are left, if it is to be smaller; ask now and then.
    pub(crate) fn shrink(&mut self, load: &Load) -> Option<u32> {
        self.settle(load);
        let wanted = self.wanted(load);
        (wanted < self.target).then(|| self.aim(wanted))
    }

    fn aim(&mut self, target: u32) -> u32 {
        self.target = target;
        FLOOR + target
    }

    /// Returns what the peer has used up of the credit that is not renewed.
    fn settle(&mut self, load: &Load) {
        let read = load.read() - self.settled;
        self.settled = load.read();
        let excess = self.lent - self.target;
        let used = u32::try_from(read).unwrap_or(u32::MAX).min(excess);
        self.lent -= used;
        self.budget.release(used);
    }
}

impl Drop for Windows {
    fn drop(&mut self) {
        self.budget.release(self.lent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    use crate::outbox::{Outbox, SendBudget};

    const MIB: u32 = 1 << 20;

    fn load() -> std::rc::Rc<Load> {
        Load::new(&std::rc::Rc::new(Outbox::new(
            &SendBudget::default(),
            1 << 20,
        )))
    }

    #[test]
    fn credit_returns_as_it_is_used_up_and_at_the_end() {
        let budget = Budget::new(64 << 20);
        let load = load();
        let mut windows = Windows::new(&budget, MIB, 16 * MIB);
        let slots: Vec<_> = (0..8).map(|_| load.occupy()).collect();
        assert_eq!(windows.grow(&load), Some(FLOOR + 8 * MIB));
        assert_eq!(windows.grow(&load), None);
        drop(slots);
        assert_eq!(windows.shrink(&load), Some(FLOOR));
        assert_eq!(budget.lent(), 8 << 20);
        load.was_read(3 << 20);
        assert_eq!(windows.shrink(&load), None);
        assert_eq!(budget.lent(), 5 << 20);
        drop(windows);
        assert_eq!(budget.lent(), 0);
    }

    #[test]
    fn those_who_come_late_find_something() {
        let budget = Budget::new(64 << 20);
        let load = load();
        let _slots: Vec<_> = (0..200).map(|_| load.occupy()).collect();
        let mut tunnels: Vec<_> = (0..5)
            .map(|_| Windows::new(&budget, MIB, 16 * MIB))
            .collect();
        for _ in 0..10 {
            for windows in &mut tunnels {
                windows.grow(&load);
            }
        }
        let mut late = Windows::new(&budget, MIB, 16 * MIB);
        assert!(late.grow(&load).unwrap() >= 2 * MIB);
        assert!(budget.lent() <= 64 << 20);
    }

    proptest! {
        #[test]
        fn never_lends_more_than_there_is(
            limit in 0usize..20_000_000,
            steps in prop::collection::vec((0usize..4, 0usize..40, 0u64..5_000_000, any::<bool>()), 0..80),
        ) {
            let budget = Budget::new(limit);
            let load = [(); 4].map(|()| load());
            let mut slots = [(); 4].map(|()| Vec::new());
            let mut tunnels = [(); 4].map(|()| Windows::new(&budget, MIB, 16 * MIB));
            for (which, streams, read, shrink) in steps {
                slots[which].truncate(streams);
                while slots[which].len() < streams {
                    slots[which].push(load[which].occupy());
                }
                load[which].was_read(read);
                if shrink {
                    tunnels[which].shrink(&load[which]);
                } else {
                    tunnels[which].grow(&load[which]);
                }
                prop_assert!(budget.lent() <= limit);
                let sum: usize = tunnels.iter().map(|t| t.lent as usize).sum();
                prop_assert_eq!(sum, budget.lent());
                prop_assert!(tunnels.iter().all(|t| t.target <= t.lent));
            }
            drop(tunnels);
            prop_assert_eq!(budget.lent(), 0);
        }
    }
}
