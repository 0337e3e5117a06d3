//! Quotas of tunnels: the shares of the process's descriptors that tunnels of one identity, and of one namespace, may take.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lateen_accept::FdQuota;
use lateen_types::{Identity, Strng};

/// A namespace may have as many tunnels as so many identities. Together they have half of the descriptors. Anybody who may make pods in a
/// namespace may have many service accounts there.
const IDENTITIES: usize = 2;

/// The tunnels that each identity and each namespace has open, which the workers count together.
#[derive(Clone, Debug)]
pub struct TunnelQuotas {
    most: usize,
    open: Arc<Mutex<Open>>,
}

#[derive(Debug, Default)]
struct Open {
    identities: HashMap<Identity, usize>,
    namespaces: HashMap<Namespace, usize>,
}

/// A trust domain, and a namespace in it.
type Namespace = (Strng, Strng);

fn namespace(peer: &Identity) -> Namespace {
    (peer.trust_domain().clone(), peer.namespace().clone())
}

/// A tunnel that the quotas of its identity and namespace count, until it is dropped.
#[derive(Debug)]
pub(super) struct CountedTunnel {
    quotas: TunnelQuotas,
    peer: Identity,
}

/// The peer of a tunnel has as many as it may.
#[derive(Debug, thiserror::Error)]
pub(super) enum TooManyTunnels {
    #[error(
        "too many tunnels: {peer} has {most} open, a quarter of the proxy's descriptors; have its proxies share tunnels, or raise the proxy's limit of open files"
    )]
    OfIdentity { peer: Identity, most: usize },
    #[error(
        "too many tunnels: {domain}/ns/{name} has {most} open, half of the proxy's descriptors; have its proxies share tunnels, or raise the proxy's limit of open files"
    )]
    OfNamespace {
        domain: Strng,
        name: Strng,
        most: usize,
    },
}

impl TunnelQuotas {
    /// Quotas of a process that may open `files` files. The share of an identity is that of a pod at its node's proxy, and a namespace has
    /// two such shares.
    pub fn of(files: u64) -> Self {
        Self::new(FdQuota::of(files))
    }

    /// Quotas of so many tunnels for each identity.
    pub fn new(most: usize) -> Self {
        Self {
            most,
            open: Arc::default(),
        }
    }

    /// Counts a tunnel.
    ///
    /// # Errors
    /// Its peer, or the peer's namespace, has as many as it may.
    pub(super) fn take(&self, peer: &Identity) -> Result<CountedTunnel, TooManyTunnels> {
        let mut open = self.open();
        let most = self.most;
        if count(&open.identities, peer) >= most {
            let peer = peer.clone();
            return Err(TooManyTunnels::OfIdentity { peer, most });
        }
        let namespace = namespace(peer);
        let most = most.saturating_mul(IDENTITIES);
        if count(&open.namespaces, &namespace) >= most {
            let (domain, name) = namespace;
            return Err(TooManyTunnels::OfNamespace { domain, name, most });
        }
        *open.identities.entry(peer.clone()).or_default() += 1;
        *open.namespaces.entry(namespace).or_default() += 1;
        drop(open);
        Ok(CountedTunnel {
            quotas: self.clone(),
            peer: peer.clone(),
        })
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        // Nothing panics while it is locked.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn count<K: Eq + Hash>(open: &HashMap<K, usize>, of: &K) -> usize {
    open.get(of).copied().unwrap_or_default()
}

/// Counts one less, and forgets a count of none.
fn subtract<K: Eq + Hash>(open: &mut HashMap<K, usize>, of: &K) {
    if let Some(tunnels) = open.get_mut(of) {
        *tunnels -= 1;
        if *tunnels == 0 {
            open.remove(of);
        }
    }
}

impl Drop for CountedTunnel {
    fn drop(&mut self) {
        let mut open = self.quotas.open();
        subtract(&mut open.identities, &self.peer);
        subtract(&mut open.namespaces, &namespace(&self.peer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(namespace: &str, account: &str) -> Identity {
        Identity::new("cluster.local", namespace, account).unwrap()
    }

    #[test]
    fn an_identity_has_its_share_of_tunnels_and_leaves_others_theirs() {
        let quotas = TunnelQuotas::new(2);
        let [web, api] = ["web", "api"].map(lateen_testkit::identity);
        let first = quotas.take(&web).unwrap();
        let _second = quotas.take(&web).unwrap();
        let refused = quotas.take(&web).unwrap_err();
        assert!(
            refused
                .to_string()
                .contains("/sa/web has 2 open, a quarter of")
        );
        let other = quotas.take(&api).unwrap();
        drop(first);
        assert!(quotas.take(&web).is_ok());
        drop(other);
        let open = quotas.open();
        assert_eq!(
            (open.identities.len(), open.namespaces.len()),
            (1, 1),
            "an identity without tunnels is forgotten"
        );
    }

    #[test]
    fn the_identities_of_a_namespace_leave_half_to_others() {
        let quotas = TunnelQuotas::new(2);
        let take = |namespace, account| quotas.take(&source(namespace, account));
        let mut open = Vec::new();
        for account in ["a", "a", "b", "c"] {
            open.push(take("noisy", account).unwrap());
        }
        for account in ["c", "d"] {
            let refused = take("noisy", account).unwrap_err().to_string();
            assert!(
                refused.contains("cluster.local/ns/noisy has 4 open, half of"),
                "{refused}"
            );
        }
        let same_name = Identity::new("example.org", "noisy", "a").unwrap();
        open.push(quotas.take(&same_name).unwrap());
        open.push(take("other", "a").unwrap());
        open.remove(0);
        open.push(take("noisy", "d").unwrap());
        drop(open);
        let open = quotas.open();
        assert!(open.identities.is_empty() && open.namespaces.is_empty());
    }
}
