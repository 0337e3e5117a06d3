//! The configuration in force as the waypoint reads it: the snapshot, and what is looked up in it once for all requests.

use std::sync::Arc;

use lateen_config::l7::RequestRules;
use lateen_config::{ServiceKey, Snapshot, Workload};

use super::mesh::Mesh;
use super::own::Own;

/// One generation of the configuration.
pub(super) struct View {
    pub(super) snapshot: Arc<Snapshot>,
    /// The proxy's own workload: routes begin there.
    pub(super) own: Arc<Workload>,
    /// The settings of the Gateway and of the mesh.
    pub(super) mesh: Arc<Mesh>,
    /// Counts the views of a worker.
    pub(super) number: u64,
}

impl View {
    /// The view of a snapshot; `before` is the one that it replaces. `None` if the control plane has not named the Gateway or
    /// the proxy's own workload yet: without the one nobody says how paths are compared, and without the other no route has a
    /// beginning. A workload that is named no longer, since its pod ends, stays until the process does. `tells` has this worker
    /// log what of the settings is not followed.
    pub(super) fn of(
        snapshot: Arc<Snapshot>,
        own: &Own,
        before: Option<&Self>,
        tells: bool,
    ) -> Option<Self> {
        let account = own.identity.service_account();
        let named = snapshot.workload_of_pod(own.identity.namespace(), &own.pod, account);
        let workload = named.or(before.map(|before| &before.own))?;
        let known = before.map(|before| &before.mesh);
        let mesh = match snapshot.gateway(&own.gateway) {
            Some(gateway) => Mesh::of(gateway, known, tells),
            // The Gateway goes before its proxies do.
            None => Arc::clone(known?),
        };
        Some(Self {
            own: Arc::clone(workload),
            mesh,
            snapshot,
            number: before.map_or(0, |before| before.number) + 1,
        })
    }

    /// The rules of requests for a service, or for a workload.
    pub(super) fn request_rules(&self, service: Option<&ServiceKey>) -> &Arc<RequestRules> {
        self.snapshot.request_rules(service)
    }
}
