//! Quotas of tunnels: the share of the process's descriptors that tunnels of one identity may take.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lateen_accept::FdQuota;
use lateen_types::Identity;

/// The tunnels that each identity has open, which the workers count together.
#[derive(Clone, Debug)]
pub struct TunnelQuotas {
    most: usize,
    open: Arc<Mutex<HashMap<Identity, usize>>>,
}

/// A tunnel that its identity's quota counts, until it is dropped.
#[derive(Debug)]
pub(super) struct CountedTunnel {
    quotas: TunnelQuotas,
    peer: Identity,
}

impl TunnelQuotas {
    /// Quotas of a process that may open `files` files. The share of an identity is that of a pod at its node's proxy.
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

    /// Tunnels that one identity may have.
    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// Counts a tunnel. Returns `None` if its peer has as many as it may.
    pub(super) fn take(&self, peer: &Identity) -> Option<CountedTunnel> {
        let mut open = self.open();
        let tunnels = open.get(peer).copied().unwrap_or_default();
        if tunnels >= self.most {
            return None;
        }
        open.insert(peer.clone(), tunnels + 1);
        drop(open);
        Some(CountedTunnel {
            quotas: self.clone(),
            peer: peer.clone(),
        })
    }

    fn open(&self) -> MutexGuard<'_, HashMap<Identity, usize>> {
        // Nothing panics while it is locked.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for CountedTunnel {
    fn drop(&mut self) {
        let mut open = self.quotas.open();
        if let Some(tunnels) = open.get_mut(&self.peer) {
            *tunnels -= 1;
            if *tunnels == 0 {
                open.remove(&self.peer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_has_its_share_of_tunnels_and_leaves_others_theirs() {
        let quotas = TunnelQuotas::new(2);
        let [web, api] = ["web", "api"].map(lateen_testkit::identity);
        let first = quotas.take(&web).unwrap();
        let _second = quotas.take(&web).unwrap();
        assert!(quotas.take(&web).is_none());
        let other = quotas.take(&api).unwrap();
        drop(first);
        assert!(quotas.take(&web).is_some());
        drop(other);
        assert_eq!(
            quotas.open().len(),
            1,
            "an identity without tunnels is forgotten"
        );
    }
}
