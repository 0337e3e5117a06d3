//! Settings of the process from environment variables. The names are those that ztunnel reads, so that one manifest fits both.
//!
//! Every value is checked here once; a bad one ends the process before it has touched anything.

mod environment;
mod error;
pub mod reference;
mod reports;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use lateen_netns::{DnsAt, Keepalive, Options};
use lateen_tls::Compliance;
use lateen_types::Strng;
use lateen_xds::Source;

pub(crate) use environment::parse_duration;
pub use environment::{Acceleration, Lookup};
use environment::{DEFAULT_ZDS, Environment};
pub use error::SettingError;
pub use reports::Reports;

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

/// Everything that `lateen-proxy node` can be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
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
    /// A document in its place.
    pub local: Option<Source>,
    /// Ask it for workloads and services when they are needed, rather than for all of them.
    pub xds_on_demand: bool,
    /// The certificate authority.
    pub ca: Authority,
    /// The file of the bearer token; it is read again for each use.
    pub token: Option<PathBuf>,
    /// Requested life of certificates.
    pub certificate_ttl: Duration,
    /// The node agent's socket.
    pub zds_socket: PathBuf,
    /// The socket of the node agent's listener keeper; nobody need be there.
    pub keeper_socket: PathBuf,
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
    /// Connections between two pods of this node do not go through their tunnel.
    pub same_node: bool,
    /// Whose bytes pass in the kernel alone.
    pub accelerator: Acceleration,
    /// When a connection that stands still is ended.
    pub limits: lateen_relay::Limits,
    /// HTTP/2 credit of one stream, in bytes.
    pub stream_window: u32,
    /// Most HTTP/2 credit of one tunnel, in bytes; all tunnels of the process share 64 MiB of it.
    pub tunnel_window: u32,
    /// HTTP/2 frame size, in bytes.
    pub frame_size: u32,
    /// Sockets in pods.
    pub sockets: SocketSettings,
    /// The cluster's domain, in lower case.
    pub cluster_domain: Strng,
    /// The namespace whose services a name means after the client's own and canonical ones.
    pub preferred_namespace: Option<Strng>,
    /// The list of resolvers, as resolv.conf(5) has it.
    pub resolvers: PathBuf,
    /// The socket of every page, `/config_dump`, `/logging` and `/quitquitquit` among them, for this user and root alone.
    pub admin_socket: PathBuf,
    /// The same for whoever reaches this address; nobody should but the proxy's own pod.
    pub admin: Option<SocketAddr>,
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

/// What sockets in pods are set up with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketSettings {
    /// The mark that redirection lets pass.
    pub mark: u32,
    /// Listen on IPv6 too.
    pub ipv6: bool,
    /// SO_REUSEPORT on listeners.
    pub reuse_port: bool,
    /// TCP keepalive.
    pub keepalive: Option<Keepalive>,
    /// TCP_USER_TIMEOUT as long as keepalive would take.
    pub user_timeout: bool,
    /// Where pods' DNS queries are answered, if they are.
    pub dns: Option<DnsAt>,
}

impl From<SocketSettings> for Options {
    fn from(settings: SocketSettings) -> Self {
        Self {
            mark: settings.mark,
            ipv6: settings.ipv6,
            reuse_port: settings.reuse_port,
            keepalive: settings.keepalive,
            user_timeout: settings.user_timeout,
            dns: settings.dns,
        }
    }
}

const DEFAULT_ROOTS: &str = "./var/run/secrets/istio/root-cert.pem";

impl Settings {
    /// Reads the process's environment.
    pub fn from_environment() -> Result<Self, SettingError> {
        let metadata = std::env::vars()
            .filter_map(|(key, value)| Some((key.strip_prefix("ISTIO_META_")?.to_owned(), value)))
            .collect();
        let headers = |prefix: &str| {
            std::env::vars()
                .filter_map(|(key, value)| {
                    Some((key.strip_prefix(prefix)?.to_ascii_lowercase(), value))
                })
                .collect()
        };
        let mut settings = Self::read(&|name| std::env::var(name).ok(), cores())?;
        settings.metadata = metadata;
        settings.xds.headers = headers("XDS_HEADER_");
        settings.ca.headers = headers("CA_HEADER_");
        Ok(settings)
    }

    /// Reads variables from `lookup` on a machine with `cores` logical cores.
    pub fn read(lookup: Lookup<'_>, cores: usize) -> Result<Self, SettingError> {
        let env = Environment { lookup };
        let text = |name: &str| env.get(name);
        if let Some(mode) = text("PROXY_MODE")
            && mode != "shared"
        {
            return Err(env.bad(
                "PROXY_MODE",
                "this proxy runs in shared mode only: unset it or say shared",
            ));
        }
        env.refuse_what_is_missing()?;
        let ipv6 = env.boolean("IPV6_ENABLED", true)?;
        let any: IpAddr = if ipv6 {
            std::net::Ipv6Addr::UNSPECIFIED.into()
        } else {
            Ipv4Addr::UNSPECIFIED.into()
        };
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
            node_name: text("NODE_NAME")
                .ok_or_else(|| {
                    env.bad(
                        "NODE_NAME",
                        "set it to the name of the node that this proxy serves",
                    )
                })?
                .into(),
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
                .unwrap_or_else(|| "ztunnel".to_owned())
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
            xds_on_demand: env.on_demand()?,
            local: env.local_source()?,
            ca: authority("CA_ADDRESS", "CA_ROOT_CA", "ALT_CA_HOSTNAME")?,
            token: env.token()?,
            certificate_ttl: env.duration("SECRET_TTL", Duration::from_secs(24 * 60 * 60))?,
            zds_socket: text("INPOD_UDS")
                .unwrap_or_else(|| DEFAULT_ZDS.to_owned())
                .into(),
            keeper_socket: env.beside_the_agents("LATEEN_KEEPER", "keeper.sock"),
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
            same_node: env.boolean("LATEEN_SAME_NODE", true)?,
            accelerator: env.accelerator()?,
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
            sockets: SocketSettings {
                mark: env.within("PACKET_MARK", 0x539, 1..=u64::from(u32::MAX))? as u32,
                ipv6,
                reuse_port: env.boolean("INPOD_PORT_REUSE", true)?,
                keepalive: env.keepalive()?,
                user_timeout: env.boolean("USER_TIMEOUT_ENABLED", false)?,
                dns: env.dns()?,
            },
            cluster_domain: env.domain("CLUSTER_DOMAIN", "cluster.local")?,
            // ztunnel's spelling.
            preferred_namespace: text("PREFERED_SERVICE_NAMESPACE").map(Into::into),
            resolvers: text("LATEEN_RESOLV_CONF")
                .unwrap_or_else(|| "/etc/resolv.conf".to_owned())
                .into(),
            admin_socket: env.beside_the_agents("LATEEN_ADMIN_SOCKET", "admin.sock"),
            admin: env
                .boolean("LATEEN_ADMIN_LOOPBACK", false)?
                .then_some(SocketAddr::from((Ipv4Addr::LOCALHOST, 15000))),
            stats: (any, 15020).into(),
            readiness: (any, 15021).into(),
            log_json: text("LOG_FORMAT").is_some_and(|format| format == "json"),
            reports: env.reports()?,
            series: env.series()?,
            log_levels: text("RUST_LOG").unwrap_or_default(),
            metadata: BTreeMap::new(),
        })
    }
}

/// systemd's socket for what it wants to be told, sd_notify(3); its name may hold any bytes.
pub(crate) fn notify_socket() -> Option<OsString> {
    const VARIABLE: &str = "NOTIFY_SOCKET";
    reference::expect_declared(VARIABLE);
    std::env::var_os(VARIABLE)
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(test)]
mod tests;
