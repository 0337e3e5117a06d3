//! Where the two ends of a tunnel meet that are both in this process, on whatever workers: a connection between their pods
//! need not go through the tunnel then. What is done with that is `node::neighbours`' business.
//!
//! Both ends of a TLS connection derive the same [`Binding`] from its secrets. No address is compared: two pods may have the
//! same one, a NAT may change one, and a process that serves beside this one for the time of an upgrade listens at the
//! same ones.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lateen_tls::{Binding, Session};
use lateen_types::VerifiedPeer;

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
pub struct Meeting(Arc<Mutex<HashMap<Binding, Arc<Host>>>>);

/// The accepting end of a tunnel.
#[derive(Debug)]
pub struct Host {
    /// Between whom it is.
    pub ends: Arc<Ends>,
    /// What the end that opened it proved.
    pub session: Arc<Session>,
    retired: AtomicBool,
}

impl Host {
    /// True when the pod takes no more connections by this tunnel: it is leaving, the process is, or a certificate was
    /// replaced.
    pub fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Acquire)
    }
}

impl Meeting {
    /// Enters the accepting end of a tunnel. To be called before anything is said inside the tunnel: who hears something
    /// there may conclude that whoever is not entered is not here.
    pub fn host(&self, ends: &Arc<Ends>, session: &Arc<Session>) -> Hosted {
        let host = Arc::new(Host {
            ends: Arc::clone(ends),
            session: Arc::clone(session),
            retired: AtomicBool::new(false),
        });
        self.lock()
            .insert(session.binding().clone(), Arc::clone(&host));
        Hosted {
            meeting: self.clone(),
            host,
        }
    }

    /// The other end of the tunnel that `session` is of, if it is here.
    pub fn other_end(&self, session: &Session) -> Option<Arc<Host>> {
        self.lock().get(session.binding()).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Binding, Arc<Host>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place in the table, for as long as the tunnel is open.
#[derive(Debug)]
pub struct Hosted {
    meeting: Meeting,
    host: Arc<Host>,
}

impl Hosted {
    /// The pod takes no more connections by this tunnel.
    pub fn retire(&self) {
        self.host.retired.store(true, Ordering::Release);
    }
}

impl Drop for Hosted {
    fn drop(&mut self) {
        self.retire();
        self.meeting.lock().remove(self.host.session.binding());
    }
}
