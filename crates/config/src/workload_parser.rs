//! Parser of a workload's wire resource.

use std::collections::BTreeMap;
use std::sync::Arc;

use lateen_proto::workload as proto;
use lateen_types::{Identity, Strng, WorkloadUid};

use crate::gateway::GatewayAddress;
use crate::siblings::Siblings;
use crate::workload::{
    ApplicationTunnel, Health, Locality, NetworkMode, Protocol, ServedPorts, TunnelProtocol,
    Workload,
};
use crate::{Rejection, ServiceKey, wire};

impl Workload {
    /// Parses the workload of this name. It shares `name`, and with its siblings what is equal.
    pub(crate) fn parse(
        name: &Strng,
        wire: proto::Workload,
        siblings: &Siblings,
    ) -> Result<Self, Rejection> {
        if wire.uid.is_empty() {
            return Err(Rejection::Missing { field: "uid" });
        }
        if wire.uid != **name {
            return Err(Rejection::OtherName { inner: wire.uid });
        }
        let protocol = match wire::known("tunnel_protocol", wire.tunnel_protocol)? {
            proto::TunnelProtocol::None => Protocol::Tcp,
            proto::TunnelProtocol::Hbone => Protocol::Hbone,
            proto::TunnelProtocol::LegacyIstioMtls => return Err(Rejection::LegacyMtls),
        };
        let parts = [
            or_default(&wire.trust_domain, "cluster.local"),
            &wire.namespace,
            or_default(&wire.service_account, "default"),
        ];
        let identity = match siblings.identity(parts) {
            Some(identity) => identity,
            None => Identity::new(parts[0], parts[1], parts[2])?,
        };
        let mut addresses = Vec::with_capacity(wire.addresses.len());
        for bytes in &wire.addresses {
            addresses.push(wire::address("addresses", bytes)?);
        }
        let services = ServedPorts::parse(&wire.services, siblings)?;
        let text = |field: fn(&Self) -> &Strng, text: &str| siblings.text(field, text);
        Ok(Self {
            addresses,
            waypoint: wire
                .waypoint
                .as_ref()
                .map(|at| GatewayAddress::parse("waypoint", at))
                .transpose()?
                .map(|at| siblings.value(|sibling| sibling.waypoint.as_ref(), at)),
            network_gateway: wire
                .network_gateway
                .as_ref()
                .map(|at| GatewayAddress::parse("network_gateway", at))
                .transpose()?
                .map(|at| siblings.value(|sibling| sibling.network_gateway.as_ref(), at)),
            protocol,
            network_mode: match wire::known("network_mode", wire.network_mode)? {
                proto::NetworkMode::Standard => NetworkMode::Standard,
                proto::NetworkMode::HostNetwork => NetworkMode::HostNetwork,
            },
            uid: WorkloadUid(name.clone()),
            name: wire.name.into(),
            namespace: identity.namespace().clone(),
            identity,
            network: text(|sibling| &sibling.network, &wire.network),
            workload_name: text(|sibling| &sibling.workload_name, &wire.workload_name),
            workload_type: match wire::known("workload_type", wire.workload_type)? {
                proto::WorkloadType::Deployment => "deployment",
                proto::WorkloadType::Cronjob => "cronjob",
                proto::WorkloadType::Pod => "pod",
                proto::WorkloadType::Job => "job",
            },
            canonical_name: text(|sibling| &sibling.canonical_name, &wire.canonical_name),
            canonical_revision: text(
                |sibling| &sibling.canonical_revision,
                &wire.canonical_revision,
            ),
            hostname: text(|sibling| &sibling.hostname, &wire.hostname),
            node: text(|sibling| &sibling.node, &wire.node),
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
            cluster_id: text(
                |sibling| &sibling.cluster_id,
                or_default(&wire.cluster_id, "Kubernetes"),
            ),
            locality: siblings.value(
                |sibling| Some(&sibling.locality),
                wire.locality.map(Locality::from).unwrap_or_default(),
            ),
            services,
            capacity: wire.capacity.unwrap_or(1),
        })
    }
}

impl ServedPorts {
    fn parse(
        wire: &BTreeMap<String, proto::PortList>,
        siblings: &Siblings,
    ) -> Result<Self, Rejection> {
        let mut served = Vec::with_capacity(wire.len());
        for (name, list) in wire {
            let key: ServiceKey = name.parse()?;
            let ports = wire::ports(&list.ports)?;
            let (key, known) = siblings
                .find(|sibling| sibling.services.entry(&key))
                .unwrap_or_else(|| (key, Arc::default()));
            let shared = if *known == *ports {
                known
            } else {
                ports.into()
            };
            served.push((key, shared));
        }
        // Keys are not in the order of their names: "-" comes before "/".
        served.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        Ok(Self(served.into()))
    }
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
