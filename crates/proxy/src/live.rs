//! The inbound connections that a worker serves at the moment, so that a change of policy reaches them too.

use std::cell::{Cell, RefCell};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use lateen_config::{Snapshot, Workload};
use lateen_policy::{Connection, Decision, decide};
use lateen_types::VerifiedPeer;
use slab::Slab;
use tokio::sync::Notify;

use crate::pod::Pod;

/// What a policy decision about a connection rests on.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The pod that serves it.
    pub pod: Arc<Pod>,
    /// Who the peer proved to be.
    pub peer: Option<VerifiedPeer>,
    /// Where it comes from.
    pub source_ip: IpAddr,
    /// The application's address and port.
    pub destination: SocketAddr,
}

impl Facts {
    /// Whether the policies that cover `workload`, the pod's own, let it pass.
    pub fn decide(&self, snapshot: &Snapshot, workload: &Workload) -> Decision {
        let connection = Connection {
            peer: self.peer.as_ref(),
            source_ip: self.source_ip,
            destination: self.destination,
        };
        decide(snapshot.policies_for(workload), &connection)
    }

    /// Whether a connection that was let pass may go on.
    fn may_go_on(&self, snapshot: &Snapshot) -> bool {
        match self.pod.workload(snapshot) {
            Some(workload) => self.decide(snapshot, workload).is_allow(),
            // The workload is leaving the mesh; nothing is said about its connections any more.
            None => true,
        }
    }
}

/// A worker's table of inbound connections.
#[derive(Clone, Debug, Default)]
pub struct Live(Rc<RefCell<Slab<Rc<Entry>>>>);

#[derive(Debug)]
struct Entry {
    facts: Facts,
    cut: Cell<bool>,
    word: Notify,
}

/// A place in the table, for as long as the connection lives.
#[derive(Debug)]
pub struct Tracked {
    table: Live,
    key: usize,
    entry: Rc<Entry>,
}

impl Live {
    /// Enters a connection. Enter first and decide then: a policy that comes between the two is not missed.
    pub fn enter(&self, facts: Facts) -> Tracked {
        let entry = Rc::new(Entry {
            facts,
            cut: Cell::new(false),
            word: Notify::new(),
        });
        Tracked {
            key: self.0.borrow_mut().insert(Rc::clone(&entry)),
            table: self.clone(),
            entry,
        }
    }

    /// Cuts what the new policies deny; answers how many were cut.
    pub fn review(&self, snapshot: &Snapshot) -> usize {
        let mut cut = 0;
        for (_, entry) in self.0.borrow().iter() {
            if !entry.cut.get() && !entry.facts.may_go_on(snapshot) {
                entry.cut.set(true);
                entry.word.notify_one();
                cut += 1;
            }
        }
        cut
    }
}

impl Tracked {
    /// What was entered.
    pub fn facts(&self) -> &Facts {
        &self.entry.facts
    }

    /// Resolves when a policy denies this connection.
    pub async fn cut(&self) {
        while !self.entry.cut.get() {
            self.entry.word.notified().await;
        }
    }
}

impl Drop for Tracked {
    fn drop(&mut self) {
        self.table.0.borrow_mut().remove(self.key);
    }
}
