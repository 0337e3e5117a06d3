//! Address of a next hop, and its owner: an endpoint's address may belong to another workload or service.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use lateen_types::{Identity, WorkloadUid, ports};

use super::choose::{Asker, Picked};
use super::hop::{Choice, Draft, Kind, NextHop, Resolve, Tunnel, Via};
use super::outside::meant;
use super::refusal::{Refusal, unknown};
use crate::gateway::GatewayAddress;
use crate::service::{IpFamilies, Service};
use crate::workload::{Protocol, Workload};

/// A next hop, or what the address of an endpoint belongs to, which is to be reached instead.
pub(super) enum Placed<'s> {
    /// The next hop.
    Choice(Choice),
    /// A workload behind a waypoint has the endpoint's address.
    Waypoint {
        endpoint: WorkloadUid,
        workload: &'s Workload,
        waypoint: &'s GatewayAddress,
        target: SocketAddr,
    },
    /// A service has the endpoint's address.
    Service {
        endpoint: WorkloadUid,
        service: &'s Arc<Service>,
        target: SocketAddr,
    },
}

/// Services that may be endpoints of one another in a row.
const STEPS: usize = 4;

impl Draft {
    /// The next hop at an address that was chosen, or by its hostname if there is none.
    pub(super) fn place<'s>(
        self,
        asker: &mut Asker<'s>,
        picked: &Picked,
        address: Option<IpAddr>,
        wanted: IpAddr,
    ) -> Result<Placed<'s>, Refusal> {
        if let Some(address) = address {
            return self.at(asker, picked, address);
        }
        if self.workload.addresses.is_empty() && !self.workload.hostname.is_empty() {
            return Ok(Placed::Choice(picked.choice(NextHop::Resolve(Resolve {
                hostname: self.workload.hostname.clone(),
                port: self.port,
                prefers_ipv6: wanted.is_ipv6(),
                workload: self.workload.clone(),
                service: self.service.clone(),
                draft: Box::new(self),
                passed: asker.passed.clone(),
            }))));
        }
        Err(Refusal::NoAddress {
            workload: self.workload.uid.to_string(),
            wanted,
        })
    }

    /// The next hop at this address.
    pub(super) fn at<'s>(
        self,
        asker: &mut Asker<'s>,
        picked: &Picked,
        address: IpAddr,
    ) -> Result<Placed<'s>, Refusal> {
        let target = SocketAddr::new(address, self.port);
        match self.kind {
            Kind::Through {
                authority,
                identities,
                via,
            } => Ok(Placed::Choice(picked.choice(NextHop::Tunnel(Tunnel {
                workload: self.workload,
                service: self.service,
                hbone: target,
                authority,
                identities,
                via,
            })))),
            Kind::Direct => match self.workload.protocol {
                Protocol::Tcp => self.in_plain(asker, picked, target),
                Protocol::Hbone => {
                    let identities = identities(self.service.as_deref(), &self.workload);
                    let next_hop = tunnel(self.workload, self.service, target, identities)?;
                    Ok(Placed::Choice(picked.choice(next_hop)))
                }
            },
        }
    }

    /// To an endpoint that is outside the mesh, as its author says. Of the workload or service of the mesh that has the
    /// address, only its own word counts, and only its own identity: nobody else's entry may take a connection to it out
    /// of its tunnel or past its waypoint. At a pod's own address it is the pod, and only a pod's object says more: unless
    /// that is a Kubernetes Service's address, which no pod has.
    fn in_plain<'s>(
        self,
        asker: &mut Asker<'s>,
        picked: &Picked,
        target: SocketAddr,
    ) -> Result<Placed<'s>, Refusal> {
        let Self {
            workload, service, ..
        } = self;
        let (snapshot, source) = (asker.snapshot, asker.source);
        // A translator would send it to the pod or service of the mesh.
        let there = meant(target.ip());
        let is_in_mesh = || {
            let (network, namespace) = (&workload.network, &source.namespace);
            snapshot.workload(network, there).is_some()
                || snapshot
                    .virtual_service(namespace, network, there)
                    .is_some()
        };
        let target = match there != target.ip() && is_in_mesh() {
            true => SocketAddr::new(there, target.port()),
            false => target,
        };
        let address = target.ip();
        let is_pods = workload.is_pod()
            && workload.addresses.contains(&address)
            && !snapshot.is_cluster_ip(&workload.network, address);
        match snapshot.workload(&workload.network, address) {
            Some(found) if found.protocol == Protocol::Hbone && (found.is_pod() || !is_pods) => {
                if let Some(waypoint) = found.waypoint.as_deref()
                    && !asker.is_waypoint([waypoint].into_iter())
                {
                    return Ok(Placed::Waypoint {
                        endpoint: workload.uid.clone(),
                        workload: found,
                        waypoint,
                        target,
                    });
                }
                let identities = identities(None, found);
                let next_hop = tunnel(found.clone(), service, target, identities)?;
                let there = Picked::only(found, target.port(), asker.avoid);
                return Ok(Placed::Choice(Choice {
                    behind: Some(workload.uid.clone()),
                    ..there.choice(next_hop)
                }));
            }
            _ => {}
        }
        let namespace = &source.namespace;
        if !is_pods
            && let Some(found) = snapshot.virtual_service(namespace, &workload.network, address)
        {
            if asker.passed.contains(&found.key) {
                return Err(Refusal::Circle {
                    service: found.key.clone(),
                    endpoint: workload.uid.to_string(),
                    address,
                });
            }
            if asker.passed.len() >= STEPS {
                return Err(Refusal::TooFar {
                    service: found.key.clone(),
                    steps: STEPS,
                });
            }
            return Ok(Placed::Service {
                endpoint: workload.uid.clone(),
                service: found,
                target,
            });
        }
        unknown(snapshot.wants_address(&workload.network, address))?;
        Ok(Placed::Choice(picked.choice(NextHop::Plain {
            workload,
            service,
            target,
        })))
    }
}

/// The tunnel to a workload's own port.
fn tunnel(
    workload: Arc<Workload>,
    service: Option<Arc<Service>>,
    target: SocketAddr,
    identities: Vec<Identity>,
) -> Result<NextHop, Refusal> {
    // The far end would refuse it: such a request would make it connect to its own proxy.
    if ports::is_proxys_own(target.port()) {
        return Err(Refusal::LoopGuard { target });
    }
    Ok(NextHop::Tunnel(Tunnel {
        hbone: SocketAddr::new(target.ip(), ports::HBONE),
        authority: target.into(),
        identities,
        workload,
        service,
        via: Via::Direct,
    }))
}

/// Who may be at the far end of a tunnel to a workload, addressed by a service or itself.
pub(super) fn identities(service: Option<&Service>, workload: &Workload) -> Vec<Identity> {
    service
        .into_iter()
        .flat_map(|service| &service.subject_alt_names)
        .chain([&workload.identity])
        .cloned()
        .collect()
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
