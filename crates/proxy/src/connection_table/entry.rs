//! One connection in the table: its known facts, its phase, and whether it is to end.

use std::cell::Cell;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant, SystemTime};

use super::judgement::Judgement;
use crate::pod::Pod;
use lateen_config::{Snapshot, Workload};
use lateen_listener_store::Record;
use lateen_policy::{Connection, Decision, DryRun, decide, dry_run};
use lateen_telemetry::ResponseFlags;
use lateen_types::{Direction, Identity, VerifiedPeer};

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

    /// Decisions of the policies in dry run that cover `workload`, the pod's own.
    pub fn dry_run(&self, snapshot: &Snapshot, workload: &Workload) -> Vec<DryRun> {
        dry_run(snapshot.policies_for(workload), &self.connection())
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

/// Why a connection that could go on does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cut {
    /// A policy denies it by now.
    Policy,
    /// The peer's certificate was revoked.
    Revoked,
    /// The pod has ended.
    Gone,
    /// The tunnel that vouched for it broke: its pods reach one another no more.
    Lost,
    /// The time that connections have when the proxy ends is over.
    Deadline,
}

impl Cut {
    /// The counters' word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Policy => "policy",
            Self::Revoked => "revoked",
            Self::Gone => "gone",
            Self::Lost => "lost",
            Self::Deadline => "deadline",
        }
    }
}

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It is decided about, or its next hop is being reached.
    Opening,
    /// Bytes flow.
    Open,
    /// It is being ended.
    Cut(Cut),
}

impl State {
    /// One word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Opening => "opening",
            Self::Open => "open",
            Self::Cut(_) => "cut",
        }
    }
}

/// The party whose decision ended a connection that did not end well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A policy denied it, applied by this proxy.
    Denied,
    /// A policy denied it, applied by the peer's proxy, which answered 401.
    DeniedByPeer,
    /// Nobody decided: the connection failed.
    Failed,
    /// Nobody decided: an attempt failed, and its connection goes to another endpoint.
    Retried,
}

/// How a connection ended that did not end well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ending {
    /// The party that decided.
    pub fault: Fault,
    /// The counters' word for it.
    pub flags: ResponseFlags,
    /// The access log's sentence.
    pub reason: Box<str>,
}

/// A connection as operators see it.
#[derive(Clone, Debug)]
pub struct Listed {
    /// Tells it from every other one of this process; 0 for one that was refused before it was entered.
    pub id: u64,
    /// The number that the client's proxy gave it and the server's proxy received; 0 if there is none.
    pub pair: u64,
    /// The pod's.
    pub pod: Arc<Pod>,
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
    /// Who the peer of an inbound tunnel proved to be.
    pub peer: Option<Identity>,
    /// The tunnel's number on its worker, if known.
    pub tunnel: Option<u64>,
    /// The decisions of policies about it.
    pub judgement: Judgement,
    /// How far it is.
    pub state: State,
    /// Since it was accepted.
    pub age: Duration,
    /// Bytes from the client to the server.
    pub to_server: u64,
    /// Bytes from the server to the client.
    pub to_client: u64,
}

#[derive(Debug)]
pub(super) enum About {
    Inbound(Facts),
    Outbound(Outgoing),
}

/// The decisions of policies about a connection, and its ending if it did not end well.
#[derive(Default, PartialEq)]
struct Said {
    judgement: Judgement,
    ending: Option<Box<Ending>>,
}

pub(super) struct Entry {
    id: u64,
    pair: u64,
    about: About,
    since: Instant,
    tunnel: Cell<u64>,
    /// Boxed: most connections have none of it.
    said: Cell<Option<Box<Said>>>,
    open: Cell<bool>,
    cut: Cell<Option<Cut>>,
    /// Who waits for `cut`. One at most: the task that relays. It takes less room than a notification would.
    waiting: Cell<Option<Waker>>,
    received: Cell<u64>,
    sent: Cell<u64>,
}

/// There is one for each connection, for as long as it lives. With two counts of references it fills what the allocator has for it.
const _: () = assert!(size_of::<Entry>() <= 224 - 16);

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut entry = f.debug_struct("Entry");
        entry.field("id", &self.id).finish_non_exhaustive()
    }
}

impl Entry {
    pub(super) fn new(id: u64, pair: u64, about: About) -> Self {
        Self {
            id,
            pair,
            about,
            since: Instant::now(),
            tunnel: Cell::new(0),
            said: Cell::new(None),
            open: Cell::new(false),
            cut: Cell::new(None),
            waiting: Cell::new(None),
            received: Cell::new(0),
            sent: Cell::new(0),
        }
    }

    pub(super) fn about(&self) -> &About {
        &self.about
    }

    /// Changes the decisions of policies about it.
    pub(super) fn judge(&self, change: impl FnOnce(&mut Judgement)) {
        self.say(|said| change(&mut said.judgement));
    }

    /// Nothing is allocated as long as nothing is said.
    fn say<T>(&self, change: impl FnOnce(&mut Said) -> T) -> T {
        let mut said = self.said.take().map_or_else(Said::default, |said| *said);
        let result = change(&mut said);
        if said != Said::default() {
            self.said.set(Some(Box::new(said)));
        }
        result
    }

    pub(super) fn through(&self, tunnel: u64) {
        self.tunnel.set(tunnel);
    }

    /// 0 if none is known.
    pub(super) fn tunnel(&self) -> u64 {
        self.tunnel.get()
    }

    pub(super) fn direction(&self) -> Direction {
        match &self.about {
            About::Inbound(_) => Direction::Inbound,
            About::Outbound(_) => Direction::Outbound,
        }
    }

    pub(super) fn was_cut(&self) -> Option<Cut> {
        self.cut.get()
    }

    pub(super) fn opened(&self) {
        self.open.set(true);
    }

    pub(super) fn add_received(&self, bytes: u64) {
        self.received.set(self.received.get() + bytes);
    }

    pub(super) fn add_sent(&self, bytes: u64) {
        self.sent.set(self.sent.get() + bytes);
    }

    /// False if it was cut before.
    pub(super) fn cut(&self, reason: Cut) -> bool {
        if self.cut.get().is_some() {
            return false;
        }
        self.cut.set(Some(reason));
        if let Some(waker) = self.waiting.take() {
            waker.wake();
        }
        true
    }

    pub(super) fn poll_cut(&self, context: &mut Context<'_>) -> Poll<Cut> {
        if let Some(reason) = self.cut.get() {
            return Poll::Ready(reason);
        }
        let waker = match self.waiting.take() {
            Some(waker) if waker.will_wake(context.waker()) => waker,
            _ => context.waker().clone(),
        };
        self.waiting.set(Some(waker));
        Poll::Pending
    }

    pub(super) fn failed(&self, ending: Ending) {
        self.say(|said| said.ending = Some(Box::new(ending)));
    }

    pub(super) fn ending(&self) -> Option<Box<Ending>> {
        self.say(|said| said.ending.take())
    }

    pub(super) fn pod(&self) -> &Arc<Pod> {
        match &self.about {
            About::Inbound(facts) => &facts.pod,
            About::Outbound(outgoing) => &outgoing.pod,
        }
    }

    /// Bytes that its pod received and sent: a server receives what a client sends.
    pub(super) fn pod_bytes(&self) -> (u64, u64) {
        let (from_client, to_client) = (self.received.get(), self.sent.get());
        match self.direction() {
            Direction::Inbound => (from_client, to_client),
            Direction::Outbound => (to_client, from_client),
        }
    }

    fn state(&self) -> State {
        match (self.cut.get(), self.open.get()) {
            (Some(reason), _) => State::Cut(reason),
            (None, true) => State::Open,
            (None, false) => State::Opening,
        }
    }

    /// What the node agent is to know of it if this process is killed.
    pub(super) fn record(&self) -> Record {
        let (pod, direction, source, destination) = match &self.about {
            About::Inbound(facts) => (
                &facts.pod,
                Direction::Inbound,
                facts.source,
                facts.destination,
            ),
            About::Outbound(out) => (&out.pod, Direction::Outbound, out.source, out.wanted),
        };
        Record {
            netns: pod.sockets.netns().inode(),
            direction,
            source,
            destination,
            since: SystemTime::now(),
        }
    }

    fn judged(&self) -> Judgement {
        let said = self.said.take();
        let judgement = said.as_deref().map(|said| said.judgement.clone());
        self.said.set(said);
        judgement.unwrap_or_default()
    }

    pub(super) fn list(&self) -> Listed {
        let common = |pod: &Arc<Pod>, direction, source, destination, tunnelled| Listed {
            id: self.id,
            pair: self.pair,
            pod: Arc::clone(pod),
            direction,
            source,
            wanted: None,
            destination,
            tunnelled,
            peer: None,
            tunnel: Some(self.tunnel.get()).filter(|tunnel| *tunnel > 0),
            judgement: self.judged(),
            state: self.state(),
            age: self.since.elapsed(),
            to_server: self.received.get(),
            to_client: self.sent.get(),
        };
        match &self.about {
            About::Inbound(facts) => Listed {
                peer: facts.peer.as_ref().map(|peer| peer.identity().clone()),
                ..common(
                    &facts.pod,
                    Direction::Inbound,
                    facts.source,
                    facts.destination,
                    facts.peer.is_some(),
                )
            },
            About::Outbound(outgoing) => Listed {
                wanted: Some(outgoing.wanted),
                ..common(
                    &outgoing.pod,
                    Direction::Outbound,
                    outgoing.source,
                    outgoing.hop,
                    outgoing.tunnelled,
                )
            },
        }
    }
}
