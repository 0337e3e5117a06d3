//! The registry of a proxy: every metric's name, and the handles to count with.

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use lateen_types::Strng;
use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeLabelSet, EncodeLabelValue, EncodeMetric, NoLabelSet,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::{Registry, Unit};

use crate::bounded::SeriesOptions;
use crate::claims::Claims;
use crate::dns::DnsMetrics;
use crate::export::Export;
use crate::labels::{Labels, Reporter};
use crate::process::Process;
use crate::request::Requests;
use crate::traffic::Traffic;

/// What this binary is.
#[derive(Clone, Debug)]
pub struct BuildInfo {
    /// The role's name among Istio's components.
    pub component: &'static str,
    /// The version.
    pub tag: &'static str,
}

/// Why a connection to the control plane ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub enum XdsTermination {
    /// It could not be opened.
    ConnectionError,
    /// The stream failed.
    Error,
    /// The server asked for a new one.
    Reconnect,
    /// The server closed it in order.
    Complete,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TerminationLabels {
    reason: XdsTermination,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DryRunLabels {
    policy: String,
    decision: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TypeLabels {
    url: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BuildLabels {
    component: &'static str,
    tag: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReporterLabels {
    reporter: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TunnelLabels {
    reporter: &'static str,
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabels {
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabels {
    state: &'static str,
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
    /// Declares everything; `loads` answers the connections that each worker has.
    pub fn new(build: &BuildInfo, loads: impl Fn() -> Vec<usize> + Send + Sync + 'static) -> Self {
        Self::with(build, SeriesOptions::default(), loads)
    }

    /// The same with series of connections as `series` says.
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

    /// Declares the count of connections that were reset because there was no descriptor for them; `read` answers it.
    pub fn watch_shed(&self, read: impl Fn() -> u64 + Send + Sync + 'static) {
        self.registry
            .lock()
            .register_collector(Box::new(Shed(Box::new(read))));
    }

    /// Declares what tunnels have of the buffers that are set apart for them; `read` answers direction, bytes, and bytes at most.
    pub fn watch_buffers(&self, read: impl Fn() -> [Buffers; 2] + Send + Sync + 'static) {
        self.registry
            .lock()
            .register_collector(Box::new(BufferBudgets(Box::new(read))));
    }

    /// The counters of the DNS proxy.
    pub fn dns(&self) -> &DnsMetrics {
        &self.dns
    }

    /// Counts a connection that is tried at another endpoint.
    pub fn connect_retried(&self) {
        self.retries.inc();
    }

    /// Counts a connection between two pods of this node that does not go through their tunnel.
    pub fn handed_over(&self) {
        self.handed_over.inc();
    }

    /// Counts a connection whose bytes pass in the kernel from now on.
    pub fn joined(&self) {
        self.joined.inc();
    }

    /// The gauge of endpoints that are left out; every worker adds its own.
    pub fn endpoints_ejected(&self) -> Gauge {
        self.ejected.clone()
    }

    /// Counts what a policy in dry run would have done; `decision` is `allow` or `deny`.
    pub fn dry_run(&self, policy: &str, decision: &'static str) {
        let labels = DryRunLabels {
            policy: policy.to_owned(),
            decision,
        };
        self.dry_run.get_or_create(&labels).inc();
    }

    /// Sets how long this process has worked for each pod in service: namespace, name, time. A pod that is not named
    /// has no series any more.
    pub fn pods_used(&self, times: Vec<(Strng, Strng, Duration)>) {
        *self.used.0.lock() = times;
    }

    /// The counters of connections.
    pub fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// The counters of requests, which are declared with the first call: a proxy that knows no request shows none.
    pub fn requests(&self) -> &Arc<Requests> {
        self.requests
            .get_or_init(|| Requests::register(self.series, &mut self.registry.lock()))
    }

    /// What peers said about themselves.
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

    /// Has the ends of connections reported to `exporter`, too; the first one stays.
    pub fn export_to(&self, exporter: Box<dyn Export>) {
        // Nobody sets a second one.
        let _ = self.exporter.set(exporter);
    }

    /// Counters of reports: those that a collector took, and those that were lost.
    pub fn reports(&self) -> (Counter, Counter) {
        self.reports.clone()
    }

    pub(crate) fn exporter(&self) -> Option<&dyn Export> {
        self.exporter.get().map(AsRef::as_ref)
    }

    /// Writes the access log's line for a connection that was refused before both of its ends were known.
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

    /// Counts a connection that was refused before it counted as opened; what is not known of its ends is unknown.
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

    /// Counts a tunnel whose peer TLS has proven to this side; the peer may not accept ours yet. It has to be counted as
    /// closed in the end.
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

    /// Notes when the first of the certificates expires, if there are any.
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

    /// Everything in the text format of OpenMetrics, which Prometheus reads too. Series that expire do so here.
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

/// What each pod in service costs this process.
#[derive(Debug, Default)]
struct PodTimes(Mutex<Vec<(Strng, Strng, Duration)>>);

impl Collector for PodTimes {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let mut family = encoder.encode_descriptor(
            "lateen_pod_cpu",
            "Time that workers spent on a pod's connections; the series goes with the pod",
            Some(&Unit::Seconds),
            MetricType::Counter,
        )?;
        for (namespace, pod, time) in self.0.lock().iter() {
            family
                .encode_family(&[("namespace", namespace.as_ref()), ("pod", pod.as_ref())])?
                .encode_counter::<NoLabelSet, _, f64>(&time.as_secs_f64(), None)?;
        }
        Ok(())
    }
}

struct WorkerLoads(Box<dyn Fn() -> Vec<usize> + Send + Sync>);

impl fmt::Debug for WorkerLoads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WorkerLoads").field(&self.0()).finish()
    }
}

impl Collector for WorkerLoads {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let mut family = encoder.encode_descriptor(
            "lateen_worker_connections",
            "Connections that each worker has",
            None,
            MetricType::Gauge,
        )?;
        for (worker, load) in self.0().into_iter().enumerate() {
            family
                .encode_family(&[("worker", worker.to_string())])?
                .encode_gauge(&(load as i64))?;
        }
        Ok(())
    }
}

/// What tunnels have of the buffers for one direction.
#[derive(Clone, Copy, Debug)]
pub struct Buffers {
    /// `receive` or `send`, as the proxy sees it.
    pub direction: &'static str,
    /// Bytes that tunnels have now.
    pub lent: usize,
    /// Bytes that all tunnels may have together.
    pub limit: usize,
}

/// What tunnels have, read anew at each scrape.
struct BufferBudgets(Box<dyn Fn() -> [Buffers; 2] + Send + Sync>);

impl fmt::Debug for BufferBudgets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BufferBudgets").field(&self.0()).finish()
    }
}

impl Collector for BufferBudgets {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let budgets = self.0();
        for (name, help, value) in [
            (
                "lateen_tunnel_buffer_bytes",
                "Bytes that tunnels may hold for streams that are not read as fast as they are sent, by direction",
                (|b: &Buffers| b.lent) as fn(&Buffers) -> usize,
            ),
            (
                "lateen_tunnel_buffer_limit_bytes",
                "Bytes that all tunnels together may hold so, by direction",
                |b| b.limit,
            ),
        ] {
            let mut encoder = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for budget in &budgets {
                let gauge = ConstGauge::new(value(budget) as u64);
                gauge.encode(encoder.encode_family(&[("direction", budget.direction)])?)?;
            }
        }
        Ok(())
    }
}

struct Shed(Box<dyn Fn() -> u64 + Send + Sync>);

impl fmt::Debug for Shed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Shed").field(&self.0()).finish()
    }
}

impl Collector for Shed {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let counter = ConstCounter::new(self.0());
        let encoder = encoder.encode_descriptor(
            "lateen_connections_shed",
            "Connections that were reset because their pod or the proxy had no descriptor left",
            None,
            MetricType::Counter,
        )?;
        counter.encode(encoder)
    }
}
