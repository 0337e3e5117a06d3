//! The connections that a worker serves at the moment: so that a change of policy reaches those that came in, and so
//! that an operator can see them.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use lateen_config::{Snapshot, Workload};
use lateen_policy::{Connection, Decision, decide};
use lateen_types::{Direction, VerifiedPeer, WorkloadUid};
use slab::Slab;
use tokio::sync::Notify;

use crate::pod::Pod;

/// What a policy decision about an inbound connection rests on.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The pod that serves it.
    pub pod: Arc<Pod>,
    /// Who the peer proved to be.
    pub peer: Option<VerifiedPeer>,
    /// Where it comes from.
    pub source: SocketAddr,
    /// The application's address and port.
    pub destination: SocketAddr,
}

impl Facts {
    /// What the policies see.
    pub fn connection(&self) -> Connection<'_> {
        Connection {
            peer: self.peer.as_ref(),
            source_ip: self.source.ip(),
            destination: self.destination,
        }
    }

    /// Whether the policies that cover `workload`, the pod's own, let it pass.
    pub fn decide(&self, snapshot: &Snapshot, workload: &Workload) -> Decision {
        decide(snapshot.policies_for(workload), &self.connection())
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

/// An outbound connection.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// The pod that opened it.
    pub pod: Arc<Pod>,
    /// The client's address.
    pub source: SocketAddr,
    /// Where the client wanted to go.
    pub wanted: SocketAddr,
    /// Where it went.
    pub hop: SocketAddr,
    /// Whether through a tunnel.
    pub tunnelled: bool,
}

/// A connection as operators see it.
#[derive(Clone, Debug)]
pub struct Listed {
    /// The pod's.
    pub pod: WorkloadUid,
    /// To the pod or from it.
    pub direction: Direction,
    /// The client's address.
    pub source: SocketAddr,
    /// Where the client wanted to go, if that differs.
    pub wanted: Option<SocketAddr>,
    /// Where it went.
    pub destination: SocketAddr,
    /// Whether through a tunnel.
    pub tunnelled: bool,
}

/// A worker's connections.
#[derive(Clone, Debug, Default)]
pub struct Live(Rc<Tables>);

#[derive(Debug, Default)]
struct Tables {
    inbound: RefCell<Slab<Rc<Entry>>>,
    outbound: RefCell<Slab<Outgoing>>,
}

#[derive(Debug)]
struct Entry {
    facts: Facts,
    cut: Cell<bool>,
    word: Notify,
}

/// An inbound connection's place, for as long as it lives.
#[derive(Debug)]
pub struct Tracked {
    tables: Rc<Tables>,
    key: usize,
    entry: Rc<Entry>,
}

/// An outbound connection's place, for as long as it lives.
#[derive(Debug)]
pub struct Departed {
    tables: Rc<Tables>,
    key: usize,
}

impl Live {
    /// Enters an inbound connection. Enter first and decide then: a policy that comes between the two is not missed.
    pub fn enter(&self, facts: Facts) -> Tracked {
        let entry = Rc::new(Entry {
            facts,
            cut: Cell::new(false),
            word: Notify::new(),
        });
        Tracked {
            key: self.0.inbound.borrow_mut().insert(Rc::clone(&entry)),
            tables: Rc::clone(&self.0),
            entry,
        }
    }

    /// Enters an outbound connection.
    pub fn depart(&self, outgoing: Outgoing) -> Departed {
        Departed {
            key: self.0.outbound.borrow_mut().insert(outgoing),
            tables: Rc::clone(&self.0),
        }
    }

    /// Cuts what the new policies deny; answers how many were cut.
    pub fn review(&self, snapshot: &Snapshot) -> usize {
        let mut cut = 0;
        for (_, entry) in self.0.inbound.borrow().iter() {
            if !entry.cut.get() && !entry.facts.may_go_on(snapshot) {
                entry.cut.set(true);
                entry.word.notify_one();
                cut += 1;
            }
        }
        cut
    }

    /// All of them.
    pub fn list(&self) -> Vec<Listed> {
        let (inbound, outbound) = (self.0.inbound.borrow(), self.0.outbound.borrow());
        let inbound = inbound.iter().map(|(_, entry)| Listed {
            pod: entry.facts.pod.uid.clone(),
            direction: Direction::Inbound,
            source: entry.facts.source,
            wanted: None,
            destination: entry.facts.destination,
            tunnelled: entry.facts.peer.is_some(),
        });
        let outbound = outbound.iter().map(|(_, outgoing)| Listed {
            pod: outgoing.pod.uid.clone(),
            direction: Direction::Outbound,
            source: outgoing.source,
            wanted: Some(outgoing.wanted),
            destination: outgoing.hop,
            tunnelled: outgoing.tunnelled,
        });
        inbound.chain(outbound).collect()
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
        self.tables.inbound.borrow_mut().remove(self.key);
    }
}

impl Drop for Departed {
    fn drop(&mut self) {
        self.tables.outbound.borrow_mut().remove(self.key);
    }
}
