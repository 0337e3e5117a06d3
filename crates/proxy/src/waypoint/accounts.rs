//! Memory accounts of clients: one for each identity, within one for its namespace, within one for the process.
//!
//! An identity may hold a quarter of the process's limit, and all identities of a namespace a half: anybody who may make pods in a
//! namespace may have many service accounts there.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use lateen_exchange::Account;
use lateen_telemetry::{HttpAccounts, HttpBuffers};
use lateen_types::{Identity, Strng};

/// An identity has one in so many bytes of the process's limit.
const PEER: usize = 4;

/// A namespace has one in so many.
const TENANT: usize = 2;

/// Accounts are looked through when there are more than this, and twice as many as were in use then.
const FEW: usize = 64;

/// The holder of an account.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Party {
    /// A trust domain, and a namespace in it.
    Tenant(Strng, Strng),
    Peer(Identity),
}

/// The accounts of all clients, which the workers share.
#[derive(Clone, Debug)]
pub struct Accounts {
    process: Account,
    known: Arc<Mutex<Known>>,
}

#[derive(Debug, Default)]
struct Known {
    accounts: HashMap<Party, Account>,
    /// Accounts that were in use when they were looked through last.
    used: usize,
}

impl Accounts {
    /// Default limit of a process: 128 MiB.
    pub const DEFAULT: usize = 128 << 20;

    /// Accounts within a limit in bytes.
    pub fn new(limit: usize) -> Self {
        Self {
            process: Account::new(limit),
            known: Arc::default(),
        }
    }

    /// The account of an identity.
    pub(super) fn of(&self, peer: &Identity) -> Account {
        // Nothing panics while it is locked.
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.tidy();
        let limit = self.process.limit();
        let tenant = Party::Tenant(peer.trust_domain().clone(), peer.namespace().clone());
        let tenant = known.accounts.entry(tenant);
        let tenant = tenant
            .or_insert_with(|| self.process.within(limit / TENANT))
            .clone();
        let own = known.accounts.entry(Party::Peer(peer.clone()));
        own.or_insert_with(|| tenant.within(limit / PEER)).clone()
    }

    /// Returns how full the accounts are, for metrics.
    pub fn buffers(&self) -> HttpBuffers {
        // Nothing panics while it is locked.
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let limit = self.process.limit();
        let (mut tenants, mut peers) = (HashSet::new(), 0);
        let (mut tenant, mut peer) = (0, 0);
        for (party, account) in &known.accounts {
            match party {
                Party::Tenant(..) => tenant = account.held().max(tenant),
                Party::Peer(identity) => {
                    peer = account.held().max(peer);
                    // Accounts of clients that have left stay known for a while.
                    if account.is_shared() {
                        peers += 1;
                        tenants.insert((identity.trust_domain(), identity.namespace()));
                    }
                }
            }
        }
        let of = |scope, accounts, largest, limit| HttpAccounts {
            scope,
            accounts,
            largest,
            limit,
        };
        HttpBuffers {
            accounts: [
                of("process", 1, self.process.held(), limit),
                of("namespace", tenants.len(), tenant, limit / TENANT),
                of("identity", peers, peer, limit / PEER),
            ],
            waiting: self.process.waiting(),
        }
    }

    /// Open connections of all clients.
    #[cfg(test)]
    pub fn connections(&self) -> usize {
        self.process.connections()
    }

    /// Bytes that all clients' connections hold.
    #[cfg(test)]
    pub fn held(&self) -> usize {
        self.process.held()
    }
}

impl Known {
    /// Forgets accounts that nobody uses, if there are many.
    fn tidy(&mut self) {
        if self.accounts.len() > FEW.max(2 * self.used) {
            // A tenant's account is in use while one of its peers' is.
            for is_peer in [true, false] {
                self.accounts.retain(|party, account| {
                    matches!(party, Party::Peer(_)) != is_peer || account.is_shared()
                });
            }
            self.used = self.accounts.len();
        }
    }
}

impl Default for Accounts {
    fn default() -> Self {
        Self::new(Self::DEFAULT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn identity(namespace: &str, account: &str) -> Identity {
        Identity::new("cluster.local", namespace, account).unwrap()
    }

    #[test]
    fn tunnels_of_an_identity_share_its_account() {
        let accounts = Accounts::new(8 * MIB);
        let first = accounts.of(&identity("shop", "web"));
        let second = accounts.of(&identity("shop", "web"));
        let other = accounts.of(&identity("shop", "cart"));
        assert_eq!((first.limit(), other.limit()), (2 * MIB, 2 * MIB));
        assert!(first.is(&second) && !first.is(&other));
    }

    #[test]
    fn only_accounts_of_clients_with_a_tunnel_are_counted() {
        let accounts = Accounts::new(8 * MIB);
        let figures = || {
            let HttpBuffers { accounts, waiting } = accounts.buffers();
            let figures = accounts.map(|of| (of.scope, of.accounts, of.largest, of.limit));
            (figures, waiting)
        };
        let tunnels = [
            ("shop", "web"),
            ("shop", "web"),
            ("shop", "cart"),
            ("ops", "web"),
        ]
        .map(|(namespace, account)| accounts.of(&identity(namespace, account)));
        drop(accounts.of(&identity("gone", "web")));
        assert_eq!(
            figures(),
            (
                [
                    ("process", 1, 0, 8 * MIB),
                    ("namespace", 2, 0, 4 * MIB),
                    ("identity", 3, 0, 2 * MIB),
                ],
                0
            )
        );
        drop(tunnels);
        assert_eq!(figures().0.map(|of| of.1), [1, 0, 0]);
    }

    #[test]
    fn accounts_that_nobody_uses_are_forgotten() {
        let accounts = Accounts::default();
        let used = accounts.of(&identity("shop", "web"));
        for n in 0..10 * FEW {
            accounts.of(&identity(&format!("n{n}"), "web"));
        }
        let known = accounts.known.lock().unwrap().accounts.len();
        assert!(known <= FEW + 2, "{known}");
        assert!(used.is(&accounts.of(&identity("shop", "web"))));
    }
}
