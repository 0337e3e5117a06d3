//! A worker: one thread with one single-threaded runtime. A connection and its streams live and die on it, so nothing
//! on their path is locked or handed to another thread.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use lateen_accelerate::Accelerator;
use lateen_capture::acceptor::{OwnAcceptor, Watching};
use lateen_capture::{Accepted, Ledger};
use lateen_config::{Snapshot, Workload};
use lateen_fair::{Executor, Group, Groups};
use lateen_hbone::{CloseReason, Pool, PoolKey};
use lateen_identity::Manager;
use lateen_telemetry::{Metrics, Reporter};
use lateen_tls::Revocations;
use lateen_types::{Identity, Strng, WorkloadUid};
use prometheus_client::metrics::gauge::Gauge;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tokio::sync::{Notify, mpsc, oneshot};

use crate::dns::Resolver;
use crate::live::{Cut, Listed, Live, Totals, Watch, Watcher};
use crate::meeting::Meeting;
use crate::node;
use crate::node::neighbours::Neighbours;
use crate::node::sampling::Sampler;
use crate::node::{DialError, Ejected, Ejections, Refusal};
use crate::pod::{Door, Pod};
use crate::tunnels::Tunnels;

/// How long others may take before a connection is given up.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// The control plane, to say what a pod is.
    pub workload: Duration,
    /// A TCP connection, a TLS handshake, the start of HTTP/2.
    pub peer: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            // A kubelet tells a pod's address after its start, and a busy one seconds after: late is better than refused.
            workload: Duration::from_secs(20),
            peer: Duration::from_secs(10),
        }
    }
}

/// What a worker is told.
enum Message {
    Serve(Accepted<Door>),
    Install(Arc<Snapshot>, oneshot::Sender<()>),
    Released(Arc<Pod>),
    Gone(Arc<Pod>),
    Connections(oneshot::Sender<Vec<Listed>>),
    Ejected(oneshot::Sender<Vec<Ejected>>),
    Pods(oneshot::Sender<HashMap<WorkloadUid, PodUse>>),
    Watch(Watcher),
    Drain,
    Cut(Cut, oneshot::Sender<usize>),
    CutRevoked,
    Stop,
}

/// What a pod's connections come to on one worker.
#[derive(Clone, Copy, Debug, Default)]
pub struct PodUse {
    /// What they were and carried.
    pub totals: Totals,
    /// How long their tasks have run.
    pub used: Duration,
}

impl PodUse {
    /// Adds what another worker has.
    pub fn add(&mut self, other: &Self) {
        self.totals.open += other.totals.open;
        self.totals.opened += other.totals.opened;
        self.totals.denied += other.totals.denied;
        self.totals.failed += other.totals.failed;
        self.totals.received += other.totals.received;
        self.totals.sent += other.totals.sent;
        self.used += other.used;
    }
}

/// The way to a worker; cheap to clone.
#[derive(Clone, Debug)]
pub struct Mailbox(mpsc::UnboundedSender<Message>);

impl Mailbox {
    /// Gives it a connection.
    pub fn serve(&self, accepted: Accepted<Door>) {
        // A worker that has ended drops what it is given, which closes the connection.
        let _ = self.0.send(Message::Serve(accepted));
    }

    /// Puts a configuration in force; the receiver resolves when it is.
    pub fn install(&self, snapshot: Arc<Snapshot>) -> oneshot::Receiver<()> {
        let (done, installed) = oneshot::channel();
        let _ = self.0.send(Message::Install(snapshot, done));
        installed
    }

    /// Tells it that a pod was let go.
    pub fn released(&self, pod: Arc<Pod>) {
        let _ = self.0.send(Message::Released(pod));
    }

    /// Tells it that a pod that was deleted has no process any more, and is about to have no network.
    pub fn gone(&self, pod: Arc<Pod>) {
        let _ = self.0.send(Message::Gone(pod));
    }

    /// The endpoints that it leaves out; none if it has ended.
    pub async fn ejected(&self) -> Vec<Ejected> {
        let (answer, listed) = oneshot::channel();
        let _ = self.0.send(Message::Ejected(answer));
        listed.await.unwrap_or_default()
    }

    /// The connections that it serves; none if it has ended.
    pub async fn connections(&self) -> Vec<Listed> {
        let (answer, listed) = oneshot::channel();
        let _ = self.0.send(Message::Connections(answer));
        listed.await.unwrap_or_default()
    }

    /// What each pod's connections on it come to; nothing if it has ended.
    pub async fn pods(&self) -> HashMap<WorkloadUid, PodUse> {
        let (answer, listed) = oneshot::channel();
        let _ = self.0.send(Message::Pods(answer));
        listed.await.unwrap_or_default()
    }

    /// Tells of every connection that opens or closes on these workers, from now until the watch is dropped. At most
    /// `capacity` events wait for their reader; what comes beyond is lost and counted. Costs nothing while nobody watches.
    pub fn watch(workers: &[Self], capacity: usize) -> Watch {
        let (watcher, watch) = Watch::new(capacity);
        for worker in workers {
            let _ = worker.0.send(Message::Watch(watcher.clone()));
        }
        watch
    }

    /// Cuts every connection that is left; answers how many there were.
    pub async fn cut_all(&self, reason: Cut) -> usize {
        let (answer, cut) = oneshot::channel();
        let _ = self.0.send(Message::Cut(reason, answer));
        cut.await.unwrap_or_default()
    }

    /// Ends the tunnels whose peer is revoked by now.
    pub fn cut_revoked(&self) {
        let _ = self.0.send(Message::CutRevoked);
    }

    /// Starts the end: tunnels are told to go away, connections finish.
    pub fn drain(&self) {
        let _ = self.0.send(Message::Drain);
    }

    /// Ends it, with every connection that is left.
    pub fn stop(&self) {
        let _ = self.0.send(Message::Stop);
    }
}

/// What every worker shares with its connections.
pub struct Parts {
    /// Certificates.
    pub certificates: Manager,
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// Certificates of peers that are good no more.
    pub revocations: Revocations,
    /// The network that this node is on.
    pub network: Strng,
    /// Tunnels that we open.
    pub client: lateen_hbone::Settings,
    /// Tunnels that we accept.
    pub server: lateen_hbone::Settings,
    /// Streams of one tunnel that we open.
    pub streams_per_tunnel: usize,
    /// Where its open connections stand for the node agent.
    pub ledger: Option<Ledger>,
    /// When to give up.
    pub patience: Patience,
    /// Which connections are traced.
    pub sampler: Sampler,
    /// Finds workloads that have a hostname.
    pub resolver: Arc<dyn Resolver>,
    /// When a connection that stands still is ended.
    pub limits: lateen_relay::Limits,
    /// The scheduler's slice of the worker's thread; `None` leaves it to the system.
    pub slice: Option<Duration>,
    /// Asks the control plane for what is not known; `None` if it sends everything.
    pub lookups: Option<lateen_xds::Lookups>,
    /// How connections between two pods of this node are known; `None` if all go through tunnels.
    pub same_node: Option<SameNode>,
    /// Joins connections in the kernel; `None` if their bytes all pass through this process.
    pub accelerator: Option<Arc<Accelerator>>,
    /// What the worker accepts connections with, if it is the only one; several are given theirs by the acceptor's thread.
    pub acceptor: Option<OwnAcceptor<Door>>,
    /// Told if it accepts none any more; the acceptor's thread says so itself.
    pub deaf: Option<oneshot::Sender<io::Error>>,
}

/// How connections between two pods of this node are known.
#[derive(Clone, Debug)]
pub struct SameNode {
    /// The node that this proxy serves.
    pub node: Strng,
    /// Where the ends of tunnels meet that are in this process.
    pub meeting: Meeting,
}

/// A worker, seen from its own thread.
pub struct Worker {
    /// Certificates.
    pub certificates: Manager,
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// The network that this node is on.
    pub network: Strng,
    /// Tunnels that we accept.
    pub server: lateen_hbone::Settings,
    /// Tunnels to other proxies.
    pub pool: Pool<DialError>,
    /// The tunnels of both directions, with what they were opened by.
    pub tunnels: Tunnels,
    pub(crate) revocations: Revocations,
    /// Tunnels through gateways that we open.
    pub inner: lateen_hbone::Settings,
    /// Endpoints that it leaves out.
    pub ejections: Rc<Ejections>,
    /// The connections that it serves.
    pub live: Live,
    /// When to give up.
    pub patience: Patience,
    /// Which connections are traced.
    pub sampler: Sampler,
    /// Finds workloads that have a hostname.
    pub resolver: Arc<dyn Resolver>,
    /// When a connection that stands still is ended.
    pub limits: lateen_relay::Limits,
    /// Asks the control plane for what is not known; `None` if it sends everything.
    pub lookups: Option<lateen_xds::Lookups>,
    /// How connections between two pods of this node are known; `None` if all go through tunnels.
    pub same_node: Option<SameNode>,
    /// Joins connections in the kernel; `None` if their bytes all pass through this process.
    pub accelerator: Option<Arc<Accelerator>>,
    /// The pairs of pods that have met.
    pub neighbours: Neighbours,
    snapshot: RefCell<Option<Arc<Snapshot>>>,
    /// The part of the thread's time that each pod has.
    shares: RefCell<HashMap<WorkloadUid, Group>>,
    groups: Groups,
    installed: Notify,
    draining: Cell<bool>,
    drain: Notify,
    random: RefCell<SmallRng>,
    sockets: [Gauge; 2],
}

/// A worker whose thread is not running yet: its mailbox can be given away first.
pub struct Idle {
    mailbox: Mailbox,
    inbox: mpsc::UnboundedReceiver<Message>,
}

impl Default for Idle {
    fn default() -> Self {
        let (sender, inbox) = mpsc::unbounded_channel();
        Self {
            mailbox: Mailbox(sender),
            inbox,
        }
    }
}

impl Idle {
    /// The way to it.
    pub fn mailbox(&self) -> Mailbox {
        self.mailbox.clone()
    }

    /// Starts the thread.
    ///
    /// # Errors
    /// The system has no thread or descriptor to give, or nothing to wait for connections with.
    pub fn start(self, index: usize, mut parts: Parts) -> io::Result<JoinHandle<()>> {
        let inbox = self.inbox;
        let deaf = parts.deaf.take();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let listeners = {
            let _runtime = runtime.enter();
            let watched = parts.acceptor.take().map(OwnAcceptor::watch);
            watched.transpose().map_err(unwatched)?
        };
        std::thread::Builder::new()
            .name(format!("worker-{index}"))
            .spawn(move || {
                lateen_capture::set_slice(parts.slice);
                let executor = Executor::default();
                let worker = Worker::new(index, parts, executor.groups());
                let retiring = Rc::clone(&worker).retire_tunnels();
                let accepting = Rc::clone(&worker).accept(listeners, deaf);
                runtime.block_on(executor.run_until(async {
                    tokio::select! {
                        () = worker.run(inbox) => {}
                        () = retiring => {}
                        () = accepting => {}
                    }
                }));
                // What its tasks hold belongs to the runtime.
                let _runtime = runtime.enter();
                drop(executor);
            })
    }
}

fn unwatched(error: io::Error) -> io::Error {
    let what = format!(
        "the worker cannot wait for connections: {error}; raise fs.epoll.max_user_watches or the proxy's limit of memory"
    );
    io::Error::new(error.kind(), what)
}

impl Worker {
    fn new(index: usize, parts: Parts, groups: Groups) -> Rc<Self> {
        let Parts {
            certificates,
            metrics,
            revocations,
            network,
            client,
            server,
            streams_per_tunnel,
            patience,
            ledger,
            sampler,
            resolver,
            limits,
            lookups,
            same_node,
            accelerator,
            acceptor: _,
            deaf: _,
            slice: _,
        } = parts;
        let sockets = [
            metrics.open_sockets(Reporter::Source),
            metrics.open_sockets(Reporter::Destination),
        ];
        let inner = client.clone();
        let pool = Pool::new(client, streams_per_tunnel);
        let counted = Arc::clone(&metrics);
        pool.on_close(move |key, reason| {
            counted.tunnel_closed(Reporter::Source, reason.as_str());
            if let CloseReason::Abuse(_) = reason {
                let word = reason.as_str();
                tracing::warn!(peer = %key.address, reason = word, "a tunnel to a peer that floods us was cut");
            }
        });
        let live = Live::new(index, ledger);
        let numbers = live.clone();
        pool.number_with(move || numbers.number_tunnel());
        Rc::new(Self {
            certificates,
            network,
            server,
            ejections: Rc::new(Ejections::new(metrics.endpoints_ejected())),
            metrics,
            inner,
            pool,
            tunnels: Tunnels::default(),
            revocations,
            live,
            patience,
            sampler,
            resolver,
            limits,
            lookups,
            same_node,
            accelerator,
            neighbours: Neighbours::default(),
            snapshot: RefCell::new(None),
            shares: RefCell::default(),
            groups,
            installed: Notify::new(),
            draining: Cell::new(false),
            drain: Notify::new(),
            random: RefCell::new(SmallRng::from_os_rng()),
            sockets,
        })
    }

    /// Has tunnels take no more requests when their certificates are replaced or about to run out, for ever.
    async fn retire_tunnels(self: Rc<Self>) {
        let mut changes = self.certificates.changes();
        loop {
            let generation = |own: &Identity| self.certificates.generation(own);
            let (retired, next) = self.tunnels.retire(SystemTime::now(), generation);
            if !retired.is_empty() {
                self.pool.retire(|key| retired.contains(key));
                self.neighbours.retire(|key| retired.contains(key));
            }
            let next = async {
                match next {
                    Some(next) => tokio::time::sleep(next).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = next => {}
                () = self.tunnels.opened() => {}
                changed = changes.changed() => {
                    changed.expect("the worker itself holds the manager");
                }
            }
        }
    }

    /// Accepts connections for ever, if that is this worker's work.
    async fn accept(
        self: Rc<Self>,
        listeners: Option<Watching<Door>>,
        deaf: Option<oneshot::Sender<io::Error>>,
    ) {
        if let Some(listeners) = listeners {
            let accepting = listeners.run(|waiting| node::accept(&self, waiting));
            let Err(error) = accepting.await;
            if let Some(deaf) = deaf {
                // Who does not listen is about to end.
                let _ = deaf.send(unwatched(error));
            }
        }
        std::future::pending().await
    }

    async fn run(self: Rc<Self>, mut inbox: mpsc::UnboundedReceiver<Message>) {
        while let Some(message) = inbox.recv().await {
            match message {
                Message::Serve(accepted) => node::serve(&self, accepted),
                Message::Install(snapshot, done) => {
                    self.install(snapshot);
                    // Whoever asked may have stopped waiting.
                    let _ = done.send(());
                }
                Message::Released(pod) => self.forget(&pod),
                Message::Gone(pod) => {
                    let cut = self.live.cut_pod(&pod, Cut::Gone);
                    if cut > 0 {
                        tracing::info!(pod = %pod.uid, connections = cut, "cut with the pod that has ended");
                    }
                }
                Message::Connections(answer) => {
                    // Whoever asked may have stopped waiting.
                    let _ = answer.send(self.live.list());
                }
                Message::Ejected(answer) => {
                    // Whoever asked may have stopped waiting.
                    let _ = answer.send(self.ejections.list());
                }
                Message::Pods(answer) => {
                    // Whoever asked may have stopped waiting.
                    let _ = answer.send(self.pods());
                }
                Message::Watch(watcher) => self.live.watch(watcher),
                Message::CutRevoked => {
                    // What was handed over ends with the tunnel that it rests on.
                    self.tunnels.cut_revoked(&self.revocations);
                }
                Message::Cut(reason, answer) => {
                    // Whoever asked may have stopped waiting.
                    let _ = answer.send(self.live.cut_all(reason));
                }
                Message::Drain => {
                    self.draining.set(true);
                    self.drain.notify_waiters();
                }
                Message::Stop => return,
            }
        }
    }

    fn pods(&self) -> HashMap<WorkloadUid, PodUse> {
        let totals = self.live.totals();
        let shares = self.shares.borrow();
        let mut pods: HashMap<_, PodUse> = shares
            .iter()
            .map(|(uid, group)| {
                let used = group.used();
                (
                    uid.clone(),
                    PodUse {
                        used,
                        ..PodUse::default()
                    },
                )
            })
            .collect();
        for (uid, totals) in totals {
            pods.entry(uid).or_default().totals = totals;
        }
        pods
    }

    fn install(&self, snapshot: Arc<Snapshot>) {
        let cut = self.live.review(&snapshot);
        if cut > 0 {
            tracing::info!(connections = cut, "cut by a change of policy");
        }
        let before = self.snapshot.replace(Some(Arc::clone(&snapshot)));
        if let Some(before) = before {
            self.leave_the_gone(&before, &snapshot);
        }
        self.installed.notify_waiters();
    }

    /// Leaves the tunnels to addresses that belong to another workload now, or to none: the pod at the other end is gone,
    /// and who has its address next is somebody else. What is open on them may be waiting for an answer that nobody sends,
    /// if the pod's network went before its last word: they find out soon.
    fn leave_the_gone(&self, before: &Snapshot, now: &Snapshot) {
        let owner = |snapshot: &Snapshot, address| {
            let workload = snapshot.workload(&self.network, address)?;
            Some(workload.uid.clone())
        };
        let gone = |key: &PoolKey| {
            let address = key.address.ip();
            match owner(before, address) {
                Some(uid) => owner(now, address) != Some(uid),
                None => false,
            }
        };
        self.neighbours.retire(gone);
        self.neighbours.doubt(gone);
        self.pool.retire(gone);
        self.pool.doubt(gone);
    }

    /// The tasks that are the pod's: they share one part of this thread's time, however many they are.
    pub fn group_of(&self, pod: &Pod) -> Group {
        if let Some(group) = self.shares.borrow().get(&pod.uid) {
            return group.clone();
        }
        let group = self.groups.add();
        self.shares
            .borrow_mut()
            .insert(pod.uid.clone(), group.clone());
        group
    }

    /// Closes the tunnels of a pod that was let go, as soon as their streams end.
    fn forget(&self, pod: &Pod) {
        self.shares.borrow_mut().remove(&pod.uid);
        self.live.forget(&pod.uid);
        self.ejections.forget(&pod.uid);
        self.pool.retire(|key| key.pod == pod.uid);
        self.neighbours.retire(|key| key.pod == pod.uid);
    }

    /// The configuration in force; `None` until the control plane has sent all of it.
    pub fn snapshot(&self) -> Option<Arc<Snapshot>> {
        self.snapshot.borrow().clone()
    }

    /// The workload that a pod is, and the configuration that says so. Waits a little for a control plane that has not
    /// caught up with the node agent.
    pub async fn workload_of(&self, pod: &Pod) -> Result<(Arc<Snapshot>, Arc<Workload>), Refusal> {
        if let Some(found) = self.known(pod) {
            return Ok(found);
        }
        let wait = async {
            loop {
                let installed = self.installed.notified();
                if let Some(found) = self.known(pod) {
                    return found;
                }
                installed.await;
            }
        };
        tokio::time::timeout(self.patience.workload, wait)
            .await
            .map_err(|_| match self.snapshot() {
                None => Refusal::NotConfigured,
                Some(_) => Refusal::UnknownWorkload(pod.info.clone()),
            })
    }

    fn known(&self, pod: &Pod) -> Option<(Arc<Snapshot>, Arc<Workload>)> {
        let snapshot = self.snapshot()?;
        let workload = Arc::clone(pod.workload(&snapshot)?);
        Some((snapshot, workload))
    }

    /// Resolves when this process is about to end.
    pub async fn draining(&self) {
        while !self.draining.get() {
            self.drain.notified().await;
        }
    }

    /// How long a tunnel without connections is kept.
    pub fn pool_idle(&self) -> Duration {
        self.inner.idle_timeout.unwrap_or(Duration::MAX)
    }

    /// A uniform number below `bound`.
    pub fn random_below(&self, bound: u64) -> u64 {
        self.random.borrow_mut().random_range(0..bound)
    }

    /// Counts an open socket until the guard is dropped.
    pub fn count_socket(&self, reporter: Reporter) -> OpenSocket {
        let gauge = self.sockets[usize::from(reporter == Reporter::Destination)].clone();
        gauge.inc();
        OpenSocket(gauge)
    }
}

/// One socket in `istio_tcp_sockets_open`.
#[derive(Debug)]
pub struct OpenSocket(Gauge);

impl Drop for OpenSocket {
    fn drop(&mut self) {
        self.0.dec();
    }
}
