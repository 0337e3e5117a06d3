//! Every environment variable that the proxy reads, declared once: `docs/reference/environment.md` is made of this
//! table, and reading a variable that is not in it fails in every test that does.

use std::fmt;

/// One variable, or all that begin with one prefix if the name ends in `*`.
#[derive(Clone, Copy, Debug)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// What it is about.
    pub group: &'static str,
    /// Whose name it is.
    pub origin: Origin,
    /// What it may hold.
    pub form: Form,
    /// What holds without it.
    pub default: Fallback,
    /// What it does, in a sentence without its full stop.
    pub meaning: &'static str,
}

/// Whose name a variable has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// ztunnel reads the same, with the same meaning.
    Ztunnel,
    /// A convention beyond meshes, such as systemd's.
    Convention,
    /// Lateen's own.
    Lateen,
}

/// What a variable may hold; anything else ends the process with exit code 64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `true` or `false`.
    Boolean,
    /// A number between two bounds, both included.
    Number(u64, u64),
    /// Numbers with units, such as `1h30m`.
    Duration,
    /// What these words say.
    Words(&'static str),
}

/// What holds without a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallback {
    /// As if it held this.
    Is(&'static str),
    /// What these words say.
    Words(&'static str),
    /// Nothing: it must be given.
    Required,
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Boolean => f.write_str("`true` or `false`"),
            Self::Number(least, most) => write!(f, "number, {least} to {most}"),
            Self::Duration => f.write_str("duration"),
            Self::Words(words) => f.write_str(words),
        }
    }
}

impl fmt::Display for Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Is(value) => write!(f, "`{value}`"),
            Self::Words(words) => f.write_str(words),
            Self::Required => f.write_str("required"),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ztunnel => "ztunnel",
            Self::Convention => "convention",
            Self::Lateen => "Lateen",
        })
    }
}

/// Whether a variable is in the table.
pub(crate) fn is_declared(name: &str) -> bool {
    VARIABLES.iter().any(|variable| {
        variable.name == name
            || variable
                .name
                .strip_suffix('*')
                .is_some_and(|prefix| name.starts_with(prefix))
    })
}

/// Fails a debug build that reads a variable which nobody can look up.
pub(crate) fn expect_declared(name: &str) {
    debug_assert!(
        is_declared(name),
        "{name} is read and not declared: add it to VARIABLES in crates/proxy/src/settings/reference.rs and run `make reference`"
    );
}

use Fallback::{Is, Required};
use Form::{Boolean, Duration, Number};

const fn said(words: &'static str) -> Fallback {
    Fallback::Words(words)
}

const fn form(words: &'static str) -> Form {
    Form::Words(words)
}

const fn entry(
    origin: Origin,
    group: &'static str,
    name: &'static str,
    form: Form,
    default: Fallback,
    meaning: &'static str,
) -> Variable {
    Variable {
        name,
        group,
        origin,
        form,
        default,
        meaning,
    }
}

macro_rules! variables {
    ($($group:literal { $($name:literal $origin:ident, $form:expr, $default:expr, $meaning:literal;)* })*) => {
        /// All of them, in the order of the page.
        pub const VARIABLES: &[Variable] = &[$($(
            entry(Origin::$origin, $group, $name, $form, $default, $meaning),
        )*)*];
    };
}

variables! {
    "Who and where" {
        "NODE_NAME" Ztunnel, form("name"), Required,
            "the node that this proxy serves";
        "POD_NAME" Ztunnel, form("name"), said("empty"),
            "this proxy's own pod, as the control plane is told";
        "POD_NAMESPACE" Ztunnel, form("name"), Is("istio-system"),
            "the namespace of that pod";
        "INSTANCE_IP" Ztunnel, form("IP address"), Is("127.0.0.1"),
            "the address that the control plane knows this proxy by";
        "SERVICE_ACCOUNT" Ztunnel, form("name"), Is("ztunnel"),
            "the service account that this proxy runs as";
        "CLUSTER_ID" Ztunnel, form("name"), Is("Kubernetes"),
            "the cluster, as it is called in workloads' uids; `ISTIO_META_CLUSTER_ID` goes before it";
        "NETWORK" Ztunnel, form("name"), said("empty: the only one"),
            "the network that this node is on";
        "PROXY_MODE" Ztunnel, form("`shared`"), Is("shared"),
            "whom the proxy serves; this one serves all pods of a node and refuses anything else";
        "KUBERNETES_SERVICE_HOST" Ztunnel, form("set or not"), said("not set"),
            "set by Kubernetes in every pod: the defaults of `XDS_ADDRESS` and `CA_ADDRESS` follow it";
        "ISTIO_META_*" Ztunnel, form("text"), said("none"),
            "node metadata for the control plane, under the name behind the prefix";
        "ISTIO_META_CLUSTER_ID" Ztunnel, form("name"), said("`CLUSTER_ID`"),
            "the cluster, as it is called in workloads' uids";
    }
    "Waypoints" {
        "GATEWAY_NAME" Lateen, form("name"), said("required of a waypoint, which needs `POD_NAME`, `POD_NAMESPACE` and `SERVICE_ACCOUNT`, too"),
            "the Gateway that a waypoint serves, in the namespace of its pod; variables about pods, names and the node mean nothing to it";
        "LATEEN_HTTP_BUFFERS" Lateen, Number(1_048_576, 1_099_511_627_776), Is("134217728"),
            "bytes of requests and answers that a waypoint holds, in all: one client identity may hold a quarter of them, and a namespace a half. From half of its limit on a client is slowed down; beyond the limit HTTP/2 requests that bring more are ended. 4 KiB for each connection and each request are not counted. For every 2 KiB of its limit each may have one open request of HTTP/2, beside the first of each connection. For every 512 bytes each may have one open connection; a further one is refused with 503";
        "LATEEN_HTTP_IDLE_TIMEOUT" Lateen, Duration, Is("1h"),
            "how long a client's HTTP connection may have no request before a waypoint ends it; 0: for ever. A request under way is never ended for its silence";
        "LATEEN_HTTP_HEAD_TIMEOUT" Lateen, Duration, Is("60s"),
            "how long the head of a request may take from its first byte; then the client gets 408 over HTTP/1, and over HTTP/2 its connection ends; 0: for ever";
    }
    "Control plane" {
        "XDS_ADDRESS" Ztunnel, form("`https://HOST:PORT`"), said("`https://istiod.istio-system.svc:15012` in a pod of Kubernetes, else `https://localhost:15012`"),
            "the source of configuration; plain text is not spoken";
        "XDS_ROOT_CA" Ztunnel, form("file, PEM text or `SYSTEM`"), Is("./var/run/secrets/istio/root-cert.pem"),
            "the roots that its certificate must lead to";
        "ALT_XDS_HOSTNAME" Ztunnel, form("host name"), said("the host of `XDS_ADDRESS`"),
            "the name that its certificate must carry";
        "XDS_HEADER_*" Ztunnel, form("text"), said("none"),
            "a header of every request to it, by the name behind the prefix";
        "XDS_ON_DEMAND" Ztunnel, Boolean, Is("false"),
            "ask for workloads and services when they are needed rather than for all of them; needs `ISTIO_META_DNS_CAPTURE=false`, since the DNS proxy must know all names";
        "LOCAL_XDS_PATH" Ztunnel, form("file"), said("none"),
            "a document in place of a control plane, read again when it changes; not together with `XDS_ADDRESS`";
        "LOCAL_XDS" Ztunnel, form("YAML or JSON text"), said("none"),
            "the same document, written into the variable";
    }
    "Certificates and trust" {
        "CA_ADDRESS" Ztunnel, form("`https://HOST:PORT`"), said("as `XDS_ADDRESS`'s"),
            "the certificate authority";
        "CA_ROOT_CA" Ztunnel, form("file, PEM text or `SYSTEM`"), Is("./var/run/secrets/istio/root-cert.pem"),
            "the roots that its certificate must lead to";
        "ALT_CA_HOSTNAME" Ztunnel, form("host name"), said("the host of `CA_ADDRESS`"),
            "the name that its certificate must carry";
        "CA_HEADER_*" Ztunnel, form("text"), said("none"),
            "a header of every request to it, by the name behind the prefix";
        "AUTH_TOKEN" Ztunnel, form("file"), said("`./var/run/secrets/tokens/istio-token` if that is there"),
            "the file of the token that this proxy shows to both; read again for each use. A token itself is refused, since tokens are renewed";
        "SECRET_TTL" Ztunnel, Duration, Is("24h"),
            "the lifetime asked for certificates, which are renewed at half of it; the authority may give less";
        "TRUST_DOMAIN" Ztunnel, form("name"), Is("cluster.local"),
            "the mesh's trust domain";
        "TRUST_DOMAIN_ALIASES" Lateen, form("names, with commas between them"), said("none"),
            "trust domains whose peers are accepted as the mesh's own are";
        "CRL_PATH" Ztunnel, form("file"), said("none"),
            "revocation lists in PEM, read again when the file changes; without a readable file the proxy does not start";
        "COMPLIANCE_POLICY" Ztunnel, form("empty, `pqc` or `classical`"), said("empty"),
            "empty: X25519MLKEM768 with who knows it, X25519, P-256 or P-384 with others. `pqc`: only key exchanges that withstand quantum computers (X25519MLKEM768), with proxies and the control plane alike. `classical`: none of those";
        "FAKE_CA" Ztunnel, form("`false`"), Is("false"),
            "ztunnel's certificates for tests; `true` is refused";
    }
    "Pods" {
        "INPOD_UDS" Ztunnel, form("socket"), Is("/var/run/ztunnel/ztunnel.sock"),
            "where the node agent hands over pods (ZDS)";
        "LATEEN_LISTENER_STORE" Lateen, form("socket"), said("`listener-store.sock` beside `INPOD_UDS`"),
            "where the node agent keeps listeners while one proxy replaces another; nobody need be there";
        "INPOD_PORT_REUSE" Ztunnel, Boolean, Is("true"),
            "SO_REUSEPORT on listeners in pods, so that two proxies can listen during an upgrade";
        "PACKET_MARK" Ztunnel, Number(1, 4_294_967_295), Is("1337"),
            "the mark of the proxy's own packets, which redirection rules let pass";
        "IPV6_ENABLED" Ztunnel, Boolean, Is("true"),
            "listen on IPv6 too";
        "ENABLE_ORIG_SRC" Ztunnel, form("`true`"), Is("true"),
            "applications see the client's address; `false` is refused";
    }
    "Names" {
        "ISTIO_META_DNS_CAPTURE" Ztunnel, Boolean, Is("true"),
            "answer the DNS questions of captured pods";
        "ISTIO_META_DNS_PROXY_ADDR" Ztunnel, form("`localhost:PORT`, or a loopback address and a port"), Is("localhost:15053"),
            "where in each pod they are answered; `localhost` is both loopback addresses";
        "CLUSTER_DOMAIN" Ztunnel, form("DNS domain"), Is("cluster.local"),
            "the domain of the cluster's services";
        "PREFERED_SERVICE_NAMESPACE" Ztunnel, form("name"), said("none"),
            "the namespace whose service a name means after the client's own namespace and the service that speaks for the name everywhere; the spelling is ztunnel's";
        "LATEEN_RESOLV_CONF" Lateen, form("file"), Is("/etc/resolv.conf"),
            "the resolvers that all other questions go to, as resolv.conf(5) lists them";
    }
    "Threads" {
        "ZTUNNEL_WORKER_THREADS" Ztunnel, form("number from 0 to 1024 (0: one per core), or a percentage of the cores such as `50%`"), said("a quarter of the cores, at least 1; `ZTUNNEL_RESOURCE_CPU_LIMIT` if that is set"),
            "threads that carry connections";
        "ZTUNNEL_CPU_LIMIT" Ztunnel, Number(1, 4096), said("the cores of the machine"),
            "the cores that a percentage is of";
        "ZTUNNEL_RESOURCE_CPU_LIMIT" Ztunnel, form("CPU quantity such as `2`, `1.5` or `500m`"), said("none"),
            "the limit of the proxy's container, rounded up; goes before `ZTUNNEL_CPU_LIMIT`";
        "ZTUNNEL_RESOURCE_CPU_REQUEST" Ztunnel, form("CPU quantity"), said("none"),
            "the request of the proxy's container: without `ZTUNNEL_WORKER_THREADS` there are at least as many threads";
        "LATEEN_WORKER_SLICE" Lateen, form("duration from 100us to 100ms, or `0s`"), Is("100us"),
            "the scheduler's slice of worker threads and of those that accept connections and answer DNS, on Linux 6.12 and later: a shorter slice preempts other threads sooner after a wake-up, with the same share of the processor. A worker of the node proxy that mostly serves connections within its node has the system's slice, and `0s` leaves every slice to the system";
    }
    "Connections" {
        "CONNECTION_TERMINATION_DEADLINE" Ztunnel, Duration, Is("5s"),
            "the time that connections have to finish after SIGTERM";
        "TERMINATION_GRACE_PERIOD_SECONDS" Ztunnel, Number(1, 4_294_967_295), said("none"),
            "without `CONNECTION_TERMINATION_DEADLINE`: that deadline is this less 5 s (less 1 s up to 10)";
        "LATEEN_IDLE_TIMEOUT" Lateen, Duration, Is("0s"),
            "how long a connection may carry nothing in either direction before it is ended; 0: for ever";
        "LATEEN_HALF_CLOSE_TIMEOUT" Lateen, Duration, Is("1h"),
            "how long a connection may carry nothing after one side has ended its own direction; 0: for ever";
        "KEEPALIVE_ENABLED" Ztunnel, Boolean, Is("true"),
            "TCP keepalive on connections to applications and other proxies, and on those that a node proxy accepts. A waypoint has times of its own for connections that carry requests in plain text: an endpoint that vanished is given up after two minutes";
        "KEEPALIVE_TIME" Ztunnel, Duration, Is("180s"),
            "silence before the first probe (TCP_KEEPIDLE)";
        "KEEPALIVE_INTERVAL" Ztunnel, Duration, Is("180s"),
            "time between probes (TCP_KEEPINTVL)";
        "KEEPALIVE_RETRIES" Ztunnel, Number(1, 127), Is("9"),
            "probes without an answer before the connection is given up (TCP_KEEPCNT)";
        "USER_TIMEOUT_ENABLED" Ztunnel, Boolean, Is("false"),
            "TCP_USER_TIMEOUT, as long as keepalive would take";
    }
    "Tunnels" {
        "POOL_MAX_STREAMS_PER_CONNECTION" Ztunnel, Number(1, 65_535), Is("100"),
            "connections in one tunnel before another tunnel is opened";
        "POOL_UNUSED_RELEASE_TIMEOUT" Ztunnel, Duration, Is("5m"),
            "how long a tunnel without connections is kept";
        "LATEEN_SAME_NODE" Lateen, Boolean, Is("true"),
            "hand connections between two pods of this node over inside the process, once a tunnel between the two has proven both; otherwise they go through tunnels as all others do. A NetworkPolicy that later forbids such a connection ends it within 15 s, and not at its next packet: set `false` where 15 s is too long";
        "LATEEN_ACCELERATOR" Lateen, form("`off` or `splice`"), Is("off"),
            "`splice`: what two applications on this node send each other passes in the kernel without waking the proxy, once their connection was handed over (`LATEEN_SAME_NODE`) and has been used for a while; where the kernel or the proxy's privileges do not allow it, a line of the log says why";
        "HTTP2_STREAM_WINDOW_SIZE" Ztunnel, Number(65_535, 2_147_483_647), Is("1048576"),
            "bytes that one connection may have on its way before the far end waits, at most: it begins with 64 KiB and grows with what the path carries";
        "HTTP2_CONNECTION_WINDOW_SIZE" Ztunnel, Number(65_535, 2_147_483_647), Is("16777216"),
            "the same for one tunnel, at most: all tunnels of the process share 64 MiB, of which 8 MiB are for first windows of 256 KiB";
        "HTTP2_FRAME_SIZE" Ztunnel, Number(16_384, 16_777_215), Is("262144"),
            "most bytes of one frame";
    }
    "Logs and the process" {
        "RUST_LOG" Ztunnel, form("`error`, `warn`, `info`, `debug`, `trace` or `off`, alone or as `SCOPE=LEVEL`, with commas between them"), Is("info"),
            "what is logged; `access` is the scope of the access log; changed at run time by POST /logging";
        "LATEEN_ADMIN_SOCKET" Lateen, form("socket"), said("`admin.sock` beside `INPOD_UDS`"),
            "where every page for operators is served, `/config_dump`, `/logging` and `/quitquitquit` among them, to the proxy's own user and root alone";
        "LATEEN_ADMIN_LOOPBACK" Lateen, Boolean, Is("false"),
            "those pages on 127.0.0.1:15000 as well, as ztunnel has them: only for a proxy whose network namespace nobody shares";
        "LOG_FORMAT" Ztunnel, form("`json`, or anything else for text"), said("text"),
            "the form of log lines";
        "NOTIFY_SOCKET" Convention, form("socket"), said("none"),
            "set by systemd: told when the proxy serves and when it ends";
    }
    "Metrics" {
        "LATEEN_METRICS_IDLE" Lateen, Duration, Is("24h"),
            "how long the series of a label set are kept after its last connection or request has ended: `istio_tcp_*`, and a waypoint's metrics of requests; one that returns starts from 0, which Prometheus takes for a restart; 0: for ever";
        "LATEEN_METRICS_SERIES" Lateen, Number(1, 1_000_000), Is("10000"),
            "most label sets (without `response_flags`) of connections, and as many of requests; further ones are counted with both ends `unknown`, so sums stay right";
        "LATEEN_METRICS_DROP_LABELS" Lateen, form("names of labels, with commas between them"), said("none"),
            "labels that these series do without, such as `source_version,source_cluster`: series that differ in nothing else become one with their sum. `reporter` stays. Logs and reports keep everything";
    }
    "Reports to an OpenTelemetry collector" {
        "OTEL_EXPORTER_OTLP_ENDPOINT" Convention, form("`http://HOST:PORT` or `https://HOST:PORT`"), said("no reports"),
            "the collector's gRPC port; the access log goes there as log records, and sampled connections as spans";
        "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT" Convention, form("as above"), said("`OTEL_EXPORTER_OTLP_ENDPOINT`"),
            "another collector for log records";
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT" Convention, form("as above"), said("`OTEL_EXPORTER_OTLP_ENDPOINT`"),
            "another collector for spans";
        "OTEL_EXPORTER_OTLP_PROTOCOL" Convention, form("`grpc`"), Is("grpc"),
            "the protocol's transport";
        "OTEL_EXPORTER_OTLP_HEADERS" Convention, form("`NAME=VALUE,...`"), said("none"),
            "metadata of every request; values are percent-encoded and never shown";
        "OTEL_EXPORTER_OTLP_CERTIFICATE" Convention, form("a file"), said("the system's roots"),
            "who may vouch for a collector at an https address";
        "OTEL_LOGS_EXPORTER" Convention, form("`otlp` or `none`"), Is("otlp"),
            "`none`: no log records are sent";
        "OTEL_TRACES_EXPORTER" Convention, form("`otlp` or `none`"), Is("otlp"),
            "`none`: no spans are sent";
        "OTEL_TRACES_SAMPLER" Convention, form("`parentbased_traceidratio`, `parentbased_always_on`, `parentbased_always_off` or `always_off`"), Is("always_off"),
            "which connections get a span on each side; the source decides for both";
        "OTEL_TRACES_SAMPLER_ARG" Convention, form("a share from 0 to 1"), Is("1"),
            "with `parentbased_traceidratio`: the share of connections that are traced";
        "OTEL_SERVICE_NAME" Convention, form("a name"), said("`lateen-proxy`"),
            "`service.name` of log records and spans";
        "OTEL_RESOURCE_ATTRIBUTES" Convention, form("`KEY=VALUE,...`"), said("none"),
            "further attributes of this process; they win over its own";
    }
}
