//! What the environment tells a waypoint, beside what every role reads.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use lateen_netns::Keepalive;
use lateen_types::{Identity, NamespacedName, WorkloadUid};

use super::common::Common;
use super::environment::{Environment, Lookup, cores};
use super::error::SettingError;

/// Everything that `lateen-proxy waypoint` can be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaypointSettings {
    /// What every role can be told.
    pub common: Common,
    /// `namespace/name` of the Gateway that this proxy serves.
    pub gateway: NamespacedName,
    /// The identity that this proxy proves.
    pub identity: Identity,
    /// The uid of this proxy's pod in the mesh.
    pub uid: WorkloadUid,
    /// Bytes of requests and answers that connections of all clients may hold.
    pub http_buffers: usize,
    /// The time that a client's connection may have no request; `None`: no limit.
    pub http_idle: Option<Duration>,
    /// The time for a request's head, from its first byte; the longest duration: no limit.
    pub http_head: Duration,
    /// TCP keepalive.
    pub keepalive: Option<Keepalive>,
    /// TCP_USER_TIMEOUT as long as keepalive would take.
    pub user_timeout: bool,
    /// The listener for tunnels.
    pub hbone: SocketAddr,
    /// The pages for operators.
    pub admin: SocketAddr,
}

impl WaypointSettings {
    /// Reads the process's environment.
    ///
    /// # Errors
    /// A variable is missing or cannot be used.
    pub fn from_environment() -> Result<Self, SettingError> {
        let mut settings = Self::read(&|name| std::env::var(name).ok(), cores())?;
        settings.common.add_prefixed();
        Ok(settings)
    }

    /// Reads variables from `lookup` on a machine with `cores` logical cores.
    ///
    /// # Errors
    /// A variable is missing or cannot be used.
    pub fn read(lookup: Lookup<'_>, cores: usize) -> Result<Self, SettingError> {
        let env = Environment { lookup };
        let needed = |variable: &str, what: &str| {
            env.get(variable)
                .ok_or_else(|| env.bad(variable, &format!("set it to {what}")))
        };
        let gateway = needed(
            "GATEWAY_NAME",
            "the name of the Gateway that this proxy serves",
        )?;
        let pod = needed("POD_NAME", "the name of this proxy's pod")?;
        let namespace = needed("POD_NAMESPACE", "the namespace of this proxy's pod")?;
        let account = needed("SERVICE_ACCOUNT", "the service account of this proxy's pod")?;
        let node_name = env.get("NODE_NAME").unwrap_or_default();
        let common = Common::read(&env, cores, node_name.into(), &account)?;
        let identity = Identity::new(&common.trust_domain, &namespace, &account)
            .map_err(|error| env.bad("SERVICE_ACCOUNT", &format!("use a name: {error}")))?;
        let uid = format!("{}//Pod/{namespace}/{pod}", common.cluster_id);
        Ok(Self {
            gateway: NamespacedName::new(namespace, gateway),
            identity,
            uid: WorkloadUid(uid.into()),
            http_buffers: env.within("LATEEN_HTTP_BUFFERS", 128 << 20, 1 << 20..=1 << 40)? as usize,
            http_idle: Some(env.duration("LATEEN_HTTP_IDLE_TIMEOUT", Duration::from_secs(3600))?)
                .filter(|idle| !idle.is_zero()),
            http_head: Some(env.duration("LATEEN_HTTP_HEAD_TIMEOUT", Duration::from_secs(60))?)
                .filter(|head| !head.is_zero())
                .unwrap_or(Duration::MAX),
            keepalive: env.keepalive()?,
            user_timeout: env.boolean("USER_TIMEOUT_ENABLED", false)?,
            hbone: (env.any_address()?, lateen_types::ports::HBONE).into(),
            admin: SocketAddr::from((Ipv4Addr::LOCALHOST, 15000)),
            common,
        })
    }
}
