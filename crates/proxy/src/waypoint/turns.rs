//! Equal turns by source identity: the tasks of all tunnels of one identity share one part of the worker's time.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use lateen_runtime::Worker;
use lateen_types::Identity;

/// The owner of connections: the identity that a peer has proven. All peers that have proven none yet share one place.
pub type Peer = Option<Identity>;

/// The identities that have tunnels, with their number.
#[derive(Clone, Debug)]
pub(super) struct Turns {
    worker: Rc<Worker<Peer>>,
    tunnels: Rc<RefCell<HashMap<Identity, usize>>>,
}

impl Turns {
    /// No tunnel so far.
    pub(super) fn new(worker: Rc<Worker<Peer>>) -> Self {
        Self {
            worker,
            tunnels: Rc::default(),
        }
    }

    /// Serves a tunnel in the turns of its peer's identity. With the last tunnel of an identity its group is forgotten.
    pub(super) fn serve(&self, peer: &Identity, tunnel: impl Future<Output = ()> + 'static) {
        let held = Held::new(self.clone(), peer.clone());
        let group = self.worker.group_of(&Some(peer.clone()));
        group.spawn(async move {
            tunnel.await;
            drop(held);
        });
    }
}

/// One tunnel of an identity.
struct Held {
    turns: Turns,
    peer: Identity,
}

impl Held {
    fn new(turns: Turns, peer: Identity) -> Self {
        let mut tunnels = turns.tunnels.borrow_mut();
        *tunnels.entry(peer.clone()).or_default() += 1;
        drop(tunnels);
        Self { turns, peer }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut tunnels = self.turns.tunnels.borrow_mut();
        let Some(left) = tunnels.get_mut(&self.peer) else {
            return;
        };
        *left -= 1;
        if *left == 0 {
            tunnels.remove(&self.peer);
            self.turns.worker.forget_group(&Some(self.peer.clone()));
        }
    }
}
