//! Addresses that a client chooses: the one that it dialled, where a service has no endpoints, and those of the host that it
//! names, where the service's hostname is a wildcard.
//!
//! The client, or the owner of the name, decides where the connection goes. So it must lead out of the mesh: neither to the proxy
//! itself nor to a workload or service whose own policies would be passed by.

use std::net::{IpAddr, SocketAddr};

use super::choose::Picked;
use super::hop::{Choice, NextHop, Resolve};
use super::refusal::{Refusal, unknown};
use crate::service::Service;
use crate::workload::{Protocol, Workload};
use crate::{ServiceKey, Snapshot};

/// The prefix of a hostname that stands for all names below a domain.
const WILDCARD: &str = "*.";

/// Refuses the address that a client dialled where the service does not list it, or where it is none outside of the proxy's pod.
pub(super) fn original(
    snapshot: &Snapshot,
    source: &Workload,
    service: &Service,
    address: IpAddr,
) -> Result<(), Refusal> {
    let network = &source.network;
    let names_any = !service.addresses.is_empty() || !service.ranges.is_empty();
    if names_any && !service.lists(network, address) {
        return Err(Refusal::NotListed {
            service: service.key.clone(),
            address,
        });
    }
    let there = meant(address);
    let what = match there != address && owner(snapshot, source, there).is_some() {
        true => Some(TRANSLATED),
        false => reserved(source, address),
    };
    match what {
        // The author of an entry may mean a link-local address, or that of a cloud's metadata. A range says no such thing.
        Some(LINK_LOCAL | OF_METADATA) if service.lists_exactly(network, address) => Ok(()),
        Some(what) => Err(Refusal::Reserved {
            service: service.key.clone(),
            address,
            what,
        }),
        None => Ok(()),
    }
}

const TRANSLATED: &str = "an address that is translated into the mesh";
const LINK_LOCAL: &str = "a link-local address";
const OF_METADATA: &str = "the address of a cloud's metadata";

/// True for addresses of AWS and Google Cloud over IPv6 that give metadata or credentials. Those over IPv4 are link-local.
fn is_metadata(address: IpAddr) -> bool {
    let segments = match address {
        IpAddr::V4(_) => return false,
        IpAddr::V6(ip) => ip.segments(),
    };
    matches!(segments, [0xfd00, 0xec2, ..] | [0xfd20, 0xce, ..])
}

/// The kind of an address that no place outside of the proxy's own pod has.
fn reserved(source: &Workload, address: IpAddr) -> Option<&'static str> {
    let address = meant(address);
    if source.addresses.contains(&address) {
        return Some("the proxy's own address");
    }
    if is_metadata(address) {
        return Some(OF_METADATA);
    }
    let is_link_local = match address {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    match is_link_local {
        true => Some(LINK_LOCAL),
        false => own_machine(source, address),
    }
}

/// The kind of an address that leads a proxy to its own machine, or to nobody in particular. A waypoint dials from its own pod, whose
/// loopback has the pages of its operators, so it sends nothing there. `source` is the proxy.
///
/// A link-local address is none of these: the author of an entry may mean that of a cloud's metadata.
pub fn own_machine(source: &Workload, address: IpAddr) -> Option<&'static str> {
    let address = meant(address);
    // A proxy whose own address is on loopback belongs to a mesh on loopback, where the other addresses are other workloads'.
    let on_loopback = || source.addresses.iter().any(IpAddr::is_loopback);
    if address.is_loopback() && !on_loopback() {
        return Some("a loopback address");
    }
    let is_nobodys = match address {
        // All of 0.0.0.0/8 is "this network" (RFC 1122 §3.2.1.3).
        IpAddr::V4(ip) => ip.octets()[0] == 0,
        IpAddr::V6(ip) => ip.is_unspecified(),
    };
    if is_nobodys {
        return Some("an unspecified address");
    }
    let is_broadcast = matches!(address, IpAddr::V4(ip) if ip.is_broadcast());
    (address.is_multicast() || is_broadcast).then_some("an address of many")
}

/// The address of IPv4 that one of IPv6 stands for: by mapping, or for a translator with the well-known prefix (RFC 6052 §2.1). Others
/// stay.
pub(super) fn meant(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(ip) => match ip.segments() {
            [0x64, 0xff9b, 0, 0, 0, 0, ..] => {
                let [.., a, b, c, d] = ip.octets();
                IpAddr::from([a, b, c, d])
            }
            _ => IpAddr::V6(ip),
        },
        ip => ip,
    }
}

impl Resolve {
    /// True if the hostname is a wildcard: the client names the host.
    pub fn is_wildcard(&self) -> bool {
        is_wildcard(&self.hostname)
    }

    /// Admits a host that a client names, in lower case and without a dot at its end. The name has still to be looked up.
    ///
    /// # Errors
    /// [`Refusal::NotCovered`] if the wildcard does not stand for the host, and [`Refusal::HostOfAnother`] if another service of
    /// the same namespace does more exactly: its policies would be passed by.
    pub fn admit(&self, snapshot: &Snapshot, host: &str) -> Result<(), Refusal> {
        let suffix = self.hostname.strip_prefix('*').unwrap_or_default();
        let covers = !suffix.is_empty() && host.len() > suffix.len() && host.ends_with(suffix);
        if !covers {
            return Err(Refusal::NotCovered {
                wildcard: self.hostname.clone(),
                host: host.to_owned(),
            });
        }
        let namespace = &self.workload.namespace;
        let closer = host
            .match_indices('.')
            .map(|(dot, _)| format!("*{}", &host[dot..]))
            .take_while(|wildcard| **wildcard != *self.hostname);
        for name in std::iter::once(host.to_owned()).chain(closer) {
            let key = ServiceKey::new(&**namespace, name);
            if snapshot.service_by_key(&key).is_some() {
                return Err(Refusal::HostOfAnother {
                    host: host.to_owned(),
                    service: key,
                });
            }
        }
        Ok(())
    }

    /// Admits an address of the hostname for a proxy that dials from its own pod, as a waypoint does. `source` is that proxy. The
    /// owner of the name decides which address it has, and must not lead the proxy to its own machine or link.
    ///
    /// # Errors
    /// [`Refusal::ReservedEndpoint`].
    pub fn admit_address(&self, source: &Workload, address: IpAddr) -> Result<(), Refusal> {
        let address = address.to_canonical();
        let Some(what) = reserved(source, address) else {
            return Ok(());
        };
        let target = match &self.service {
            Some(service) => format!("service {}", service.key),
            None => format!("workload {}", self.workload.uid),
        };
        Err(Refusal::ReservedEndpoint {
            target,
            endpoint: self.hostname.to_string(),
            address,
            what,
        })
    }

    /// The way to this address of a host that a client names and [`Resolve::admit`] has admitted. `source` and `avoid` are those
    /// of [`super::outbound`].
    ///
    /// # Errors
    /// [`Refusal::ReservedHost`] and [`Refusal::HostInMesh`].
    pub fn to_host(
        &self,
        snapshot: &Snapshot,
        source: &Workload,
        (host, address): (&str, IpAddr),
        avoid: &dyn Fn(&Workload) -> bool,
    ) -> Result<Choice, Refusal> {
        let address = address.to_canonical();
        if let Some(what) = reserved(source, address) {
            return Err(Refusal::ReservedHost {
                host: host.to_owned(),
                address,
                what,
            });
        }
        // A translator sends it there.
        let there = Some(meant(address)).filter(|there| *there != address);
        let owner_of = |address| owner(snapshot, source, address);
        if let Some(owner) = owner_of(address).or_else(|| there.and_then(owner_of)) {
            return Err(Refusal::HostInMesh {
                host: host.to_owned(),
                address,
                owner,
            });
        }
        for address in std::iter::once(address).chain(there) {
            unknown(snapshot.wants_address(&source.network, address))?;
        }
        let picked = Picked::only(&self.workload, self.port, avoid);
        Ok(picked.choice(NextHop::Plain {
            workload: self.workload.clone(),
            service: self.service.clone(),
            target: SocketAddr::new(address, self.port),
        }))
    }
}

/// True if a hostname stands for all names below a domain.
pub fn is_wildcard(hostname: &str) -> bool {
    hostname.starts_with(WILDCARD)
}

/// The workload or service of the mesh that has an address.
fn owner(snapshot: &Snapshot, source: &Workload, address: IpAddr) -> Option<String> {
    let (network, namespace) = (&source.network, &source.namespace);
    if let Some(found) = snapshot.workload(network, address)
        && (found.protocol == Protocol::Hbone || found.waypoint.is_some())
    {
        return Some(format!("workload {}", found.uid));
    }
    if snapshot.is_cluster_ip(network, address) {
        return Some("a Kubernetes Service".to_owned());
    }
    let service = snapshot.service_exactly(namespace, network, address)?;
    let is_meant = service.is_virtual_at(address) || service.waypoints().next().is_some();
    is_meant.then(|| format!("service {}", service.key))
}
