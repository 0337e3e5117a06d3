//! Choice of the endpoint of a service for one connection.

use std::sync::Arc;

use lateen_balance::{Drawn, Preference, Table};

use super::Refusal;
use super::hop::{Choice, NextHop};
use crate::endpoints::{Endpoint, EndpointSet};
use crate::gateway::GatewayAddress;
use crate::service::{Service, ServicePort};
use crate::workload::Workload;
use crate::{ServiceKey, Snapshot};

/// Who asks, and by what means it may be answered.
pub(super) struct Asker<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) source: &'a Workload,
    /// Next hops to be left out as long as there are others.
    pub(super) avoid: &'a dyn Fn(&Workload) -> bool,
    /// Uniform below its argument.
    pub(super) random: &'a mut dyn FnMut(u64) -> u64,
    /// The services whose endpoints led here, each by an endpoint that is an address of the next.
    pub(super) passed: Vec<ServiceKey>,
}

impl<'a> Asker<'a> {
    /// Asks for a source that no service has led on yet.
    pub(super) fn new(
        snapshot: &'a Snapshot,
        source: &'a Workload,
        avoid: &'a dyn Fn(&Workload) -> bool,
        random: &'a mut dyn FnMut(u64) -> u64,
    ) -> Self {
        Self {
            snapshot,
            source,
            avoid,
            random,
            passed: Vec::new(),
        }
    }
}

impl Asker<'_> {
    /// Whether the source is what its own connection would have to pass: a waypoint goes on to the workload.
    pub(super) fn is_waypoint<'g>(
        &self,
        mut waypoints: impl Iterator<Item = &'g GatewayAddress>,
    ) -> bool {
        waypoints.any(|waypoint| self.snapshot.serves(waypoint, self.source))
    }
}

/// An endpoint that was picked.
#[derive(Clone)]
pub(super) struct Picked {
    pub(super) workload: Arc<Workload>,
    /// The port that it serves on.
    pub(super) port: u16,
    pub(super) rank: usize,
    pub(super) others: usize,
    pub(super) avoided: bool,
}

impl Picked {
    /// The choice of this endpoint, reached by this way.
    pub(super) fn choice(&self, next_hop: NextHop) -> Choice {
        Choice {
            next_hop,
            rank: self.rank,
            others: self.others,
            avoided: self.avoided,
            behind: None,
        }
    }

    /// What leaves no choice.
    pub(super) fn only(
        workload: &Arc<Workload>,
        port: u16,
        avoid: &dyn Fn(&Workload) -> bool,
    ) -> Self {
        Self {
            workload: workload.clone(),
            port,
            rank: 0,
            others: 0,
            avoided: avoid(workload),
        }
    }
}

/// What a service's port is asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A client dialled it: the service must have it.
    Client,
    /// It is a waypoint's: one that hands connections over to an application tunnel need not list its tunnel port.
    Waypoint,
}

/// Picks an endpoint of a service: healthy, reachable, of the best rank, by weight.
pub(super) fn choose(
    asker: &mut Asker<'_>,
    service: &Service,
    port: u16,
    purpose: Purpose,
) -> Result<Picked, Refusal> {
    let known = service.port(port);
    if known.is_none() && purpose == Purpose::Client {
        return Err(Refusal::UnknownPort {
            service: service.key.clone(),
            port,
            known: service.ports.iter().map(|map| map.service).collect(),
        });
    }
    let endpoints = asker.snapshot.endpoints(&service.key).map(|set| &**set);
    let (source, avoid) = (asker.source, asker.avoid);
    let port_of = |endpoint: &Endpoint| target_port(endpoint, known, port, purpose);
    let drawn = endpoints.and_then(|endpoints| {
        let list = endpoints.as_slice();
        let draw = |table: &Arc<Table>| {
            let avoided = |item: u32| list.get(item as usize).is_some_and(|e| avoid(&e.workload));
            table.draw(avoided, asker.random)
        };
        let make = || table(source, service, list, &port_of);
        let for_whom = (port, purpose == Purpose::Waypoint, source);
        let drawn = endpoints.with_table(for_whom, make, draw)?;
        let endpoint = list.get(drawn.item as usize)?;
        Some((drawn, &endpoint.workload, port_of(endpoint)?))
    });
    match drawn {
        Some((drawn, workload, port)) => Ok(Picked {
            workload: workload.clone(),
            port,
            rank: drawn.rank,
            others: drawn.others,
            avoided: drawn.avoided,
        }),
        None => Err(no_endpoint(source, service, port, endpoints)),
    }
}

/// The endpoints that a client may use for a service's port, by rank and weight; `None` if the service has no such port.
pub(super) fn table_of(
    snapshot: &Snapshot,
    source: &Workload,
    service: &Service,
    port: u16,
) -> Option<(Arc<EndpointSet>, Arc<Table>)> {
    let known = service.port(port)?;
    let endpoints = snapshot.endpoints(&service.key)?;
    let port_of = |endpoint: &Endpoint| target_port(endpoint, Some(known), port, Purpose::Client);
    let make = || table(source, service, endpoints.as_slice(), &port_of);
    let table = endpoints.with_table((port, false, source), make, Arc::clone);
    Some((Arc::clone(endpoints), table))
}

/// The endpoint of this place in a service's table.
pub(super) fn pick(
    service: &Service,
    endpoints: &EndpointSet,
    port: u16,
    drawn: &Drawn,
) -> Option<Picked> {
    let endpoint = endpoints.as_slice().get(drawn.item as usize)?;
    Some(Picked {
        port: target_port(endpoint, service.port(port), port, Purpose::Client)?,
        workload: Arc::clone(&endpoint.workload),
        rank: drawn.rank,
        others: drawn.others,
        avoided: drawn.avoided,
    })
}

/// The endpoints that a client may use, by rank and weight.
fn table(
    source: &Workload,
    service: &Service,
    endpoints: &[Endpoint],
    port_of: &dyn Fn(&Endpoint) -> Option<u16>,
) -> Table {
    let standard = Preference::default();
    let preference = service
        .load_balancing
        .as_ref()
        .map_or(&standard, |lb| &lb.preference);
    let place = source.place();
    Table::new((0u32..).zip(endpoints).filter_map(|(item, endpoint)| {
        let workload = &endpoint.workload;
        if !service.takes(workload.status) || !is_reachable(source, workload) {
            return None;
        }
        port_of(endpoint)?;
        let rank = preference.rank(&place, &workload.place())?;
        Some((item, rank, workload.capacity))
    }))
}

/// The endpoint's own mapping goes before the service's; without either the endpoint does not serve the port.
fn target_port(
    endpoint: &Endpoint,
    known: Option<ServicePort>,
    port: u16,
    purpose: Purpose,
) -> Option<u16> {
    let tunnel = endpoint.workload.application_tunnel.as_ref();
    if known.is_none() && tunnel.is_none() {
        return None;
    }
    endpoint
        .target_port(port)
        .or(known.map(|map| map.target).filter(|target| *target != 0))
        .or_else(|| {
            let hands_over = tunnel.is_some_and(|tunnel| tunnel.port.is_some());
            (purpose == Purpose::Waypoint && hands_over).then_some(port)
        })
}

/// On the source's own network by address or name, on another through its gateway.
fn is_reachable(source: &Workload, workload: &Workload) -> bool {
    if workload.network == source.network {
        !workload.addresses.is_empty() || !workload.hostname.is_empty()
    } else {
        workload.network_gateway.is_some()
    }
}

/// The refusal where a service has no endpoint for a client.
pub(super) fn no_endpoint(
    source: &Workload,
    service: &Service,
    port: u16,
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
        port,
        total: all().count(),
        unhealthy: all()
            .filter(|workload| !service.takes(workload.status))
            .count(),
        unreachable: all()
            .filter(|w| service.takes(w.status) && !is_reachable(source, w))
            .count(),
    }
}
