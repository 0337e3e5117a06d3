//! Admission of a CONNECT request, and its destination in the pod.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use lateen_types::{Strng, ports};

use super::Authority;
use crate::service::Service;
use crate::workload::{TunnelProtocol, Workload};
use crate::{ServiceKey, Snapshot, Want};

/// Where a CONNECT request leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inbound {
    /// The application's address at the workload; what policies are asked about, and what to dial unless there is a
    /// handover.
    pub target: SocketAddr,
    /// The service that the request named, if it named one.
    pub service: Option<Arc<Service>>,
    /// The workload wants to be told where connections lead.
    pub handover: Option<Handover>,
}

/// A connection that is handed over with a PROXY protocol header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handover {
    /// What to dial: a loopback address, from a loopback source, so that nobody reaches the port from outside.
    pub dial: SocketAddr,
    /// The destination in the header: what the request asked for, and of a hostname its service's address.
    pub destination: SocketAddr,
    /// The service's hostname, if the request named one.
    pub hostname: Option<Strng>,
}

/// Why a CONNECT request is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InboundRefusal {
    /// The authority is neither `ip:port` nor `hostname:port`.
    #[error("{authority:?} is no authority; expected IP:PORT or HOSTNAME:PORT")]
    Authority {
        /// As the peer sent it.
        authority: String,
    },
    /// The request asks for another address than the connection came to.
    #[error(
        "the tunnel came to {local} and asks for {asked}; a workload serves its own addresses only"
    )]
    AddressMismatch {
        /// The address that the tunnel's connection came to.
        local: IpAddr,
        /// The address in the authority.
        asked: IpAddr,
    },
    /// No service has the hostname.
    #[error("no service is known by the hostname {hostname}")]
    UnknownHost {
        /// As the peer sent it.
        hostname: String,
    },
    /// The service exists, and the workload has no part in it.
    #[error(
        "{workload} does not serve {service}; a workload takes connections for its own services and for those that it is the waypoint of"
    )]
    NotServed {
        /// The workload's uid.
        workload: String,
        /// The service.
        service: ServiceKey,
    },
    /// The service exists, the port leads nowhere.
    #[error("service {service} has no target for port {port} on this workload")]
    UnknownPort {
        /// The service.
        service: ServiceKey,
        /// The port asked for.
        port: u16,
    },
    /// The request leads back to the proxy itself.
    #[error("{target} is the proxy's own port; ask for the application's port")]
    LoopGuard {
        /// Where it leads.
        target: SocketAddr,
    },
    /// The workload wants a PROXY protocol header, which has no place for a name alone.
    #[error(
        "service {service} has no address to put into the PROXY protocol header; ask for an address, or give it one"
    )]
    NoServiceAddress {
        /// The service.
        service: ServiceKey,
    },
    /// Resources are sent on demand, and the control plane has not been asked for this one: ask, wait, check again. As a
    /// final answer it means that none came in time.
    #[error("the control plane has not said what {0} is; see whether it is connected")]
    Unknown(Want),
}

impl InboundRefusal {
    /// The HTTP status that ztunnel answers in the same case.
    pub fn status(&self) -> u16 {
        match self {
            InboundRefusal::Authority { .. } | InboundRefusal::AddressMismatch { .. } => 400,
            InboundRefusal::UnknownHost { .. }
            | InboundRefusal::NotServed { .. }
            | InboundRefusal::UnknownPort { .. }
            | InboundRefusal::LoopGuard { .. }
            | InboundRefusal::NoServiceAddress { .. }
            | InboundRefusal::Unknown(_) => 503,
        }
    }
}

/// Checks a CONNECT request that came to `local_ip` of `local`, and resolves its target. The target's address is always
/// the one that the connection came to: an authority cannot lead out of the pod.
///
/// Another address in the authority is allowed in the two cases of Istio's: the workload has an application tunnel, or
/// it is the waypoint of what the address belongs to.
///
/// # Errors
/// See [`InboundRefusal`].
pub fn inbound(
    snapshot: &Snapshot,
    local: &Workload,
    local_ip: IpAddr,
    authority: &str,
) -> Result<Inbound, InboundRefusal> {
    let local_ip = local_ip.to_canonical();
    let asked = Authority::parse(authority).ok_or_else(|| InboundRefusal::Authority {
        authority: authority.to_owned(),
    })?;
    let (port, service) = match &asked {
        Authority::Address(asked) => {
            check_address(snapshot, local, local_ip, asked.ip().to_canonical())?;
            (asked.port(), None)
        }
        Authority::Host { hostname, port } => {
            let service = named(snapshot, local, hostname)?;
            (target_of(local, service, *port)?, Some(service))
        }
    };
    let tunnel = local.application_tunnel.as_ref();
    let target = SocketAddr::new(local_ip, tunnel.and_then(|t| t.port).unwrap_or(port));
    // Both: an application tunnel's port must not hide what was asked for.
    for port in [port, target.port()] {
        if ports::is_proxys_own(port) {
            return Err(InboundRefusal::LoopGuard {
                target: SocketAddr::new(local_ip, port),
            });
        }
    }
    Ok(Inbound {
        target,
        service: service.cloned(),
        handover: tunnel
            .filter(|tunnel| tunnel.protocol == TunnelProtocol::Proxy)
            .map(|_| hand_over(snapshot, target, &asked, service))
            .transpose()?,
    })
}

/// An address must be the workload's own, unless it may stand in for others.
fn check_address(
    snapshot: &Snapshot,
    local: &Workload,
    local_ip: IpAddr,
    asked: IpAddr,
) -> Result<(), InboundRefusal> {
    if asked == local_ip
        || local.application_tunnel.is_some()
        || is_waypoint_of(snapshot, local, asked)?
    {
        return Ok(());
    }
    Err(InboundRefusal::AddressMismatch {
        local: local_ip,
        asked,
    })
}

fn is_waypoint_of(
    snapshot: &Snapshot,
    local: &Workload,
    asked: IpAddr,
) -> Result<bool, InboundRefusal> {
    let network = snapshot.network();
    let serves = |waypoint| snapshot.serves(waypoint, local);
    if let Some(workload) = snapshot.workload(network, asked) {
        return Ok(workload.waypoint.as_deref().is_some_and(serves));
    }
    if let Some(service) = snapshot.service(network, asked) {
        return Ok(service.waypoints().any(serves));
    }
    match snapshot.wants_address(network, asked) {
        Some(want) => Err(InboundRefusal::Unknown(want)),
        None => Ok(false),
    }
}

fn named<'s>(
    snapshot: &'s Snapshot,
    local: &Workload,
    hostname: &str,
) -> Result<&'s Arc<Service>, InboundRefusal> {
    if let Some(service) = snapshot.service_by_host(hostname, &local.namespace) {
        // As for an address: what has nothing to do with the workload is neither dialled here nor counted to it.
        let serves = local.services.contains_key(&service.key)
            || local.application_tunnel.is_some()
            || service.waypoints().any(|at| snapshot.serves(at, local));
        return serves
            .then_some(service)
            .ok_or_else(|| InboundRefusal::NotServed {
                workload: local.uid.to_string(),
                service: service.key.clone(),
            });
    }
    let key = ServiceKey::new(local.namespace.clone(), hostname);
    Err(match snapshot.wants_hostname(&key) {
        Some(want) => InboundRefusal::Unknown(want),
        None => InboundRefusal::UnknownHost {
            hostname: hostname.to_owned(),
        },
    })
}

/// The port behind a service's port on this workload: its own mapping before the service's.
fn target_of(local: &Workload, service: &Service, port: u16) -> Result<u16, InboundRefusal> {
    let mapped = || service.port(port).map(|map| map.target);
    local
        .target_port(&service.key, port)
        .or_else(|| mapped().filter(|target| *target != 0))
        .ok_or_else(|| InboundRefusal::UnknownPort {
            service: service.key.clone(),
            port,
        })
}

fn hand_over(
    snapshot: &Snapshot,
    target: SocketAddr,
    asked: &Authority,
    service: Option<&Arc<Service>>,
) -> Result<Handover, InboundRefusal> {
    let loopback = match target {
        SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
        SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
    };
    let destination = match (asked, service) {
        (Authority::Address(asked), _) => SocketAddr::new(asked.ip().to_canonical(), asked.port()),
        (Authority::Host { port, .. }, Some(service)) => {
            // The own network's addresses first, of those IPv4 first: Istio's choice.
            let best = service
                .addresses
                .iter()
                .min_by_key(|at| (at.network != *snapshot.network(), at.address.is_ipv6()));
            let best = best.ok_or_else(|| InboundRefusal::NoServiceAddress {
                service: service.key.clone(),
            })?;
            SocketAddr::new(best.address, *port)
        }
        (Authority::Host { hostname, .. }, None) => {
            return Err(InboundRefusal::UnknownHost {
                hostname: hostname.to_string(),
            });
        }
    };
    Ok(Handover {
        dial: SocketAddr::new(loopback, target.port()),
        destination,
        hostname: service.map(|service| service.hostname.clone()),
    })
}

/// The service that an inbound connection is counted to: the one that the client named, if the workload serves it, else
/// the first of the workload's services that leads to this port.
pub fn inbound_service<'a>(
    snapshot: &'a Snapshot,
    local: &'a Workload,
    named: Option<&str>,
    port: u16,
) -> Option<&'a Arc<Service>> {
    let services = || {
        local
            .services
            .keys()
            .filter_map(|key| snapshot.service_by_key(key))
    };
    let leads_here = |service: &Service| {
        service.ports.iter().any(|map| {
            local
                .target_port(&service.key, map.service)
                .unwrap_or(map.target)
                == port
        })
    };
    services()
        .find(|service| named.is_some_and(|host| *service.hostname == *host))
        .or_else(|| services().find(|service| leads_here(service)))
}
