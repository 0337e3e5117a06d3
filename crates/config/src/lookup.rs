//! Result of a look-up that missed, when resources are sent on demand: the name to subscribe to.

use std::fmt;
use std::net::IpAddr;

use lateen_types::Strng;

use crate::{NetworkAddress, ServiceKey};

/// A resource that a decision needs and that the control plane has not been asked for yet. Its text is the xDS name to
/// subscribe to: `network/address`, or `namespace/hostname`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Want(Strng);

impl Want {
    /// Whatever has this address: a service or a workload.
    pub fn address(network: &Strng, address: IpAddr) -> Self {
        let at = NetworkAddress {
            network: network.clone(),
            address,
        };
        Self(at.to_string().into())
    }

    /// The service (or the workload) of this hostname.
    pub fn hostname(key: &ServiceKey) -> Self {
        Self(key.to_string().into())
    }

    /// The xDS name.
    pub fn name(&self) -> &Strng {
        &self.0
    }
}

impl fmt::Display for Want {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
