//! What the environment tells the node role, under the names that ztunnel reads, so that one manifest fits both.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use lateen_netns::{DnsAt, Keepalive, Options};
use lateen_types::Strng;
use lateen_xds::Source;

use super::common::Common;
use super::environment::{Acceleration, DEFAULT_ZDS, Environment, Lookup, cores};
use super::error::SettingError;

/// Everything that `lateen-proxy node` can be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// What every role can be told.
    pub common: Common,
    /// A document in its place.
    pub local: Option<Source>,
    /// Ask it for workloads and services when they are needed, rather than for all of them.
    pub xds_on_demand: bool,
    /// The node agent's socket.
    pub zds_socket: PathBuf,
    /// The socket of the node agent's listener store; nobody need be there.
    pub listener_store_socket: PathBuf,
    /// Connections between two pods of this node do not go through their tunnel.
    pub same_node: bool,
    /// Whose bytes pass in the kernel alone.
    pub accelerator: Acceleration,
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

impl Settings {
    /// Reads the process's environment.
    pub fn from_environment() -> Result<Self, SettingError> {
        let mut settings = Self::read(&|name| std::env::var(name).ok(), cores())?;
        settings.common.add_prefixed();
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
        let ipv6 = env.ipv6()?;
        let node_name = text("NODE_NAME").ok_or_else(|| {
            env.bad(
                "NODE_NAME",
                "set it to the name of the node that this proxy serves",
            )
        })?;
        let common = Common::read(&env, cores, node_name.into(), "ztunnel")?;
        Ok(Self {
            common,
            xds_on_demand: env.on_demand()?,
            local: env.local_source()?,
            zds_socket: text("INPOD_UDS")
                .unwrap_or_else(|| DEFAULT_ZDS.to_owned())
                .into(),
            listener_store_socket: env
                .beside_the_agents("LATEEN_LISTENER_STORE", "listener-store.sock"),
            same_node: env.boolean("LATEEN_SAME_NODE", true)?,
            accelerator: env.accelerator()?,
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
        })
    }
}
