//! Next hop of a connection, as the choice hands it to the code that dials.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use lateen_types::{Identity, Strng, WorkloadUid};

use super::authority::Authority;
use crate::ServiceKey;
use crate::service::Service;
use crate::workload::Workload;

/// Where a connection goes, and what else there was to choose from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// Where it goes.
    pub next_hop: NextHop,
    /// How near the next hop is by its service's order of preference, higher is nearer; 0 where nothing is ranked.
    pub rank: usize,
    /// How many other endpoints there are to be the next hop, of any rank, to be avoided or not. Asking again brings
    /// something new as long as fewer than these were tried, and the answer is not [`Choice::avoided`].
    pub others: usize,
    /// All candidates were to be avoided, so avoidance was ignored and this is one of them.
    pub avoided: bool,
    /// The endpoint by which the next hop was found, where that is another: the endpoint's address belongs to a service or a
    /// workload of the mesh, which is who is there. Rank, others and avoidance are then of what it belongs to.
    pub behind: Option<WorkloadUid>,
}

/// Where a connection goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NextHop {
    /// Through a tunnel: to a workload of the mesh, its waypoint, or another network's gateway.
    Tunnel(Tunnel),
    /// Straight to a workload that speaks no tunnel.
    Plain {
        /// The workload.
        workload: Arc<Workload>,
        /// The service that was addressed, if it was one.
        service: Option<Arc<Service>>,
        /// Where the connection goes.
        target: SocketAddr,
    },
    /// To a workload that has a hostname and no address: resolve that, then go on with [`Resolve::at`].
    Resolve(Resolve),
    /// Straight to where the client wanted: the mesh does not know the place, or its service says so.
    Passthrough {
        /// The client's destination.
        target: SocketAddr,
        /// The service that says so.
        service: Option<Arc<Service>>,
    },
}

impl NextHop {
    /// The workload at the next hop: what a failure to connect is the fault of.
    pub fn workload(&self) -> Option<&Arc<Workload>> {
        match self {
            NextHop::Tunnel(tunnel) => Some(&tunnel.workload),
            NextHop::Plain { workload, .. } => Some(workload),
            NextHop::Resolve(resolve) => Some(&resolve.workload),
            NextHop::Passthrough { .. } => None,
        }
    }

    /// The service that the client addressed, never a waypoint's or a gateway's.
    pub fn service(&self) -> Option<&Arc<Service>> {
        match self {
            NextHop::Tunnel(tunnel) => tunnel.service.as_ref(),
            NextHop::Resolve(resolve) => resolve.service.as_ref(),
            NextHop::Plain { service, .. } | NextHop::Passthrough { service, .. } => {
                service.as_ref()
            }
        }
    }
}

/// A CONNECT request in a tunnel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tunnel {
    /// The workload at the far end of the tunnel: the destination, or the waypoint or gateway in between.
    pub workload: Arc<Workload>,
    /// The service that the client addressed, if it was one; its hostname goes into `forwarded`.
    pub service: Option<Arc<Service>>,
    /// Where the tunnel's connection goes.
    pub hbone: SocketAddr,
    /// What the CONNECT request asks for: of a workload its own address, of a waypoint what the client dialled, of a
    /// gateway the service's hostname and port.
    pub authority: Authority,
    /// The identities of which the far end must prove one.
    pub identities: Vec<Identity>,
    /// What is at the far end.
    pub via: Via,
}

/// What is at the far end of a tunnel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Via {
    /// The destination itself.
    Direct,
    /// A waypoint, by the reference that leads to it; it goes on from there.
    Waypoint(Strng),
    /// Another network's gateway: it passes bytes on to where a second tunnel inside the first one ends.
    Gateway(Box<Inner>),
}

/// The tunnel inside the tunnel to a gateway: TLS of its own and one CONNECT request. Never shared between
/// connections: the gateway chooses an endpoint for each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inner {
    /// What the inner CONNECT request asks for: the same as the outer.
    pub authority: Authority,
    /// The identities of which the inner tunnel's far end must prove one: the service's, because the endpoint is not
    /// ours to choose. Never empty.
    pub identities: Vec<Identity>,
    /// The network that the connection comes from, for the inner request's `x-forwarded-network`.
    pub network: Strng,
    /// The endpoint that was picked on the other network; it tells the network, not who serves in the end.
    pub workload: Arc<Workload>,
}

/// A next hop that is known by hostname only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolve {
    /// The name to look up.
    pub hostname: Strng,
    /// The port at the next hop, for messages.
    pub port: u16,
    /// The client dialled an IPv6 address: prefer such an answer.
    pub prefers_ipv6: bool,
    /// The workload of that hostname.
    pub workload: Arc<Workload>,
    /// The service that the client addressed, if it was one.
    pub service: Option<Arc<Service>>,
    pub(super) draft: Box<Draft>,
    /// The services on the way here.
    pub(super) passed: Vec<ServiceKey>,
}

impl Resolve {
    /// One of the answers: of the client's family if there is any, by chance among those.
    pub fn pick(&self, answers: &[IpAddr], random: &mut dyn FnMut(u64) -> u64) -> Option<IpAddr> {
        let matching = answers
            .iter()
            .filter(|ip| ip.to_canonical().is_ipv6() == self.prefers_ipv6)
            .count();
        let any = matching == 0;
        let count = if any { answers.len() } else { matching };
        if count == 0 {
            return None;
        }
        let at = usize::try_from(random(count as u64)).unwrap_or(0);
        answers
            .iter()
            .filter(|ip| any || ip.to_canonical().is_ipv6() == self.prefers_ipv6)
            .nth(at)
            .map(IpAddr::to_canonical)
    }
}

/// A next hop without its address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Draft {
    pub(super) workload: Arc<Workload>,
    /// The service that the client addressed.
    pub(super) service: Option<Arc<Service>>,
    /// The port that the next hop listens on: the application's, or that of the waypoint's or gateway's tunnels.
    pub(super) port: u16,
    pub(super) kind: Kind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    /// The workload itself, in the way that it speaks.
    Direct,
    /// Something in between, always by tunnel.
    Through {
        authority: Authority,
        identities: Vec<Identity>,
        via: Via,
    },
}
