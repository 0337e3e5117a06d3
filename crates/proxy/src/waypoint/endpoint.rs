//! An endpoint that was chosen for a request or a connection.

use std::sync::Arc;

use lateen_config::Workload;
use lateen_config::next_hop::{NextHop, Via};

use super::hop::{Hop, TunnelHop};
use super::upstream::UpstreamError;

/// An endpoint that was chosen.
#[derive(Clone, Debug)]
pub(super) struct Endpoint {
    pub(super) hop: Hop,
    /// The workload that serves there, if it is known.
    pub(super) workload: Option<Arc<Workload>>,
    /// There are no other endpoints that were not tried.
    pub(super) is_last: bool,
}

impl Endpoint {
    /// The endpoint of a next hop whose address is known.
    ///
    /// # Errors
    /// It is on another network.
    pub(super) fn of(next_hop: NextHop, is_last: bool) -> Result<Self, UpstreamError> {
        let workload = next_hop.workload().cloned();
        let hop = match next_hop {
            NextHop::Tunnel(tunnel) => {
                if let Via::Gateway(inner) = tunnel.via {
                    let network = inner.workload.network.clone();
                    return Err(UpstreamError::OtherNetwork(network));
                }
                Hop {
                    address: tunnel.hbone,
                    tunnel: Some(TunnelHop {
                        authority: tunnel.authority,
                        identities: tunnel.identities.into(),
                    }),
                }
            }
            NextHop::Plain { target, .. } | NextHop::Passthrough { target, .. } => Hop {
                address: target,
                tunnel: None,
            },
            NextHop::Resolve(_) => unreachable!("a hostname is resolved before"),
        };
        Ok(Self {
            hop,
            workload,
            is_last,
        })
    }
}
