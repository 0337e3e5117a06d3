//! The waypoint role's state on one worker: certificates, tunnels, upstreams, counters, and the limits that all
//! connections share.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use lateen_exchange::{Account, Config, Protocol, Timeouts as HttpTimeouts};
use lateen_h2::{Abuse, Allowance};
use lateen_hbone::{CloseReason, Pool};
use lateen_identity::Manager;
use lateen_runtime::Worker;
use lateen_telemetry::{Cells, Metrics, Reporter};
use lateen_tls::Revocations;
use lateen_types::Strng;
use tokio::sync::Notify;
use tokio::time::sleep;

use super::access_log::LogFormat;
use super::accounts::Accounts;
use super::listing::Listing;
use super::names::Names;
use super::numbers::Numbers;
use super::own::Own;
use super::reviews::Reviews;
use super::service_view::{KnownEndpoint, ServiceViews};
use super::sockets::Sockets;
use super::tunnel_quotas::TunnelQuotas;
use super::turns::{Peer, Turns};
use super::upstream::{Upstream, UpstreamError, Upstreams};
use super::view::View;
use crate::dns::File;
use crate::tunnels::Tunnels;

/// The protocols, in the order of their parameters.
const PROTOCOLS: [Protocol; 2] = [Protocol::Http1, Protocol::Http2];

/// Requests that a client's connection of HTTP/2 may have open. Libraries of gRPC have one connection to a service, and let calls beyond
/// the limit wait, so that subscriptions would stop all other calls. Accounts bound the open requests of all connections.
const CLIENT_STREAMS: u32 = 1000;

/// Requests that such a connection may cancel. At an endpoint that hangs, all that are open reach their deadlines, a second after they
/// began for many.
const CANCELS: Allowance = Allowance {
    burst: 4 * CLIENT_STREAMS,
    per_second: CLIENT_STREAMS,
};

/// The time after which a connection of HTTP/2 to an endpoint without a request ends.
const UPSTREAM_IDLE: Duration = Duration::from_secs(300);

/// How often time-outs of connections are checked: each check wakes the connection.
const CHECK: Duration = Duration::from_secs(5);

/// How long something is waited for before it is given up.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// For the control plane to name the waypoint's own workload.
    pub workload: Duration,
    /// For a peer's handshake.
    pub handshake: Duration,
    /// For a client to speak, before its server is asked to speak first.
    pub silence: Duration,
    /// For a silent client to speak HTTP, once its connection to an endpoint is refused.
    pub refused: Duration,
    /// For a client to send the first request of its tunnel or connection, or the next one, when the process drains: the request
    /// may be on its way, and the client's proxy may not have heard yet.
    pub last_request: Duration,
    /// For the next request on a client's connection; the first one is waited for as long. `None`: for ever.
    pub idle: Option<Duration>,
    /// For a request's head, from its first byte.
    pub head: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            workload: Duration::from_secs(5),
            handshake: Duration::from_secs(10),
            silence: Duration::from_millis(50),
            refused: Duration::from_secs(2),
            last_request: Duration::from_secs(1),
            // Istio's.
            idle: Some(Duration::from_secs(3600)),
            head: Duration::from_secs(60),
        }
    }
}

/// Settings and shared state of the waypoint role on one worker.
pub struct WaypointConfig {
    /// The pod and its Gateway.
    pub own: Own,
    /// Certificates.
    pub certificates: Manager,
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// Certificates that are revoked.
    pub revocations: Revocations,
    /// The network of this proxy.
    pub network: Strng,
    /// Settings of tunnels that the proxy opens.
    pub client: lateen_hbone::Settings,
    /// Settings of tunnels that it accepts.
    pub server: lateen_hbone::Settings,
    /// Memory of clients' requests and answers; all workers share it.
    pub accounts: Accounts,
    /// Tunnels that each client may have; all workers share them.
    pub tunnel_quotas: TunnelQuotas,
    /// Streams of one tunnel that it opens.
    pub streams_per_tunnel: usize,
    /// The resolvers that know the addresses of hostnames.
    pub resolvers: File,
    /// When something is given up.
    pub timeouts: Timeouts,
    /// When a relayed connection that stands still is ended.
    pub limits: lateen_relay::Limits,
    /// Options of the TCP connections that it opens.
    pub sockets: Sockets,
}

/// The waypoint role on one worker.
pub struct Waypoint {
    /// The worker that serves this role.
    pub(super) worker: Rc<Worker<Peer>>,
    pub(super) own: Own,
    pub(super) certificates: Manager,
    pub(super) metrics: Arc<Metrics>,
    pub(super) revocations: Revocations,
    pub(super) network: Strng,
    /// Memory of clients' requests and answers.
    pub(super) accounts: Accounts,
    /// Tunnels that each client may have.
    pub(super) tunnel_quotas: TunnelQuotas,
    /// Settings of tunnels that are accepted.
    pub(super) inbound: lateen_hbone::Settings,
    /// Settings of tunnels to endpoints.
    pub(super) outbound: lateen_hbone::Settings,
    /// Tunnels to endpoints.
    pub(super) pool: Pool<UpstreamError>,
    /// The tunnels of both directions, with the certificates that they were opened by.
    pub(super) tunnels: Tunnels,
    pub(super) timeouts: Timeouts,
    pub(super) limits: lateen_relay::Limits,
    /// Options of TCP connections to endpoints, and of those below tunnels to them.
    pub(super) sockets: Sockets,
    /// Connections to endpoints.
    pub(super) upstreams: Upstreams,
    /// Addresses of hostnames.
    pub(super) names: Names,
    /// The worker's time by identity.
    pub(super) turns: Turns,
    /// Connections that look at each new configuration.
    pub(super) reviews: Reviews,
    /// Clients' connections, for operators.
    pub(super) listing: Listing,
    /// Counters of requests that are at hand.
    pub(super) cells: RefCell<Cells>,
    /// Numbers of sources and services, for counters.
    pub(super) numbers: Numbers,
    /// The configuration in force, as this role reads it.
    pub(super) view: RefCell<Option<Rc<View>>>,
    /// Services as requests for them see them in this view.
    pub(super) service_views: ServiceViews,
    /// Parameters of clients' connections and of connections to endpoints: HTTP/1 and HTTP/2 of each.
    server: [Config; 2],
    client: [Config; 2],
    /// Everything that is left ends.
    is_cut: Cell<bool>,
    cut: Notify,
}

impl Waypoint {
    pub(super) fn new(config: WaypointConfig, worker: Rc<Worker<Peer>>) -> Self {
        let WaypointConfig {
            own,
            certificates,
            metrics,
            revocations,
            network,
            client,
            server,
            accounts,
            tunnel_quotas,
            streams_per_tunnel,
            resolvers,
            timeouts,
            limits,
            sockets,
        } = config;
        let pool = Pool::new(client.clone(), streams_per_tunnel);
        // Streams of many clients are on each tunnel.
        pool.share_among_groups();
        let counted = Arc::clone(&metrics);
        pool.on_close(move |key, reason| {
            counted.tunnel_closed(Reporter::Source, reason.as_str());
            if let CloseReason::Abuse(_) = reason {
                let word = reason.as_str();
                tracing::warn!(peer = %key.address, reason = word, "a tunnel to a peer that floods us was cut");
            }
        });
        let upstreams = Upstreams::new(&client.budget);
        let names = Names::new(resolvers, &own.uid, metrics.dns());
        Self {
            turns: Turns::new(Rc::clone(&worker)),
            worker,
            own,
            certificates,
            cells: RefCell::new(Cells::new(Arc::clone(metrics.requests()))),
            metrics,
            revocations,
            network,
            accounts,
            tunnel_quotas,
            inbound: server,
            outbound: client,
            pool,
            tunnels: Tunnels::default(),
            timeouts,
            limits,
            sockets,
            upstreams,
            names,
            numbers: Numbers::default(),
            reviews: Reviews::default(),
            listing: Listing::default(),
            view: RefCell::new(None),
            service_views: ServiceViews::default(),
            server: {
                let usual = lateen_h2::Config::requests();
                let http2 = lateen_h2::Config {
                    max_streams: CLIENT_STREAMS,
                    allowances: usual.allowances.clone().with(Abuse::RapidReset, CANCELS),
                    ..usual
                };
                let http2 = http2.share();
                PROTOCOLS.map(|protocol| Config {
                    half_close: false,
                    http2: http2.clone(),
                    ..parameters(protocol, timeouts.idle, timeouts.head)
                })
            },
            client: PROTOCOLS.map(|protocol| match protocol {
                // The request that uses such a connection drives it, and `upstream::idle` ends it after its last one.
                Protocol::Http1 => parameters(protocol, None, timeouts.head),
                Protocol::Http2 => parameters(protocol, Some(UPSTREAM_IDLE), timeouts.head),
            }),
            is_cut: Cell::new(false),
            cut: Notify::new(),
        }
    }

    /// Parameters of clients' connections that this account pays for: HTTP/1 and HTTP/2.
    pub(super) fn server_configs(&self, account: &Account) -> [Rc<Config>; 2] {
        self.server.each_ref().map(|config| {
            Rc::new(Config {
                account: Some(account.clone()),
                ..config.clone()
            })
        })
    }

    /// Parameters of a connection to an endpoint.
    pub(super) fn client_config(&self, protocol: Protocol) -> Config {
        self.client[usize::from(protocol == Protocol::Http2)].clone()
    }

    /// The connections to an endpoint.
    pub(super) fn upstream(&self, known: &KnownEndpoint, protocol: Protocol) -> Rc<Upstream> {
        known.upstream(&self.upstreams, &self.numbers, protocol)
    }

    /// The configuration in force. Waits up to [`Timeouts::workload`] for one that names the proxy's own workload.
    pub(super) async fn view(&self) -> Option<Rc<View>> {
        let now = self.view.borrow().clone();
        if now.is_some() {
            return now;
        }
        let look = |_| self.view.borrow().clone();
        // It is there but for the first moments of the process, so requests have no room for the wait.
        Box::pin(self.worker.find(self.timeouts.workload, look)).await
    }

    /// The format of the access log; `None`: Lateen's own lines.
    pub(super) fn log_format(&self) -> Option<Arc<LogFormat>> {
        let view = self.view.borrow();
        view.as_ref().and_then(|view| view.mesh.log.clone())
    }

    /// Resolves when the process drains and the time for last requests is over: clients that ask for nothing are to leave.
    pub(super) async fn ends_idle(&self) {
        self.worker.draining().await;
        sleep(self.timeouts.last_request).await;
    }

    /// Ends everything that is left.
    pub(super) fn cut(&self) {
        self.is_cut.set(true);
        self.cut.notify_waiters();
    }

    /// True once everything that is left is to end.
    pub(super) fn has_cut(&self) -> bool {
        self.is_cut.get()
    }

    /// Resolves when everything that is left is to end.
    pub(super) async fn is_cut(&self) {
        loop {
            let told = self.cut.notified();
            if self.has_cut() {
                return;
            }
            told.await;
        }
    }
}

/// Parameters of connections that end after an idle time.
///
/// The tunnels below find out by PINGs whether their peers are there. Connections inside send none: servers of gRPC take PINGs
/// without requests for abuse.
fn parameters(protocol: Protocol, idle: Option<Duration>, head: Duration) -> Config {
    let shortest = idle.map_or(head, |idle| idle.min(head));
    Config {
        timeouts: Some(HttpTimeouts {
            check_interval: CHECK.min(shortest),
            idle,
            head,
            ping_after: Duration::MAX / 2,
            ..HttpTimeouts::default()
        }),
        ..Config::new(protocol)
    }
}
