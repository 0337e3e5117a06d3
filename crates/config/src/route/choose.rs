//! Which endpoint of a service a connection goes to.

use std::sync::Arc;

use lateen_balance::{Candidate, Preference, pick};

use super::Refusal;
use crate::Snapshot;
use crate::endpoints::{Endpoint, EndpointSet};
use crate::service::{Service, ServicePort};
use crate::workload::Workload;

/// Who asks, and by what means it may be answered.
pub(super) struct Asker<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) source: &'a Workload,
    /// Next hops to be left out as long as there are others.
    pub(super) avoid: &'a dyn Fn(&Workload) -> bool,
    /// Uniform below its argument.
    pub(super) random: &'a mut dyn FnMut(u64) -> u64,
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
    let standard = Preference::default();
    let preference = service
        .load_balancing
        .as_ref()
        .map_or(&standard, |lb| &lb.preference);
    let (source, avoid) = (asker.source, asker.avoid);
    let place = source.place();
    let candidates = endpoints.into_iter().flatten().filter_map(|endpoint| {
        let workload = &endpoint.workload;
        if !service.takes(workload.status) || !is_reachable(source, workload) {
            return None;
        }
        let item = (workload, target_port(endpoint, known, port, purpose)?);
        let rank = preference.rank(&place, &workload.place())?;
        Some(Candidate {
            rank,
            weight: workload.capacity,
            item,
        })
    });
    let usable = || candidates.clone().filter(|candidate| candidate.weight > 0);
    let fresh = || usable().filter(|candidate| !avoid(candidate.item.0));
    let picked = match pick(fresh(), asker.random) {
        Some((rank, item)) => Some((rank, item, false)),
        None => pick(usable(), asker.random).map(|(rank, item)| (rank, item, true)),
    };
    match picked {
        Some((rank, (workload, port), avoided)) => Ok(Picked {
            workload: workload.clone(),
            port,
            rank,
            others: fresh().count().saturating_sub(1),
            avoided,
        }),
        None => Err(no_endpoint(source, service, port, endpoints)),
    }
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

fn no_endpoint(
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
