//! The configuration in force as the waypoint reads it: the snapshot, and what is looked up in it once for all requests.

use std::sync::Arc;

use lateen_config::l7::{PathNormalization, RequestRules};
use lateen_config::{ServiceKey, Snapshot, Workload};
use lateen_http::{PathLevel, PathRules, Rules, Trust};

use super::own::Own;

/// One generation of the configuration.
pub(super) struct View {
    pub(super) snapshot: Arc<Snapshot>,
    /// The proxy's own workload: routes begin there.
    pub(super) own: Arc<Workload>,
    /// The rules for heads of requests.
    pub(super) rules: Rules,
}

impl View {
    /// The view of a snapshot; `before` is the one that it replaces. `None` if the control plane has not named the Gateway or
    /// the proxy's own workload yet: without the one nobody says how paths are compared, and without the other no route has a
    /// beginning. A workload that is named no longer, since its pod ends, stays until the process does.
    pub(super) fn of(snapshot: Arc<Snapshot>, own: &Own, before: Option<&Self>) -> Option<Self> {
        let account = own.identity.service_account();
        let named = snapshot.workload_of_pod(own.identity.namespace(), &own.pod, account);
        let workload = named.or(before.map(|before| &before.own))?;
        let gateway = snapshot.gateway(&own.gateway);
        let level = match gateway {
            Some(gateway) => level(gateway.settings.path_normalization),
            // The Gateway goes before its proxies do.
            None => before?.rules.path.level,
        };
        Some(Self {
            own: Arc::clone(workload),
            rules: Rules {
                path: PathRules {
                    level,
                    ..PathRules::default()
                },
                trust: Trust::waypoint(),
            },
            snapshot,
        })
    }

    /// The rules of requests for a service, or for a workload.
    pub(super) fn request_rules(&self, service: Option<&ServiceKey>) -> &RequestRules {
        self.snapshot.request_rules(service)
    }
}

fn level(normalization: PathNormalization) -> PathLevel {
    match normalization {
        PathNormalization::Base => PathLevel::Base,
        PathNormalization::None => PathLevel::None,
        PathNormalization::MergeSlashes => PathLevel::MergeSlashes,
        PathNormalization::DecodeAndMergeSlashes => PathLevel::DecodeAndMergeSlashes,
    }
}
