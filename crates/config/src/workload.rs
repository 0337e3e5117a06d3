//! A workload as WDS describes it. The serialized form is the one that ztunnel dumps and `istioctl` reads.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use lateen_balance::Place;
use lateen_policy::written;
use lateen_proto::workload as proto;
use lateen_types::{Identity, Strng, WorkloadUid};
use serde::{Serialize, Serializer};

use crate::gateway::GatewayAddress;
use crate::port_map::PortMap;
use crate::{Rejection, ServiceKey, wire};

/// One workload: a pod, a virtual machine, an external endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Workload {
    /// Its addresses; none if it is reached by name or through a gateway.
    #[serde(rename = "workloadIps")]
    pub addresses: Vec<IpAddr>,
    /// What traffic addressed to the workload itself, not to a service, passes first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waypoint: Option<GatewayAddress>,
    /// What traffic from other networks passes first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_gateway: Option<GatewayAddress>,
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
    #[serde(skip_serializing_if = "Locality::is_unknown")]
    pub locality: Locality,
    /// The services that it serves, and on which ports.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", serialize_with = "keys")]
    pub services: BTreeMap<ServiceKey, Arc<[PortMap]>>,
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
    pub(crate) fn parse(wire: proto::Workload) -> Result<Self, Rejection> {
        if wire.uid.is_empty() {
            return Err(Rejection::Missing { field: "uid" });
        }
        let protocol = match wire::known("tunnel_protocol", wire.tunnel_protocol)? {
            proto::TunnelProtocol::None => Protocol::Tcp,
            proto::TunnelProtocol::Hbone => Protocol::Hbone,
            proto::TunnelProtocol::LegacyIstioMtls => return Err(Rejection::LegacyMtls),
        };
        let identity = Identity::new(
            or_default(&wire.trust_domain, "cluster.local"),
            &wire.namespace,
            or_default(&wire.service_account, "default"),
        )?;
        let services = wire
            .services
            .iter()
            .map(|(key, list)| Ok((key.parse::<ServiceKey>()?, wire::ports(&list.ports)?.into())))
            .collect::<Result<_, Rejection>>()?;
        Ok(Self {
            addresses: wire
                .addresses
                .iter()
                .map(|bytes| wire::address("addresses", bytes))
                .collect::<Result<_, _>>()?,
            waypoint: wire
                .waypoint
                .as_ref()
                .map(|at| GatewayAddress::parse("waypoint", at))
                .transpose()?,
            network_gateway: wire
                .network_gateway
                .as_ref()
                .map(|at| GatewayAddress::parse("network_gateway", at))
                .transpose()?,
            protocol,
            network_mode: match wire::known("network_mode", wire.network_mode)? {
                proto::NetworkMode::Standard => NetworkMode::Standard,
                proto::NetworkMode::HostNetwork => NetworkMode::HostNetwork,
            },
            uid: WorkloadUid(wire.uid.into()),
            name: wire.name.into(),
            namespace: identity.namespace().clone(),
            identity,
            network: wire.network.into(),
            workload_name: wire.workload_name.into(),
            workload_type: match wire::known("workload_type", wire.workload_type)? {
                proto::WorkloadType::Deployment => "deployment",
                proto::WorkloadType::Cronjob => "cronjob",
                proto::WorkloadType::Pod => "pod",
                proto::WorkloadType::Job => "job",
            },
            canonical_name: wire.canonical_name.into(),
            canonical_revision: wire.canonical_revision.into(),
            hostname: wire.hostname.into(),
            node: wire.node.into(),
            native_tunnel: wire.native_tunnel,
            application_tunnel: wire
                .application_tunnel
                .as_ref()
                .map(ApplicationTunnel::parse)
                .transpose()?,
            authorization_policies: wire
                .authorization_policies
                .into_iter()
                .map(Strng::from)
                .collect(),
            status: match wire::known("status", wire.status)? {
                proto::WorkloadStatus::Healthy => Health::Healthy,
                proto::WorkloadStatus::Unhealthy => Health::Unhealthy,
            },
            cluster_id: or_default(&wire.cluster_id, "Kubernetes").into(),
            locality: wire.locality.map(Locality::from).unwrap_or_default(),
            services,
            capacity: wire.capacity.unwrap_or(1),
        })
    }

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

impl ApplicationTunnel {
    fn parse(wire: &proto::ApplicationTunnel) -> Result<Self, Rejection> {
        use proto::application_tunnel::Protocol;
        Ok(Self {
            protocol: match wire::known("application_tunnel.protocol", wire.protocol)? {
                Protocol::None => TunnelProtocol::None,
                Protocol::Proxy => TunnelProtocol::Proxy,
            },
            port: match wire::port_or_zero("application_tunnel.port", wire.port)? {
                0 => None,
                port => Some(port),
            },
        })
    }
}

impl Locality {
    fn is_unknown(&self) -> bool {
        self.region.is_empty() && self.zone.is_empty() && self.subzone.is_empty()
    }
}

impl From<proto::Locality> for Locality {
    fn from(wire: proto::Locality) -> Self {
        Self {
            region: wire.region.into(),
            zone: wire.zone.into(),
            subzone: wire.subzone.into(),
        }
    }
}

fn or_default<'a>(text: &'a str, default: &'a str) -> &'a str {
    if text.is_empty() { default } else { text }
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

fn keys<S: Serializer>(
    services: &BTreeMap<ServiceKey, Arc<[PortMap]>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(services.keys())
}
