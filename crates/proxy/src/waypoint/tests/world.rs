//! A waypoint with one worker, the source's proxy, and services behind it.

use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use lateen_accept::{Acceptor, FdQuota, Registration};
use lateen_config::{Batch, Kind, Store, l7 as kinds};
use lateen_hbone::{
    Authority, ConnectError, ConnectRequest, Settings, Stream, Tunnel, client::handshake,
};
use lateen_identity::{Issued, Issuer, Manager};
use lateen_proto::l7;
use lateen_proto::workload::gateway_address::Destination;
use lateen_proto::workload::{
    Address, AppProtocol, GatewayAddress, IpFamilies, NamespacedHostname, PortList, Service,
    Workload, address,
};
use lateen_runtime::{UnstartedWorker, WorkerConfig};
use lateen_telemetry::{BuildInfo, Metrics};
use lateen_testkit::{Ca, identity, wds};
use lateen_tls::{Credentials, KeyPair, Rules, TlsStream};
use lateen_types::{Identity, NamespacedName, WorkloadUid};
use prost::Message as _;
use tokio::net::{TcpSocket, TcpStream};
use tokio::runtime::Handle;
use tokio::task::{LocalSet, spawn_local};

use crate::dns::File;
use crate::testing::net::Net;
use crate::testing::{LONG, dns, journal, soon, until};
use crate::waypoint::{
    Accounts, Entrance, Own, Request, Sockets, Timeouts, TunnelQuotas, Waypoint, WaypointConfig,
    WaypointHandle,
};

/// How long a client may be silent.
pub const SILENCE: Duration = Duration::from_millis(500);

/// The time that a client of a waypoint that drains has for its last request.
const LAST_REQUEST: Duration = Duration::from_secs(6);

const HOUR: Duration = Duration::from_secs(3600);

/// Signs whatever it is asked for.
struct Authorities(Arc<Ca>);

impl Issuer for Authorities {
    fn issue<'a>(&'a self, identity: &'a Identity) -> Issued<'a> {
        Box::pin(async move {
            let key = KeyPair::generate()?;
            let csr = key.csr_pem(identity)?;
            let now = SystemTime::now();
            let chain = self.0.sign(&csr, now - HOUR, now + HOUR);
            let chain = chain.expect("the request is ours");
            Ok(Credentials::with_rules(key, &chain, &Rules::default())?)
        })
    }
}

/// Runs a test on one thread, as streams are used.
pub fn local(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    // Each of its waits ends in time of its own.
    let whole = async { tokio::time::timeout(4 * LONG, test).await };
    let ended = runtime.block_on(LocalSet::new().run_until(whole));
    ended.expect("the whole test ends");
}

/// Everything around one waypoint.
pub struct World {
    pub ca: Arc<Ca>,
    pub metrics: Arc<Metrics>,
    pub worker: WaypointHandle,
    pub resources: Vec<(String, Address)>,
    /// Policies and token rules, with their kinds.
    pub rules: Vec<(&'static Kind, String, Vec<u8>)>,
    /// The Gateway, with the settings of the mesh.
    pub gateway: l7::Gateway,
    /// False once it is deleted.
    has_gateway: bool,
    net: Net,
    acceptor: Acceptor<Entrance>,
    door: Option<Registration<Entrance>>,
    thread: Option<JoinHandle<()>>,
    /// The tunnel of the client's proxy.
    tunnel: tokio::sync::OnceCell<Tunnel>,
    /// The number of the last client address.
    sources: Cell<u8>,
}

impl World {
    /// A waypoint that serves `server`, a service of port 80 without a protocol, whose endpoint is in plain text.
    pub async fn start() -> Self {
        let mut world = Self::unconfigured();
        world.put_service("server", 96, AppProtocol::Unknown);
        world.put_plain_endpoint("server", "app", 3);
        world.configure().await;
        world
    }

    /// The same with other limits on clients.
    pub async fn limited(change: impl FnOnce(&mut WaypointConfig)) -> Self {
        let mut world = Self::unconfigured_with(change);
        world.put_service("server", 96, AppProtocol::Http11);
        world.put_plain_endpoint("server", "app", 3);
        world.configure().await;
        world
    }

    /// A waypoint that knows itself alone.
    pub fn unconfigured() -> Self {
        Self::unconfigured_with(|_| ())
    }

    fn unconfigured_with(change: impl FnOnce(&mut WaypointConfig)) -> Self {
        journal::capture();
        let net = Net::claim();
        let ca = Arc::new(Ca::new());
        let unstarted = UnstartedWorker::<Waypoint>::default();
        let worker = unstarted.handle();
        let (acceptor, own) = Acceptor::without_thread().unwrap();
        let loads = Arc::clone(acceptor.loads());
        let build = BuildInfo {
            component: "proxy",
            tag: "test",
        };
        let metrics = Arc::new(Metrics::new(&build, move || loads.read()));
        let certificates = Manager::new(Arc::new(Authorities(Arc::clone(&ca))), Handle::current());
        let mut role = WaypointConfig {
            own: Own {
                gateway: NamespacedName::new("default", "gate"),
                pod: "gate".into(),
                uid: WorkloadUid(wds::uid("default", "gate").as_str().into()),
                identity: identity("gate"),
            },
            certificates,
            metrics: Arc::clone(&metrics),
            revocations: Rules::default().revocations.clone(),
            network: "".into(),
            client: Settings::client(),
            server: Settings::server(),
            accounts: Accounts::default(),
            tunnel_quotas: TunnelQuotas::new(1000),
            streams_per_tunnel: 100,
            resolvers: File::saying(dns::at(resolver_of(&net))),
            timeouts: Timeouts {
                // Clients, endpoints and the waypoint may be slow on a machine that is busy.
                workload: Duration::from_secs(5),
                handshake: Duration::from_secs(10),
                silence: SILENCE,
                refused: Duration::from_secs(6),
                last_request: LAST_REQUEST,
                ..Timeouts::default()
            },
            limits: lateen_relay::Limits::default(),
            sockets: Sockets::default(),
        };
        change(&mut role);
        let thread = unstarted
            .start(WorkerConfig {
                index: 0,
                slice: None,
                acceptor: Some(own),
                accept_failed: None,
                role,
            })
            .unwrap();
        let mut world = Self {
            ca,
            metrics,
            worker,
            resources: Vec::new(),
            rules: Vec::new(),
            has_gateway: true,
            gateway: l7::Gateway {
                namespace: "default".to_owned(),
                name: "gate".to_owned(),
                identity: "default/gate".to_owned(),
                settings: Some(l7::MeshSettings {
                    trust_domain: "cluster.local".to_owned(),
                    connect_timeout_ms: 10_000,
                    ..l7::MeshSettings::default()
                }),
                ..l7::Gateway::default()
            },
            net,
            acceptor,
            door: None,
            thread: Some(thread),
            tunnel: tokio::sync::OnceCell::new(),
            sources: Cell::new(0),
        };
        let listener = std::net::TcpListener::bind(world.gate()).unwrap();
        listener.set_nonblocking(true).unwrap();
        let quota = FdQuota::new("gate".to_owned(), 10_000);
        let door = world
            .acceptor
            .register(listener.into(), Entrance::default(), &quota, 1)
            .unwrap();
        world.door = Some(door);
        let own = wds::workload("gate", "n1", world.ip(1, 1));
        world.put_workload(wds::serving(own, "gate", 15008, 15008));
        world.put(
            wds::service_name("default", "gate"),
            wds::service_resource(wds::service("gate", world.ip(96, 255), 15008, 15008)),
        );
        let client = wds::workload("client", "n1", world.ip(2, 1));
        world.put_workload(client);
        world
    }

    fn put(&mut self, name: String, resource: Address) {
        self.resources.retain(|(known, _)| *known != name);
        self.resources.push((name, resource));
    }

    /// Adds or replaces a workload.
    pub fn put_workload(&mut self, workload: Workload) {
        let name = workload.uid.clone();
        self.put(name, wds::workload_resource(workload));
    }

    /// Adds or replaces a service of port 80 at 127.n.`number`.1, which is bound to the waypoint.
    pub fn put_service(&mut self, name: &str, number: u8, protocol: AppProtocol) {
        let service = self.service(name, number, protocol);
        self.put(
            wds::service_name("default", name),
            wds::service_resource(service),
        );
    }

    /// Adds or replaces the service of a ServiceEntry, of port 8080 at 127.n.`number`.1, which is bound to the waypoint.
    pub fn put_entry(&mut self, host: &str, number: u8, change: impl FnOnce(&mut Service)) {
        let mut service = wds::service(host, self.ip(number, 1), 8080, 8080);
        service.hostname = host.to_owned();
        service.ip_families = IpFamilies::Automatic.into();
        service.waypoint = Some(gate_address());
        change(&mut service);
        self.put(format!("default/{host}"), wds::service_resource(service));
    }

    /// The endpoint of an entry, without an address. It speaks no tunnel, and it is no pod.
    pub fn entry_endpoint(&self, host: &str) -> Workload {
        let mut workload = wds::plain(wds::workload(host, "n2", self.ip(0, 0)));
        workload.uid = format!("Kubernetes/networking.istio.io/ServiceEntry/default/{host}");
        workload.addresses.clear();
        workload.services = [(format!("default/{host}"), PortList::default())].into();
        workload
    }

    /// The endpoint of an entry that is known by a hostname.
    pub fn put_named_endpoint(&mut self, host: &str, hostname: &str) {
        let mut workload = self.entry_endpoint(host);
        workload.hostname = hostname.to_owned();
        self.put_workload(workload);
    }

    /// A service that is bound to nobody.
    pub fn put_unbound_service(&mut self, name: &str, number: u8, protocol: AppProtocol) {
        let mut service = self.service(name, number, protocol);
        service.waypoint = None;
        self.put(
            wds::service_name("default", name),
            wds::service_resource(service),
        );
    }

    /// A service of port 8080 at 127.n.`number`.1 that is bound to nobody. Endpoints of entries may lead to it.
    pub fn put_service_of_8080(&mut self, name: &str, number: u8) {
        let service = wds::service(name, self.ip(number, 1), 8080, 8080);
        self.put(
            wds::service_name("default", name),
            wds::service_resource(service),
        );
    }

    /// Has a service name a waypoint that nobody finds.
    pub fn lead_elsewhere(&mut self, name: &str, number: u8) {
        let mut service = self.service(name, number, AppProtocol::Unknown);
        service.waypoint = Some(elsewhere());
        self.put(
            wds::service_name("default", name),
            wds::service_resource(service),
        );
    }

    fn service(&self, name: &str, number: u8, protocol: AppProtocol) -> Service {
        let mut service = wds::service(name, self.ip(number, 1), 80, 8080);
        service.ports[0].app_protocol = protocol.into();
        service.waypoint = Some(gate_address());
        service
    }

    /// An endpoint of a service at 127.n.`number`.1:8080 that speaks no tunnel.
    pub fn put_plain_endpoint(&mut self, service: &str, name: &str, number: u8) -> SocketAddr {
        let ip = self.ip(number, 1);
        let workload = wds::plain(wds::workload(name, "n2", ip));
        self.put_workload(wds::serving(workload, service, 80, 8080));
        (ip, 8080).into()
    }

    /// Has a workload's Address name the waypoint.
    pub fn bind_workload(&mut self, name: &str) {
        self.lead_workload(name, Some(gate_address()));
    }

    /// Has a workload's Address name this waypoint, or none.
    pub fn lead_workload(&mut self, name: &str, waypoint: Option<GatewayAddress>) {
        let uid = wds::uid("default", name);
        let bound = self.resources.iter_mut().find(|(known, _)| *known == uid);
        let Some((
            _,
            Address {
                r#type: Some(address::Type::Workload(workload)),
            },
        )) = bound
        else {
            panic!("there is no workload {name}")
        };
        workload.waypoint = waypoint;
    }

    /// An endpoint in the mesh.
    pub fn put_mesh_endpoint(&mut self, service: &str, name: &str, number: u8) -> SocketAddr {
        let ip = self.ip(number, 1);
        let workload = wds::workload(name, "n2", ip);
        self.put_workload(wds::serving(workload, service, 80, 8080));
        (ip, 8080).into()
    }

    /// Attaches a policy to the service `server`.
    pub fn put_policy(&mut self, name: &str, action: l7::Action, rules: Vec<l7::Rule>) {
        let policy = l7::Authorization {
            namespace: "default".to_owned(),
            name: name.to_owned(),
            targets: vec![to_server()],
            action: action.into(),
            rules,
            ..l7::Authorization::default()
        };
        let name = format!("default/{name}");
        self.rules
            .push((&kinds::AUTHORIZATION, name, policy.encode_to_vec()));
    }

    /// Attaches a rule for tokens to the service `server`.
    pub fn put_token_rule(&mut self, name: &str) {
        let rule = l7::Authentication {
            namespace: "default".to_owned(),
            name: name.to_owned(),
            targets: vec![to_server()],
            rules: vec![l7::TokenRule {
                issuer: "issuer".to_owned(),
                // The places of a rule that names none.
                fields: vec![l7::TokenField {
                    name: "authorization".to_owned(),
                    prefix: "Bearer ".to_owned(),
                }],
                params: vec!["access_token".to_owned()],
                ..l7::TokenRule::default()
            }],
            ..l7::Authentication::default()
        };
        let name = format!("default/{name}");
        self.rules
            .push((&kinds::AUTHENTICATION, name, rule.encode_to_vec()));
    }

    /// Has the Gateway take the traffic of a service that names no waypoint.
    pub fn bind(&mut self, service: &str) {
        self.put_binding(to_service(service), &[]);
    }

    /// Has the Gateway get no new connections of a service.
    pub fn leave(&mut self, service: &str) {
        self.put_binding(to_service(service), &["default/gate"]);
    }

    /// Has the Gateway get no new connections of a workload.
    pub fn leave_workload(&mut self, name: &str) {
        let uid = wds::uid("default", name);
        let destination = l7::binding::Destination::Workload(uid);
        self.put_binding(destination, &["default/gate"]);
    }

    /// Takes a service from the Gateway.
    pub fn unbind(&mut self, service: &str) {
        self.remove_binding(&wds::service_name("default", service));
    }

    /// Deletes the Gateway. Its Bindings go with it, and Addresses go on naming it.
    pub fn delete_gateway(&mut self) {
        self.has_gateway = false;
        self.rules.retain(|(kind, ..)| *kind != &kinds::BINDING);
    }

    /// Takes a workload from the Gateway.
    pub fn unbind_workload(&mut self, name: &str) {
        self.remove_binding(&wds::uid("default", name));
    }

    fn remove_binding(&mut self, name: &str) {
        self.rules
            .retain(|(kind, known, _)| *kind != &kinds::BINDING || *known != name);
    }

    fn put_binding(&mut self, destination: l7::binding::Destination, leaving: &[&str]) {
        use l7::binding::Destination::{Service, Workload};
        let (Service(name) | Workload(name)) = destination.clone();
        self.remove_binding(&name);
        let binding = l7::Binding {
            parents: vec![l7::Parent {
                gateway: "default/gate".to_owned(),
                identity: "default/gate".to_owned(),
            }],
            destination: Some(destination),
            leaving: leaving.iter().map(ToString::to_string).collect(),
        };
        self.rules
            .push((&kinds::BINDING, name, binding.encode_to_vec()));
    }

    /// The settings of the mesh, which [`World::configure`] puts in force.
    pub fn settings(&mut self) -> &mut l7::MeshSettings {
        self.gateway.settings.as_mut().unwrap()
    }

    /// Has the access log written in this format.
    pub fn log_in(&mut self, encoding: l7::access_log::Encoding, format: &str) {
        self.settings().access_log = Some(l7::AccessLog {
            enabled: true,
            format: format.to_owned(),
            encoding: encoding.into(),
        });
    }

    /// Puts the resources in force.
    pub async fn configure(&self) {
        let mut store = Store::new("", None).of_gateway(NamespacedName::new("default", "gate"));
        let gateway = (
            &kinds::GATEWAY,
            "default/gate".to_owned(),
            self.gateway.encode_to_vec(),
        );
        for (kind, name, bytes) in self
            .rules
            .iter()
            .chain(self.has_gateway.then_some(&gateway))
        {
            let batch = Batch {
                upserts: vec![(name.as_str().into(), bytes.clone().into())],
                ..Batch::new(kind)
            };
            let refused = store.apply(&batch);
            assert!(refused.is_empty(), "{refused:?}");
        }
        for (name, address) in &self.resources {
            store.upsert(name, address.clone()).unwrap();
        }
        self.worker.install(store.snapshot()).await.unwrap();
    }

    pub fn ip(&self, pod: u8, host: u8) -> IpAddr {
        Ipv4Addr::new(127, self.net.number, pod, host).into()
    }

    /// The waypoint's listener.
    pub fn gate(&self) -> SocketAddr {
        (self.ip(1, 1), 15008).into()
    }

    /// The address of the service `server`.
    pub fn vip(&self) -> SocketAddr {
        (self.ip(96, 1), 80).into()
    }

    /// The endpoint of the service `server`.
    pub fn endpoint(&self) -> SocketAddr {
        (self.ip(3, 1), 8080).into()
    }

    /// The address of the resolver that the waypoint asks.
    pub fn resolver(&self) -> SocketAddr {
        resolver_of(&self.net)
    }

    /// A tunnel of a proxy of this service account.
    pub async fn tunnel(&self, account: &str) -> Tunnel {
        self.tunnel_of(&identity(account)).await
    }

    /// A tunnel of a proxy of this identity.
    pub async fn tunnel_of(&self, source_identity: &Identity) -> Tunnel {
        let stream = self.proven(source_identity).await;
        let (tunnel, driver) = handshake(stream, Settings::client()).await.unwrap();
        spawn_local(async move {
            let _ = driver.await;
        });
        tunnel
    }

    /// A connection of a proxy of this identity, with nothing behind its TLS handshake.
    pub async fn proven(&self, source_identity: &Identity) -> TlsStream<TcpStream> {
        let socket = TcpSocket::new_v4().unwrap();
        self.sources.set(self.sources.get() + 1);
        let source = match *source_identity == identity("client") {
            true => self.ip(2, 1),
            false => self.ip(2, 1 + self.sources.get()),
        };
        socket.bind((source, 0).into()).unwrap();
        let stream: TcpStream = socket.connect(self.gate()).await.unwrap();
        let credentials = self.ca.credentials(source_identity);
        let (stream, _) = lateen_tls::connect(&credentials, stream, &[identity("gate")])
            .await
            .unwrap();
        stream
    }

    /// A stream of the client's proxy to an authority.
    pub async fn ask(&self, authority: impl Into<Authority>) -> Result<Stream, ConnectError> {
        let tunnel = self.tunnel.get_or_init(|| self.tunnel("client")).await;
        let request = ConnectRequest::new(authority);
        let asked = soon("an answer to CONNECT", tunnel.connect(&request)).await;
        asked.map(|(stream, _)| stream)
    }

    /// A stream to the service `server`.
    pub async fn stream(&self) -> Stream {
        self.ask(self.vip()).await.unwrap()
    }

    /// Begins the end of the process.
    pub fn drain(&self) {
        self.worker.drain();
    }

    /// Ends what is left.
    pub async fn cut(&self) {
        self.worker.ask(Request::Cut).await.unwrap();
    }

    /// Tunnels that the waypoint serves.
    pub fn tunnels(&self) -> usize {
        self.acceptor.loads().read().iter().sum()
    }

    /// Waits for a line of the access log about this world that holds all of `words`.
    pub async fn logged(&self, words: &[&str]) -> String {
        let find = || {
            let mut lines = self.net.log().into_iter();
            lines.find(|line| words.iter().all(|word| line.contains(word)))
        };
        until(&format!("a line with {words:?}"), || find().is_some()).await;
        find().unwrap()
    }

    /// The value of the first series that begins with `name` and has all of `labels`.
    pub fn metric(&self, name: &str, labels: &[&str]) -> Option<f64> {
        let text = self.metrics.render();
        let line = text.lines().find(|line| {
            line.starts_with(name) && labels.iter().all(|label| line.contains(label))
        })?;
        line.rsplit(' ').next()?.parse().ok()
    }
}

fn resolver_of(net: &Net) -> SocketAddr {
    (Ipv4Addr::new(127, net.number, 53, 1), 5353).into()
}

/// The waypoint, as services and workloads name it.
fn gate_address() -> GatewayAddress {
    GatewayAddress {
        destination: Some(Destination::Hostname(NamespacedHostname {
            namespace: "default".to_owned(),
            hostname: "gate.default.svc.cluster.local".to_owned(),
        })),
        hbone_mtls_port: 15008,
    }
}

/// A waypoint that nobody finds.
pub fn elsewhere() -> GatewayAddress {
    let mut elsewhere = gate_address();
    if let Some(Destination::Hostname(host)) = &mut elsewhere.destination {
        host.hostname = "elsewhere.default.svc.cluster.local".to_owned();
    }
    elsewhere
}

/// The destination of a service's Binding.
fn to_service(name: &str) -> l7::binding::Destination {
    l7::binding::Destination::Service(wds::service_name("default", name))
}

fn to_server() -> l7::Target {
    let name = wds::service_name("default", "server");
    l7::Target {
        target: Some(l7::target::Target::Service(name)),
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.worker.stop();
        if let Some(thread) = self.thread.take() {
            // A panic there shows in the test that waited for what did not happen.
            let _ = thread.join();
        }
    }
}
