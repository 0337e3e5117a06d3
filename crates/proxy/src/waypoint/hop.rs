//! The place of an endpoint: an address, and the tunnel that leads there where the endpoint is in the mesh.

use std::net::SocketAddr;
use std::sync::Arc;

use lateen_config::next_hop::Authority;
use lateen_types::{Identity, Strng};

/// A place that bytes can be sent to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hop {
    /// The endpoint's address, or that of its tunnel port.
    pub(super) address: SocketAddr,
    /// The tunnel; `None`: plain TCP.
    pub(super) tunnel: Option<TunnelHop>,
    /// The host whose connections serve the same requests, whichever of its addresses each leads to. `None`: those to the address
    /// do.
    pub(super) host: Option<Strng>,
    /// The source of the address. It bounds the number of those whose connections are kept.
    pub(super) source: AddressSource,
}

/// The source of an endpoint's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AddressSource {
    /// The configuration.
    Configured,
    /// A resolver. It may give any number of addresses.
    Found,
    /// The client, which dialled it. It may dial any number of addresses.
    Dialled,
}

/// What a tunnel is asked for, and the identities of which its far end must prove one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TunnelHop {
    pub(super) authority: Authority,
    pub(super) identities: Arc<[Identity]>,
    /// The tunnel inside it, if the far end is the gateway of another network.
    pub(super) inner: Option<InnerHop>,
}

/// A tunnel through the gateway of another network. It is asked for the same as the one that it is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct InnerHop {
    pub(super) identities: Arc<[Identity]>,
    /// The network that it comes from.
    pub(super) network: Strng,
    /// The network that it leads to, for messages.
    pub(super) to: Strng,
}

impl Hop {
    /// The application's address, as far as it is one.
    pub(super) fn application(&self) -> SocketAddr {
        match &self.tunnel {
            Some(TunnelHop {
                authority: Authority::Address(address),
                ..
            }) => *address,
            _ => self.address,
        }
    }
}
