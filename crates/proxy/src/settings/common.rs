//! What every role reads: the control plane, certificates, threads, tunnels, logs and metrics.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use lateen_tls::Compliance;
use lateen_types::Strng;

use super::environment::Environment;
use super::error::SettingError;
use super::reports::Reports;

/// Where to find a gRPC service of the control plane, and how to know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authority {
    /// `https://host:port`.
    pub address: String,
    /// Roots to trust: a file, PEM text, or SYSTEM.
    pub roots: String,
    /// The name that the server's certificate must carry, if it is not the address's host.
    pub alternative_name: Option<String>,
    /// Additional metadata of every request.
    pub headers: Vec<(String, String)>,
}

/// What every role can be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Common {
    /// The node that this proxy serves.
    pub node_name: Strng,
    /// This proxy's own pod: name and namespace.
    pub pod: (Strng, Strng),
    /// The address that the control plane sees.
    pub instance_ip: IpAddr,
    /// The service account that this proxy runs as.
    pub service_account: Strng,
    /// The cluster.
    pub cluster_id: Strng,
    /// The network that this node is on; empty for the only one.
    pub network: Strng,
    /// The trust domain of this mesh.
    pub trust_domain: Strng,
    /// Trust domains whose peers are accepted as those of this mesh are.
    pub trust_domain_aliases: Vec<Strng>,
    /// The file of revocation lists; it is read again when it changes.
    pub revocation_lists: Option<PathBuf>,
    /// Which cryptography is allowed.
    pub compliance: Compliance,
    /// The configuration source.
    pub xds: Authority,
    /// The certificate authority.
    pub ca: Authority,
    /// The file of the bearer token; it is read again for each use.
    pub token: Option<PathBuf>,
    /// Requested life of certificates.
    pub certificate_ttl: Duration,
    /// Worker threads, at least one.
    pub workers: usize,
    /// The scheduler's slice of a worker thread; `None` leaves it to the system.
    pub worker_slice: Option<Duration>,
    /// Time that connections have to finish after SIGTERM.
    pub termination_deadline: Duration,
    /// Streams of one tunnel before another one is opened.
    pub streams_per_tunnel: usize,
    /// Idle time after which a tunnel is closed.
    pub idle_tunnel: Duration,
    /// When a connection that stands still is ended.
    pub limits: lateen_relay::Limits,
    /// HTTP/2 credit of one stream, in bytes.
    pub stream_window: u32,
    /// Most HTTP/2 credit of one tunnel, in bytes; all tunnels of the process share 64 MiB of it.
    pub tunnel_window: u32,
    /// HTTP/2 frame size, in bytes.
    pub frame_size: u32,
    /// `/metrics`.
    pub stats: SocketAddr,
    /// `/healthz/ready`.
    pub readiness: SocketAddr,
    /// Whether logs are JSON.
    pub log_json: bool,
    /// Where connections are reported to.
    pub reports: Reports,
    /// Series of connections on the metrics page.
    pub series: lateen_telemetry::SeriesOptions,
    /// Levels of the log, as RUST_LOG has them.
    pub log_levels: String,
    /// Node metadata for the control plane.
    pub metadata: BTreeMap<String, String>,
}

const DEFAULT_ROOTS: &str = "./var/run/secrets/istio/root-cert.pem";

impl Common {
    /// Reads the variables on a machine with `cores` logical cores. The role has read the name of its node, and its own name
    /// stands in for a service account that is not given.
    pub(super) fn read(
        env: &Environment<'_>,
        cores: usize,
        node_name: Strng,
        account: &str,
    ) -> Result<Self, SettingError> {
        let text = |name: &str| env.get(name);
        let any = env.any_address()?;
        let control_plane = if text("KUBERNETES_SERVICE_HOST").is_some() {
            "https://istiod.istio-system.svc:15012"
        } else {
            "https://localhost:15012"
        };
        let authority =
            |address: &str, roots: &str, name: &str| -> Result<Authority, SettingError> {
                Ok(Authority {
                    address: env.https(address, control_plane)?,
                    roots: text(roots).unwrap_or_else(|| DEFAULT_ROOTS.to_owned()),
                    alternative_name: text(name),
                    headers: Vec::new(),
                })
            };
        Ok(Self {
            node_name,
            pod: (
                text("POD_NAME").unwrap_or_default().into(),
                text("POD_NAMESPACE")
                    .unwrap_or_else(|| "istio-system".to_owned())
                    .into(),
            ),
            instance_ip: env.parsed(
                "INSTANCE_IP",
                Ipv4Addr::LOCALHOST.into(),
                "use the IP address of this proxy",
            )?,
            service_account: text("SERVICE_ACCOUNT")
                .unwrap_or_else(|| account.to_owned())
                .into(),
            cluster_id: text("ISTIO_META_CLUSTER_ID")
                .or_else(|| text("CLUSTER_ID"))
                .unwrap_or_else(|| "Kubernetes".to_owned())
                .into(),
            network: text("NETWORK").unwrap_or_default().into(),
            trust_domain: text("TRUST_DOMAIN")
                .unwrap_or_else(|| "cluster.local".to_owned())
                .into(),
            trust_domain_aliases: env.trust_domain_aliases()?,
            revocation_lists: text("CRL_PATH").map(PathBuf::from),
            compliance: env.compliance()?,
            xds: authority("XDS_ADDRESS", "XDS_ROOT_CA", "ALT_XDS_HOSTNAME")?,
            ca: authority("CA_ADDRESS", "CA_ROOT_CA", "ALT_CA_HOSTNAME")?,
            token: env.token()?,
            certificate_ttl: env.duration("SECRET_TTL", Duration::from_secs(24 * 60 * 60))?,
            workers: env.workers(cores)?,
            worker_slice: env.worker_slice()?,
            termination_deadline: env.termination_deadline()?,
            streams_per_tunnel: env.within(
                "POOL_MAX_STREAMS_PER_CONNECTION",
                100,
                1..=u64::from(u16::MAX),
            )? as usize,
            idle_tunnel: env
                .duration("POOL_UNUSED_RELEASE_TIMEOUT", Duration::from_secs(5 * 60))?,
            limits: lateen_relay::Limits::new(
                // Applications keep connections that say nothing for days; only their owner knows which may go.
                Some(env.duration("LATEEN_IDLE_TIMEOUT", Duration::ZERO)?),
                // After one side has ended, a pause of an hour is no pause: its socket has leaked.
                Some(env.duration("LATEEN_HALF_CLOSE_TIMEOUT", Duration::from_secs(60 * 60))?),
            ),
            // RFC 9113 §6.5.2 and §6.9.1 bound all three.
            stream_window: env.within(
                "HTTP2_STREAM_WINDOW_SIZE",
                1 << 20,
                65_535..=(1 << 31) - 1,
            )? as u32,
            tunnel_window: env.within(
                "HTTP2_CONNECTION_WINDOW_SIZE",
                16 << 20,
                65_535..=(1 << 31) - 1,
            )? as u32,
            frame_size: env.within("HTTP2_FRAME_SIZE", 256 << 10, 16_384..=(1 << 24) - 1)? as u32,
            stats: (any, 15020).into(),
            readiness: (any, 15021).into(),
            log_json: text("LOG_FORMAT").is_some_and(|format| format == "json"),
            reports: env.reports()?,
            series: env.series()?,
            log_levels: text("RUST_LOG").unwrap_or_default(),
            metadata: BTreeMap::new(),
        })
    }

    /// Adds what variables with a prefix hold: node metadata and headers.
    pub(super) fn add_prefixed(&mut self) {
        let headers = |prefix: &str| {
            std::env::vars()
                .filter_map(|(key, value)| {
                    Some((key.strip_prefix(prefix)?.to_ascii_lowercase(), value))
                })
                .collect()
        };
        self.metadata = std::env::vars()
            .filter_map(|(key, value)| Some((key.strip_prefix("ISTIO_META_")?.to_owned(), value)))
            .collect();
        self.xds.headers = headers("XDS_HEADER_");
        self.ca.headers = headers("CA_HEADER_");
    }
}
