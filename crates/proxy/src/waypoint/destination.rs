//! The destination that a CONNECT request selects: a service or a workload that is bound to this waypoint's Gateway.
//!
//! The request's authority alone selects it. A Host field of a request inside never does, so it cannot choose another
//! service's policies.

use std::borrow::Cow;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use lateen_config::l7::Standing;
use lateen_config::l7::Traffic;
use lateen_config::next_hop::is_wildcard;
use lateen_config::{PortProtocol, Service, ServiceKey, Workload};
use lateen_hbone::{Authority, Status};
use lateen_types::{NamespacedName, ports};

use super::own::Own;
use super::view::View;

/// The destination of a stream.
#[derive(Clone, Debug)]
pub(super) struct Destination {
    /// The address that was asked for; unspecified for a hostname.
    pub(super) address: SocketAddr,
    pub(super) target: Target,
    /// The protocol that the port's owner names.
    pub(super) protocol: PortProtocol,
    /// The client names the host in its ClientHello: the port's protocol is TLS, and the service's endpoint has a wildcard for a hostname.
    pub(super) names_host: bool,
}

/// A service or a workload.
#[derive(Clone, Debug)]
pub(super) enum Target {
    Service(Arc<Service>),
    Workload(Arc<Workload>),
}

impl Target {
    /// The service.
    pub(super) fn service(&self) -> Option<&Arc<Service>> {
        match self {
            Self::Service(service) => Some(service),
            Self::Workload(_) => None,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Service(service) => write!(f, "service {}", service.key),
            Self::Workload(workload) => write!(f, "workload {}", workload.uid),
        }
    }
}

/// Why a CONNECT request is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refused {
    /// No configuration yet.
    #[error(
        "the control plane has not named this waypoint's Gateway and own workload yet; nothing is let through until it has"
    )]
    NotConfigured,
    /// The accounts of the client count as many connections as they may.
    #[error(
        "too many connections: the client's identity, its namespace or all clients have as many as LATEEN_HTTP_BUFFERS allows; close idle connections, or raise it"
    )]
    TooManyConnections,
    /// Neither a service nor a workload.
    #[error("no service or workload is known at {0}; see whether the control plane is connected")]
    Unknown(String),
    /// Another waypoint's, or nobody's.
    #[error(
        "{target} is not bound to the Gateway {gateway}; label it istio.io/use-waypoint, or ask its own waypoint"
    )]
    Unbound {
        /// The service's key or the workload's uid.
        target: String,
        /// The Gateway of this waypoint.
        gateway: NamespacedName,
    },
    /// The Gateway's label says that it is not for such traffic.
    #[error(
        "the Gateway {gateway} takes no traffic for {kind}, so none for {target}; set its label istio.io/waypoint-for to {cure}"
    )]
    Traffic {
        /// The service's key or the workload's uid.
        target: String,
        /// What it is.
        kind: &'static str,
        /// The values of the label that help.
        cure: &'static str,
        /// The Gateway of this waypoint.
        gateway: NamespacedName,
    },
    /// The service has no such port.
    #[error("service {service} has no port {port}; ask for one of its ports")]
    UnknownPort {
        /// The service.
        service: ServiceKey,
        /// The port that was asked for.
        port: u16,
    },
    /// The service goes where the client wanted, and the request has no address.
    #[error(
        "service {0} has resolution NONE, so its connections go to the address that the client dialled; the request names none"
    )]
    NoAddress(ServiceKey),
    /// A port of the mesh's proxies.
    #[error("{0} is a proxy's own port; ask for the application's port")]
    OwnPort(SocketAddr),
}

impl Refused {
    /// The status that tells the peer. 503 lets it ask another waypoint, which may have heard of what this one has not.
    pub(super) fn status(&self) -> Status {
        match self {
            Self::NotConfigured
            | Self::TooManyConnections
            | Self::Unknown(_)
            | Self::UnknownPort { .. } => Status::Unavailable,
            Self::Unbound { .. } | Self::Traffic { .. } | Self::NoAddress(_) | Self::OwnPort(_) => {
                Status::BadRequest
            }
        }
    }
}

/// Selects the destination of a CONNECT request. Returns its standing to this waypoint as well.
///
/// # Errors
/// See [`Refused`].
pub(super) fn select(
    view: &View,
    own: &Own,
    authority: &Authority,
) -> Result<(Destination, Standing), Refused> {
    let (address, target) = match authority {
        Authority::Ip(address) => {
            let address = SocketAddr::new(address.ip().to_canonical(), address.port());
            (address, at(view, address)?)
        }
        Authority::Name { name, port } => {
            let service = view.snapshot.service_by_host(name, &view.own.namespace);
            let service = service.ok_or_else(|| Refused::Unknown(authority.to_string()))?;
            let best = service
                .addresses
                .iter()
                .find(|at| at.network == view.own.network);
            let ip = best.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |at| at.address);
            let target = Target::Service(Arc::clone(service));
            (SocketAddr::new(ip, *port), target)
        }
    };
    let standing = standing(view, own, &target);
    if standing == Standing::Unbound {
        return Err(Refused::Unbound {
            target: target.to_string(),
            gateway: own.gateway.clone(),
        });
    }
    let (kind, is_taken, cure) = match (&target, view.mesh.traffic) {
        (Target::Service(_), traffic) => {
            let is_taken = matches!(traffic, Traffic::Service | Traffic::All);
            ("services", is_taken, "service or all")
        }
        (Target::Workload(_), traffic) => {
            let is_taken = matches!(traffic, Traffic::Workload | Traffic::All);
            ("workloads", is_taken, "workload or all")
        }
    };
    if !is_taken {
        return Err(Refused::Traffic {
            target: target.to_string(),
            kind,
            cure,
            gateway: own.gateway.clone(),
        });
    }
    if let (Authority::Name { .. }, Target::Service(service)) = (authority, &target)
        && service.is_passthrough()
    {
        return Err(Refused::NoAddress(service.key.clone()));
    }
    if ports::is_proxys_own(address.port()) {
        return Err(Refused::OwnPort(address));
    }
    let protocol = match &target {
        Target::Service(service) => match service.port(address.port()) {
            Some(map) => map.protocol,
            None => {
                return Err(Refused::UnknownPort {
                    service: service.key.clone(),
                    port: address.port(),
                });
            }
        },
        Target::Workload(workload) => protocol_of(view, workload, address.port()),
    };
    let destination = Destination {
        // All endpoints are looked at, so only where the answer matters.
        names_host: protocol == PortProtocol::Tls && names_host(view, &target),
        address,
        target,
        protocol,
    };
    Ok((destination, standing))
}

/// True if the client names the host, because the service has resolution DYNAMIC_DNS.
fn names_host(view: &View, target: &Target) -> bool {
    let endpoints = |service: &Arc<Service>| view.snapshot.endpoints(&service.key);
    let endpoints = target.service().and_then(endpoints);
    let mut all = endpoints.into_iter().flat_map(|endpoints| endpoints.iter());
    all.any(|endpoint| is_wildcard(&endpoint.workload.hostname))
}

/// The service or workload at an address, in the order in which routes look them up.
fn at(view: &View, address: SocketAddr) -> Result<Target, Refused> {
    let (snapshot, own, ip) = (&view.snapshot, &view.own, address.ip());
    let exactly = snapshot.service_exactly(&own.namespace, &own.network, ip);
    if let Some(service) = exactly {
        return Ok(Target::Service(Arc::clone(service)));
    }
    if let Some(workload) = snapshot.workload(&own.network, ip) {
        return Ok(Target::Workload(Arc::clone(workload)));
    }
    // One that only its own namespace may see, and those with ranges of addresses.
    match snapshot.service(&own.network, ip) {
        Some(service) => Ok(Target::Service(Arc::clone(service))),
        None => Err(Refused::Unknown(address.to_string())),
    }
}

/// The standing of the target's traffic to this waypoint, as the control plane says now. Of the target itself the name alone counts: the
/// Address may name another waypoint by now, or none.
pub(super) fn standing(view: &View, own: &Own, target: &Target) -> Standing {
    let snapshot = &view.snapshot;
    if snapshot.gateway(&own.gateway).is_none() {
        // Addresses go on naming a Gateway that is deleted, so that nothing goes direct. Its Bindings and then its policies go.
        return Standing::Unbound;
    }
    let serves = |waypoint| snapshot.serves(waypoint, &view.own);
    let is_named = match target {
        Target::Service(service) => {
            let now = snapshot.service_by_key(&service.key);
            now.is_some_and(|service| service.waypoints().any(serves))
        }
        Target::Workload(workload) => {
            let now = snapshot.workload_by_uid(workload.uid.as_str());
            let waypoint = now.and_then(|workload| workload.waypoint.as_deref());
            waypoint.is_some_and(serves)
        }
    };
    if is_named {
        // Each connection asks at each change of the mesh. The name of a service is a new text.
        return Standing::Bound;
    }
    let name = match target {
        Target::Service(service) => Cow::Owned(service.key.to_string()),
        Target::Workload(workload) => Cow::Borrowed(workload.uid.as_str()),
    };
    snapshot.standing(&name, &own.gateway)
}

/// The protocol of a workload's port, as the first of its services that leads there says.
fn protocol_of(view: &View, workload: &Workload, port: u16) -> PortProtocol {
    let services = workload.services.keys();
    let known = services.filter_map(|key| view.snapshot.service_by_key(key));
    let mut maps = known.flat_map(|service| {
        let leads_here = move |service_port: u16, target: u16| {
            workload
                .target_port(&service.key, service_port)
                .unwrap_or(target)
                == port
        };
        service
            .ports
            .iter()
            .filter(move |map| leads_here(map.service, map.target))
    });
    maps.next()
        .map_or(PortProtocol::Unknown, |map| map.protocol)
}
