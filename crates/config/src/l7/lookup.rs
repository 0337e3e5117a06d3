//! Look-ups of a waypoint.

use std::sync::Arc;

use lateen_types::NamespacedName;

use super::binding::Binding;
use super::gateway::Gateway;
use super::kinds::{BINDING, GATEWAY};
use crate::attached::RequestRules;
use crate::{ServiceKey, Snapshot};

impl Snapshot {
    /// The Gateway of this name. A proxy of a Gateway serves nothing without it.
    pub fn gateway(&self, name: &NamespacedName) -> Option<&Gateway> {
        self.resource(&GATEWAY, &name.to_string())
    }

    /// True if a Binding leads the traffic of a destination to a Gateway. The name is the destination's xDS name:
    /// `namespace/hostname` of a service, or a workload's uid.
    pub fn is_bound(&self, destination: &str, gateway: &NamespacedName) -> bool {
        let binding = self.resource::<Binding>(&BINDING, destination);
        binding.is_some_and(|binding| {
            let mut parents = binding.parents.iter();
            parents.any(|parent| parent.gateway == *gateway)
        })
    }

    /// The rules of requests for a service: the policies and token rules of the store's Gateway and of the service. `None`: those
    /// of requests for a workload, which are the Gateway's alone.
    pub fn request_rules(&self, service: Option<&ServiceKey>) -> &Arc<RequestRules> {
        let own = service.and_then(|service| self.request_rules.services.get(service));
        own.unwrap_or(&self.request_rules.gateway)
    }
}
