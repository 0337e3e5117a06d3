//! Equal turns by source: the tasks of all tunnels of one identity share one part of the worker's time. So do all handshakes with
//! one address, whose peers have proven no identity yet.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::IpAddr;
use std::rc::Rc;

use lateen_runtime::Worker;
use lateen_types::Identity;

/// The owner of connections.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Peer {
    /// The listener, until a worker has taken the connection.
    #[default]
    Listener,
    /// The address of a peer that has proven no identity yet.
    Address(IpAddr),
    /// The identity that a peer has proven.
    Identity(Identity),
}

/// The owners that have connections, with their number.
#[derive(Clone, Debug)]
pub(super) struct Turns {
    worker: Rc<Worker<Peer>>,
    connections: Rc<RefCell<HashMap<Peer, usize>>>,
}

impl Turns {
    /// No connection so far.
    pub(super) fn new(worker: Rc<Worker<Peer>>) -> Self {
        Self {
            worker,
            connections: Rc::default(),
        }
    }

    /// Serves a connection in the turns of its owner. With the last connection of an owner its group is forgotten.
    pub(super) fn serve(&self, peer: Peer, connection: impl Future<Output = ()> + 'static) {
        let group = self.worker.group_of(&peer);
        let held = Held::new(self.clone(), peer);
        group.spawn(async move {
            connection.await;
            drop(held);
        });
    }
}

/// One connection of an owner.
struct Held {
    turns: Turns,
    peer: Peer,
}

impl Held {
    fn new(turns: Turns, peer: Peer) -> Self {
        let mut connections = turns.connections.borrow_mut();
        *connections.entry(peer.clone()).or_default() += 1;
        drop(connections);
        Self { turns, peer }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut connections = self.turns.connections.borrow_mut();
        let Some(left) = connections.get_mut(&self.peer) else {
            return;
        };
        *left -= 1;
        if *left == 0 {
            connections.remove(&self.peer);
            self.turns.worker.forget_group(&self.peer);
        }
    }
}
