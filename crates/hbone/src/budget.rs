//! Receive budget of a process: the flow-control credit that it grants to its peers, and the share of each party. It knows sums
//! and names, no tunnels. [`crate::recv_window`] computes what a tunnel asks for.
//!
//! Credit is spent when bytes arrive and returns when they are read. The process can hurry neither: a peer that does not send
//! keeps credit, and so does a pod that does not read. So a tunnel is charged to accounts beside the ledger of all:
//!
//! - its peer's account;
//! - the account of the peer's tenant (trust domain and namespace, since anybody can make many service accounts);
//! - its pod's account;
//! - the accounts of the peer and of the tenant with that pod.
//!
//! The common part of the ledger, seven eighths, goes to parties that use what they have. An account's limit there is no fixed
//! share but a multiple of the free credit: twice for a pair of peer and pod, three times for a peer or a pod, four times for a
//! tenant. A tunnel gets at most a quarter of what is free in the ledger and in each account.
//!
//! While half of the ledger is free, no account's limit binds. A party that takes all it can leaves credit to parties that
//! share no account with it. It may leave nothing to those that do: a peer's other pods, a pod's other peers. Their part is the
//! [`reserve`], the last eighth.

mod party;
mod reserve;

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use lateen_types::Identity;

use party::Party;
use reserve::Reserve;

/// A tunnel gets one in so many of what is left.
const PART: usize = 4;

/// Credit that the tunnels of a process share; clones share it too.
///
/// What peers can make a process hold unread is at most the budget and 64 KiB for each of its tunnels,
/// whatever they do and however many tunnels they open; in memory, at most about twice that. No tunnel
/// takes more than a quarter of what it finds, so that a peer that reads nothing leaves some to others, and
/// when the budget runs low no peer and no pod has more than three times what is left, see [`Budget::between`].
#[derive(Debug, Clone)]
pub struct Budget {
    ledger: Arc<Ledger>,
    /// What a tunnel is charged to beside the ledger; the pair's is the last.
    accounts: Arc<[Arc<Account>]>,
}

/// What a tunnel has from a budget, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Grant {
    common: u32,
    reserve: u32,
}

impl Grant {
    pub(crate) fn total(self) -> u32 {
        self.common + self.reserve
    }
}

#[derive(Debug)]
struct Ledger {
    limit: usize,
    /// Bytes granted from the common part.
    granted: AtomicUsize,
    reserve: Reserve,
    accounts: Mutex<HashMap<Party, Weak<Account>>>,
}

/// The bytes that a party has been granted.
#[derive(Debug)]
struct Account {
    party: Party,
    /// Bytes from the common part.
    granted: AtomicUsize,
    /// Bytes from the reserve.
    set_apart: AtomicUsize,
    ledger: Arc<Ledger>,
}

impl Account {
    fn granted(&self) -> usize {
        self.granted.load(Ordering::Relaxed)
    }

    fn set_apart(&self) -> usize {
        self.set_apart.load(Ordering::Relaxed)
    }

    fn total(&self) -> usize {
        self.granted() + self.set_apart()
    }

    /// The most that a tunnel of the party may have, where `free` and the tunnel's `own` are there for it.
    fn part(&self, free: usize, own: usize) -> usize {
        let others = self.granted().saturating_sub(own);
        let most = free.saturating_mul(self.party.multiple());
        most.saturating_sub(others) / PART
    }
}

impl Ledger {
    fn accounts(&self) -> MutexGuard<'_, HashMap<Party, Weak<Account>>> {
        // Nothing panics while it is locked.
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The most that a tunnel may have of the common part, while all tunnels together have `granted` and this one `own`.
    fn part(&self, granted: usize, own: usize) -> usize {
        let free = self.limit.saturating_sub(granted) + own;
        // So that the common part too runs low by and by.
        let common = free.saturating_sub(self.reserve.size()) / 2;
        common.min(free / PART)
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        let mut accounts = self.ledger.accounts();
        // Unless the party came back meanwhile.
        if accounts
            .get(&self.party)
            .is_some_and(|a| a.strong_count() == 0)
        {
            accounts.remove(&self.party);
        }
    }
}

impl Budget {
    /// Default size of a process's budget: 64 MiB.
    pub const DEFAULT: usize = 64 << 20;

    /// A budget of so many bytes.
    pub fn new(bytes: usize) -> Self {
        Budget {
            ledger: Arc::new(Ledger {
                limit: bytes,
                granted: AtomicUsize::new(0),
                reserve: Reserve::of(bytes),
                accounts: Mutex::default(),
            }),
            accounts: Arc::default(),
        }
    }

    /// The same budget for the tunnels between a peer, which sends, and one of our pods, which reads. Both by what they
    /// cannot choose freely: the identity that the peer proved, and the uid that the node gave the pod.
    pub fn between(&self, peer: &Identity, pod: &str) -> Self {
        let (domain, namespace) = (peer.trust_domain(), peer.namespace());
        let parties = [
            Party::Tenant(domain.clone(), namespace.clone()),
            Party::Peer(peer.clone()),
            Party::Pod(pod.into()),
            Party::Visit(domain.clone(), namespace.clone(), pod.into()),
            Party::Pair(peer.clone(), pod.into()),
        ];
        let mut open = self.ledger.accounts();
        let accounts = parties.map(|party| {
            let account = open.get(&party).and_then(Weak::upgrade);
            account.unwrap_or_else(|| {
                let account = Arc::new(Account {
                    party: party.clone(),
                    granted: AtomicUsize::new(0),
                    set_apart: AtomicUsize::new(0),
                    ledger: Arc::clone(&self.ledger),
                });
                open.insert(party, Arc::downgrade(&account));
                account
            })
        });
        drop(open);
        Budget {
            ledger: Arc::clone(&self.ledger),
            accounts: accounts.into(),
        }
    }

    /// Bytes that all tunnels may have together.
    pub fn limit(&self) -> usize {
        self.ledger.limit
    }

    /// Bytes that tunnels have now.
    pub fn granted(&self) -> usize {
        self.common() + self.ledger.reserve.granted()
    }

    fn common(&self) -> usize {
        self.ledger.granted.load(Ordering::Relaxed)
    }

    /// Bytes that the tunnels between a peer and a pod have now; `None` if there are none.
    pub fn granted_between(&self, peer: &Identity, pod: &str) -> Option<usize> {
        let pair = Party::Pair(peer.clone(), pod.into());
        let account = self.ledger.accounts().get(&pair).and_then(Weak::upgrade);
        account.map(|account| account.total())
    }

    /// Bytes that every pair of peer and pod is to have if it needs them, as far as there are any.
    pub fn first_window(&self) -> u32 {
        u32::try_from(self.ledger.reserve.first_window()).unwrap_or(u32::MAX)
    }

    /// True if less than half of the ledger is left: nobody should keep what it does not use.
    pub(crate) fn is_low(&self) -> bool {
        self.common() > self.ledger.limit / 2
    }

    /// True if a tunnel that does not need its grant should give it back. Either less than half is left, a party to the
    /// tunnel has more than a newcomer would get, and the peer has more than a first window with the pod. Or the grant is
    /// of the reserve, and the reserve runs low.
    pub(crate) fn is_short(&self, grant: Grant) -> bool {
        let Some(pair) = self.accounts.last() else {
            return self.is_low();
        };
        let part = self.ledger.limit.saturating_sub(self.common()) / PART;
        let has_much = |account: &Arc<Account>| account.granted() > part;
        grant.reserve > 0 && self.ledger.reserve.is_low()
            || self.is_low()
                && pair.total() > self.ledger.reserve.first_window()
                && self.accounts.iter().any(has_much)
    }

    /// The most that a tunnel could have of the common part now. It includes what the tunnel has.
    pub(crate) fn reach(&self, grant: Grant) -> u32 {
        let (granted, own) = (self.common(), grant.common as usize);
        let free = self.ledger.limit.saturating_sub(granted) + own;
        let parts = self.accounts.iter().map(|a| a.part(free, own));
        let most = parts.fold(self.ledger.part(granted, own), usize::min);
        u32::try_from(most).unwrap_or(u32::MAX)
    }

    /// Raises a tunnel's grant towards `wanted` bytes in all, as far as the budget allows.
    pub(crate) fn claim(&self, grant: &mut Grant, wanted: u32) {
        grant.common += self.claim_common(grant.common, wanted);
        let rest = wanted.saturating_sub(grant.common);
        if grant.reserve > rest {
            // The common part has it now.
            self.release_reserve(grant.reserve - rest);
            grant.reserve = rest;
        } else {
            grant.reserve += self.claim_reserve(rest - grant.reserve);
        }
    }

    fn claim_common(&self, own: u32, wanted: u32) -> u32 {
        let own = own as usize;
        let wanted = wanted as usize;
        let Ledger { limit, granted, .. } = &*self.ledger;
        let more = |granted: usize| {
            let part = self.ledger.part(granted, own);
            part.min(wanted).saturating_sub(own)
        };
        let raise = |granted: usize| Some(granted + more(granted)).filter(|after| *after > granted);
        let Ok(before) = granted.fetch_update(Ordering::Relaxed, Ordering::Relaxed, raise) else {
            return 0;
        };
        let claimed = more(before);
        let free = limit.saturating_sub(before) + own;
        // Workers that ask at the same moment may each be told of the same rest. The ledger's limit holds all the same.
        let parts = self.accounts.iter().map(|a| a.part(free, own));
        let allowed = parts.fold(own + claimed, usize::min).saturating_sub(own);
        for account in &*self.accounts {
            account.granted.fetch_add(allowed, Ordering::Relaxed);
        }
        granted.fetch_sub(claimed - allowed, Ordering::Relaxed);
        allowed as u32
    }

    /// What the reserve gives to the pair, of `more` bytes.
    fn claim_reserve(&self, more: u32) -> u32 {
        let reserve = &self.ledger.reserve;
        let Some(pair) = self.accounts.last().filter(|_| more > 0) else {
            return 0;
        };
        let own = pair.set_apart();
        let of_parties = self.accounts.iter().map(|account| {
            let others = account.set_apart().saturating_sub(own);
            reserve.window(account.party.share(), others)
        });
        let of_all = reserve.window(1, reserve.granted().saturating_sub(own));
        let most = of_parties.fold(of_all, usize::min).saturating_sub(own);
        let lacks = reserve.first_window().saturating_sub(pair.total());
        let claimed = reserve.claim(most.min(lacks).min(more as usize));
        for account in &*self.accounts {
            account.set_apart.fetch_add(claimed, Ordering::Relaxed);
        }
        claimed as u32
    }

    /// Returns `bytes` of a grant to the budget; those of the reserve first.
    pub(crate) fn release(&self, grant: &mut Grant, bytes: u32) {
        let of_reserve = bytes.min(grant.reserve);
        let common = (bytes - of_reserve).min(grant.common);
        self.release_reserve(of_reserve);
        for account in &*self.accounts {
            account
                .granted
                .fetch_sub(common as usize, Ordering::Relaxed);
        }
        let granted = &self.ledger.granted;
        granted.fetch_sub(common as usize, Ordering::Relaxed);
        grant.reserve -= of_reserve;
        grant.common -= common;
    }

    fn release_reserve(&self, bytes: u32) {
        let bytes = bytes as usize;
        for account in &*self.accounts {
            account.set_apart.fetch_sub(bytes, Ordering::Relaxed);
        }
        self.ledger.reserve.release(bytes);
    }
}

impl Default for Budget {
    fn default() -> Self {
        Budget::new(Budget::DEFAULT)
    }
}

#[cfg(test)]
pub(crate) mod tests;
