//! A mesh in this process: nodes with real workers, sockets, TLS and tunnels, on loopback addresses of their own.
//!
//! Redirection is missing. In its place a door listens on the very address that a client dials, which is then the
//! destination of the connection; what needs a redirected destination is tested with whole meshes.

use std::collections::HashMap;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use lateen_capture::zds::PodInfo;
use lateen_capture::{Acceptor, NamespaceThread, Netns, Options, Registration, Stock, acceptor};
use lateen_config::{Snapshot, Store};
use lateen_identity::{Issued, Issuer, Manager};
use lateen_proto::security::Authorization;
use lateen_proto::workload::{Address, Service, Workload, address};
use lateen_relay::Limits;
use lateen_telemetry::{BuildInfo, Metrics, log};
use lateen_testkit::{Ca, wds};
use lateen_tls::{Credentials, KeyPair, RevocationLists, Revocations, Rules};
use lateen_types::Identity;
use lateen_xds::Lookups;
use socket2::{Domain, Socket, Type};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use crate::dns::{ResolveError, Resolver};
use crate::live::{Cut, Listed};
use crate::node::Ejected;
use crate::pod::{Door, Pod, Port};
use crate::worker::{Idle, Mailbox, Parts, Patience, PodUse};

/// Far longer than anything takes when it works.
pub const LONG: Duration = Duration::from_secs(30);
/// How long nodes wait for what may never answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// The life of certificates where it does not matter.
const HOUR: Duration = Duration::from_secs(3600);

/// The descriptors that a pod's connections may hold.
pub const SHARE: u32 = 10_000;

/// Waits for a condition that comes true on another thread.
pub async fn until(what: &str, condition: impl Fn() -> bool) {
    let deadline = tokio::time::Instant::now() + LONG;
    while !condition() {
        assert!(
            tokio::time::Instant::now() < deadline,
            "did not happen: {what}"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits for a future that must not take long.
pub async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(LONG, future).await {
        Ok(value) => value,
        Err(_) => panic!("did not happen: {what}"),
    }
}

/// What the test authority signs for whoever asks.
struct Authority {
    ca: Arc<Ca>,
    life: Duration,
    rules: Rules,
}

impl Issuer for Authority {
    fn issue<'a>(&'a self, identity: &'a Identity) -> Issued<'a> {
        Box::pin(async move {
            let key = KeyPair::generate()?;
            let csr = key.csr_pem(identity)?;
            let now = std::time::SystemTime::now();
            let chain = self
                .ca
                .sign(&csr, now - HOUR, now + self.life)
                .expect("the request is ours");
            Ok(Credentials::with_rules(key, &chain, &self.rules)?)
        })
    }
}

/// The hostnames that a node can resolve.
#[derive(Debug, Default)]
pub struct Names(Mutex<HashMap<String, Vec<IpAddr>>>);

impl Names {
    /// From now on it has these addresses.
    pub fn set(&self, hostname: &str, addresses: &[IpAddr]) {
        self.0
            .lock()
            .unwrap()
            .insert(hostname.to_owned(), addresses.to_vec());
    }
}

#[async_trait::async_trait]
impl Resolver for Names {
    async fn resolve(&self, _: &Pod, hostname: &str) -> Result<Vec<IpAddr>, ResolveError> {
        let found = self.0.lock().unwrap().get(hostname).cloned();
        found.ok_or_else(|| ResolveError::Unanswered {
            hostname: hostname.to_owned(),
            reason: "nobody answers".to_owned(),
        })
    }
}

/// One node with one worker.
pub struct Node {
    name: &'static str,
    pub names: Arc<Names>,
    pub metrics: Arc<Metrics>,
    pub acceptor: Acceptor<Door>,
    pub certificates: Manager,
    revocations: Revocations,
    namespaces: NamespaceThread,
    mailbox: Mailbox,
    thread: Option<JoinHandle<()>>,
}

impl Node {
    pub fn start(
        name: &'static str,
        ca: &Arc<Ca>,
        limits: Limits,
        life: Duration,
        patience: Duration,
        lookups: Option<Lookups>,
    ) -> Self {
        let idle = Idle::default();
        let mailbox = idle.mailbox();
        let sink: acceptor::Sink<Door> = {
            let mailbox = mailbox.clone();
            Box::new(move |accepted| mailbox.serve(accepted))
        };
        let acceptor = Acceptor::start(vec![sink]).unwrap();
        let loads = Arc::clone(acceptor.loads());
        let build = BuildInfo {
            component: "ztunnel",
            tag: "test",
        };
        let metrics = Arc::new(Metrics::new(&build, move || loads.read()));
        let names = Arc::<Names>::default();
        let rules = Rules::default();
        let revocations = rules.revocations.clone();
        let authority = Authority {
            ca: Arc::clone(ca),
            life,
            rules,
        };
        let certificates = Manager::new(Arc::new(authority), Handle::current());
        let parts = Parts {
            sampler: Default::default(),
            certificates: certificates.clone(),
            metrics: Arc::clone(&metrics),
            revocations: revocations.clone(),
            network: "".into(),
            client: lateen_hbone::Settings::client(),
            server: lateen_hbone::Settings::server(),
            streams_per_tunnel: 100,
            patience: Patience {
                workload: Duration::from_millis(500),
                peer: patience,
            },
            ledger: None,
            resolver: Arc::clone(&names) as _,
            limits,
            lookups,
        };
        let thread = idle.start(0, parts).unwrap();
        Self {
            name,
            names,
            metrics,
            acceptor,
            certificates,
            revocations,
            namespaces: NamespaceThread::start().expect("this test needs root: it marks sockets"),
            mailbox,
            thread: Some(thread),
        }
    }

    /// A pod of namespace `default` whose service account has its name.
    pub fn pod(&self, name: &str, trust_domain: &str) -> Arc<Pod> {
        let info = PodInfo {
            name: name.into(),
            namespace: "default".into(),
            service_account: name.into(),
        };
        let sockets = Stock::new(
            Netns::current().unwrap(),
            Options::default(),
            self.namespaces.clone(),
        );
        let identity = Identity::new(trust_domain, "default", name).unwrap();
        Arc::new(Pod::new(
            wds::uid("default", name).as_str().into(),
            info,
            identity,
            sockets,
            SHARE as usize,
        ))
    }

    pub fn open(&self, pod: &Arc<Pod>, port: Port, address: SocketAddr) -> Registration<Door> {
        let listener = Socket::new(Domain::IPV4, Type::STREAM.nonblocking(), None).unwrap();
        listener.set_reuse_address(true).unwrap();
        listener.bind(&address.into()).unwrap();
        listener.listen(64).unwrap();
        let pod = Arc::clone(pod);
        let share = Arc::clone(&pod.share);
        self.acceptor
            .register(
                listener.into(),
                Door { pod, port },
                &share,
                port.descriptors(),
            )
            .unwrap()
    }

    pub async fn install(&self, snapshot: Arc<Snapshot>) {
        soon(
            "the worker installs a configuration",
            self.mailbox.install(snapshot),
        )
        .await
        .unwrap();
    }

    pub async fn connections(&self) -> Vec<Listed> {
        soon(
            "the worker lists its connections",
            self.mailbox.connections(),
        )
        .await
    }

    /// What the worker spent on a pod.
    pub async fn spent_on(&self, pod: &Pod) -> PodUse {
        let pods = soon("the worker says what its pods use", self.mailbox.pods()).await;
        pods.get(&pod.uid).copied().unwrap_or_default()
    }

    /// Puts revocation lists in force.
    pub fn revoke(&self, pem: &str) {
        let lists = RevocationLists::parse(pem.as_bytes()).expect("the list is ours");
        self.revocations.replace(lists);
        self.mailbox.cut_revoked();
    }

    /// The serial number of an identity's certificate at hand.
    pub fn serial(&self, identity: &str) -> u64 {
        let states = self.certificates.states();
        let state = states.iter().find(|(one, _)| one.uri() == identity);
        let credentials = state.and_then(|(_, state)| state.credentials());
        let credentials = credentials.expect("there is a certificate");
        credentials.serial().parse().expect("ours are small")
    }

    pub fn released(&self, pod: &Arc<Pod>) {
        self.mailbox.released(Arc::clone(pod));
    }

    pub fn drain(&self) {
        self.mailbox.drain();
    }

    pub fn stop(&self) {
        self.mailbox.stop();
    }

    /// Cuts every connection; answers how many.
    pub async fn cut_all(&self, reason: Cut) -> usize {
        self.mailbox.cut_all(reason).await
    }

    /// A metric that has no labels.
    pub fn value(&self, metric: &str) -> f64 {
        let page = self.metrics.render();
        let line = page
            .lines()
            .find_map(|line| line.strip_prefix(&format!("{metric} ")));
        line.and_then(|value| value.parse().ok())
            .unwrap_or_else(|| panic!("there is no {metric}"))
    }

    /// The endpoints that the worker leaves out.
    pub async fn ejected(&self) -> Vec<Ejected> {
        soon(
            "the worker lists what it leaves out",
            self.mailbox.ejected(),
        )
        .await
    }

    /// The sum of a metric's series whose labels hold all of `words`.
    pub fn count(&self, metric: &str, words: &[&str]) -> f64 {
        self.metrics
            .render()
            .lines()
            .filter(|line| line.starts_with(&format!("{metric}{{")))
            .filter(|line| words.iter().all(|word| line.contains(word)))
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.mailbox.stop();
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(
                ended.is_ok() || std::thread::panicking(),
                "the worker panicked"
            );
        }
    }
}

/// The addresses 127.`number`.0.0/16, which nobody else uses: tests run side by side, in this process and in others.
struct Net {
    number: u8,
    /// Whoever holds it has the net; the kernel takes it back even from a process that is killed.
    _claim: std::net::TcpListener,
}

impl Net {
    fn claim() -> Self {
        const NETS: u32 = 190;
        // None twice in a process, whose log is one for all tests.
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let first = std::process::id().wrapping_mul(61);
        let deadline = std::time::Instant::now() + LONG;
        loop {
            let next = NEXT.fetch_add(1, Ordering::Relaxed);
            let number = u8::try_from(64 + first.wrapping_add(next) % NETS).expect("below 254");
            match std::net::TcpListener::bind((Ipv4Addr::new(127, number, 255, 1), 1)) {
                Ok(claim) => {
                    let _claim = claim;
                    return Self { number, _claim };
                }
                Err(error) => assert!(
                    error.kind() == io::ErrorKind::AddrInUse
                        && std::time::Instant::now() < deadline,
                    "no net on loopback is free: {error}"
                ),
            }
        }
    }
}

/// A client on node west, a server on node east, and the service of that server.
pub struct Mesh {
    pub ca: Arc<Ca>,
    pub west: Node,
    pub east: Node,
    pub client: Arc<Pod>,
    pub server: Arc<Pod>,
    pub resources: Vec<(String, Address)>,
    pub policies: Vec<(String, Authorization)>,
    net: Net,
    doors: Vec<Registration<Door>>,
}

impl Mesh {
    /// Everything but the configuration.
    pub fn unconfigured() -> Self {
        Self::of(
            Arc::new(Ca::new()),
            "cluster.local",
            Limits::default(),
            HOUR,
        )
    }

    /// A mesh at work whose connections do not stand still for long.
    pub async fn start_limited(limits: Limits) -> Self {
        let mesh = Self::of(Arc::new(Ca::new()), "cluster.local", limits, HOUR);
        mesh.configure().await;
        mesh
    }

    fn of(ca: Arc<Ca>, clients_domain: &str, limits: Limits, life: Duration) -> Self {
        Self::asking(ca, clients_domain, limits, life, PATIENCE, &HashMap::new())
    }

    /// A mesh whose nodes ask for what they do not know; without configuration.
    pub fn on_demand(lookups: &HashMap<&str, Lookups>) -> Self {
        let (ca, limits) = (Arc::new(Ca::new()), Limits::default());
        Self::asking(ca, "cluster.local", limits, HOUR, PATIENCE, lookups)
    }

    /// A mesh at work whose nodes do not stop waiting before the test does.
    pub async fn start_patient() -> Self {
        let (ca, limits) = (Arc::new(Ca::new()), Limits::default());
        let mesh = Self::asking(ca, "cluster.local", limits, HOUR, 2 * LONG, &HashMap::new());
        mesh.configure().await;
        mesh
    }

    fn asking(
        ca: Arc<Ca>,
        clients_domain: &str,
        limits: Limits,
        life: Duration,
        patience: Duration,
        lookups: &HashMap<&str, Lookups>,
    ) -> Self {
        let net = Net::claim();
        capture_log();
        let [west, east] = ["west", "east"].map(|name| {
            let lookups = lookups.get(name).cloned();
            Node::start(name, &ca, limits, life, patience, lookups)
        });
        let (client, server) = (
            west.pod("client", clients_domain),
            east.pod("server", "cluster.local"),
        );
        let mut mesh = Self {
            ca,
            client,
            server,
            resources: Vec::new(),
            policies: Vec::new(),
            net,
            doors: Vec::new(),
            west,
            east,
        };
        mesh.doors = vec![
            mesh.west.open(&mesh.client, Port::Outbound, mesh.vip()),
            mesh.east.open(&mesh.server, Port::Hbone, mesh.hbone()),
        ];
        let mut client = wds::workload("client", "west", mesh.client_ip());
        client.trust_domain = clients_domain.to_owned();
        let server = wds::serving(
            wds::workload("server", "east", mesh.server_ip()),
            "server",
            80,
            8080,
        );
        mesh.put_workload(client);
        mesh.put_workload(server);
        let service = wds::service("server", mesh.vip().ip(), 80, 8080);
        let name = wds::service_name("default", "server");
        mesh.resources.push((name, wds::service_resource(service)));
        mesh
    }

    /// A mesh at work.
    pub async fn start() -> Self {
        let mesh = Self::unconfigured();
        mesh.configure().await;
        mesh
    }

    /// A mesh at work whose certificates live for `life`.
    pub async fn start_with_certificates_of(life: Duration) -> Self {
        let mesh = Self::of(
            Arc::new(Ca::new()),
            "cluster.local",
            Limits::default(),
            life,
        );
        mesh.configure().await;
        mesh
    }

    /// A mesh whose client belongs to another trust domain, below the same root.
    pub async fn start_with_foreign_client() -> Self {
        let mesh = Self::of(
            Arc::new(Ca::new()),
            "elsewhere.example",
            Limits::default(),
            HOUR,
        );
        mesh.configure().await;
        mesh
    }

    /// Adds or replaces a workload.
    pub fn put_workload(&mut self, workload: Workload) {
        self.resources.retain(|(name, _)| *name != workload.uid);
        self.resources
            .push((workload.uid.clone(), wds::workload_resource(workload)));
    }

    /// Changes the server's service.
    pub fn change_service(&mut self, change: impl FnOnce(&mut Service)) {
        let name = wds::service_name("default", "server");
        let resource = self.resources.iter_mut().find(|(key, _)| *key == name);
        match resource.and_then(|(_, resource)| resource.r#type.as_mut()) {
            Some(address::Type::Service(service)) => change(service),
            _ => panic!("the service is gone"),
        }
    }

    /// A further endpoint of the server's service, on node east; nobody is there.
    pub fn put_endpoint(&mut self, name: &str, ip: IpAddr) {
        let workload = wds::workload(name, "east", ip);
        self.put_workload(wds::serving(workload, "server", 80, 8080));
    }

    /// The server's workload, to change it.
    pub fn server_workload(&self) -> Workload {
        wds::serving(
            wds::workload("server", "east", self.server_ip()),
            "server",
            80,
            8080,
        )
    }

    /// Puts the resources in force on both nodes.
    pub async fn configure(&self) {
        for node in [&self.west, &self.east] {
            let mut store = Store::new("", Some(node.name));
            for (name, address) in &self.resources {
                store.upsert(name, address.clone()).unwrap();
            }
            for (name, policy) in &self.policies {
                store.upsert_authorization(name, policy.clone()).unwrap();
            }
            node.install(store.snapshot()).await;
        }
    }

    /// Covers the server by a policy.
    pub async fn protect(&mut self, policy: Authorization) {
        let name = format!("{}/{}", policy.namespace, policy.name);
        let mut server = self.server_workload();
        server.authorization_policies.push(name.clone());
        self.policies.push((name, policy));
        self.put_workload(server);
        self.configure().await;
    }

    pub fn ip(&self, pod: u8, host: u8) -> IpAddr {
        Ipv4Addr::new(127, self.net.number, pod, host).into()
    }

    pub fn client_ip(&self) -> IpAddr {
        self.ip(1, 1)
    }

    pub fn server_ip(&self) -> IpAddr {
        self.ip(2, 1)
    }

    /// Where the client believes that the server is.
    pub fn vip(&self) -> SocketAddr {
        (self.ip(96, 1), 80).into()
    }

    /// The server's tunnel port.
    pub fn hbone(&self) -> SocketAddr {
        (self.server_ip(), 15008).into()
    }

    /// Dials as a process of the client's pod.
    pub async fn dial(&self, address: SocketAddr) -> io::Result<TcpStream> {
        self.dial_from(self.client_ip(), address).await
    }

    /// Dials from another address.
    pub async fn dial_from(&self, source: IpAddr, address: SocketAddr) -> io::Result<TcpStream> {
        let socket = TcpSocket::new_v4()?;
        socket.bind((source, 0).into())?;
        soon("a connection", socket.connect(address)).await
    }

    /// Runs the server's application; answers the connections that it accepts.
    pub async fn application(&self) -> Application {
        listen((self.server_ip(), 8080).into()).await
    }

    /// Lines of the access log about the connections from this address.
    pub fn log(&self, words: &[&str]) -> Vec<String> {
        log::flush();
        let log = LOG.lock().unwrap();
        let ours = format!("127.{}.", self.net.number);
        String::from_utf8_lossy(&log)
            .lines()
            .filter(|line| line.contains(&ours) && words.iter().all(|word| line.contains(word)))
            .map(str::to_owned)
            .collect()
    }

    /// Waits for one line of the access log that holds all of `words`.
    pub async fn logged(&self, words: &[&str]) -> String {
        until(&format!("a line with {words:?}"), || {
            !self.log(words).is_empty()
        })
        .await;
        self.log(words).swap_remove(0)
    }
}

/// The connections that an application accepts, and where they come from.
pub type Application = mpsc::UnboundedReceiver<(TcpStream, SocketAddr)>;

/// Accepts on `address` for as long as the receiver lives.
pub async fn listen(address: SocketAddr) -> Application {
    let listener = TcpListener::bind(address).await.unwrap();
    let (send, accepted) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok(accepted) = listener.accept().await {
            if send.send(accepted).is_err() {
                return;
            }
        }
    });
    accepted
}

static LOG: Mutex<Vec<u8>> = Mutex::new(Vec::new());

struct Captured;

impl Write for Captured {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LOG.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn capture_log() {
    log::init_to(Box::new(Captured), log::Format::Plain, "info").unwrap();
}
