//! From a workload's connection to a destination: service or workload look-up, load balancing, next hop.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use lateen_types::ports;

use super::choose::{Asker, Picked, Purpose, choose};
use super::gateway::{is_waypoint, through_gateway, through_waypoint, unknown};
use super::hop::{Draft, Kind};
use super::{Choice, Refusal, Route};
use crate::Snapshot;
use crate::gateway::GatewayAddress;
use crate::service::{IpFamilies, Service};
use crate::workload::{Protocol, Workload};

/// Routes a connection of `source` to `destination`. `random(n)` is uniform below `n`.
///
/// What was dialled is looked up as a service's address, then as a workload's, then as part of a service's range of
/// addresses: a range must not turn traffic of a mesh workload into something else. A waypoint is never passed by,
/// unless the source is that waypoint.
///
/// `avoid` names next hops to be left out: those that a retry has tried, those that keep failing. The best rank that
/// has anybody else is drawn from. If everybody is to be avoided, avoidance is ignored, and [`Choice::avoided`] says
/// so: when all endpoints look broken, the fault is rarely theirs.
///
/// # Errors
/// See [`Refusal`]. Where resources are sent on demand, [`Refusal::Unknown`] says what to ask for first.
pub fn outbound(
    snapshot: &Snapshot,
    source: &Workload,
    destination: SocketAddr,
    avoid: &dyn Fn(&Workload) -> bool,
    random: &mut dyn FnMut(u64) -> u64,
) -> Result<Choice, Refusal> {
    let destination = SocketAddr::new(destination.ip().to_canonical(), destination.port());
    if is_loop(source, destination) {
        return Err(Refusal::LoopGuard {
            target: destination,
        });
    }
    let mut asker = Asker {
        snapshot,
        source,
        avoid,
        random,
        passed: Vec::new(),
    };
    let (network, ip) = (&source.network, destination.ip());
    if let Some(service) = snapshot.service_exactly(&source.namespace, network, ip) {
        return to_service(&mut asker, service, destination);
    }
    if let Some(workload) = snapshot.workload(network, ip) {
        return to_workload(&mut asker, workload, destination);
    }
    // Ranges are for the world outside.
    if snapshot.is_nodes(network, ip) {
        return Ok(passthrough(destination, None));
    }
    unknown(snapshot.wants_address(network, ip))?;
    match snapshot.service_in_range(network, ip, Some(&source.namespace)) {
        Some(service) => to_service(&mut asker, service, destination),
        None => Ok(passthrough(destination, None)),
    }
}

/// A destination that leads straight back into the source's own proxy: rules do not redirect such a connection, so one
/// that arrives here was made to the proxy's port itself.
fn is_loop(source: &Workload, destination: SocketAddr) -> bool {
    let ip = destination.ip();
    ports::is_proxys_own(destination.port())
        && (ip.is_loopback() || ip.is_unspecified() || source.addresses.contains(&ip))
}

fn passthrough(target: SocketAddr, service: Option<&Arc<Service>>) -> Choice {
    Choice {
        route: Route::Passthrough {
            target,
            service: service.cloned(),
        },
        rank: 0,
        others: 0,
        avoided: false,
        behind: None,
    }
}

pub(super) fn to_service(
    asker: &mut Asker<'_>,
    service: &Arc<Service>,
    destination: SocketAddr,
) -> Result<Choice, Refusal> {
    if !is_waypoint(asker, service.waypoints())
        && let Some(waypoint) = waypoint_of(service, asker.random)
    {
        let behind = || format!("service {}", service.key);
        return through_waypoint(asker, waypoint, &behind, Some(service), destination);
    }
    if service.is_passthrough() {
        // Its author may send connections where the client wanted, but not those to a mesh workload out of its tunnel.
        let (network, ip) = (&asker.source.network, destination.ip());
        match asker.snapshot.workload(network, ip) {
            Some(workload) if workload.protocol == Protocol::Hbone => {
                return to_workload(asker, workload, destination);
            }
            Some(_) => {}
            None => unknown(asker.snapshot.wants_address(network, ip))?,
        }
        return Ok(passthrough(destination, Some(service)));
    }
    let picked = choose(asker, service, destination.port(), Purpose::Client)?;
    if picked.workload.network != asker.source.network {
        return through_gateway(asker, picked, Some(service), service, destination);
    }
    asker.passed.push(service.key.clone());
    direct(asker, picked, Some(service), destination)
}

fn to_workload(
    asker: &mut Asker<'_>,
    workload: &Arc<Workload>,
    destination: SocketAddr,
) -> Result<Choice, Refusal> {
    if let Some(waypoint) = &workload.waypoint
        && !is_waypoint(asker, [waypoint].into_iter())
    {
        let behind = || format!("workload {}", workload.uid);
        return through_waypoint(asker, waypoint, &behind, None, destination);
    }
    let picked = Picked::only(workload, destination.port(), asker.avoid);
    direct(asker, picked, None, destination)
}

fn direct(
    asker: &mut Asker<'_>,
    picked: Picked,
    service: Option<&Arc<Service>>,
    destination: SocketAddr,
) -> Result<Choice, Refusal> {
    let families = service.and_then(|service| service.ip_families);
    let address = address_for(&picked.workload, destination.ip(), families);
    let draft = Draft {
        workload: picked.workload.clone(),
        service: service.cloned(),
        port: picked.port,
        kind: Kind::Direct,
    };
    draft.place(asker, &picked, address, destination.ip())
}

/// The waypoint for this connection, if the service has any: drawn by weight if several share its connections, else the
/// only one. Weights that are all 0 say nothing.
fn waypoint_of<'s>(
    service: &'s Service,
    random: &mut dyn FnMut(u64) -> u64,
) -> Option<&'s GatewayAddress> {
    let weighted = &service.weighted_waypoints;
    let total: u64 = weighted.iter().map(|w| u64::from(w.weight)).sum();
    if total > 0 {
        let mut left = random(total);
        for waypoint in weighted {
            let weight = u64::from(waypoint.weight);
            if left < weight {
                return Some(&waypoint.destination);
            }
            left -= weight;
        }
    }
    let first = weighted.first().map(|waypoint| &waypoint.destination);
    service.waypoint.as_ref().or(first)
}

/// The workload's address for this client: the one asked for if it is among them, else one of the same family, else
/// any that the service's families allow.
pub(super) fn address_for(
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
