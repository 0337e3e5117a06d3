//! Registry of tunnels both of whose ends are in this process, on any workers. A connection between the two pods then need not
//! go through the tunnel (`node::same_node::proof`).
//!
//! Both ends of a TLS connection derive the same [`Binding`] from its secrets. Addresses are not compared, because they prove
//! nothing. Two pods may have the same address, and a NAT may change one. During an upgrade a second process listens at the
//! same addresses.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lateen_tls::{Binding, Session};
use lateen_types::VerifiedPeer;
use tokio::sync::Notify;

use crate::pod::Pod;

/// Between whom a tunnel to a pod is.
#[derive(Debug)]
pub struct Ends {
    /// The pod that it leads to.
    pub pod: Arc<Pod>,
    /// Who opened it.
    pub peer: VerifiedPeer,
    /// Where it comes from.
    pub client: SocketAddr,
    /// The pod's address that it came to.
    pub local: SocketAddr,
}

/// The tunnels to pods of this process that are open. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct LocalTunnels(Arc<Mutex<HashMap<Binding, Arc<AcceptedEnd>>>>);

/// The accepting end of a tunnel.
#[derive(Debug)]
pub struct AcceptedEnd {
    /// Between whom it is.
    pub ends: Arc<Ends>,
    /// What the end that opened it proved.
    pub session: Arc<Session>,
    /// The connections that rest on the tunnel. It is retired when the pod takes no more: it is leaving, the process is,
    /// or a certificate was replaced.
    pub uses: Uses,
}

/// Counts what uses something of which either thread may say that no more may. All in one word, so that nobody slips in while
/// the other thread concludes that nobody is left.
#[derive(Debug, Default)]
pub struct Uses {
    /// How many, and [`Uses::RETIRED`].
    word: AtomicUsize,
    none_left: Notify,
}

impl Uses {
    const RETIRED: usize = 1 << (usize::BITS - 1);

    /// Counts one more; `false` if no more may.
    pub fn enter(&self) -> bool {
        let enter = |word: usize| (word & Self::RETIRED == 0).then_some(word + 1);
        self.word
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, enter)
            .is_ok()
    }

    /// One that was counted is over.
    pub fn leave(&self) {
        if self.word.fetch_sub(1, Ordering::AcqRel) == Self::RETIRED + 1 {
            self.none_left.notify_one();
        }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.word.load(Ordering::Acquire) & !Self::RETIRED
    }

    /// No more may.
    fn retire(&self) {
        self.word.fetch_or(Self::RETIRED, Ordering::AcqRel);
    }

    /// Resolves when none is left, once it is retired. One at most may wait.
    async fn over(&self) {
        while self.count() > 0 {
            self.none_left.notified().await;
        }
    }
}

impl LocalTunnels {
    /// Enters the accepting end of a tunnel. To be called before anything is said inside the tunnel: who hears something
    /// there may conclude that whoever is not entered is not here.
    pub fn register(&self, ends: &Arc<Ends>, session: &Arc<Session>) -> TunnelRegistration {
        let accepted_end = Arc::new(AcceptedEnd {
            ends: Arc::clone(ends),
            session: Arc::clone(session),
            uses: Uses::default(),
        });
        self.lock()
            .insert(session.binding().clone(), Arc::clone(&accepted_end));
        TunnelRegistration {
            local_tunnels: self.clone(),
            accepted_end,
        }
    }

    /// The other end of the tunnel that `session` is of, if it is here.
    pub fn other_end(&self, session: &Session) -> Option<Arc<AcceptedEnd>> {
        self.lock().get(session.binding()).cloned()
    }

    /// True if no tunnel to a pod of this process is open.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Binding, Arc<AcceptedEnd>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place in the table, for as long as the tunnel is open.
#[derive(Debug)]
pub struct TunnelRegistration {
    local_tunnels: LocalTunnels,
    accepted_end: Arc<AcceptedEnd>,
}

impl TunnelRegistration {
    /// The pod takes no more connections by this tunnel. Resolves when none that it took is left.
    pub async fn retire(&self) {
        self.accepted_end.uses.retire();
        self.accepted_end.uses.over().await;
    }
}

impl Drop for TunnelRegistration {
    fn drop(&mut self) {
        self.accepted_end.uses.retire();
        self.local_tunnels
            .lock()
            .remove(self.accepted_end.session.binding());
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[test]
    fn nobody_enters_what_is_retired_and_the_last_who_leaves_is_heard_of() {
        let uses = Uses::default();
        assert!(uses.enter() && uses.enter());
        uses.leave();
        assert_eq!(uses.count(), 1);
        uses.retire();
        assert!(!uses.enter());
        assert_eq!(uses.count(), 1);
        let mut over = Box::pin(uses.over());
        let mut context = Context::from_waker(Waker::noop());
        assert_eq!(over.as_mut().poll(&mut context), Poll::Pending);
        uses.leave();
        assert_eq!(over.as_mut().poll(&mut context), Poll::Ready(()));
        drop(over);
        assert_eq!(uses.count(), 0);
        assert!(!uses.enter());
        let mut over = Box::pin(uses.over());
        assert_eq!(over.as_mut().poll(&mut context), Poll::Ready(()));
    }

    /// Whoever leaves before somebody waits is not missed, and those who come and go before nobody may are not counted.
    #[test]
    fn what_was_unused_before_it_was_retired_is_over_at_once() {
        let uses = Uses::default();
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..3 {
            assert!(uses.enter());
            uses.leave();
        }
        uses.retire();
        let mut over = Box::pin(uses.over());
        assert_eq!(over.as_mut().poll(&mut context), Poll::Ready(()));
    }
}
