//! Table of the connections that a worker serves. Through it a change of policy, a revocation or the end of a drain reaches
//! each connection, and operators see it. The table decides nothing about a connection.

mod entry;
mod judgement;
mod watch;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use lateen_config::Snapshot;
use lateen_listener_store::Ledger;
use lateen_policy::Decision;
use lateen_types::{Direction, WorkloadUid};
use slab::Slab;

use crate::pod::Pod;

use entry::{About, Entry};
pub use entry::{Cut, Ending, Facts, Fault, Listed, Outgoing, State};
pub use judgement::{Denial, Judgement, NAMED};
pub use watch::{Event, Watch, Watcher};

/// A worker's connections.
#[derive(Clone, Debug, Default)]
pub struct ConnectionTable(Rc<Tables>);

#[derive(Debug, Default)]
struct Tables {
    entries: RefCell<Slab<Rc<Entry>>>,
    watchers: RefCell<Vec<Watcher>>,
    tunnels: Cell<u64>,
    /// The number of the last connection; the worker's own is in the upper bits.
    numbers: Cell<u64>,
    totals: RefCell<HashMap<WorkloadUid, Totals>>,
    /// For the node agent, should this process be killed. A connection's place there is its key.
    ledger: Option<Ledger>,
}

/// What a pod's connections on one worker came to so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Connections that are open.
    pub open: u64,
    /// Connections that were entered.
    pub opened: u64,
    /// Connections that a policy refused or ended, at either end.
    pub denied: u64,
    /// Other connections that did not end well, those included that were refused before they were entered.
    pub failed: u64,
    /// Bytes that the pod received, as a server or as a client.
    pub received: u64,
    /// Bytes that the pod sent.
    pub sent: u64,
}

/// A connection's place, for as long as it lives.
#[derive(Debug)]
pub struct Tracked {
    tables: Rc<Tables>,
    key: usize,
    entry: Rc<Entry>,
}

impl ConnectionTable {
    /// An empty table of the worker `index`, whose connections stand in `ledger` as well.
    pub fn new(index: usize, ledger: Option<Ledger>) -> Self {
        Self(Rc::new(Tables {
            ledger,
            numbers: Cell::new((index as u64) << 48),
            ..Tables::default()
        }))
    }

    /// Enters an inbound connection. Enter first and decide then: a policy that comes between the two is not missed.
    /// Watchers hear of it when policies admit it, or when it ends. `pair` is the number that its sender gave it, 0 if none.
    pub fn enter(&self, facts: Facts, pair: u64) -> Tracked {
        self.track(About::Inbound(facts), pair)
    }

    /// Enters an outbound connection, to which this proxy gives the number `pair`.
    pub fn depart(&self, outgoing: Outgoing, pair: u64) -> Tracked {
        let tracked = self.track(About::Outbound(outgoing), pair);
        self.0.tell(|| Event::Opened(tracked.entry.list()));
        tracked
    }

    fn track(&self, about: About, pair: u64) -> Tracked {
        self.0.numbers.set(self.0.numbers.get() + 1);
        let entry = Rc::new(Entry::new(self.0.numbers.get(), pair, about));
        self.0.count(entry.pod(), |totals| {
            totals.open += 1;
            totals.opened += 1;
        });
        let key = self.0.entries.borrow_mut().insert(Rc::clone(&entry));
        if let Some(ledger) = &self.0.ledger {
            ledger.open(key, &entry.record());
        }
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

    /// Cuts the connections that the new policies deny, and brings the decisions that are listed with the others up to date.
    /// Returns the number of connections that it cut.
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
                    let hits = facts.dry_run(snapshot, workload);
                    let would_deny = Denial::rehearsed(&hits, snapshot, workload);
                    entry.judge(|judgement| {
                        judgement.allowed_by = by;
                        judgement.would_deny = would_deny;
                    });
                    false
                }
                Decision::Deny { by } => {
                    let denial = Denial::new(&by, snapshot, workload);
                    entry.judge(|judgement| judgement.denied = Some(denial));
                    true
                }
            }
        })
    }

    /// Cuts what a tunnel of this number carries in one direction; answers how many. A tunnel's number is also that of the
    /// connections that are handed over in its stead.
    pub fn cut_tunnel(&self, tunnel: u64, direction: Direction, reason: Cut) -> usize {
        self.cut(reason, |entry| {
            entry.tunnel() == tunnel && entry.direction() == direction
        })
    }

    /// Cuts what a pod has left, in both directions; answers how many.
    pub fn cut_pod(&self, pod: &Arc<Pod>, reason: Cut) -> usize {
        self.cut(reason, |entry| Arc::ptr_eq(entry.pod(), pod))
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

    /// Counts a connection that was refused before it was entered, and tells of it.
    pub fn refused(&self, pod: &Pod, fault: Fault, event: impl FnOnce() -> (Listed, Ending)) {
        self.0.count(pod, |totals| totals.end(fault));
        self.0.tell(|| {
            let (listed, ending) = event();
            Event::Closed(listed, Some(Box::new(ending)))
        });
    }

    /// What each pod's connections came to, those that are open included.
    pub fn totals(&self) -> HashMap<WorkloadUid, Totals> {
        let mut totals = self.0.totals.borrow().clone();
        for (_, entry) in self.0.entries.borrow().iter() {
            if let Some(totals) = totals.get_mut(&entry.pod().uid) {
                totals.add(entry.pod_bytes());
            }
        }
        totals
    }

    /// Forgets the totals of a pod that was let go.
    pub fn forget(&self, pod: &WorkloadUid) {
        self.0.totals.borrow_mut().remove(pod);
    }

    /// Tells of every connection that opens or closes from now on, until the watcher has no listener any more.
    pub fn watch(&self, watcher: Watcher) {
        self.0.watchers.borrow_mut().push(watcher);
    }
}

impl Totals {
    fn add(&mut self, (received, sent): (u64, u64)) {
        self.received += received;
        self.sent += sent;
    }

    fn end(&mut self, fault: Fault) {
        match fault {
            Fault::Denied | Fault::DeniedByPeer => self.denied += 1,
            Fault::Failed => self.failed += 1,
            Fault::Retried => {}
        }
    }
}

impl Tables {
    fn count(&self, pod: &Pod, count: impl FnOnce(&mut Totals)) {
        let mut totals = self.totals.borrow_mut();
        let uid = &pod.uid;
        match totals.get_mut(uid) {
            Some(totals) => count(totals),
            // One that was let go is not counted anew: nobody would forget it again.
            None if pod.is_leaving() => {}
            None => count(totals.entry(uid.clone()).or_default()),
        }
    }

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

    /// Policies admit it; watchers hear of it now.
    pub fn admitted(&self, judgement: Judgement) {
        self.entry.judge(|now| *now = judgement);
        self.tables.tell(|| Event::Opened(self.entry.list()));
    }

    /// Policies refuse it.
    pub fn refused(&self, judgement: Judgement) {
        self.entry.judge(|now| *now = judgement);
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
        poll_fn(|context| self.poll_cut(context))
    }

    /// The same for callers that poll, of whom there may be one.
    pub fn poll_cut(&self, context: &mut Context<'_>) -> Poll<Cut> {
        self.entry.poll_cut(context)
    }

    /// Why it is not to go on, if that is so.
    pub fn was_cut(&self) -> Option<Cut> {
        self.entry.was_cut()
    }

    /// Leaves; with how it ended, if it did not end well. The ending's text is made only if somebody watches.
    pub fn leave(self, ending: Option<(Fault, impl FnOnce() -> Ending)>) {
        if let Some((fault, ending)) = ending {
            self.tables
                .count(self.entry.pod(), |totals| totals.end(fault));
            if !self.tables.watchers.borrow().is_empty() {
                self.entry.failed(ending());
            }
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
        // A pod that was let go is forgotten, whatever of it still ends.
        if let Some(totals) = self.tables.totals.borrow_mut().get_mut(&entry.pod().uid) {
            totals.open = totals.open.saturating_sub(1);
            totals.add(entry.pod_bytes());
        }
        self.tables
            .tell(|| Event::Closed(entry.list(), entry.ending()));
    }
}

#[cfg(test)]
mod tests;
