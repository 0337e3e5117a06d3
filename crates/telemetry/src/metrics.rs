//! The registry of a proxy's metrics, with their names and the handles that count them.

mod collectors;
mod labels;

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use lateen_types::Strng;
use parking_lot::Mutex;
use prometheus_client::encoding::text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use crate::bounded::SeriesOptions;
use crate::claims::Claims;
use crate::dns::DnsMetrics;
use crate::export::Export;
use crate::labels::{Labels, Reporter};
use crate::process::Process;
use crate::request::Requests;
use crate::traffic::Traffic;

pub use collectors::{Buffers, HttpAccounts, HttpBuffers};
pub use labels::XdsTermination;

use collectors::{BufferBudgets, HttpBufferAccounts, PodTimes, Shed, WorkerLoads};
use labels::{
    BuildLabels, DryRunLabels, OutcomeLabels, ReasonLabels, ReporterLabels, StateLabels,
    TerminationLabels, TunnelLabels, TypeLabels,
};

/// Component and version in `istio_build`.
#[derive(Clone, Debug)]
pub struct BuildInfo {
    /// The role's name among Istio's components.
    pub component: &'static str,
    /// The version.
    pub tag: &'static str,
}

/// All metrics of one proxy.
#[derive(Debug)]
pub struct Metrics {
    registry: Mutex<Registry>,
    series: SeriesOptions,
    traffic: Arc<Traffic>,
    requests: OnceLock<Arc<Requests>>,
    claims: Claims,
    sockets: Family<ReporterLabels, Gauge>,
    xds_messages: Family<TypeLabels, Counter>,
    xds_bytes: Family<TypeLabels, Counter>,
    xds_terminations: Family<TerminationLabels, Counter>,
    certificates: Family<OutcomeLabels, Counter>,
    tunnels_opened: Family<ReporterLabels, Counter>,
    tunnels_closed: Family<TunnelLabels, Counter>,
    expiry: Gauge,
    held: Family<StateLabels, Gauge>,
    revocation_reads: Family<OutcomeLabels, Counter>,
    revoked: Gauge,
    stale_lists: Gauge,
    cut: Family<ReasonLabels, Counter>,
    retries: Counter,
    handed_over: Counter,
    joined: Counter,
    ejected: Gauge,
    dry_run: Family<DryRunLabels, Counter>,
    pods: Gauge,
    pods_started: Counter,
    pods_stopped: Counter,
    dns: DnsMetrics,
    used: Arc<PodTimes>,
    exporter: OnceLock<Box<dyn Export>>,
    reports: (Counter, Counter),
}

impl Metrics {
    /// Registers all metrics. `loads` returns the number of connections of each worker.
    pub fn new(build: &BuildInfo, loads: impl Fn() -> Vec<usize> + Send + Sync + 'static) -> Self {
        Self::with(build, SeriesOptions::default(), loads)
    }

    /// Registers all metrics, with limits for series of connections.
    pub fn with(
        build: &BuildInfo,
        series: SeriesOptions,
        loads: impl Fn() -> Vec<usize> + Send + Sync + 'static,
    ) -> Self {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Process));
        registry.register_collector(Box::new(WorkerLoads(Box::new(loads))));
        let traffic = Traffic::register(series, &mut registry);
        let tunnels_opened = Family::default();
        registry.register(
            "lateen_tunnels_opened",
            "TLS handshakes with other proxies that succeeded on this side, by who opened the tunnel (reporter source: this proxy). In TLS 1.3 who opens one is done before the peer has judged the certificate: what the peer refuses then counts here, and as closed, rejected",
            tunnels_opened.clone(),
        );
        let tunnels_closed = Family::default();
        registry.register(
            "lateen_tunnels_closed",
            "Tunnels that ended, by who opened them (reporter source: this proxy) and why; all that count as opened do at last",
            tunnels_closed.clone(),
        );
        let certificates = Family::default();
        registry.register(
            "lateen_certificate_requests",
            "Certificates asked of the certificate authority, by outcome",
            certificates.clone(),
        );
        let held = Family::default();
        registry.register(
            "lateen_certificates",
            "Workload identities of this node, by how it stands with their certificates",
            held.clone(),
        );
        let expiry = Gauge::default();
        registry.register(
            "lateen_certificates_first_expiry_timestamp_seconds",
            "Unix time when the first certificate of this node's workloads expires; 0 if there is none",
            expiry.clone(),
        );
        let (revocation_reads, revoked, stale_lists) =
            (Family::default(), Gauge::default(), Gauge::default());
        registry.register(
            "lateen_revocation_list_reads",
            "How often the file of revocation lists was read, by outcome",
            revocation_reads.clone(),
        );
        registry.register(
            "lateen_revoked_certificates",
            "Certificates on the revocation lists in force",
            revoked.clone(),
        );
        registry.register(
            "lateen_stale_revocation_lists",
            "Revocation lists in force whose authority should have issued a newer one",
            stale_lists.clone(),
        );
        let cut = Family::default();
        registry.register(
            "lateen_connections_cut",
            "Connections that the proxy ended although both sides would have gone on, by reason",
            cut.clone(),
        );

        let dns = DnsMetrics::register(&mut registry);
        let reports = <(Counter, Counter)>::default();
        registry.register(
            "lateen_reports_sent",
            "Reports of connections, as log record or span, that an OpenTelemetry collector took",
            reports.0.clone(),
        );
        registry.register(
            "lateen_reports_dropped",
            "Reports of connections that were lost because a collector did not take them, or not in time",
            reports.1.clone(),
        );
        let used = Arc::<PodTimes>::default();
        registry.register_collector(Box::new(Arc::clone(&used)));
        let (retries, ejected, dry_run) = (Counter::default(), Gauge::default(), Family::default());
        registry.register(
            "lateen_connect_retries",
            "Connections that were tried at another endpoint before their first byte",
            retries.clone(),
        );
        let handed_over = Counter::default();
        registry.register(
            "lateen_connections_handed_over",
            "Connections between two pods of this node that were handed over inside the process, after a tunnel between the two had proven both",
            handed_over.clone(),
        );
        let joined = Counter::default();
        registry.register(
            "lateen_connections_joined",
            "Connections that were handed over between two pods of this node and whose bytes pass in the kernel",
            joined.clone(),
        );
        registry.register(
            "lateen_endpoints_ejected",
            "Endpoints that workers leave out at the moment for a pod whose connections to them keep failing, one for each such pod and worker",
            ejected.clone(),
        );
        registry.register(
            "lateen_policy_dry_run",
            "Inbound connections that policies in dry run would have decided, by policy and decision",
            dry_run.clone(),
        );

        let istio = registry.sub_registry_with_prefix("istio");
        let build_family = Family::<BuildLabels, Gauge>::default();
        istio.register("build", "Istio component build info", build_family.clone());
        build_family
            .get_or_create(&BuildLabels {
                component: build.component,
                tag: build.tag,
            })
            .set(1);
        istio.register_collector(Box::new(Arc::clone(&traffic)));
        let sockets = Family::default();
        istio.register(
            "tcp_sockets_open",
            "The current number of open TCP sockets (unstable)",
            sockets.clone(),
        );
        let (xds_messages, xds_bytes, xds_terminations) =
            (Family::default(), Family::default(), Family::default());
        istio.register(
            "xds_connection_terminations",
            "The total number of completed connections to xds server (unstable)",
            xds_terminations.clone(),
        );
        istio.register(
            "xds_message",
            "Total number of messages received (unstable)",
            xds_messages.clone(),
        );
        istio.register_with_unit(
            "xds_message",
            "Total number of bytes received (unstable)",
            Unit::Bytes,
            xds_bytes.clone(),
        );

        let manager = registry.sub_registry_with_prefix("workload_manager");
        let (pods, pods_started, pods_stopped) =
            (Gauge::default(), Counter::default(), Counter::default());
        manager.register(
            "active_proxy_count",
            "The number of workloads that this proxy serves (unstable)",
            pods.clone(),
        );
        manager.register(
            "proxies_started",
            "The total number of workloads that were taken up (unstable)",
            pods_started.clone(),
        );
        manager.register(
            "proxies_stopped",
            "The total number of workloads that were let go (unstable)",
            pods_stopped.clone(),
        );
        Self {
            registry: Mutex::new(registry),
            series,
            traffic,
            requests: OnceLock::new(),
            claims: Claims::default(),
            used,
            exporter: OnceLock::new(),
            reports,
            sockets,
            xds_messages,
            xds_bytes,
            xds_terminations,
            certificates,
            tunnels_opened,
            tunnels_closed,
            held,
            expiry,
            revocation_reads,
            revoked,
            stale_lists,
            cut,
            retries,
            handed_over,
            joined,
            ejected,
            dry_run,
            pods,
            pods_started,
            pods_stopped,
            dns,
        }
    }

    /// Registers the count of connections that were reset for want of a descriptor; `read` returns it.
    pub fn watch_shed(&self, read: impl Fn() -> u64 + Send + Sync + 'static) {
        self.registry
            .lock()
            .register_collector(Box::new(Shed(Box::new(read))));
    }

    /// Registers the buffers of tunnels; `read` returns those for each direction.
    pub fn watch_buffers(&self, read: impl Fn() -> [Buffers; 2] + Send + Sync + 'static) {
        self.registry
            .lock()
            .register_collector(Box::new(BufferBudgets(Box::new(read))));
    }

    /// Registers the memory of requests and answers; `read` returns it.
    pub fn watch_http_buffers(&self, read: impl Fn() -> HttpBuffers + Send + Sync + 'static) {
        self.registry
            .lock()
            .register_collector(Box::new(HttpBufferAccounts(Box::new(read))));
    }

    /// The counters of the DNS proxy.
    pub fn dns(&self) -> &DnsMetrics {
        &self.dns
    }

    /// Counts a connection attempt that is repeated at another endpoint.
    pub fn connect_retried(&self) {
        self.retries.inc();
    }

    /// Counts a connection between two pods of this node that does not go through their tunnel.
    pub fn handed_over(&self) {
        self.handed_over.inc();
    }

    /// Counts a connection whose bytes the kernel forwards from now on.
    pub fn joined(&self) {
        self.joined.inc();
    }

    /// The gauge of ejected endpoints, to which every worker adds its own.
    pub fn endpoints_ejected(&self) -> Gauge {
        self.ejected.clone()
    }

    /// Counts a decision of a policy in dry run; `decision` is `allow` or `deny`.
    pub fn dry_run(&self, policy: &str, decision: &'static str) {
        let labels = DryRunLabels {
            policy: policy.to_owned(),
            decision,
        };
        self.dry_run.get_or_create(&labels).inc();
    }

    /// Sets the processor time of each served pod: namespace, name, time. The series of a pod that is not in the list
    /// ends.
    pub fn pods_used(&self, times: Vec<(Strng, Strng, Duration)>) {
        *self.used.0.lock() = times;
    }

    /// The counters of connections.
    pub fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// The counters of requests. The first call registers them, so that a proxy without requests shows none.
    pub fn requests(&self) -> &Arc<Requests> {
        self.requests
            .get_or_init(|| Requests::register(self.series, &mut self.registry.lock()))
    }

    /// Metadata that peers claim in their baggage.
    pub fn claims(&self) -> &Claims {
        &self.claims
    }

    /// The gauge of open sockets on one side; resolve it once and keep it.
    pub fn open_sockets(&self, reporter: Reporter) -> Gauge {
        self.sockets
            .get_or_create(&ReporterLabels {
                reporter: reporter.as_str(),
            })
            .clone()
    }

    /// Reports the ends of connections to `exporter` too. A second call has no effect.
    pub fn export_to(&self, exporter: Box<dyn Export>) {
        // The proxy sets it once, at its start.
        let _ = self.exporter.set(exporter);
    }

    /// The counters of reports that a collector took, and of reports that were lost.
    pub fn reports(&self) -> (Counter, Counter) {
        self.reports.clone()
    }

    pub(crate) fn exporter(&self) -> Option<&dyn Export> {
        self.exporter.get().map(AsRef::as_ref)
    }

    /// Writes the access log's line for a connection that was refused before both its workloads were known.
    pub fn tell_refused(
        &self,
        source: SocketAddr,
        destination: SocketAddr,
        reporter: Reporter,
        error: &str,
    ) {
        crate::access::refused(source, destination, reporter, error);
        if let Some(exporter) = self.exporter() {
            let report = crate::access::report_refused(source, destination, reporter, error);
            exporter.report(report);
        }
    }

    /// Counts a connection that was refused before it counted as opened. A label without a value is `unknown`.
    pub fn refused(&self, labels: Labels) {
        let flags = labels.flags;
        self.traffic.series(labels).1.add_failed(flags);
    }

    /// Counts a response of the control plane; `bytes` is the size of its resources.
    pub fn xds_message(&self, type_url: &str, bytes: u64) {
        let labels = TypeLabels {
            url: type_url.to_owned(),
        };
        self.xds_messages.get_or_create(&labels).inc();
        self.xds_bytes.get_or_create(&labels).inc_by(bytes);
    }

    /// Counts the end of a connection to the control plane.
    pub fn xds_terminated(&self, reason: XdsTermination) {
        self.xds_terminations
            .get_or_create(&TerminationLabels { reason })
            .inc();
    }

    /// Counts a tunnel whose peer's certificate this side has verified. The peer may still refuse this side's. Every call
    /// needs a later call of [`Metrics::tunnel_closed`].
    pub fn tunnel_opened(&self, reporter: Reporter) {
        let labels = ReporterLabels {
            reporter: reporter.as_str(),
        };
        self.tunnels_opened.get_or_create(&labels).inc();
    }

    /// Counts a tunnel that ended.
    pub fn tunnel_closed(&self, reporter: Reporter, reason: &'static str) {
        let labels = TunnelLabels {
            reporter: reporter.as_str(),
            reason,
        };
        self.tunnels_closed.get_or_create(&labels).inc();
    }

    /// Counts an answer of the certificate authority.
    pub fn certificate_requested(&self, granted: bool) {
        let outcome = if granted { "granted" } else { "failed" };
        self.certificates
            .get_or_create(&OutcomeLabels { outcome })
            .inc();
    }

    /// Counts a connection that was ended although both sides would have gone on.
    pub fn connection_cut(&self, reason: &'static str) {
        self.cut.get_or_create(&ReasonLabels { reason }).inc();
    }

    /// Sets how many identities are in a state.
    pub fn certificates_held(&self, state: &'static str, identities: usize) {
        self.held
            .get_or_create(&StateLabels { state })
            .set(i64::try_from(identities).unwrap_or(i64::MAX));
    }

    /// Sets when the first certificate expires; 0 without one.
    pub fn certificates_expire(&self, first: Option<SystemTime>) {
        let since = first.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        let seconds = since.unwrap_or_default().as_secs();
        self.expiry.set(i64::try_from(seconds).unwrap_or(i64::MAX));
    }

    /// Counts a reading of the revocation lists.
    pub fn revocation_lists_read(&self, usable: bool) {
        let outcome = if usable { "read" } else { "failed" };
        self.revocation_reads
            .get_or_create(&OutcomeLabels { outcome })
            .inc();
    }

    /// Sets how many certificates are revoked.
    pub fn revoked_certificates(&self, certificates: usize) {
        self.revoked
            .set(i64::try_from(certificates).unwrap_or(i64::MAX));
    }

    /// Sets how many revocation lists are overdue.
    pub fn stale_revocation_lists(&self, lists: usize) {
        self.stale_lists
            .set(i64::try_from(lists).unwrap_or(i64::MAX));
    }

    /// Counts a pod that is served from now on.
    pub fn pod_started(&self) {
        self.pods.inc();
        self.pods_started.inc();
    }

    /// Counts a pod that is no longer served.
    pub fn pod_stopped(&self) {
        self.pods.dec();
        self.pods_stopped.inc();
    }

    /// All metrics in the text format of OpenMetrics, which Prometheus reads too. Expired series are removed first.
    pub fn render(&self) -> String {
        let now = Instant::now();
        self.traffic.expire(now);
        if let Some(requests) = self.requests.get() {
            requests.expire(now);
        }
        let mut page = String::new();
        text::encode(&mut page, &self.registry.lock()).expect("a String takes every write");
        page
    }
}
