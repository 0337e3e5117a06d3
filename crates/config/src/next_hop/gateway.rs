//! Choice of the waypoint, and of the gateway of another network, between a client and its destination.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use lateen_types::ports;

use super::choose::{Asker, Picked, Purpose, choose};
use super::hop::{Draft, Inner, Kind, Via};
use super::place::{Placed, address_for, identities};
use super::{Authority, Refusal};
use crate::gateway::{GatewayAddress, GatewayDestination};
use crate::service::Service;
use crate::workload::Workload;

/// An endpoint of a waypoint or a gateway, with the service by which it was found.
struct Found {
    picked: Picked,
    service: Option<Arc<Service>>,
    /// The address whose family the endpoint's should have.
    wanted: IpAddr,
}

/// Why a reference leads nowhere.
enum Miss {
    /// Nothing has that name.
    Unknown,
    /// It has nobody who could serve.
    Refused(Refusal),
}

/// Through the waypoint of what was dialled. Its `:authority` is what the client dialled: the waypoint decides about
/// that, not about a workload.
pub(super) fn through_waypoint<'s>(
    asker: &mut Asker<'s>,
    waypoint: &GatewayAddress,
    behind: &dyn Fn() -> String,
    service: Option<&Arc<Service>>,
    destination: SocketAddr,
) -> Result<Placed<'s>, Refusal> {
    let found = match find(asker, waypoint, Purpose::Waypoint, destination.ip()) {
        Ok(found) => found,
        Err(Miss::Refused(unknown @ Refusal::Unknown(_))) => return Err(unknown),
        Err(Miss::Unknown) => {
            return Err(Refusal::UnknownWaypoint {
                target: behind(),
                waypoint: waypoint.destination.to_string(),
            });
        }
        Err(Miss::Refused(why)) => {
            return Err(Refusal::Waypoint {
                target: behind(),
                waypoint: waypoint.destination.to_string(),
                why: Box::new(why),
            });
        }
    };
    let workload = &found.picked.workload;
    if workload.network != asker.source.network {
        let Some(addressed) = service else {
            return Err(Refusal::OtherNetwork {
                workload: workload.uid.to_string(),
                network: workload.network.to_string(),
            });
        };
        let serving = found.service.clone();
        return through_gateway(
            asker,
            found.picked,
            serving.as_ref(),
            addressed,
            destination,
        );
    }
    let kind = Kind::Through {
        authority: destination.into(),
        identities: identities(found.service.as_deref(), workload),
        via: Via::Waypoint(waypoint.destination.to_string().into()),
    };
    found.place(asker, service, kind)
}

/// Through the gateway of the network that `picked` is on: `serving` is the service that it was picked from (a
/// waypoint's, if one is used), `addressed` the one that the client means. The gateway and the far end know the latter
/// by its hostname; addresses of one network mean nothing on another.
pub(super) fn through_gateway<'s>(
    asker: &mut Asker<'s>,
    picked: Picked,
    serving: Option<&Arc<Service>>,
    addressed: &Arc<Service>,
    destination: SocketAddr,
) -> Result<Placed<'s>, Refusal> {
    let remote = picked.workload;
    let network = || remote.network.to_string();
    let Some(gateway) = &remote.network_gateway else {
        return Err(Refusal::OtherNetwork {
            workload: remote.uid.to_string(),
            network: network(),
        });
    };
    let inner_identities = match serving {
        Some(service) if !service.subject_alt_names.is_empty() => service.subject_alt_names.clone(),
        _ => {
            return Err(Refusal::NoIdentities {
                service: serving.unwrap_or(addressed).key.clone(),
                network: network(),
            });
        }
    };
    let found = match find(asker, gateway, Purpose::Client, destination.ip()) {
        Ok(found) if reachable(asker.source, &found.picked.workload) => found,
        Err(Miss::Refused(unknown @ Refusal::Unknown(_))) => return Err(unknown),
        Ok(_) | Err(Miss::Unknown) => {
            return Err(Refusal::UnknownGateway {
                workload: remote.uid.to_string(),
                network: network(),
                gateway: gateway.destination.to_string(),
            });
        }
        Err(Miss::Refused(why)) => {
            return Err(Refusal::Gateway {
                workload: remote.uid.to_string(),
                network: network(),
                gateway: gateway.destination.to_string(),
                why: Box::new(why),
            });
        }
    };
    let authority = Authority::Host {
        hostname: addressed.hostname.clone(),
        port: destination.port(),
    };
    let kind = Kind::Through {
        authority: authority.clone(),
        identities: identities(found.service.as_deref(), &found.picked.workload),
        via: Via::Gateway(Box::new(Inner {
            authority,
            identities: inner_identities,
            network: asker.source.network.clone(),
            workload: remote,
        })),
    };
    found.place(asker, Some(addressed), kind)
}

/// Whether a gateway can be dialled from here. The control plane describes one under the network that it leads to, and its
/// address is meant for the others all the same; but one that itself stands behind a gateway has no address for us.
fn reachable(source: &Workload, gateway: &Workload) -> bool {
    gateway.network == source.network || gateway.network_gateway.is_none()
}

impl Found {
    fn place<'s>(
        self,
        asker: &mut Asker<'s>,
        service: Option<&Arc<Service>>,
        kind: Kind,
    ) -> Result<Placed<'s>, Refusal> {
        let Self {
            picked,
            service: own,
            wanted,
        } = self;
        let families = own.as_ref().and_then(|service| service.ip_families);
        let address = address_for(&picked.workload, wanted, families);
        let draft = Draft {
            workload: picked.workload.clone(),
            service: service.cloned(),
            port: picked.port,
            kind,
        };
        draft.place(asker, &picked, address, wanted)
    }
}

/// An endpoint of what a reference names. By address the family is the reference's, by hostname the client's.
fn find(
    asker: &mut Asker<'_>,
    gateway: &GatewayAddress,
    purpose: Purpose,
    dialled: IpAddr,
) -> Result<Found, Miss> {
    let port = match gateway.hbone_mtls_port {
        0 => ports::HBONE,
        port => port,
    };
    let snapshot = asker.snapshot;
    let (service, workload, wanted, want) = match &gateway.destination {
        GatewayDestination::Address(at) => {
            let namespace = &asker.source.namespace;
            (
                snapshot.service_for(namespace, &at.network, at.address),
                snapshot.workload(&at.network, at.address),
                at.address,
                snapshot.wants_address(&at.network, at.address),
            )
        }
        GatewayDestination::Hostname(key) => (
            snapshot.service_by_key(key),
            snapshot.workload_by_host(key),
            dialled,
            snapshot.wants_hostname(key),
        ),
    };
    match (service, workload) {
        (Some(service), _) => {
            let picked = choose(asker, service, port, purpose).map_err(Miss::Refused)?;
            Ok(Found {
                picked,
                service: Some(service.clone()),
                wanted,
            })
        }
        (None, Some(workload)) => Ok(Found {
            picked: Picked::only(workload, port, asker.avoid),
            service: None,
            wanted,
        }),
        (None, None) => Err(match want {
            Some(want) => Miss::Refused(Refusal::Unknown(want)),
            None => Miss::Unknown,
        }),
    }
}
