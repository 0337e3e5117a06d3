//! A workload as WDS describes it. The serialized form is the one that ztunnel dumps and `istioctl` reads.

use std::net::IpAddr;
use std::sync::Arc;

use lateen_balance::Place;
use lateen_policy::written;
use lateen_types::{Identity, Strng, WorkloadUid};
use serde::{Serialize, Serializer};

use crate::ServiceKey;
use crate::gateway::GatewayAddress;
use crate::port_map::PortMap;

/// One workload: a pod, a virtual machine, an external endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Workload {
    /// Its addresses; none if it is reached by name or through a gateway.
    #[serde(rename = "workloadIps")]
    pub addresses: Vec<IpAddr>,
    /// What traffic addressed to the workload itself, not to a service, passes first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waypoint: Option<Arc<GatewayAddress>>,
    /// What traffic from other networks passes first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_gateway: Option<Arc<GatewayAddress>>,
    /// How it takes connections.
    pub protocol: Protocol,
    /// Whether its addresses are its own.
    pub network_mode: NetworkMode,
    /// Its name across clusters, and its xDS name.
    pub uid: WorkloadUid,
    /// Its name, for a pod the pod's.
    pub name: Strng,
    /// Its namespace; the identity has the same.
    pub namespace: Strng,
    /// Who it is.
    #[serde(flatten, serialize_with = "identity_parts")]
    pub identity: Identity,
    /// The network that its addresses belong to.
    #[serde(skip_serializing_if = "is_empty")]
    pub network: Strng,
    /// The name of what runs it, such as a Deployment.
    #[serde(skip_serializing_if = "is_empty")]
    pub workload_name: Strng,
    /// What runs it: `deployment`, `cronjob`, `pod` or `job`.
    pub workload_type: &'static str,
    /// The service that telemetry counts it to.
    #[serde(skip_serializing_if = "is_empty")]
    pub canonical_name: Strng,
    /// The revision of that service.
    #[serde(skip_serializing_if = "is_empty")]
    pub canonical_revision: Strng,
    /// To be resolved by the client when there are no addresses.
    #[serde(skip_serializing_if = "is_empty")]
    pub hostname: Strng,
    /// The node that it runs on.
    #[serde(skip_serializing_if = "is_empty")]
    pub node: Strng,
    /// It terminates its tunnels itself.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub native_tunnel: bool,
    /// How it wants tunnelled connections handed over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub application_tunnel: Option<ApplicationTunnel>,
    /// The policies that select it, by xDS name; wider ones apply by their scope. Serialized as their authors wrote them.
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "as_written")]
    pub authorization_policies: Vec<Strng>,
    /// Whether it should be sent connections.
    pub status: Health,
    /// Its cluster.
    pub cluster_id: Strng,
    /// Where it runs.
    #[serde(skip_serializing_if = "is_unknown")]
    pub locality: Arc<Locality>,
    /// The services that it serves, and on which ports.
    #[serde(skip_serializing_if = "ServedPorts::is_empty")]
    pub services: ServedPorts,
    /// Relative weight as an endpoint; 0 takes it out of the draw.
    pub capacity: u32,
}

fn as_written<S: Serializer>(names: &[Strng], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(names.iter().map(|name| written(name)))
}

impl Workload {
    /// Whether it comes of a pod's object (`CLUSTER//Pod/NAMESPACE/NAME`), which is hard to forge.
    pub fn is_pod(&self) -> bool {
        let after_cluster = self.uid.as_str().split_once('/');
        after_cluster.is_some_and(|(_, rest)| rest.starts_with("/Pod/"))
    }

    /// Whether the application believes a PROXY protocol header on this port. Only the proxy may write one: whoever else
    /// reaches the port says itself who it is.
    pub fn believes_headers_at(&self, port: u16) -> bool {
        self.application_tunnel.as_ref().is_some_and(|tunnel| {
            tunnel.protocol == TunnelProtocol::Proxy && tunnel.port.is_none_or(|own| own == port)
        })
    }
}

/// The services that a workload serves, each with the ports on which it says that it does. They are in the order of their keys.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServedPorts(pub(crate) Box<[(ServiceKey, Arc<[PortMap]>)]>);

impl ServedPorts {
    /// Returns whether the workload serves no service.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the keys of the services, in their order.
    pub fn keys(&self) -> impl Iterator<Item = &ServiceKey> {
        self.0.iter().map(|(key, _)| key)
    }

    /// Returns the ports of a service, if the workload serves it.
    pub fn get(&self, service: &ServiceKey) -> Option<&Arc<[PortMap]>> {
        self.entry(service).map(|(_, ports)| ports)
    }

    /// Returns whether the workload serves this service.
    pub fn contains_key(&self, service: &ServiceKey) -> bool {
        self.entry(service).is_some()
    }

    /// Returns the key and the ports of a service, if the workload serves it.
    pub(crate) fn entry(&self, service: &ServiceKey) -> Option<&(ServiceKey, Arc<[PortMap]>)> {
        let at = self.0.binary_search_by(|(key, _)| key.cmp(service)).ok()?;
        self.0.get(at)
    }
}

impl Serialize for ServedPorts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.keys())
    }
}

/// How a workload takes connections.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize)]
pub enum Protocol {
    /// Plain TCP.
    #[default]
    #[serde(rename = "TCP")]
    Tcp,
    /// HTTP/2 CONNECT over mutual TLS.
    #[serde(rename = "HBONE")]
    Hbone,
}

/// Whether a workload's addresses are its own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub enum NetworkMode {
    /// They are.
    #[default]
    Standard,
    /// They are the node's: the workload is never found by address.
    HostNetwork,
}

/// Whether a workload should be sent connections.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub enum Health {
    /// It should.
    #[default]
    Healthy,
    /// It should not, unless its service says otherwise.
    Unhealthy,
}

/// Where a workload runs; empty parts are unknown.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Locality {
    /// Cloud region.
    pub region: Strng,
    /// Zone within the region.
    pub zone: Strng,
    /// Part of the zone.
    pub subzone: Strng,
}

/// How a workload wants tunnelled connections handed over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ApplicationTunnel {
    /// What goes before the bytes.
    pub protocol: TunnelProtocol,
    /// The port that takes all of them; `None`: the one that was asked for.
    pub port: Option<u16>,
}

/// What goes before the bytes of a connection that is handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum TunnelProtocol {
    /// Nothing.
    #[serde(rename = "NONE")]
    None,
    /// A PROXY protocol header with the original addresses.
    #[serde(rename = "PROXY")]
    Proxy,
}

impl Workload {
    /// Where it is, for ranking endpoints.
    pub fn place(&self) -> Place<'_> {
        Place {
            region: &self.locality.region,
            zone: &self.locality.zone,
            subzone: &self.locality.subzone,
            node: &self.node,
            cluster: &self.cluster_id,
            network: &self.network,
        }
    }

    /// The port on which it serves a service's port, if it says so. A mapping without target means the same port.
    pub fn target_port(&self, service: &ServiceKey, port: u16) -> Option<u16> {
        target_port(self.services.get(service)?, port)
    }
}

pub(crate) fn target_port(ports: &[PortMap], port: u16) -> Option<u16> {
    let map = ports.iter().find(|map| map.service == port)?;
    Some(if map.target == 0 {
        map.service
    } else {
        map.target
    })
}

fn is_unknown(at: &Locality) -> bool {
    at.region.is_empty() && at.zone.is_empty() && at.subzone.is_empty()
}

fn is_empty(text: &Strng) -> bool {
    text.is_empty()
}

fn identity_parts<S: Serializer>(identity: &Identity, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map([
        ("trustDomain", &**identity.trust_domain()),
        ("serviceAccount", &**identity.service_account()),
    ])
}
