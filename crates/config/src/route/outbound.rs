//! From a workload's connection to a destination: service or workload look-up, load balancing, next hop.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use lateen_balance::{Candidate, Preference, pick};
use lateen_types::{Identity, ports};

use crate::endpoints::{Endpoint, EndpointSet};
use crate::gateway::GatewayDestination;
use crate::service::{IpFamilies, Service, ServicePort};
use crate::workload::{Protocol, Workload};
use crate::{ServiceKey, Snapshot};

/// Where a connection goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    /// Through a tunnel to a workload of the mesh.
    Tunnel {
        /// The workload at the far end.
        workload: Arc<Workload>,
        /// The service that was addressed, if it was one.
        service: Option<Arc<Service>>,
        /// Where the tunnel's connection goes.
        hbone: SocketAddr,
        /// What the CONNECT request asks for, `ip:port`.
        authority: String,
        /// The same as an address.
        target: SocketAddr,
        /// The identities of which the far end must prove one.
        identities: Vec<Identity>,
    },
    /// Straight to a workload that speaks no tunnel.
    Plain {
        /// The workload.
        workload: Arc<Workload>,
        /// The service that was addressed, if it was one.
        service: Option<Arc<Service>>,
        /// Where the connection goes.
        target: SocketAddr,
    },
    /// Straight to where the client wanted: the mesh does not know the place, or its service says so.
    Passthrough {
        /// The client's destination.
        target: SocketAddr,
    },
}

/// Why a connection cannot go where it wants; never a reason to send it another way.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The service exists, the port does not.
    #[error("service {service} has no port {port}; its ports are {}", list(.known))]
    UnknownPort {
        /// The service.
        service: ServiceKey,
        /// The port asked for.
        port: u16,
        /// The ports that it has.
        known: Vec<u16>,
    },
    /// Nothing can serve the port now.
    #[error(
        "service {service} has no endpoint for port {port}: {total} known, {unhealthy} not ready, {unreachable} \
         reachable only by hostname or through another network's gateway; check that its pods run and are ready"
    )]
    NoHealthyEndpoint {
        /// The service.
        service: ServiceKey,
        /// The port asked for.
        port: u16,
        /// How many endpoints it has in all.
        total: usize,
        /// How many of them are not ready.
        unhealthy: usize,
        /// How many of the rest this proxy cannot reach.
        unreachable: usize,
    },
    /// The way leads through a waypoint, which this proxy does not speak to yet. Going around it would skip its
    /// policies.
    #[error(
        "{target} is behind the waypoint {waypoint}, which this proxy cannot use yet; remove its use-waypoint label"
    )]
    WaypointUnsupported {
        /// The service or workload.
        target: String,
        /// Its waypoint.
        waypoint: String,
    },
    /// The workload has no address that this client can use.
    #[error(
        "workload {workload} has no address that a client of {wanted} can use; check its service's ip families"
    )]
    NoAddress {
        /// The workload's uid.
        workload: String,
        /// The address asked for.
        wanted: IpAddr,
    },
    /// The connection would come back to the proxy itself.
    #[error("{target} is the proxy's own port; connect to the application's port")]
    LoopGuard {
        /// The destination.
        target: SocketAddr,
    },
}

fn list(ports: &[u16]) -> String {
    ports
        .iter()
        .map(u16::to_string)
        .collect::<Vec<_>>()
        .join(", ")
}

/// Routes a connection of `source` to `destination`. `random(n)` is uniform below `n`.
///
/// A service goes before a workload of the same address; a waypoint is never passed by, unless the source is that
/// waypoint.
pub fn outbound(
    snapshot: &Snapshot,
    source: &Workload,
    destination: SocketAddr,
    random: &mut dyn FnMut(u64) -> u64,
) -> Result<Route, Refusal> {
    let destination = SocketAddr::new(destination.ip().to_canonical(), destination.port());
    if is_loop(source, destination) {
        return Err(Refusal::LoopGuard {
            target: destination,
        });
    }
    if let Some(service) =
        snapshot.service_for(&source.namespace, &source.network, destination.ip())
    {
        return to_service(snapshot, source, service, destination, random);
    }
    match snapshot.workload(&source.network, destination.ip()) {
        Some(workload) => {
            if let Some(waypoint) = &workload.waypoint
                && !snapshot.serves(waypoint, source)
            {
                return Err(behind_waypoint(
                    format!("workload {}", workload.uid),
                    Some(&waypoint.destination),
                ));
            }
            hop(workload, None, destination)
        }
        None => Ok(Route::Passthrough {
            target: destination,
        }),
    }
}

/// A destination that leads straight back into the source's own proxy: rules do not redirect such a connection, so one
/// that arrives here was made to the proxy's port itself.
fn is_loop(source: &Workload, destination: SocketAddr) -> bool {
    let ip = destination.ip();
    ports::is_proxys_own(destination.port())
        && (ip.is_loopback() || ip.is_unspecified() || source.addresses.contains(&ip))
}

fn to_service(
    snapshot: &Snapshot,
    source: &Workload,
    service: &Arc<Service>,
    destination: SocketAddr,
    random: &mut dyn FnMut(u64) -> u64,
) -> Result<Route, Refusal> {
    if service.has_waypoint() {
        let waypoint = service
            .waypoint
            .as_ref()
            .or(service.weighted_waypoints.first().map(|w| &w.destination));
        return Err(behind_waypoint(
            format!("service {}", service.key),
            waypoint.map(|w| &w.destination),
        ));
    }
    if service.is_passthrough() {
        return Ok(Route::Passthrough {
            target: destination,
        });
    }
    let Some(port) = service.port(destination.port()) else {
        return Err(Refusal::UnknownPort {
            service: service.key.clone(),
            port: destination.port(),
            known: service.ports.iter().map(|map| map.service).collect(),
        });
    };
    let endpoints = snapshot.endpoints(&service.key).map(|set| &**set);
    let Some((workload, target_port)) =
        endpoints.and_then(|endpoints| choose(source, service, port, endpoints, random))
    else {
        return Err(no_endpoint(source, service, port, endpoints));
    };
    let Some(ip) = address_for(workload, destination.ip(), service.ip_families) else {
        return Err(Refusal::NoAddress {
            workload: workload.uid.to_string(),
            wanted: destination.ip(),
        });
    };
    hop(workload, Some(service), SocketAddr::new(ip, target_port))
}

/// Picks an endpoint and the port on which it serves.
fn choose<'a>(
    source: &Workload,
    service: &Service,
    port: ServicePort,
    endpoints: &'a EndpointSet,
    random: &mut dyn FnMut(u64) -> u64,
) -> Option<(&'a Arc<Workload>, u16)> {
    let standard = Preference::default();
    let preference = service
        .load_balancing
        .as_ref()
        .map_or(&standard, |lb| &lb.preference);
    let place = source.place();
    let candidates = endpoints.iter().filter_map(|endpoint| {
        let workload = &endpoint.workload;
        if !service.takes(workload.status) || !is_reachable(source, workload) {
            return None;
        }
        let item = (workload, target_port(endpoint, port)?);
        let rank = preference.rank(&place, &workload.place())?;
        Some(Candidate {
            rank,
            weight: workload.capacity,
            item,
        })
    });
    pick(candidates, random)
}

/// The endpoint's own mapping goes before the service's; without either the endpoint does not serve the port.
fn target_port(endpoint: &Endpoint, port: ServicePort) -> Option<u16> {
    endpoint
        .target_port(port.service)
        .or((port.target != 0).then_some(port.target))
}

fn is_reachable(source: &Workload, workload: &Workload) -> bool {
    workload.network == source.network && !workload.addresses.is_empty()
}

fn no_endpoint(
    source: &Workload,
    service: &Service,
    port: ServicePort,
    endpoints: Option<&EndpointSet>,
) -> Refusal {
    let all = || {
        endpoints
            .into_iter()
            .flatten()
            .map(|endpoint| &*endpoint.workload)
    };
    Refusal::NoHealthyEndpoint {
        service: service.key.clone(),
        port: port.service,
        total: all().count(),
        unhealthy: all()
            .filter(|workload| !service.takes(workload.status))
            .count(),
        unreachable: all()
            .filter(|w| service.takes(w.status) && !is_reachable(source, w))
            .count(),
    }
}

/// The workload's address for this client: the one asked for if it is among them, else one of the same family, else
/// any that the service's families allow.
fn address_for(
    workload: &Workload,
    wanted: IpAddr,
    families: Option<IpFamilies>,
) -> Option<IpAddr> {
    if workload.addresses.contains(&wanted) {
        return Some(wanted);
    }
    let usable = || {
        workload
            .addresses
            .iter()
            .copied()
            .filter(|ip| families.is_none_or(|f| f.accepts(*ip)))
    };
    usable()
        .find(|ip| ip.is_ipv4() == wanted.is_ipv4())
        .or_else(|| usable().next())
}

fn hop(
    workload: &Arc<Workload>,
    service: Option<&Arc<Service>>,
    target: SocketAddr,
) -> Result<Route, Refusal> {
    let (workload, service) = (workload.clone(), service.cloned());
    match workload.protocol {
        Protocol::Tcp => Ok(Route::Plain {
            workload,
            service,
            target,
        }),
        // The far end would refuse it: such a request would make it connect to its own proxy.
        Protocol::Hbone if ports::is_proxys_own(target.port()) => {
            Err(Refusal::LoopGuard { target })
        }
        Protocol::Hbone => Ok(Route::Tunnel {
            hbone: SocketAddr::new(target.ip(), ports::HBONE),
            authority: target.to_string(),
            identities: service
                .iter()
                .flat_map(|service| &service.subject_alt_names)
                .chain([&workload.identity])
                .cloned()
                .collect(),
            workload,
            service,
            target,
        }),
    }
}

fn behind_waypoint(target: String, waypoint: Option<&GatewayDestination>) -> Refusal {
    Refusal::WaypointUnsupported {
        target,
        waypoint: waypoint.map(ToString::to_string).unwrap_or_default(),
    }
}
