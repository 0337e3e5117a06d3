//! Next hop of a workload's outbound connection: look-up of the service or workload, load balancing, next hop.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use lateen_types::ports;

use super::choose::{Asker, Picked, Purpose, choose};
use super::gateway::{through_gateway, through_waypoint};
use super::hop::{Choice, Draft, Kind, NextHop, Resolve};
use super::outside::original;
use super::place::{Placed, address_for};
use super::refusal::{Refusal, unknown};
use crate::Snapshot;
use crate::gateway::GatewayAddress;
use crate::service::Service;
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
    let mut asker = Asker::new(snapshot, source, avoid, random);
    let placed = look_up(&mut asker, destination)?;
    follow(&mut asker, placed)
}

/// Routes a connection of a waypoint to an endpoint of a service that it has selected by what was asked for. The service's waypoints are
/// passed by: the caller is one of them, or was one when the request came. `destination` is the address
/// that was asked for, or an unspecified one; its port is the service's. Everything else is as in [`outbound`].
///
/// A waypoint judges a request by the policies of the service that it has selected, so it must not reach another one. Where the
/// service goes on to the client's own destination, that must be among its addresses.
///
/// # Errors
/// See [`Refusal`].
pub fn outbound_to(
    snapshot: &Snapshot,
    source: &Workload,
    service: &Arc<Service>,
    destination: SocketAddr,
    avoid: &dyn Fn(&Workload) -> bool,
    random: &mut dyn FnMut(u64) -> u64,
) -> Result<Choice, Refusal> {
    let mut asker = Asker::new(snapshot, source, avoid, random);
    if service.is_passthrough() {
        original(snapshot, source, service, destination.ip())?;
    }
    let placed = to_endpoint(&mut asker, service, destination)?;
    follow(&mut asker, placed)
}

/// Routes a connection of a waypoint to a workload that it has selected by what was asked for. The workload's waypoint is passed by: the
/// caller is it, or was it when the request came. Everything else is as in [`outbound`].
///
/// # Errors
/// See [`Refusal`].
pub fn outbound_to_workload(
    snapshot: &Snapshot,
    source: &Workload,
    workload: &Arc<Workload>,
    destination: SocketAddr,
    avoid: &dyn Fn(&Workload) -> bool,
    random: &mut dyn FnMut(u64) -> u64,
) -> Result<Choice, Refusal> {
    if is_loop(source, destination) {
        return Err(Refusal::LoopGuard {
            target: destination,
        });
    }
    let mut asker = Asker::new(snapshot, source, avoid, random);
    let picked = Picked::only(workload, destination.port(), avoid);
    let placed = direct(&mut asker, picked, None, destination)?;
    follow(&mut asker, placed)
}

impl Resolve {
    /// The way to this address of the workload's hostname. If it is that of a workload or a service of the mesh, that is who
    /// is there, whatever the name's owner says of itself: it is reached as if the client had dialled it. `source`,
    /// `avoid` and `random` are those of [`outbound`].
    ///
    /// # Errors
    /// [`Refusal::LoopGuard`] if the name leads to the proxy itself, [`Refusal::Circle`] if it leads back to the service
    /// whose endpoint it is, and whatever refuses a connection to what is there.
    pub fn at(
        &self,
        snapshot: &Snapshot,
        source: &Workload,
        address: IpAddr,
        avoid: &dyn Fn(&Workload) -> bool,
        random: &mut dyn FnMut(u64) -> u64,
    ) -> Result<Choice, Refusal> {
        let address = address.to_canonical();
        let own = address.is_loopback() || address.is_unspecified();
        if own && ports::is_proxys_own(self.draft.port) {
            return Err(Refusal::LoopGuard {
                target: SocketAddr::new(address, self.draft.port),
            });
        }
        let mut asker = Asker {
            snapshot,
            source,
            avoid,
            random,
            passed: self.passed.clone(),
        };
        let picked = Picked::only(&self.workload, self.port, avoid);
        let placed = self.draft.clone().at(&mut asker, &picked, address)?;
        follow(&mut asker, placed)
    }
}

/// Goes on from endpoints whose addresses belong to others in the mesh, until there is a next hop.
pub(super) fn follow<'s>(asker: &mut Asker<'s>, mut placed: Placed<'s>) -> Result<Choice, Refusal> {
    let mut first = None;
    loop {
        let (endpoint, next) = match placed {
            Placed::Choice(choice) => {
                return Ok(Choice {
                    behind: first.or(choice.behind),
                    ..choice
                });
            }
            Placed::Waypoint {
                endpoint,
                workload,
                waypoint,
                target,
            } => {
                let name = || format!("workload {}", workload.uid);
                let next = through_waypoint(asker, waypoint, &name, None, target)?;
                (endpoint, next)
            }
            Placed::Service {
                endpoint,
                service,
                target,
            } => (endpoint, to_service(asker, service, target)?),
        };
        first.get_or_insert(endpoint);
        placed = next;
    }
}

/// Finds what was dialled, and the first place on the way there.
fn look_up<'s>(asker: &mut Asker<'s>, destination: SocketAddr) -> Result<Placed<'s>, Refusal> {
    let (snapshot, source) = (asker.snapshot, asker.source);
    let (network, ip) = (&source.network, destination.ip());
    if let Some(service) = snapshot.service_exactly(&source.namespace, network, ip) {
        return to_service(asker, service, destination);
    }
    if let Some(workload) = snapshot.workload(network, ip) {
        return to_workload(asker, workload, destination);
    }
    // Ranges are for the world outside.
    if snapshot.is_nodes(network, ip) {
        return Ok(passthrough(destination, None));
    }
    unknown(snapshot.wants_address(network, ip))?;
    match snapshot.service_in_range(network, ip, Some(&source.namespace)) {
        Some(service) => to_service(asker, service, destination),
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

fn passthrough(target: SocketAddr, service: Option<&Arc<Service>>) -> Placed<'static> {
    Placed::Choice(Choice {
        next_hop: NextHop::Passthrough {
            target,
            service: service.cloned(),
        },
        rank: 0,
        others: 0,
        avoided: false,
        behind: None,
    })
}

fn to_service<'s>(
    asker: &mut Asker<'s>,
    service: &Arc<Service>,
    destination: SocketAddr,
) -> Result<Placed<'s>, Refusal> {
    if !asker.is_waypoint(service.waypoints())
        && let Some(waypoint) = waypoint_of(service, asker.random)
    {
        let behind = || format!("service {}", service.key);
        return through_waypoint(asker, waypoint, &behind, Some(service), destination);
    }
    to_endpoint(asker, service, destination)
}

/// Goes to an endpoint of a service, past its waypoints.
fn to_endpoint<'s>(
    asker: &mut Asker<'s>,
    service: &Arc<Service>,
    destination: SocketAddr,
) -> Result<Placed<'s>, Refusal> {
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
    to_picked(asker, picked, service, destination)
}

/// Goes to an endpoint of a service that was picked.
pub(super) fn to_picked<'s>(
    asker: &mut Asker<'s>,
    picked: Picked,
    service: &Arc<Service>,
    destination: SocketAddr,
) -> Result<Placed<'s>, Refusal> {
    if picked.workload.network != asker.source.network {
        return through_gateway(asker, picked, Some(service), service, destination);
    }
    asker.passed.push(service.key.clone());
    direct(asker, picked, Some(service), destination)
}

fn to_workload<'s>(
    asker: &mut Asker<'s>,
    workload: &Arc<Workload>,
    destination: SocketAddr,
) -> Result<Placed<'s>, Refusal> {
    if let Some(waypoint) = workload.waypoint.as_deref()
        && !asker.is_waypoint([waypoint].into_iter())
    {
        let behind = || format!("workload {}", workload.uid);
        return through_waypoint(asker, waypoint, &behind, None, destination);
    }
    let picked = Picked::only(workload, destination.port(), asker.avoid);
    direct(asker, picked, None, destination)
}

fn direct<'s>(
    asker: &mut Asker<'s>,
    picked: Picked,
    service: Option<&Arc<Service>>,
    destination: SocketAddr,
) -> Result<Placed<'s>, Refusal> {
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
