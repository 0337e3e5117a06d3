//! Registry of pod pairs whose pods are both served by this process. For each pair it has the tunnel that proves the pair, or
//! the time until which the far end counts as another process's.
//!
//! The tunnel is an ordinary one, through both pods' networks, to the process that listens there. So every obstacle to a
//! connection by tunnel is an obstacle to a hand-over:
//!
//! - no certificate, a revoked one, or one of another identity;
//! - a network that does not let the one pod reach the other;
//! - a pod or a process that accepts no more.
//!
//! The rules for connections on a tunnel hold for handed-over connections too. A tunnel that takes no new ones stays until the
//! last of them ends. Meanwhile it asks by PING whether the one pod still reaches the other, and if it breaks, they are cut.
//! `same_node::proof` opens these tunnels and drives them.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::{Duration, Instant};

use lateen_hbone::{self as hbone, PoolKey, TunnelError};
use lateen_tls::{Revocations, Session};
use lateen_types::Direction;
use tokio::sync::Notify;

use super::dial::DialError;
use super::refusal::Refusal;
use crate::connection_table::{ConnectionTable, Cut};
use crate::local_tunnels::{AcceptedEnd, Ends};

/// How long a tunnel that ended elsewhere is taken to say that the next one would, too. A process that replaces this one,
/// or is replaced by it, listens for seconds.
const ELSEWHERE: Duration = Duration::from_secs(10);

/// A worker's pairs of pods, by what their connections would share a tunnel by.
#[derive(Debug, Default)]
pub struct PairRegistry {
    entries: RefCell<HashMap<PoolKey, Entry>>,
    /// Those that are retired, too, for as long as they have connections.
    known: RefCell<Vec<Weak<Pair>>>,
}

#[derive(Debug)]
enum Entry {
    Proving(Rc<Proof>),
    Here(Rc<Pair>),
    /// The far end is another process's, until this moment.
    Elsewhere(Instant),
}

/// A tunnel that is being opened.
#[derive(Debug, Default)]
pub(super) struct Proof {
    done: Notify,
    failure: RefCell<Option<Failure>>,
}

/// Why there is no tunnel.
#[derive(Clone, Debug)]
pub(super) enum Failure {
    Dial(DialError),
    Tunnel(Rc<TunnelError>),
}

impl Proof {
    /// Waits for the outcome, which the registry knows then.
    ///
    /// # Errors
    /// There is no tunnel.
    pub(super) async fn outcome(&self) -> Result<(), Failure> {
        self.done.notified().await;
        self.failure.borrow().clone().map_or(Ok(()), Err)
    }
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Dial(error) => Refusal::Dial(error),
            Failure::Tunnel(error) => Refusal::Tunnel(error),
        }
    }
}

/// A pod that another one has met.
#[derive(Debug)]
pub(super) struct Pair {
    key: PoolKey,
    accepted_end: Arc<AcceptedEnd>,
    /// What the pod proved to the one that opened the tunnel.
    proven: Arc<Session>,
    /// The tunnel's number on this worker, which its connections have, too.
    number: u64,
    tunnel: hbone::Tunnel,
    /// It takes no more connections.
    retired: Cell<bool>,
    /// Why its connections are not to go on.
    ended: Cell<Option<Cut>>,
    used: Cell<Instant>,
}

/// A connection's hold on a pair.
#[derive(Debug)]
pub(super) struct Use(Rc<Pair>);

impl Use {
    /// `None` when no more connections are to be handed over.
    fn of(pair: &Rc<Pair>) -> Option<Self> {
        let entered = !pair.retired.get() && pair.accepted_end.uses.enter();
        entered.then(|| Self(Rc::clone(pair)))
    }

    /// Between whom the tunnel is.
    pub(super) fn ends(&self) -> &Ends {
        &self.0.accepted_end.ends
    }

    /// Whether the far end answers a PING now, unless it did so lately. If not, the tunnel takes no more connections.
    pub(super) async fn answers(&self) -> bool {
        let answers = self.0.tunnel.answers().await;
        if !answers {
            self.0.retire();
        }
        answers
    }

    /// The tunnel's number.
    pub(super) fn number(&self) -> u64 {
        self.0.number
    }

    /// The reason for which a connection that was found this way must not go on. A revocation counts at once: the tunnel may end
    /// a little later.
    pub(super) fn ended(&self, revocations: &Revocations) -> Option<Cut> {
        let ended = self.0.ended.get();
        ended.or_else(|| self.0.revoked(revocations).then_some(Cut::Revoked))
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        self.0.accepted_end.uses.leave();
        self.0.used.set(Instant::now());
        self.0.close_if_done();
    }
}

impl Pair {
    /// A pair whose `tunnel`, of this number, ends at `accepted_end`; `proven` is what the far end proved.
    pub(super) fn new(
        key: PoolKey,
        accepted_end: Arc<AcceptedEnd>,
        proven: Arc<Session>,
        number: u64,
        tunnel: hbone::Tunnel,
    ) -> Self {
        Self {
            key,
            accepted_end,
            proven,
            number,
            tunnel,
            retired: Cell::new(false),
            ended: Cell::new(None),
            used: Cell::new(Instant::now()),
        }
    }

    /// No more connections; those that are open go on, and the tunnel with them.
    pub(super) fn retire(&self) {
        self.retired.set(true);
        self.close_if_done();
    }

    fn close_if_done(&self) {
        if self.retired.get() && self.accepted_end.uses.count() == 0 {
            self.tunnel.close();
        }
    }

    pub(super) fn is_idle(&self, most: Duration) -> bool {
        self.accepted_end.uses.count() == 0 && self.used.get().elapsed() >= most
    }

    /// True if the certificate of either end was revoked.
    fn revoked(&self, revocations: &Revocations) -> bool {
        self.accepted_end.session.revoked(revocations) || self.proven.revoked(revocations)
    }

    /// The tunnel is no more, and nothing vouches for what rested on it. A revocation ends it as the network does, at the end
    /// of whichever worker hears of it first.
    pub(super) fn lost(&self, revocations: &Revocations, connections: &ConnectionTable) {
        let source = self.accepted_end.session.revoked(revocations);
        let destination = self.proven.revoked(revocations);
        let revoked = source || destination;
        let reason = if revoked { Cut::Revoked } else { Cut::Lost };
        self.ended.set(Some(reason));
        // Of the other one's certificate each end is told, of the network both.
        for (direction, told) in [
            (Direction::Inbound, source),
            (Direction::Outbound, destination),
        ] {
            if told || !revoked {
                connections.cut_tunnel(self.number, direction, reason);
            }
        }
    }
}

impl PairRegistry {
    /// Takes those that `which` names out of use; what is open between them goes on.
    pub fn retire(&self, which: impl Fn(&PoolKey) -> bool) {
        self.entries.borrow_mut().retain(|key, entry| {
            if !which(key) {
                return true;
            }
            match entry {
                Entry::Here(pair) => pair.retire(),
                // Those who wait look again, and begin anew.
                Entry::Proving(proof) => proof.done.notify_waiters(),
                Entry::Elsewhere(_) => {}
            }
            false
        });
    }

    /// Probes the peers of the pairs' tunnels that `which` selects, retired ones too, until the tunnels end. If a peer is
    /// gone, the connections that depend on its tunnel end soon.
    pub fn keep_probing(&self, which: impl Fn(&PoolKey) -> bool) {
        for pair in self.known().iter().filter(|known| which(&known.key)) {
            pair.tunnel.keep_probing();
        }
    }

    fn known(&self) -> Vec<Rc<Pair>> {
        let known = self.known.borrow();
        known.iter().filter_map(Weak::upgrade).collect()
    }

    /// What is known of `key`. The caller has to open a tunnel where the answer is [`Look::Open`].
    pub(super) fn look(&self, key: &PoolKey) -> Look {
        let mut entries = self.entries.borrow_mut();
        match entries.get(key) {
            Some(Entry::Here(pair)) => match Use::of(pair) {
                Some(found) => return Look::Here(found),
                None => pair.retire(),
            },
            Some(Entry::Elsewhere(until)) if Instant::now() < *until => return Look::Elsewhere,
            Some(Entry::Proving(proof)) => return Look::Wait(Rc::clone(proof)),
            Some(Entry::Elsewhere(_)) | None => {}
        }
        let proof = Rc::<Proof>::default();
        entries.insert(key.clone(), Entry::Proving(Rc::clone(&proof)));
        Look::Open(proof)
    }

    /// The tunnel ends at a pod of this process. False if nobody waits for it there any more.
    pub(super) fn found(&self, proof: &Rc<Proof>, pair: &Rc<Pair>) -> bool {
        let mut known = self.known.borrow_mut();
        known.retain(|other| other.strong_count() > 0);
        known.push(Rc::downgrade(pair));
        let here = Entry::Here(Rc::clone(pair));
        self.settle(&pair.key, proof, Some(here))
    }

    /// The tunnel ends at another process.
    pub(super) fn elsewhere(&self, key: &PoolKey, proof: &Rc<Proof>) {
        let elsewhere = Entry::Elsewhere(Instant::now() + ELSEWHERE);
        self.settle(key, proof, Some(elsewhere));
    }

    /// There is no tunnel.
    pub(super) fn failed(&self, key: &PoolKey, proof: &Rc<Proof>, failure: Failure) {
        proof.failure.replace(Some(failure));
        self.settle(key, proof, None);
    }

    /// Puts what came of a proof into its place; false if nobody waits for it there any more.
    fn settle(&self, key: &PoolKey, proof: &Rc<Proof>, entry: Option<Entry>) -> bool {
        let mut entries = self.entries.borrow_mut();
        let ours =
            matches!(entries.get(key), Some(Entry::Proving(other)) if Rc::ptr_eq(other, proof));
        if ours {
            match entry {
                Some(entry) => entries.insert(key.clone(), entry),
                None => entries.remove(key),
            };
        }
        proof.done.notify_waiters();
        ours
    }

    /// The tunnel has ended.
    pub(super) fn remove(&self, pair: &Rc<Pair>) {
        let (mut entries, key) = (self.entries.borrow_mut(), &pair.key);
        if matches!(entries.get(key), Some(Entry::Here(other)) if Rc::ptr_eq(other, pair)) {
            entries.remove(key);
        }
    }
}

/// What is known of a pair.
pub(super) enum Look {
    /// Both pods are here, and the tunnel takes this connection.
    Here(Use),
    /// The far end is another process's.
    Elsewhere,
    /// Another connection has begun to open the tunnel.
    Wait(Rc<Proof>),
    /// The caller opens the tunnel and tells the registry what came of it.
    Open(Rc<Proof>),
}
