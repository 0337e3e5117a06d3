//! A mesh in this process: nodes with real workers, sockets, TLS and tunnels, on loopback addresses of their own.
//!
//! Redirection is missing. In its place a listener is bound to the very address that a client dials, which is then the
//! destination of the connection. Tests of whole meshes cover redirected destinations.
mod node;
mod path;

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use lateen_accept::Registration;
use lateen_config::Store;
use lateen_proto::security::Authorization;
use lateen_proto::workload::{Address, Service, Workload, address};
use lateen_relay::Limits;
use lateen_testkit::{Ca, wds};
use lateen_xds::Lookups;
use node::Node;
use path::Path;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::mpsc;

use crate::pod::{Door, Pod, Port};
use crate::testing::journal;
use crate::testing::net::Net;
pub use crate::testing::{LONG, soon, until};

/// The time that nodes give a peer which may never answer. A process of a busy machine stands still for less, and three
/// times as long is within a test's patience.
const PATIENCE: Duration = Duration::from_secs(6);

/// The life of certificates where it does not matter.
const HOUR: Duration = Duration::from_secs(3600);

/// The descriptors that a pod's connections may hold.
pub const SHARE: u32 = 10_000;

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
    /// The node that the server is on, as the control plane says.
    home: &'static str,
    /// What tunnels to the server pass, where that can have faults.
    path: Option<Path>,
}

/// Where the server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    /// On node east.
    East,
    /// On the client's node, west, and connections are handed over or not.
    West { same_node: bool },
    /// On the client's node, whose proxy is being replaced: it is the other process's pod, that of east.
    Replaced,
    /// On the client's node, which has two workers and hands connections over. The network between the two pods can have
    /// faults. A tunnel of no use ends after the one, and one without an answer after the other.
    Near { idle: Duration, lost: Duration },
}

impl Home {
    /// The nodes of this process, or the processes of one node, that have the client and the server.
    fn is_clients(self) -> bool {
        matches!(self, Home::West { .. } | Home::Near { .. })
    }
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

    /// A mesh at work.
    pub async fn start_at(home: Home) -> Self {
        Self::start_at_with(home, "cluster.local", Limits::default()).await
    }

    /// A mesh at work, with a client of this trust domain, whose nodes do not stop waiting before the test does.
    pub async fn start_at_with(home: Home, clients_domain: &str, limits: Limits) -> Self {
        Self::start_waiting(home, clients_domain, limits, 2 * LONG).await
    }

    /// A mesh at work whose nodes soon stop waiting for what does not answer.
    pub async fn start_impatient_at(home: Home) -> Self {
        Self::start_waiting(home, "cluster.local", Limits::default(), PATIENCE).await
    }

    async fn start_waiting(home: Home, domain: &str, limits: Limits, patience: Duration) -> Self {
        let (ca, nobody) = (Arc::new(Ca::new()), HashMap::new());
        let mesh = Self::build(ca, domain, limits, HOUR, patience, &nobody, home);
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
        let home = Home::East;
        Self::build(ca, clients_domain, limits, life, patience, lookups, home)
    }

    fn build(
        ca: Arc<Ca>,
        clients_domain: &str,
        limits: Limits,
        life: Duration,
        patience: Duration,
        lookups: &HashMap<&str, Lookups>,
        home: Home,
    ) -> Self {
        journal::capture();
        let net = Net::claim();
        let [west, east] = ["west", "east"].map(|name| {
            let lookups = lookups.get(name).cloned();
            let node = if home == Home::Replaced { "west" } else { name };
            Node::start(node, &ca, limits, life, patience, lookups, home)
        });
        let serving = if home.is_clients() { &west } else { &east };
        let (client, server) = (
            west.pod("client", clients_domain),
            serving.pod("server", "cluster.local"),
        );
        let mut mesh = Self {
            ca,
            client,
            server,
            resources: Vec::new(),
            policies: Vec::new(),
            net,
            doors: Vec::new(),
            home: if home == Home::East { "east" } else { "west" },
            path: None,
            west,
            east,
        };
        let serving = if home.is_clients() {
            &mesh.west
        } else {
            &mesh.east
        };
        let mut door = mesh.hbone();
        if let Home::Near { .. } = home {
            door.set_port(15009);
            mesh.path = Some(Path::lay(mesh.client_ip(), mesh.hbone(), door));
        }
        mesh.doors = vec![
            mesh.west.open(&mesh.client, Port::Outbound, mesh.vip()),
            serving.open(&mesh.server, Port::Hbone, door),
        ];
        let mut client = wds::workload("client", "west", mesh.client_ip());
        client.trust_domain = clients_domain.to_owned();
        mesh.put_workload(client);
        mesh.put_workload(mesh.server_workload());
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
            wds::workload("server", self.home, self.server_ip()),
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
        self.protect_by(vec![policy]).await;
    }

    /// Covers the server by several policies.
    pub async fn protect_by(&mut self, policies: Vec<Authorization>) {
        let mut server = self.server_workload();
        for policy in policies {
            let name = format!("{}/{}", policy.namespace, policy.name);
            server.authorization_policies.push(name.clone());
            self.policies.push((name, policy));
        }
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

    /// The network between the two pods.
    pub fn path(&self) -> &Path {
        let path = self.path.as_ref();
        path.expect("only that of `Home::Near` can be cut")
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
        let mut lines = self.net.log();
        lines.retain(|line| words.iter().all(|word| line.contains(word)));
        lines
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
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                // The address may be another test's next.
                () = send.closed() => return,
            };
            if !accepted.is_ok_and(|accepted| send.send(accepted).is_ok()) {
                return;
            }
        }
    });
    accepted
}
