//! What a process lends its peers as flow-control credit, and what one of them may have of it. It knows sums and names,
//! no tunnels: what a tunnel wants is [`crate::windows`]'s.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Credit that the tunnels of a process share; clones share it too.
///
/// What peers can make a process hold unread is at most the budget and 64 KiB for each of its tunnels,
/// whatever they do and however many tunnels they open; in memory, at most about twice that. No tunnel
/// takes more than a quarter of what it finds, so that a peer that reads nothing leaves some to others, and
/// no peer more than a quarter of all, see [`Budget::share`].
#[derive(Debug, Clone)]
pub struct Budget {
    ledger: Arc<Ledger>,
    share: Option<Arc<Share>>,
}

#[derive(Debug)]
struct Ledger {
    limit: usize,
    lent: AtomicUsize,
    shares: Mutex<HashMap<Box<str>, Weak<Share>>>,
}

/// What one peer has.
#[derive(Debug)]
struct Share {
    peer: Box<str>,
    lent: AtomicUsize,
    ledger: Arc<Ledger>,
}

impl Ledger {
    fn shares(&self) -> MutexGuard<'_, HashMap<Box<str>, Weak<Share>>> {
        // Nothing panics while it is locked.
        self.shares.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut shares = self.ledger.shares();
        // Unless the peer came back meanwhile.
        if shares
            .get(&self.peer)
            .is_some_and(|s| s.strong_count() == 0)
        {
            shares.remove(&self.peer);
        }
    }
}

/// Adds what `more` makes of the sum; returns that.
fn add(sum: &AtomicUsize, more: impl Fn(usize) -> usize) -> usize {
    sum.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |lent| {
        Some(lent + more(lent)).filter(|after| *after > lent)
    })
    .map_or(0, more)
}

impl Budget {
    /// What a process lends unless told otherwise: 64 MiB.
    pub const DEFAULT: usize = 64 << 20;

    /// A budget of so many bytes.
    pub fn new(bytes: usize) -> Self {
        Budget {
            ledger: Arc::new(Ledger {
                limit: bytes,
                lent: AtomicUsize::new(0),
                shares: Mutex::default(),
            }),
            share: None,
        }
    }

    /// The same budget for the tunnels of one peer, by whatever it cannot choose freely: the identity that it proved, or
    /// else its address. All of them together have at most a quarter of the budget.
    pub fn share(&self, peer: &str) -> Self {
        let mut shares = self.ledger.shares();
        let share = shares.get(peer).and_then(Weak::upgrade);
        let share = share.unwrap_or_else(|| {
            let share = Arc::new(Share {
                peer: peer.into(),
                lent: AtomicUsize::new(0),
                ledger: Arc::clone(&self.ledger),
            });
            shares.insert(peer.into(), Arc::downgrade(&share));
            share
        });
        drop(shares);
        Budget {
            ledger: Arc::clone(&self.ledger),
            share: Some(share),
        }
    }

    /// Bytes that tunnels have now.
    pub fn lent(&self) -> usize {
        self.ledger.lent.load(Ordering::Relaxed)
    }

    /// The most that one peer may have.
    fn most(&self) -> usize {
        self.ledger.limit / 4
    }

    /// True if less than half is left, of all or of the peer's share: who needs none should give back.
    pub(crate) fn is_short(&self) -> bool {
        let share = self
            .share
            .as_ref()
            .map_or(0, |share| share.lent.load(Ordering::Relaxed));
        self.lent() > self.ledger.limit / 2 || share > self.most() / 2
    }

    /// Lends to a tunnel that has `own` and wants `wanted`; returns how much more it has now.
    pub(crate) fn claim(&self, own: u32, wanted: u32) -> u32 {
        let own = own as usize;
        let wanted = wanted as usize;
        let claimed = add(&self.ledger.lent, |lent| {
            let part = (self.ledger.limit.saturating_sub(lent) + own) / 4;
            part.min(wanted).saturating_sub(own)
        });
        let Some(share) = &self.share else {
            return claimed as u32;
        };
        let allowed = add(&share.lent, |lent| {
            // Its other tunnels shall find something too.
            let part = (self.most().saturating_sub(lent) + own) / 2;
            part.min(own + claimed).saturating_sub(own)
        });
        self.ledger
            .lent
            .fetch_sub(claimed - allowed, Ordering::Relaxed);
        allowed as u32
    }

    pub(crate) fn release(&self, bytes: u32) {
        let bytes = bytes as usize;
        if let Some(share) = &self.share {
            share.lent.fetch_sub(bytes, Ordering::Relaxed);
        }
        self.ledger.lent.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Default for Budget {
    fn default() -> Self {
        Budget::new(Budget::DEFAULT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_has_a_quarter_however_often_it_asks() {
        let all = Budget::new(64 << 20);
        let tunnels: Vec<_> = (0..100).map(|_| all.share("greedy")).collect();
        let had: u32 = tunnels.iter().map(|t| t.claim(0, 16 << 20)).sum();
        assert!(had <= 16 << 20, "{had}");
        assert!(had >= 12 << 20, "{had}");
        assert_eq!(all.lent(), had as usize);
        assert!(tunnels[0].is_short() && !all.share("modest").is_short());
        assert_eq!(all.share("modest").claim(0, 4 << 20), 4 << 20);
    }

    #[test]
    fn shares_are_forgotten_with_their_last_tunnel() {
        let all = Budget::new(1 << 20);
        let one = all.share("a");
        let two = one.clone();
        let other = all.share("b");
        drop(one);
        assert_eq!(all.ledger.shares().len(), 2);
        drop((two, other));
        assert_eq!(all.ledger.shares().len(), 0);
    }
}
