//! Look-ups of a waypoint.

use std::sync::Arc;

use lateen_types::NamespacedName;

use super::binding::Binding;
use super::gateway::Gateway;
use super::kinds::{BINDING, GATEWAY};
use crate::attached::RequestRules;
use crate::{ServiceKey, Snapshot};

/// The standing of a destination's traffic to a Gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The Gateway takes it.
    Bound,
    /// The Gateway serves the connections that it has, and gets no new ones.
    Leaving,
    /// The Gateway takes none of it.
    Unbound,
}

impl Snapshot {
    /// The Gateway of this name. A proxy of a Gateway serves nothing without it.
    pub fn gateway(&self, name: &NamespacedName) -> Option<&Gateway> {
        self.resource(&GATEWAY, &name.to_string())
    }

    /// The standing of a destination's traffic to a Gateway, as the destination's Binding says. The name is the
    /// destination's xDS name: `namespace/hostname` of a service, or a workload's uid.
    pub fn standing(&self, destination: &str, gateway: &NamespacedName) -> Standing {
        let binding = self.resource::<Binding>(&BINDING, destination);
        let Some(binding) = binding else {
            return Standing::Unbound;
        };
        let mut parents = binding.parents.iter();
        match parents.any(|parent| parent.gateway == *gateway) {
            false => Standing::Unbound,
            true if binding.leaving.contains(gateway) => Standing::Leaving,
            true => Standing::Bound,
        }
    }

    /// The rules of requests for a service: the policies and token rules of the store's Gateway and of the service. `None`: those
    /// of requests for a workload, which are the Gateway's alone.
    pub fn request_rules(&self, service: Option<&ServiceKey>) -> &Arc<RequestRules> {
        let own = service.and_then(|service| self.request_rules.services.get(service));
        own.unwrap_or(&self.request_rules.gateway)
    }
}
