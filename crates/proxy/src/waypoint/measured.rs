//! The request path of the role in memory, for instruction counts: one client's connection of HTTP/1, and one to each endpoint.
//!
//! The feature `measured` compiles it. Configuration, policies, choice of endpoints, counters and access log are those of
//! the role. There are no tunnels and no sockets.

use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Waker};

use futures_util::FutureExt as _;
use lateen_config::Snapshot;
use lateen_exchange::Protocol;
use lateen_executor::Executor;
use lateen_hbone::Settings;
use lateen_identity::{IssueError, Issued, Issuer, Manager};
use lateen_runtime::{Role as _, Worker};
use lateen_telemetry::{BuildInfo, Metrics};
use lateen_tls::Rules;
use lateen_types::{Identity, VerifiedPeer};
use tokio::task::unconstrained;

pub use super::memory::Memory;
pub use super::own::Own;

use super::accounts::Accounts;
use super::choose::{Tried, choose};
use super::destination::select;
use super::http;
use super::session::{Session, TunnelPeer};
use super::sockets::Sockets;
use super::state::{Timeouts, Waypoint, WaypointConfig};
use super::tunnel_quotas::TunnelQuotas;
use super::upstream::Wire;
use crate::dns::{File, Origin};

/// The client and the address that it asks for.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The identity that the client's proxy proved.
    pub client: VerifiedPeer,
    /// Its address.
    pub source: SocketAddr,
    /// The address of a service that is bound to the Gateway.
    pub service: SocketAddr,
}

/// The connection of a client, with those to the service's endpoints.
pub struct Connections {
    serving: Pin<Box<dyn Future<Output = ()>>>,
    /// The client's.
    pub client: Memory,
    /// Those of the endpoints.
    pub endpoints: Vec<Memory>,
}

/// Runs `measure` on connections of a waypoint that goes by this configuration.
///
/// # Panics
/// If the configuration does not name the proxy's own pod, its Gateway, and the service with endpoints.
pub fn run(own: Own, snapshot: Arc<Snapshot>, asked: &Asked, measure: impl FnOnce(Connections)) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("there is memory for a runtime");
    let build = BuildInfo {
        component: "proxy",
        tag: "measured",
    };
    let config = WaypointConfig {
        own,
        certificates: Manager::new(Arc::new(NoAuthority), runtime.handle().clone()),
        metrics: Arc::new(Metrics::new(&build, Vec::new)),
        revocations: Rules::default().revocations.clone(),
        network: "".into(),
        client: Settings::client(),
        server: Settings::server(),
        accounts: Accounts::default(),
        tunnel_quotas: TunnelQuotas::new(1),
        streams_per_tunnel: 100,
        timeouts: Timeouts::default(),
        limits: lateen_relay::Limits::default(),
        sockets: Sockets::default(),
        resolvers: File::open(Path::new("/dev/null"), Origin::Own),
    };
    // The executor's clocks are system calls that valgrind does not know; nothing here takes turns.
    let groups = Executor::default().groups();
    let worker = Rc::new(Worker::without_thread(groups, Arc::clone(&snapshot)));
    let waypoint = Rc::new(Waypoint::new(config, worker));
    waypoint.installed(None, &snapshot);
    // Timers belong to the runtime.
    runtime.block_on(async { measure(Connections::open(&waypoint, asked)) });
}

impl Connections {
    fn open(waypoint: &Rc<Waypoint>, asked: &Asked) -> Self {
        let view = waypoint.view.borrow().clone();
        let view = view.expect("the configuration names the proxy's pod and its Gateway");
        let selected = select(&view, &waypoint.own, &asked.service.into());
        let selected = selected.expect("the service is bound to the Gateway");
        let peer = asked.client.clone();
        let tunnel = TunnelPeer::new(waypoint, peer, asked.source, asked.service);
        let tunnel = Rc::new(tunnel);
        let metadata = tunnel.metadata.of(None, None);
        let place = tunnel.account.connect();
        let place = place.expect("the client has no other connection");
        let session = Session::new(waypoint, &tunnel, &view, selected, metadata, place);
        let session = Rc::new(session);
        let (mut endpoints, mut tried) = (Vec::new(), Tried::default());
        loop {
            let chosen = choose(&session, &view, &mut tried, None, || None).now_or_never();
            let Some(Ok(known)) = chosen else { break };
            let memory = Memory::default();
            let upstream = waypoint.upstream(&known, Protocol::Http1);
            let config = waypoint.client_config(Protocol::Http1);
            upstream.keep(Wire::Memory(memory.clone()), config);
            tried.add(&known.endpoint);
            endpoints.push(memory);
        }
        assert!(!endpoints.is_empty(), "the service has endpoints");
        let client = Memory::default();
        let serving = http::serve(session, client.clone(), Protocol::Http1);
        Self {
            // No other task waits for a turn.
            serving: Box::pin(unconstrained(serving)),
            client,
            endpoints,
        }
    }

    /// Moves everything that can be moved.
    ///
    /// # Panics
    /// If the client's connection has ended.
    pub fn turn(&mut self) {
        let cx = &mut Context::from_waker(Waker::noop());
        assert!(self.serving.as_mut().poll(cx).is_pending());
    }
}

/// Gives no certificates: nothing here opens a tunnel.
struct NoAuthority;

impl Issuer for NoAuthority {
    fn issue<'a>(&'a self, _: &'a Identity) -> Issued<'a> {
        Box::pin(async {
            Err(IssueError::Token {
                path: "none".to_owned(),
                source: std::io::ErrorKind::NotFound.into(),
            })
        })
    }
}
