//! Workloads and services of a document.

use std::collections::BTreeMap;
use std::net::IpAddr;

use bytes::Bytes;
use ipnet::IpNet;
use lateen_proto::workload as proto;
use serde::de::Error;
use serde::{Deserialize, Deserializer};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Workload {
    #[serde(default)]
    workload_ips: Vec<IpAddr>,
    waypoint: Option<Gateway>,
    network_gateway: Option<Gateway>,
    #[serde(default)]
    protocol: Protocol,
    #[serde(default)]
    network_mode: NetworkMode,
    uid: String,
    #[serde(default)]
    name: String,
    namespace: String,
    #[serde(default)]
    trust_domain: String,
    #[serde(default)]
    service_account: String,
    #[serde(default)]
    network: String,
    #[serde(default)]
    workload_name: String,
    #[serde(default)]
    workload_type: WorkloadType,
    #[serde(default)]
    canonical_name: String,
    #[serde(default)]
    canonical_revision: String,
    #[serde(default)]
    hostname: String,
    #[serde(default)]
    node: String,
    #[serde(default)]
    native_tunnel: bool,
    application_tunnel: Option<ApplicationTunnel>,
    #[serde(default)]
    authorization_policies: Vec<String>,
    #[serde(default)]
    status: Health,
    #[serde(default)]
    cluster_id: String,
    #[serde(default)]
    locality: Locality,
    #[serde(default)]
    services: BTreeMap<String, BTreeMap<u16, u16>>,
    capacity: Option<u32>,
}

#[derive(Deserialize, Default)]
enum Protocol {
    #[default]
    #[serde(rename = "TCP")]
    Tcp,
    #[serde(rename = "HBONE")]
    Hbone,
}

#[derive(Deserialize, Default)]
enum NetworkMode {
    #[default]
    Standard,
    HostNetwork,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "lowercase")]
enum WorkloadType {
    #[default]
    Deployment,
    Cronjob,
    Pod,
    Job,
}

#[derive(Deserialize, Default)]
enum Health {
    #[default]
    Healthy,
    Unhealthy,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ApplicationTunnel {
    protocol: TunnelProtocol,
    port: Option<u16>,
}

#[derive(Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum TunnelProtocol {
    None,
    Proxy,
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
struct Locality {
    region: String,
    zone: String,
    subzone: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Gateway {
    destination: Destination,
    hbone_mtls_port: u16,
}

/// `network/address` or `namespace/hostname`.
struct Destination(proto::gateway_address::Destination);

impl<'de> Deserialize<'de> for Destination {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use proto::gateway_address::Destination;
        let text = String::deserialize(deserializer)?;
        if let Some(at) = network_address(&text) {
            return Ok(Self(Destination::Address(at)));
        }
        let (namespace, hostname) = text.split_once('/').ok_or_else(|| {
            D::Error::custom(format!(
                "{text:?} is neither NETWORK/ADDRESS nor NAMESPACE/HOSTNAME"
            ))
        })?;
        Ok(Self(Destination::Hostname(proto::NamespacedHostname {
            namespace: namespace.to_owned(),
            hostname: hostname.to_owned(),
        })))
    }
}

/// `network/address`.
struct Vip(proto::NetworkAddress);

impl<'de> Deserialize<'de> for Vip {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let at = network_address(&text);
        at.map(Self)
            .ok_or_else(|| D::Error::custom(format!("{text:?} is not NETWORK/ADDRESS")))
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Service {
    name: String,
    namespace: String,
    hostname: String,
    #[serde(default)]
    vips: Vec<Vip>,
    #[serde(default)]
    cidr_vips: Vec<Range>,
    #[serde(default)]
    ports: BTreeMap<u16, u16>,
    /// As in a dump; they follow from the workloads.
    #[serde(default, rename = "endpoints")]
    _endpoints: yaml_serde::Value,
    #[serde(default)]
    subject_alt_names: Vec<String>,
    waypoint: Option<Gateway>,
    #[serde(default)]
    weighted_waypoints: Vec<Weighted>,
    load_balancer: Option<LoadBalancer>,
    ip_families: Option<Families>,
    #[serde(default)]
    canonical: bool,
    #[serde(default)]
    visibility: Visibility,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Range {
    network: String,
    cidr: IpNet,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Weighted {
    destination: Gateway,
    weight: u32,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct LoadBalancer {
    #[serde(default)]
    routing_preferences: Vec<Scope>,
    mode: Mode,
    #[serde(default)]
    health_policy: HealthPolicy,
}

#[derive(Deserialize)]
enum Scope {
    Region,
    Zone,
    Subzone,
    Node,
    Cluster,
    Network,
}

#[derive(Deserialize)]
enum Mode {
    Standard,
    Strict,
    Failover,
    Passthrough,
}

#[derive(Deserialize, Default)]
enum HealthPolicy {
    #[default]
    OnlyHealthy,
    AllowAll,
}

#[derive(Deserialize)]
enum Families {
    Dual,
    IPv4,
    IPv6,
}

#[derive(Deserialize, Default)]
enum Visibility {
    #[default]
    Public,
    Namespace,
}

impl Workload {
    pub(super) fn named(self) -> (String, proto::Address) {
        let workload = proto::Workload {
            uid: self.uid,
            name: self.name,
            namespace: self.namespace,
            addresses: self.workload_ips.into_iter().map(bytes_of).collect(),
            hostname: self.hostname,
            network: self.network,
            tunnel_protocol: match self.protocol {
                Protocol::Tcp => proto::TunnelProtocol::None,
                Protocol::Hbone => proto::TunnelProtocol::Hbone,
            }
            .into(),
            trust_domain: self.trust_domain,
            service_account: self.service_account,
            waypoint: self.waypoint.map(Gateway::wire),
            network_gateway: self.network_gateway.map(Gateway::wire),
            node: self.node,
            canonical_name: self.canonical_name,
            canonical_revision: self.canonical_revision,
            workload_type: match self.workload_type {
                WorkloadType::Deployment => proto::WorkloadType::Deployment,
                WorkloadType::Cronjob => proto::WorkloadType::Cronjob,
                WorkloadType::Pod => proto::WorkloadType::Pod,
                WorkloadType::Job => proto::WorkloadType::Job,
            }
            .into(),
            workload_name: self.workload_name,
            native_tunnel: self.native_tunnel,
            application_tunnel: self
                .application_tunnel
                .map(|tunnel| proto::ApplicationTunnel {
                    protocol: match tunnel.protocol {
                        TunnelProtocol::None => proto::application_tunnel::Protocol::None,
                        TunnelProtocol::Proxy => proto::application_tunnel::Protocol::Proxy,
                    }
                    .into(),
                    port: tunnel.port.unwrap_or(0).into(),
                }),
            services: self
                .services
                .into_iter()
                .map(|(key, map)| (key, proto::PortList { ports: ports(map) }))
                .collect(),
            authorization_policies: self.authorization_policies,
            status: match self.status {
                Health::Healthy => proto::WorkloadStatus::Healthy,
                Health::Unhealthy => proto::WorkloadStatus::Unhealthy,
            }
            .into(),
            cluster_id: self.cluster_id,
            locality: Some(proto::Locality {
                region: self.locality.region,
                zone: self.locality.zone,
                subzone: self.locality.subzone,
            }),
            network_mode: match self.network_mode {
                NetworkMode::Standard => proto::NetworkMode::Standard,
                NetworkMode::HostNetwork => proto::NetworkMode::HostNetwork,
            }
            .into(),
            capacity: self.capacity,
            extensions: Vec::new(),
        };
        let address = proto::address::Type::Workload(workload.clone());
        let r#type = Some(address);
        (workload.uid, proto::Address { r#type })
    }
}

impl Service {
    pub(super) fn named(self) -> (String, proto::Address) {
        let ranges = self
            .cidr_vips
            .into_iter()
            .map(|range| proto::NetworkAddress {
                network: range.network,
                address: bytes_of(range.cidr.addr()),
                length: Some(range.cidr.prefix_len().into()),
            });
        let name = format!("{}/{}", self.namespace, self.hostname);
        let service = proto::Service {
            name: self.name,
            namespace: self.namespace,
            hostname: self.hostname,
            addresses: self
                .vips
                .into_iter()
                .map(|vip| vip.0)
                .chain(ranges)
                .collect(),
            ports: ports(self.ports),
            subject_alt_names: self.subject_alt_names,
            waypoint: self.waypoint.map(Gateway::wire),
            weighted_waypoints: self
                .weighted_waypoints
                .into_iter()
                .map(|weighted| proto::WeightedWaypoint {
                    destination: Some(weighted.destination.wire()),
                    weight: weighted.weight,
                })
                .collect(),
            load_balancing: self.load_balancer.map(LoadBalancer::wire),
            ip_families: match self.ip_families {
                None => proto::IpFamilies::Automatic,
                Some(Families::Dual) => proto::IpFamilies::Dual,
                Some(Families::IPv4) => proto::IpFamilies::Ipv4Only,
                Some(Families::IPv6) => proto::IpFamilies::Ipv6Only,
            }
            .into(),
            canonical: self.canonical,
            visibility: match self.visibility {
                Visibility::Public => proto::service::Visibility::Public,
                Visibility::Namespace => proto::service::Visibility::Namespace,
            }
            .into(),
            ..Default::default()
        };
        let r#type = Some(proto::address::Type::Service(service));
        (name, proto::Address { r#type })
    }
}

impl Gateway {
    fn wire(self) -> proto::GatewayAddress {
        proto::GatewayAddress {
            destination: Some(self.destination.0),
            hbone_mtls_port: self.hbone_mtls_port.into(),
        }
    }
}

impl LoadBalancer {
    fn wire(self) -> proto::LoadBalancing {
        use proto::load_balancing as lb;
        let scope = |scope: &Scope| match scope {
            Scope::Region => lb::Scope::Region.into(),
            Scope::Zone => lb::Scope::Zone.into(),
            Scope::Subzone => lb::Scope::Subzone.into(),
            Scope::Node => lb::Scope::Node.into(),
            Scope::Cluster => lb::Scope::Cluster.into(),
            Scope::Network => lb::Scope::Network.into(),
        };
        proto::LoadBalancing {
            routing_preference: self.routing_preferences.iter().map(scope).collect(),
            mode: match self.mode {
                Mode::Standard => lb::Mode::UnspecifiedMode,
                Mode::Strict => lb::Mode::Strict,
                Mode::Failover => lb::Mode::Failover,
                Mode::Passthrough => lb::Mode::Passthrough,
            }
            .into(),
            health_policy: match self.health_policy {
                HealthPolicy::OnlyHealthy => lb::HealthPolicy::OnlyHealthy,
                HealthPolicy::AllowAll => lb::HealthPolicy::AllowAll,
            }
            .into(),
        }
    }
}

pub(super) fn bytes_of(address: IpAddr) -> Bytes {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec().into(),
        IpAddr::V6(v6) => v6.octets().to_vec().into(),
    }
}

fn network_address(text: &str) -> Option<proto::NetworkAddress> {
    let (network, address) = text.split_once('/')?;
    Some(proto::NetworkAddress {
        network: network.to_owned(),
        address: bytes_of(address.parse().ok()?),
        length: None,
    })
}

fn ports(map: BTreeMap<u16, u16>) -> Vec<proto::Port> {
    map.into_iter()
        .map(|(service_port, target_port)| proto::Port {
            service_port: service_port.into(),
            target_port: target_port.into(),
            ..Default::default()
        })
        .collect()
}
