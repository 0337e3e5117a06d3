//! Whether a CONNECT request may come in, and where in the pod it leads.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use lateen_types::ports;

use crate::service::Service;
use crate::workload::{TunnelProtocol, Workload};
use crate::{ServiceKey, Snapshot};

/// Where a CONNECT request leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inbound {
    /// The application's address; also what policies are asked about.
    pub target: SocketAddr,
    /// The service that the request named, if it named one.
    pub service: Option<Arc<Service>>,
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
    /// The workload wants a PROXY protocol header, which this proxy does not write yet.
    #[error("workload {workload} asks for PROXY protocol, which this proxy cannot speak yet")]
    ProxyProtocolUnsupported {
        /// The workload's uid.
        workload: String,
    },
}

impl InboundRefusal {
    /// The HTTP status that ztunnel answers in the same case.
    pub fn status(&self) -> u16 {
        match self {
            InboundRefusal::Authority { .. } | InboundRefusal::AddressMismatch { .. } => 400,
            InboundRefusal::UnknownHost { .. }
            | InboundRefusal::UnknownPort { .. }
            | InboundRefusal::LoopGuard { .. }
            | InboundRefusal::ProxyProtocolUnsupported { .. } => 503,
        }
    }
}

/// Checks a CONNECT request that came to `local_ip` of `local`, and resolves its target. The target's address is always
/// the one that the connection came to: an authority cannot lead out of the pod.
///
/// Another address in the authority is allowed in the two cases of Istio's: the workload has an application tunnel, or
/// it is the waypoint of what the address belongs to.
pub fn validate_inbound(
    snapshot: &Snapshot,
    local: &Workload,
    local_ip: IpAddr,
    authority: &str,
) -> Result<Inbound, InboundRefusal> {
    let local_ip = local_ip.to_canonical();
    let (port, service) = match Authority::parse(authority) {
        Some(Authority::Address(asked)) => {
            let ip = asked.ip().to_canonical();
            if ip != local_ip
                && local.application_tunnel.is_none()
                && !is_waypoint_of(snapshot, local, ip)
            {
                return Err(InboundRefusal::AddressMismatch {
                    local: local_ip,
                    asked: ip,
                });
            }
            (asked.port(), None)
        }
        Some(Authority::Host(hostname, port)) => {
            let service = snapshot
                .service_by_host(hostname, &local.namespace)
                .ok_or_else(|| InboundRefusal::UnknownHost {
                    hostname: hostname.to_owned(),
                })?;
            let target = local
                .target_port(&service.key, port)
                .or_else(|| {
                    service
                        .port(port)
                        .map(|map| map.target)
                        .filter(|target| *target != 0)
                })
                .ok_or_else(|| InboundRefusal::UnknownPort {
                    service: service.key.clone(),
                    port,
                })?;
            (target, Some(service.clone()))
        }
        None => {
            return Err(InboundRefusal::Authority {
                authority: authority.to_owned(),
            });
        }
    };
    let target = SocketAddr::new(local_ip, tunnelled_port(local, port)?);
    // Both: an application tunnel's port must not hide what was asked for.
    for port in [port, target.port()] {
        if ports::is_proxys_own(port) {
            return Err(InboundRefusal::LoopGuard {
                target: SocketAddr::new(local_ip, port),
            });
        }
    }
    Ok(Inbound { target, service })
}

fn tunnelled_port(local: &Workload, port: u16) -> Result<u16, InboundRefusal> {
    match &local.application_tunnel {
        None => Ok(port),
        Some(tunnel) if tunnel.protocol == TunnelProtocol::None => Ok(tunnel.port.unwrap_or(port)),
        Some(_) => Err(InboundRefusal::ProxyProtocolUnsupported {
            workload: local.uid.to_string(),
        }),
    }
}

fn is_waypoint_of(snapshot: &Snapshot, local: &Workload, asked: IpAddr) -> bool {
    let network = snapshot.network();
    let waypoint = match snapshot.workload(network, asked) {
        Some(workload) => workload.waypoint.as_ref(),
        None => snapshot
            .service(network, asked)
            .and_then(|service| service.waypoint.as_ref()),
    };
    waypoint.is_some_and(|waypoint| snapshot.serves(waypoint, local))
}

enum Authority<'a> {
    Address(SocketAddr),
    Host(&'a str, u16),
}

impl<'a> Authority<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        if let Ok(address) = text.parse::<SocketAddr>() {
            return (address.port() != 0).then_some(Authority::Address(address));
        }
        let (host, port) = text.rsplit_once(':')?;
        // Digits alone: Rust's own parser would take a sign.
        let digits = port.bytes().all(|byte| byte.is_ascii_digit());
        let port = port.parse().ok().filter(|port| digits && *port != 0)?;
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '*');
        (!host.is_empty() && host.chars().all(is_name)).then_some(Authority::Host(host, port))
    }
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
