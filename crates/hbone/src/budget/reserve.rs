//! Reserve: the part of a ledger that is kept for first windows. It knows sums and shares, not their owners.
//!
//! The common part may have nothing left for a pair of peer and pod, because others took their peer's or their pod's part of
//! it. The reserve then grants the rest of a first window. That is as much as it takes to find out which tunnels move much, and
//! credit that is never used is at least little.
//!
//! At most half of the reserve is for one tenant or one pod, and a quarter for one tenant with one pod. While half of each of
//! these is left, each pair gets a full first window. Below that, windows shrink by the square of what is left, so the next
//! pair's window falls with the square of the number of pairs. A fixed fraction of what is left would fall exponentially, and
//! the last pair that got a full window would take the whole rest.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::party::Party;

/// One in so many bytes of the ledger: 8 of 64 MiB.
const RESERVE: usize = 8;

/// How many first windows there are in a reserve: of 256 KiB in 8 MiB.
const FIRST_WINDOWS: usize = 32;

#[derive(Debug)]
pub(super) struct Reserve {
    size: usize,
    granted: AtomicUsize,
}

impl Party {
    /// One in so many bytes of the reserve is for the party at most.
    pub(super) fn share(&self) -> usize {
        match self {
            Party::Tenant(..) | Party::Peer(_) | Party::Pod(_) => 2,
            Party::Visit(..) | Party::Pair(..) => 4,
        }
    }
}

impl Reserve {
    /// The reserve of a ledger.
    pub(super) fn of(ledger: usize) -> Self {
        Reserve {
            size: ledger / RESERVE,
            granted: AtomicUsize::new(0),
        }
    }

    pub(super) fn size(&self) -> usize {
        self.size
    }

    pub(super) fn granted(&self) -> usize {
        self.granted.load(Ordering::Relaxed)
    }

    pub(super) fn first_window(&self) -> usize {
        self.size / FIRST_WINDOWS
    }

    pub(super) fn is_low(&self) -> bool {
        self.granted() > self.size / 2
    }

    /// The most that a pair may have by a share, one in `share`, of which others have so much.
    pub(super) fn window(&self, share: usize, others: usize) -> usize {
        let size = self.size / share;
        let half = (size / 2) as u128;
        let left = half.min(size.saturating_sub(others) as u128);
        let window = self.first_window() as u128 * left * left;
        window.checked_div(half * half).unwrap_or(0) as usize
    }

    /// Grants all of `bytes` or nothing; returns the bytes granted.
    pub(super) fn claim(&self, bytes: usize) -> usize {
        let raise =
            |granted: usize| (bytes > 0 && granted + bytes <= self.size).then_some(granted + bytes);
        let granted = self
            .granted
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, raise);
        granted.map_or(0, |_| bytes)
    }

    pub(super) fn release(&self, bytes: usize) {
        self.granted.fetch_sub(bytes, Ordering::Relaxed);
    }
}
