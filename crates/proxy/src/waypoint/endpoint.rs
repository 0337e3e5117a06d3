//! An endpoint that was chosen for a request or a connection.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use lateen_config::Workload;
use lateen_config::next_hop::{NextHop, Tunnel, Via};
use lateen_types::{Strng, WorkloadUid};

use super::hop::{AddressSource, Hop, InnerHop, TunnelHop};

/// An endpoint that was chosen.
#[derive(Clone, Debug)]
pub(super) struct Endpoint {
    pub(super) hop: Hop,
    /// The workload that serves there, if it is known. Behind the gateway of another network the gateway chooses it.
    pub(super) workload: Option<Arc<Workload>>,
    /// The endpoint that was picked; `None`: the address is the one that the client dialled.
    pub(super) uid: Option<WorkloadUid>,
}

impl Endpoint {
    /// The endpoint of a next hop whose address is known.
    pub(super) fn of(next_hop: NextHop) -> Self {
        let (hop, workload, uid) = match next_hop {
            NextHop::Tunnel(tunnel) => through(tunnel),
            NextHop::Plain {
                workload, target, ..
            } => {
                let uid = workload.uid.clone();
                let hop = plain(target, AddressSource::Configured);
                (hop, Some(workload), Some(uid))
            }
            NextHop::Passthrough { target, .. } => {
                (plain(target, AddressSource::Dialled), None, None)
            }
            NextHop::Resolve(_) => unreachable!("a hostname is resolved before"),
        };
        Self { hop, workload, uid }
    }

    /// Has requests share the connections of a host, whichever of its addresses they lead to.
    pub(super) fn of_host(mut self, host: Strng) -> Self {
        self.hop.host = Some(host);
        self
    }

    /// Notes that a resolver gave these addresses, if the endpoint has one of them itself.
    pub(super) fn found_among(mut self, answers: &[IpAddr]) -> Self {
        let Hop {
            address, tunnel, ..
        } = &self.hop;
        let is_same = |answer: &IpAddr| answer.to_canonical() == address.ip();
        if tunnel.is_none() && answers.iter().any(is_same) {
            self.hop.source = AddressSource::Found;
        }
        self
    }
}

fn plain(address: SocketAddr, source: AddressSource) -> Hop {
    Hop {
        address,
        tunnel: None,
        host: None,
        source,
    }
}

fn through(tunnel: Tunnel) -> (Hop, Option<Arc<Workload>>, Option<WorkloadUid>) {
    let (inner, workload, uid) = match tunnel.via {
        Via::Gateway(inner) => {
            let hop = InnerHop {
                identities: inner.identities.into(),
                network: inner.network,
                to: inner.workload.network.clone(),
            };
            (Some(hop), None, inner.workload.uid.clone())
        }
        Via::Direct | Via::Waypoint(_) => {
            let uid = tunnel.workload.uid.clone();
            (None, Some(tunnel.workload), uid)
        }
    };
    let hop = Hop {
        address: tunnel.hbone,
        tunnel: Some(TunnelHop {
            authority: tunnel.authority,
            identities: tunnel.identities.into(),
            inner,
        }),
        host: None,
        source: AddressSource::Configured,
    };
    (hop, workload, Some(uid))
}
