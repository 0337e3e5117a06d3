//! The control plane as the source of configuration: how it is reached, and how this proxy introduces itself.

use std::collections::BTreeMap;

use lateen_config::Kinds;
use lateen_tls::{ControlConnector, Roots};
use lateen_xds::{Channels, Node, Settings};

use super::error::StartError;
use crate::settings::Common;

/// The channel to the control plane, and what is asked of it.
///
/// # Errors
/// The address or a header cannot be used.
pub(super) fn source(
    settings: &Common,
    node: Node,
    kinds: Kinds,
) -> Result<(Channels, Settings), StartError> {
    let address = settings
        .xds
        .address
        .parse()
        .map_err(|_| StartError::Address(settings.xds.address.clone()))?;
    let connector = ControlConnector::new(
        Roots::parse(&settings.xds.roots),
        settings.xds.alternative_name.as_deref(),
    )
    .complying(settings.compliance);
    let headers = settings
        .xds
        .headers
        .iter()
        .map(|(name, value)| match (name.parse(), value.parse()) {
            (Ok(key), Ok(value)) => Ok((key, value)),
            _ => Err(StartError::Header(name.to_ascii_uppercase())),
        })
        .collect::<Result<_, _>>()?;
    let wanted = Settings {
        node,
        token: settings.token.clone(),
        cluster_id: settings.cluster_id.to_string(),
        headers,
        kinds,
        max_message: Settings::MAX_MESSAGE,
    };
    Ok((lateen_xds::channel(address, connector), wanted))
}

/// This proxy in a role, as Istio's control plane calls it.
pub(super) fn node_of(settings: &Common, role: &'static str) -> Node {
    let (pod_name, pod_namespace) = &settings.pod;
    let metadata: BTreeMap<_, _> = settings
        .metadata
        .iter()
        .map(|(key, value)| (key.clone(), serde_json::Value::String(value.clone())))
        .collect();
    Node {
        role,
        instance_ip: settings.instance_ip.to_string(),
        pod_name: pod_name.to_string(),
        pod_namespace: pod_namespace.to_string(),
        node_name: settings.node_name.to_string(),
        metadata,
    }
}
