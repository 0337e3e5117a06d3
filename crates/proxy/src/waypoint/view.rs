//! The configuration in force as the waypoint reads it: the snapshot, and what is looked up in it once for all requests.

use std::sync::Arc;

use lateen_config::{Snapshot, Workload};

use super::own::Own;
use super::policy::Policies;

/// One generation of the configuration.
pub(super) struct View {
    pub(super) snapshot: Arc<Snapshot>,
    /// The proxy's own workload: routes begin there.
    pub(super) own: Arc<Workload>,
    /// The policies of the Gateway and of the services that are bound to it.
    pub(super) policies: Policies,
}

impl View {
    /// The view of a snapshot; `before` is the one that it replaces. `None` if the control plane has not named the proxy's
    /// own workload yet: without it no route has a beginning. A workload that is named no longer, since its pod ends,
    /// stays until the process does.
    pub(super) fn of(snapshot: Arc<Snapshot>, own: &Own, before: Option<&Self>) -> Option<Self> {
        let account = own.identity.service_account();
        let named = snapshot.workload_of_pod(own.identity.namespace(), &own.pod, account);
        let workload = named.or(before.map(|before| &before.own))?;
        Some(Self {
            own: Arc::clone(workload),
            policies: Policies::of(&snapshot, own),
            snapshot,
        })
    }
}
