//! The connections that a worker serves at the moment: so that a change of policy, a revocation or the end of a drain
//! reaches them, and so that an operator can see them. What is decided about a connection is decided elsewhere.

mod entry;
mod watch;

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;

use lateen_capture::Ledger;
use lateen_config::Snapshot;
use lateen_policy::Decision;
use lateen_types::NamespacedName;
use slab::Slab;

use entry::{About, Entry};
pub use entry::{Cut, Facts, Listed, Outgoing};
pub use watch::{Event, Watch, Watcher};

/// A worker's connections.
#[derive(Clone, Debug, Default)]
pub struct Live(Rc<Tables>);

#[derive(Debug, Default)]
struct Tables {
    entries: RefCell<Slab<Rc<Entry>>>,
    watchers: RefCell<Vec<Watcher>>,
    tunnels: Cell<u64>,
    /// For the node agent, should this process be killed. A connection's place there is its key.
    ledger: Option<Ledger>,
}

/// A connection's place, for as long as it lives.
#[derive(Debug)]
pub struct Tracked {
    tables: Rc<Tables>,
    key: usize,
    entry: Rc<Entry>,
}

impl Live {
    /// An empty table whose connections stand in `ledger` as well.
    pub fn new(ledger: Option<Ledger>) -> Self {
        Self(Rc::new(Tables {
            ledger,
            ..Tables::default()
        }))
    }

    /// Enters an inbound connection. Enter first and decide then: a policy that comes between the two is not missed.
    pub fn enter(&self, facts: Facts) -> Tracked {
        self.track(About::Inbound(facts))
    }

    /// Enters an outbound connection.
    pub fn depart(&self, outgoing: Outgoing) -> Tracked {
        self.track(About::Outbound(outgoing))
    }

    fn track(&self, about: About) -> Tracked {
        let entry = Rc::new(Entry::new(about));
        let key = self.0.entries.borrow_mut().insert(Rc::clone(&entry));
        if let Some(ledger) = &self.0.ledger {
            ledger.open(key, &entry.record());
        }
        self.0.tell(|| Event::Opened(entry.list()));
        Tracked {
            tables: Rc::clone(&self.0),
            key,
            entry,
        }
    }

    /// A number for a tunnel that its connections are listed with; unique on this worker.
    pub fn number_tunnel(&self) -> u64 {
        self.0.tunnels.set(self.0.tunnels.get() + 1);
        self.0.tunnels.get()
    }

    /// Cuts what the new policies deny; answers how many were cut.
    pub fn review(&self, snapshot: &Snapshot) -> usize {
        self.cut(Cut::Policy, |entry| {
            let About::Inbound(facts) = entry.about() else {
                return false;
            };
            // A workload that is leaving the mesh: nothing is said about its connections any more.
            let Some(workload) = facts.pod.workload(snapshot) else {
                return false;
            };
            match facts.decide(snapshot, workload) {
                Decision::Allow { by } => {
                    entry.allowed_by(by);
                    false
                }
                Decision::Deny { .. } => true,
            }
        })
    }

    #[allow(dead_code, reason = "called when peers are revoked")]
    /// Cuts the inbound connections that `which` names; answers how many.
    pub fn cut_inbound(&self, reason: Cut, which: impl Fn(&Facts) -> bool) -> usize {
        self.cut(reason, |entry| match entry.about() {
            About::Inbound(facts) => which(facts),
            About::Outbound(_) => false,
        })
    }

    #[allow(dead_code, reason = "called when peers are revoked")]
    /// Cuts the outbound connections that `which` names; answers how many.
    pub fn cut_outbound(&self, reason: Cut, which: impl Fn(&Outgoing) -> bool) -> usize {
        self.cut(reason, |entry| match entry.about() {
            About::Outbound(outgoing) => which(outgoing),
            About::Inbound(_) => false,
        })
    }

    /// Cuts everything; answers how many.
    pub fn cut_all(&self, reason: Cut) -> usize {
        self.cut(reason, |_| true)
    }

    fn cut(&self, reason: Cut, which: impl Fn(&Entry) -> bool) -> usize {
        let entries = self.0.entries.borrow();
        let cut = entries
            .iter()
            .filter(|(_, entry)| which(entry) && entry.cut(reason));
        cut.count()
    }

    /// All of them.
    pub fn list(&self) -> Vec<Listed> {
        let entries = self.0.entries.borrow();
        entries.iter().map(|(_, entry)| entry.list()).collect()
    }

    /// Tells of every connection that opens or closes from now on, until the watcher has no listener any more.
    pub fn watch(&self, watcher: Watcher) {
        self.0.watchers.borrow_mut().push(watcher);
    }
}

impl Tables {
    /// Makes an event only if somebody listens.
    fn tell(&self, event: impl FnOnce() -> Event) {
        if self.watchers.borrow().is_empty() {
            return;
        }
        let event = event();
        self.watchers
            .borrow_mut()
            .retain(|watcher| watcher.tell(&event));
    }
}

impl Tracked {
    /// What was entered of an inbound connection.
    ///
    /// # Panics
    /// If it is an outbound one.
    pub fn facts(&self) -> &Facts {
        match self.entry.about() {
            About::Inbound(facts) => facts,
            About::Outbound(_) => unreachable!("an outbound connection has no policy to decide it"),
        }
    }

    /// Which policy let it in.
    pub fn allowed_by(&self, policy: Option<NamespacedName>) {
        self.entry.allowed_by(policy);
    }

    /// The tunnel that carries it, by its number on this worker.
    pub fn through(&self, tunnel: u64) {
        self.entry.through(tunnel);
    }

    /// Both ends are connected; bytes flow from now on.
    pub fn opened(&self) {
        self.entry.opened();
    }

    /// Counts bytes from the client to the server.
    pub fn add_received(&self, bytes: u64) {
        self.entry.add_received(bytes);
    }

    /// Counts bytes from the server to the client.
    pub fn add_sent(&self, bytes: u64) {
        self.entry.add_sent(bytes);
    }

    /// Resolves when this connection is not to go on, with the reason.
    pub fn cut(&self) -> impl Future<Output = Cut> {
        poll_fn(|context| self.entry.poll_cut(context))
    }

    /// Leaves, with the sentence of the access log if it did not end well.
    pub fn leave(self, error: Option<&dyn std::fmt::Display>) {
        if let Some(error) = error
            && !self.tables.watchers.borrow().is_empty()
        {
            self.entry.failed(error.to_string());
        }
    }
}

impl Drop for Tracked {
    fn drop(&mut self) {
        self.tables.entries.borrow_mut().remove(self.key);
        if let Some(ledger) = &self.tables.ledger {
            ledger.close(self.key);
        }
        let entry = &self.entry;
        self.tables
            .tell(|| Event::Closed(entry.list(), entry.error()));
    }
}

#[cfg(test)]
mod tests;
