//! State of the node role on one worker: certificates, tunnels, open connections, ejected endpoints, and the counters and
//! limits that all connections share.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use lateen_bpf_splice::Accelerator;
use lateen_config::{Snapshot, Workload};
use lateen_hbone::{CloseReason, Pool};
use lateen_identity::Manager;
use lateen_listener_store::Ledger;
use lateen_runtime::Worker;
use lateen_telemetry::{Metrics, Reporter};
use lateen_tls::Revocations;
use lateen_types::{Strng, WorkloadUid};
use prometheus_client::metrics::gauge::Gauge;

use super::dial::DialError;
use super::ejection::Ejections;
use super::pairs::PairRegistry;
use super::refusal::Refusal;
use crate::connection_table::ConnectionTable;
use crate::dns::Resolver;
use crate::local_tunnels::LocalTunnels;
use crate::pod::Pod;
use crate::sampling::Sampler;
use crate::tunnels::Tunnels;

/// How long a connection waits for others before it is given up.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// For the control plane to name the pod's workload.
    pub workload: Duration,
    /// For each of: a TCP connection, a TLS handshake, the start of HTTP/2.
    pub peer: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            // A kubelet tells a pod's address after its start, and a busy one seconds after: late is better than refused.
            workload: Duration::from_secs(20),
            peer: Duration::from_secs(10),
        }
    }
}

/// The settings of the node role, and the state that its workers share.
pub struct NodeConfig {
    /// Certificates.
    pub certificates: Manager,
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// The revocation lists in force.
    pub revocations: Revocations,
    /// The network that this node is on.
    pub network: Strng,
    /// Settings of tunnels that we open.
    pub client: lateen_hbone::Settings,
    /// Settings of tunnels that we accept.
    pub server: lateen_hbone::Settings,
    /// Streams of one tunnel that we open.
    pub streams_per_tunnel: usize,
    /// The list of this worker's open connections that the node agent reads.
    pub ledger: Option<Ledger>,
    /// When a connection is given up.
    pub timeouts: Timeouts,
    /// Chooses the connections that are traced.
    pub sampler: Sampler,
    /// Finds workloads that have a hostname.
    pub resolver: Arc<dyn Resolver>,
    /// When a connection that stands still is ended.
    pub limits: lateen_relay::Limits,
    /// Asks the control plane for unknown resources; `None` if it sends everything.
    pub lookups: Option<lateen_xds::Lookups>,
    /// How connections between two pods of this node are known; `None` if all go through tunnels.
    pub same_node: Option<SameNode>,
    /// Joins connections in the kernel; `None` if their bytes all pass through this process.
    pub accelerator: Option<Arc<Accelerator>>,
}

/// How connections between two pods of this node are known.
#[derive(Clone, Debug)]
pub struct SameNode {
    /// The node that this proxy serves.
    pub node: Strng,
    /// The tunnels of which both ends are in this process.
    pub local_tunnels: LocalTunnels,
}

/// The node role on one worker. Fields mean what they mean in [`NodeConfig`], unless they say otherwise.
pub struct Node {
    /// The worker that serves this role.
    pub(super) worker: Rc<Worker<WorkloadUid>>,
    pub(super) certificates: Manager,
    pub(super) metrics: Arc<Metrics>,
    pub(super) network: Strng,
    pub(super) server: lateen_hbone::Settings,
    /// Tunnels to other proxies.
    pub(super) pool: Pool<DialError>,
    /// The tunnels of both directions, with the certificates that they were opened by.
    pub(super) tunnels: Tunnels,
    pub(super) revocations: Revocations,
    /// Settings of tunnels that we open: inside another tunnel, through a gateway, or between two pods of this process.
    pub(super) inner: lateen_hbone::Settings,
    /// The endpoints that this worker leaves out.
    pub(super) ejections: Rc<Ejections>,
    /// The connections that this worker serves.
    pub(super) connections: ConnectionTable,
    pub(super) timeouts: Timeouts,
    pub(super) sampler: Sampler,
    pub(super) resolver: Arc<dyn Resolver>,
    pub(super) limits: lateen_relay::Limits,
    pub(super) lookups: Option<lateen_xds::Lookups>,
    pub(super) same_node: Option<SameNode>,
    pub(super) accelerator: Option<Arc<Accelerator>>,
    /// The pairs of pods that are both this process's.
    pub(super) pairs: PairRegistry,
    /// Open sockets of both directions: the source's and the destination's.
    sockets: [Gauge; 2],
}

impl Node {
    pub(super) fn new(config: NodeConfig, worker: Rc<Worker<WorkloadUid>>) -> Self {
        let NodeConfig {
            certificates,
            metrics,
            revocations,
            network,
            client,
            server,
            streams_per_tunnel,
            ledger,
            timeouts,
            sampler,
            resolver,
            limits,
            lookups,
            same_node,
            accelerator,
        } = config;
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
        let connections = ConnectionTable::new(worker.index(), ledger);
        let numbers = connections.clone();
        pool.number_with(move || numbers.number_tunnel());
        Self {
            worker,
            certificates,
            network,
            server,
            ejections: Rc::new(Ejections::new(metrics.endpoints_ejected())),
            metrics,
            inner,
            pool,
            tunnels: Tunnels::default(),
            revocations,
            connections,
            timeouts,
            sampler,
            resolver,
            limits,
            lookups,
            same_node,
            accelerator,
            pairs: PairRegistry::default(),
            sockets,
        }
    }

    /// The workload that a pod is, and the configuration that says so. Waits up to [`Timeouts::workload`] for a control
    /// plane that has not caught up with the node agent.
    ///
    /// # Errors
    /// The control plane has sent no configuration, or names no such workload.
    pub(super) async fn workload_of(
        &self,
        pod: &Pod,
    ) -> Result<(Arc<Snapshot>, Arc<Workload>), Refusal> {
        let look = |snapshot: Arc<Snapshot>| {
            let workload = Arc::clone(pod.workload(&snapshot)?);
            Some((snapshot, workload))
        };
        let found = self.worker.find(self.timeouts.workload, look).await;
        found.ok_or_else(|| match self.worker.snapshot() {
            None => Refusal::NotConfigured,
            Some(_) => Refusal::UnknownWorkload(pod.info.clone()),
        })
    }

    /// Idle time after which a tunnel is closed.
    pub(super) fn pool_idle(&self) -> Duration {
        self.inner.idle_timeout.unwrap_or(Duration::MAX)
    }

    /// Counts an open socket until the guard is dropped.
    pub(super) fn count_socket(&self, reporter: Reporter) -> OpenSocket {
        let gauge = self.sockets[usize::from(reporter == Reporter::Destination)].clone();
        gauge.inc();
        OpenSocket(gauge)
    }
}

/// One socket in `istio_tcp_sockets_open`.
#[derive(Debug)]
pub(super) struct OpenSocket(Gauge);

impl Drop for OpenSocket {
    fn drop(&mut self) {
        self.0.dec();
    }
}
