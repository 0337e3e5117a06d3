//! A service as WDS describes it. The serialized form is the one that ztunnel dumps and `istioctl` reads, but for the
//! endpoints, which are not the service's own: see [`crate::Dump`].

use std::collections::HashSet;
use std::net::IpAddr;

use lateen_balance::{Mode, Preference, Scope};
use lateen_proto::workload as proto;
use lateen_types::{Identity, Strng};
use serde::{Serialize, Serializer};

use crate::gateway::{GatewayAddress, NetworkAddress, NetworkRange};
use crate::workload::Health;
use crate::{Rejection, ServiceKey, wire};

/// One service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Service {
    /// Namespace and hostname; its xDS name.
    #[serde(skip)]
    pub key: ServiceKey,
    /// Its name.
    pub name: Strng,
    /// Its namespace.
    pub namespace: Strng,
    /// Its fully qualified hostname.
    pub hostname: Strng,
    /// Its virtual addresses; none for a headless service.
    #[serde(rename = "vips")]
    pub addresses: Vec<NetworkAddress>,
    /// Ranges of virtual addresses.
    #[serde(rename = "cidrVips", skip_serializing_if = "Vec::is_empty")]
    pub ranges: Vec<NetworkRange>,
    /// Its ports.
    #[serde(serialize_with = "port_map")]
    pub ports: Vec<ServicePort>,
    /// Identities that may serve it besides those of its workloads. Names that are no identities are left out: they
    /// could never match a certificate.
    pub subject_alt_names: Vec<Identity>,
    /// What its traffic passes first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waypoint: Option<GatewayAddress>,
    /// Several waypoints that share its connections by weight; they take the place of `waypoint`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub weighted_waypoints: Vec<WeightedWaypoint>,
    /// How its endpoints are chosen; `None`: any healthy one.
    #[serde(rename = "loadBalancer", skip_serializing_if = "Option::is_none")]
    pub load_balancing: Option<LoadBalancing>,
    /// The address families that it serves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip_families: Option<IpFamilies>,
    /// It owns the hostname when several namespaces declare it.
    pub canonical: bool,
    /// When the ServiceEntry that it comes of was created, in seconds and nanoseconds since 1970; `None` for a Service,
    /// and where the control plane does not say.
    #[serde(skip)]
    pub entry_created: Option<(i64, i32)>,
    /// It comes of a Kubernetes Service, so its addresses are the cluster's and belong to nobody else: see
    /// [`is_kubernetes_service`].
    #[serde(skip)]
    pub is_kubernetes: bool,
    /// The addresses of its hostname are used one at a time: the first one takes all new connections. It comes of a
    /// ServiceEntry with resolution DNS_ROUND_ROBIN.
    #[serde(skip)]
    pub is_round_robin: bool,
    /// Which clients may use it.
    pub visibility: Visibility,
    /// Ingress gateways, too, are to pass its waypoint. A node proxy's traffic passes it anyway.
    #[serde(skip)]
    pub ingress_use_waypoint: bool,
}

/// A port of a service. A target of 0 means that only the endpoints know theirs (named ports).
pub type ServicePort = crate::port_map::PortMap;

/// A waypoint and its share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WeightedWaypoint {
    /// Where it is.
    pub destination: GatewayAddress,
    /// Relative weight.
    pub weight: u32,
}

/// How endpoints are chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadBalancing {
    /// By place.
    pub preference: Preference,
    /// By health.
    pub health: HealthPolicy,
}

/// Which endpoints are considered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub enum HealthPolicy {
    /// Those that are healthy.
    #[default]
    OnlyHealthy,
    /// All.
    AllowAll,
}

/// The address families that a service serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum IpFamilies {
    /// Both.
    Dual,
    /// IPv4 alone.
    IPv4,
    /// IPv6 alone.
    IPv6,
}

/// Which clients may use a service.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub enum Visibility {
    /// All.
    #[default]
    Public,
    /// Those of its namespace.
    Namespace,
}

impl Service {
    pub(crate) fn parse(wire: proto::Service) -> Result<Self, Rejection> {
        if wire.hostname.is_empty() {
            return Err(Rejection::Missing { field: "hostname" });
        }
        // A service's name is `namespace/hostname`, and is split at the first slash when it is removed.
        if wire.namespace.contains('/') {
            return Err(Rejection::NamespaceSlash {
                namespace: wire.namespace,
            });
        }
        let (addresses, ranges) = virtual_addresses(&wire.addresses)?;
        let is_kubernetes = is_kubernetes_service(&wire);
        let key = ServiceKey::new(wire.namespace, wire.hostname);
        Ok(Self {
            is_kubernetes,
            is_round_robin: wire.extensions.iter().any(|one| one.name == ROUND_ROBIN),
            name: wire.name.into(),
            namespace: key.namespace.clone(),
            hostname: key.name.clone(),
            key,
            addresses,
            ranges,
            ports: wire::ports(&wire.ports)?,
            subject_alt_names: wire
                .subject_alt_names
                .iter()
                .filter_map(|name| name.parse().ok())
                .collect(),
            waypoint: wire
                .waypoint
                .as_ref()
                .map(|at| GatewayAddress::parse("waypoint", at))
                .transpose()?,
            weighted_waypoints: wire
                .weighted_waypoints
                .iter()
                .map(WeightedWaypoint::parse)
                .collect::<Result<_, _>>()?,
            load_balancing: wire
                .load_balancing
                .as_ref()
                .map(LoadBalancing::parse)
                .transpose()?,
            ip_families: match wire::known("ip_families", wire.ip_families)? {
                proto::IpFamilies::Automatic => None,
                proto::IpFamilies::Ipv4Only => Some(IpFamilies::IPv4),
                proto::IpFamilies::Ipv6Only => Some(IpFamilies::IPv6),
                proto::IpFamilies::Dual => Some(IpFamilies::Dual),
            },
            canonical: wire.canonical,
            entry_created: entry_created(&wire.extensions)?,
            visibility: match wire::known("visibility", wire.visibility)? {
                proto::service::Visibility::Public => Visibility::Public,
                proto::service::Visibility::Namespace => Visibility::Namespace,
            },
            ingress_use_waypoint: wire.ingress_use_waypoint,
        })
    }

    /// The port's mapping, if the service has it.
    pub fn port(&self, port: u16) -> Option<ServicePort> {
        self.ports.iter().copied().find(|map| map.service == port)
    }

    /// Whether clients of a namespace may use it.
    pub fn visible_to(&self, namespace: &str) -> bool {
        self.visibility == Visibility::Public || *self.namespace == *namespace
    }

    /// The waypoints that its traffic may be told to pass.
    pub fn waypoints(&self) -> impl Iterator<Item = &GatewayAddress> {
        let weighted = self.weighted_waypoints.iter();
        self.waypoint
            .iter()
            .chain(weighted.map(|waypoint| &waypoint.destination))
    }

    /// Whether nobody but the mesh can be meant by an address of it: the cluster's address of a Kubernetes service, or one that
    /// was chosen for an entry. What an entry's author names is an address of somewhere else.
    pub fn is_virtual_at(&self, address: IpAddr) -> bool {
        let chosen = match address {
            IpAddr::V4(ip) => ip.octets()[..2] == [240, 240],
            IpAddr::V6(ip) => ip.segments()[..3] == [0x2001, 2, 0],
        };
        chosen || self.is_kubernetes
    }

    /// True if it lists an address on a network, by itself or by a range.
    pub fn lists(&self, network: &str, address: IpAddr) -> bool {
        let in_range =
            |range: &NetworkRange| *range.network == *network && range.cidr.contains(&address);
        self.lists_exactly(network, address) || self.ranges.iter().any(in_range)
    }

    /// True if it lists this very address on a network.
    pub fn lists_exactly(&self, network: &str, address: IpAddr) -> bool {
        let mut addresses = self.addresses.iter();
        addresses.any(|at| *at.network == *network && at.address == address)
    }

    /// Whether it leaves the client's destination alone.
    pub fn is_passthrough(&self) -> bool {
        self.load_balancing
            .as_ref()
            .is_some_and(|lb| lb.preference.mode == Mode::Passthrough)
    }

    /// Whether an endpoint of this health is considered.
    pub fn takes(&self, health: Health) -> bool {
        health == Health::Healthy
            || self
                .load_balancing
                .as_ref()
                .is_some_and(|lb| lb.health == HealthPolicy::AllowAll)
    }
}

impl IpFamilies {
    /// Whether it holds the address's family.
    pub fn accepts(self, address: IpAddr) -> bool {
        match self {
            IpFamilies::Dual => true,
            IpFamilies::IPv4 => address.is_ipv4(),
            IpFamilies::IPv6 => address.is_ipv6(),
        }
    }
}

/// Returns whether a service was made from a Kubernetes Service and not from a ServiceEntry. No control plane says so in a
/// field of its own. Three things must hold, and the author of an entry can bring about the third alone:
///
/// - The control plane names no time at which an entry was created. Ours names one for each entry.
/// - It names address families. The API server gives each Service families; an entry has no such field, and neither istiod
///   nor our control plane sends families for one.
/// - The hostname is `NAME.NAMESPACE.svc.DOMAIN`.
///
/// A control plane that never sends families gets the more careful answer: nothing is a Kubernetes Service.
fn is_kubernetes_service(wire: &proto::Service) -> bool {
    let rest = wire.hostname.strip_prefix(&*wire.name);
    let rest = rest.and_then(|rest| rest.strip_prefix('.')?.strip_prefix(&*wire.namespace));
    rest.is_some_and(|rest| rest.starts_with(".svc."))
        && wire.ip_families != i32::from(proto::IpFamilies::Automatic)
        && !wire.extensions.iter().any(|one| one.name == ENTRY_CREATED)
}

/// What the control plane calls a ServiceEntry's time of creation; it is a `google.protobuf.Timestamp`.
const ENTRY_CREATED: &str = "lateen.entry-created";

/// The extension of a service whose ServiceEntry has resolution DNS_ROUND_ROBIN; it has no content.
const ROUND_ROBIN: &str = "lateen.dns-round-robin";

fn entry_created(extensions: &[proto::Extension]) -> Result<Option<(i64, i32)>, Rejection> {
    let Some(found) = extensions.iter().find(|one| one.name == ENTRY_CREATED) else {
        return Ok(None);
    };
    let unreadable = || Rejection::Extension {
        name: ENTRY_CREATED,
    };
    let config = found.config.as_ref().ok_or_else(unreadable)?;
    let at: prost_types::Timestamp =
        prost::Message::decode(config.value.as_slice()).map_err(|_| unreadable())?;
    Ok(Some((at.seconds, at.nanos)))
}

/// Splits addresses from ranges; a prefix of full length is an address.
fn virtual_addresses(
    wire: &[proto::NetworkAddress],
) -> Result<(Vec<NetworkAddress>, Vec<NetworkRange>), Rejection> {
    const FIELD: &str = "addresses";
    let (mut addresses, mut ranges) = (Vec::new(), Vec::new());
    // A range without what is somebody else's may come in tens of thousands of blocks.
    let (mut known_addresses, mut known_ranges) = (HashSet::new(), HashSet::new());
    for at in wire {
        let network: Strng = at.network.as_str().into();
        let address = wire::address(FIELD, &at.address)?;
        let full = 8 * at.address.len() as u32;
        match at.length {
            Some(length) if length != full => {
                let range = NetworkRange {
                    network,
                    cidr: wire::range(FIELD, &at.address, length)?.trunc(),
                };
                if !known_ranges.insert((range.network.clone(), range.cidr)) {
                    return Err(Rejection::DuplicateAddress {
                        address: format!("{}/{}", range.network, range.cidr),
                    });
                }
                ranges.push(range);
            }
            _ => {
                let at = NetworkAddress { network, address };
                if !known_addresses.insert((at.network.clone(), at.address)) {
                    return Err(Rejection::DuplicateAddress {
                        address: at.to_string(),
                    });
                }
                addresses.push(at);
            }
        }
    }
    Ok((addresses, ranges))
}

impl WeightedWaypoint {
    fn parse(wire: &proto::WeightedWaypoint) -> Result<Self, Rejection> {
        const FIELD: &str = "weighted_waypoints";
        let destination = wire
            .destination
            .as_ref()
            .ok_or(Rejection::Missing { field: FIELD })?;
        Ok(Self {
            destination: GatewayAddress::parse(FIELD, destination)?,
            weight: wire.weight,
        })
    }
}

impl LoadBalancing {
    fn parse(wire: &proto::LoadBalancing) -> Result<Self, Rejection> {
        use proto::load_balancing as lb;
        const SCOPE: &str = "load_balancing.routing_preference";
        let scopes = wire
            .routing_preference
            .iter()
            .map(|value| match wire::known(SCOPE, *value)? {
                lb::Scope::Region => Ok(Scope::Region),
                lb::Scope::Zone => Ok(Scope::Zone),
                lb::Scope::Subzone => Ok(Scope::Subzone),
                lb::Scope::Node => Ok(Scope::Node),
                lb::Scope::Cluster => Ok(Scope::Cluster),
                lb::Scope::Network => Ok(Scope::Network),
                lb::Scope::UnspecifiedScope => Err(Rejection::UnknownValue {
                    field: SCOPE,
                    value: *value,
                }),
            })
            .collect::<Result<_, _>>()?;
        let mode = match wire::known("load_balancing.mode", wire.mode)? {
            lb::Mode::UnspecifiedMode => Mode::Standard,
            lb::Mode::Strict => Mode::Strict,
            lb::Mode::Failover => Mode::Failover,
            lb::Mode::Passthrough => Mode::Passthrough,
        };
        let health = match wire::known("load_balancing.health_policy", wire.health_policy)? {
            lb::HealthPolicy::OnlyHealthy => HealthPolicy::OnlyHealthy,
            lb::HealthPolicy::AllowAll => HealthPolicy::AllowAll,
        };
        Ok(Self {
            preference: Preference { scopes, mode },
            health,
        })
    }
}

impl Serialize for LoadBalancing {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Flat<'a> {
            routing_preferences: &'a [Scope],
            mode: Mode,
            health_policy: HealthPolicy,
        }
        Flat {
            routing_preferences: &self.preference.scopes,
            mode: self.preference.mode,
            health_policy: self.health,
        }
        .serialize(serializer)
    }
}

pub(crate) fn port_map<S: Serializer>(
    ports: &[ServicePort],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(ports.iter().map(|map| (map.service, map.target)))
}
