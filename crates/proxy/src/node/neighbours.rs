//! Pairs of pods that are both this process's: a tunnel from the one to the other proves it, and stays open to go on
//! proving it, while connections between the two are handed over past it.
//!
//! The tunnel is an ordinary one, through both pods' networks, to whichever process listens there. So everything that
//! speaks against a connection by tunnel speaks against handing one over: no certificate, one that was revoked or is
//! another's, a network that does not let the one pod reach the other, a pod or a process that takes no more. What holds
//! for connections on a tunnel holds for those that are handed over: a tunnel that takes no more goes on until the last of
//! them ends, and asks by PING all the while whether the one pod still reaches the other; if it breaks, they are cut.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::{Duration, Instant};

use lateen_hbone::client::{self, Driver};
use lateen_hbone::{self as hbone, Budget, CloseReason, PoolKey, TunnelError};
use lateen_telemetry::Reporter;
use lateen_tls::{Revocations, Session};
use lateen_types::Direction;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::Refusal;
use super::counted::Counted;
use super::dial::DialError;
use super::tunnel::{Proven, dial_tunnel};
use crate::live::{Cut, Live};
use crate::meeting::{Ends, Host};
use crate::pod::Pod;
use crate::worker::Worker;

/// How long a tunnel that ended elsewhere is taken to say that the next one would, too. A process that replaces this one,
/// or is replaced by it, listens for seconds.
const ELSEWHERE: Duration = Duration::from_secs(10);

/// Tunnels that are opened for one connection, if each takes no more as soon as it is open.
const ATTEMPTS: usize = 2;

/// Wait between two looks at whether a tunnel is of use, at most.
const LOOK: Duration = Duration::from_secs(30);

/// A worker's pairs of pods, by what their connections would share a tunnel by.
#[derive(Debug, Default)]
pub struct Neighbours {
    entries: RefCell<HashMap<PoolKey, Entry>>,
    /// Those that are retired, too, for as long as they have connections.
    known: RefCell<Vec<Weak<Neighbour>>>,
}

#[derive(Debug)]
enum Entry {
    Proving(Rc<Proof>),
    Here(Rc<Neighbour>),
    Elsewhere(Instant),
}

/// A tunnel that is being opened.
#[derive(Debug, Default)]
struct Proof {
    done: Notify,
    failure: RefCell<Option<Failure>>,
}

/// Why there is no tunnel.
#[derive(Clone, Debug)]
enum Failure {
    Dial(DialError),
    Tunnel(Rc<TunnelError>),
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
pub(super) struct Neighbour {
    key: PoolKey,
    host: Arc<Host>,
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

/// A connection's hold on a neighbour.
#[derive(Debug)]
pub(super) struct Use(Rc<Neighbour>);

impl Use {
    /// `None` when no more connections are to be handed over.
    fn of(neighbour: &Rc<Neighbour>) -> Option<Self> {
        let entered = !neighbour.retired.get() && neighbour.host.uses.enter();
        entered.then(|| Self(Rc::clone(neighbour)))
    }

    /// Between whom the tunnel is.
    pub(super) fn ends(&self) -> &Ends {
        &self.0.host.ends
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
        self.0.host.uses.leave();
        self.0.used.set(Instant::now());
        self.0.close_if_done();
    }
}

impl Neighbour {
    /// No more connections; those that are open go on, and the tunnel with them.
    fn retire(&self) {
        self.retired.set(true);
        self.close_if_done();
    }

    fn close_if_done(&self) {
        if self.retired.get() && self.host.uses.count() == 0 {
            self.tunnel.close();
        }
    }

    fn is_idle(&self, most: Duration) -> bool {
        self.host.uses.count() == 0 && self.used.get().elapsed() >= most
    }

    /// True if the certificate of either end was revoked.
    fn revoked(&self, revocations: &Revocations) -> bool {
        self.host.session.revoked(revocations) || self.proven.revoked(revocations)
    }

    /// The tunnel is no more, and nothing vouches for what rested on it. A revocation ends it as the network does, at the end
    /// of whichever worker hears of it first.
    fn lost(&self, revocations: &Revocations, live: &Live) {
        let source = self.host.session.revoked(revocations);
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
                live.cut_tunnel(self.number, direction, reason);
            }
        }
    }
}

impl Neighbours {
    /// Takes those that `which` names out of use; what is open between them goes on.
    pub fn retire(&self, which: impl Fn(&PoolKey) -> bool) {
        self.entries.borrow_mut().retain(|key, entry| {
            if !which(key) {
                return true;
            }
            match entry {
                Entry::Here(neighbour) => neighbour.retire(),
                // Those who wait look again, and begin anew.
                Entry::Proving(proof) => proof.done.notify_waiters(),
                Entry::Elsewhere(_) => {}
            }
            false
        });
    }

    /// Has the tunnels that `which` names, those that are retired, too, ask again and again whether anybody is there: what
    /// rests on one ends soon if nobody is. For a peer that is said to be gone.
    pub fn doubt(&self, which: impl Fn(&PoolKey) -> bool) {
        for neighbour in self.known().iter().filter(|known| which(&known.key)) {
            neighbour.tunnel.doubt();
        }
    }

    fn know(&self, neighbour: &Rc<Neighbour>) {
        let mut known = self.known.borrow_mut();
        known.retain(|other| other.strong_count() > 0);
        known.push(Rc::downgrade(neighbour));
    }

    fn known(&self) -> Vec<Rc<Neighbour>> {
        let known = self.known.borrow();
        known.iter().filter_map(Weak::upgrade).collect()
    }

    /// What `key` leads to as far as it is known; begins to find out if it is not.
    fn look(&self, worker: &Rc<Worker>, pod: &Arc<Pod>, key: &PoolKey) -> Look {
        let mut entries = self.entries.borrow_mut();
        match entries.get(key) {
            Some(Entry::Here(neighbour)) => match Use::of(neighbour) {
                Some(found) => return Look::Here(found),
                None => neighbour.retire(),
            },
            Some(Entry::Elsewhere(until)) if Instant::now() < *until => return Look::Elsewhere,
            Some(Entry::Proving(proof)) => return Look::Wait(Rc::clone(proof)),
            Some(Entry::Elsewhere(_)) | None => {}
        }
        let proof = Rc::<Proof>::default();
        entries.insert(key.clone(), Entry::Proving(Rc::clone(&proof)));
        let proving = prove(
            Rc::clone(worker),
            Arc::clone(pod),
            key.clone(),
            Rc::clone(&proof),
        );
        lateen_fair::spawn_local(proving);
        Look::Wait(proof)
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

    fn remove(&self, key: &PoolKey, neighbour: &Rc<Neighbour>) {
        let mut entries = self.entries.borrow_mut();
        if matches!(entries.get(key), Some(Entry::Here(other)) if Rc::ptr_eq(other, neighbour)) {
            entries.remove(key);
        }
    }
}

enum Look {
    Here(Use),
    Elsewhere,
    Wait(Rc<Proof>),
}

/// The pod at the other end of a tunnel of this key, if this process is there; `None` if another one is. Opens the tunnel
/// if there is none; those who want the same wait for one.
///
/// # Errors
/// There is no tunnel, and one for connections would not be there either.
pub(super) async fn find(
    worker: &Rc<Worker>,
    pod: &Arc<Pod>,
    key: &PoolKey,
) -> Result<Option<Use>, Refusal> {
    for _ in 0..=ATTEMPTS {
        match worker.neighbours.look(worker, pod, key) {
            // What has not been proven lately is asked for again: the network may let the one pod reach the other no more.
            Look::Here(found) => match found.0.tunnel.answers().await {
                true => return Ok(Some(found)),
                false => found.0.retire(),
            },
            Look::Elsewhere => return Ok(None),
            Look::Wait(proof) => {
                proof.done.notified().await;
                if let Some(failure) = proof.failure.borrow().clone() {
                    return Err(failure.into());
                }
            }
        }
    }
    Ok(None)
}

/// Opens a tunnel, sees where it ends, and keeps it for as long as it is of use.
async fn prove(worker: Rc<Worker>, pod: Arc<Pod>, key: PoolKey, proof: Rc<Proof>) {
    let neighbours = &worker.neighbours;
    let fail = |failure: Failure| {
        proof.failure.replace(Some(failure));
        neighbours.settle(&key, &proof, None);
    };
    let io = match dial_tunnel(&worker, &pod, &key).await {
        Ok(io) => io,
        Err(error) => return fail(Failure::Dial(error)),
    };
    let counted = Counted::already_opened(&worker.metrics, Reporter::Source);
    let (tunnel, driver, host, proven) = match begin(&worker, io).await {
        Ok(begun) => begun,
        Err(error) => {
            counted.ended(error.close_reason());
            return fail(Failure::Tunnel(Rc::new(error)));
        }
    };
    let Some(host) = host else {
        let elsewhere = Entry::Elsewhere(Instant::now() + ELSEWHERE);
        neighbours.settle(&key, &proof, Some(elsewhere));
        tracing::debug!(peer = %key.address, "the far end is another process's; connections go through tunnels");
        drop(tunnel);
        counted.ended(CloseReason::of(&driver.await));
        return;
    };
    let neighbour = Rc::new(Neighbour {
        key: key.clone(),
        host,
        proven,
        number: worker.live.number_tunnel(),
        tunnel,
        retired: Cell::new(false),
        ended: Cell::new(None),
        used: Cell::new(Instant::now()),
    });
    neighbours.know(&neighbour);
    let here = Entry::Here(Rc::clone(&neighbour));
    if !neighbours.settle(&key, &proof, Some(here)) {
        neighbour.retire();
    }
    let ended = keep(&worker, &neighbour, driver).await;
    let reason = CloseReason::of(&ended);
    counted.ended(reason);
    if let Err(error) = ended {
        tracing::debug!(peer = %key.address, %error, reason = reason.as_str(), "tunnel between neighbours ended");
    }
    neighbours.remove(&key, &neighbour);
    neighbour.lost(&worker.revocations, &worker.live);
}

type Begun = (
    hbone::Tunnel,
    Driver<<Proven as hbone::Dialled>::Io>,
    Option<Arc<Host>>,
    Arc<Session>,
);

/// HTTP/2, and the first word of the far end: if that is in this process it is to be met from then on.
async fn begin(worker: &Worker, io: Proven) -> Result<Begun, TunnelError> {
    let hbone::Lent { io, budget, below } = io;
    let (proven, first_word) = (Arc::clone(io.session()), io.first_word());
    let settings = proving(&worker.inner, budget);
    let (tunnel, mut driver) = client::handshake(io, settings).await?;
    driver.ask(below);
    let heard = async {
        tokio::select! {
            biased;
            () = first_word.heard() => Ok(()),
            ended = &mut driver => Err(ended.err().unwrap_or_else(gone)),
        }
    };
    match timeout(worker.patience.peer, heard).await {
        Ok(heard) => heard?,
        Err(_) => {
            return Err(TunnelError::Io(std::io::Error::new(
                std::io::ErrorKind::TimedOut,
                "the far end says nothing",
            )));
        }
    }
    let same_node = worker.same_node.as_ref();
    let host = same_node.and_then(|same_node| same_node.meeting.other_end(&proven));
    Ok((tunnel, driver, host, proven))
}

/// What a tunnel is opened with that carries nothing.
fn proving(carrying: &hbone::Settings, budget: Budget) -> hbone::Settings {
    hbone::Settings {
        budget,
        // It is of use without any stream; whether it is, is looked at here.
        idle_timeout: None,
        // What rests on it does not cross the network: that the network is cut shows by PINGs alone.
        ping_interval: carrying.probe_after,
        ping_timeout: carrying.ping_timeout / 2,
        ..carrying.clone()
    }
}

fn gone() -> TunnelError {
    TunnelError::Io(std::io::Error::new(
        std::io::ErrorKind::ConnectionAborted,
        "peer closes every new tunnel; it may be shutting down",
    ))
}

/// Drives a tunnel to its end; that comes soon when it has not been of use for long.
async fn keep(
    worker: &Worker,
    neighbour: &Neighbour,
    driver: Driver<<Proven as hbone::Dialled>::Io>,
) -> Result<(), TunnelError> {
    let most = worker.pool_idle();
    let mut driver = pin!(driver);
    loop {
        tokio::select! {
            ended = &mut driver => return ended,
            () = sleep((most / 4).clamp(Duration::from_millis(10), LOOK)) => {
                if neighbour.is_idle(most) {
                    neighbour.retire();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tunnel_that_carries_nothing_is_asked_more_often_and_waited_for_less_long() {
        let carrying = hbone::Settings::client();
        let proving = proving(&carrying, Budget::default());
        assert_eq!(proving.ping_interval, Duration::from_secs(5));
        assert_eq!(proving.ping_timeout, Duration::from_secs(10));
        assert!(proving.ping_interval < carrying.ping_interval);
        assert!(proving.ping_timeout < carrying.ping_timeout);
        assert_eq!(proving.idle_timeout, None);
    }
}
