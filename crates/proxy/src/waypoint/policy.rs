//! What policies say about the requests of a stream: the seam between this role and the policy engine.

use lateen_config::{ServiceKey, Snapshot};
use lateen_http::{Canonical, PathRules};
use lateen_types::{NamespacedName, WorkloadUid};

use super::own::Own;

/// The policies of the Gateway and of the services that are bound to it, in one generation of the configuration.
#[derive(Debug, Default)]
pub(super) struct Policies {}

/// The verdict about a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It goes on.
    Admitted,
    /// 403.
    Denied {
        /// The policy that decided, where one did.
        policy: Option<NamespacedName>,
        /// The sentence for the log.
        reason: String,
    },
    /// 401: it carries a token, and tokens are not verified yet.
    TokenRefused {
        /// The RequestAuthentication that applies.
        policy: NamespacedName,
    },
}

impl Policies {
    /// The policies of a snapshot.
    pub(super) fn of(_: &Snapshot, _: &Own) -> Self {
        Self {}
    }

    /// True if a Binding leads a service's traffic through this Gateway.
    pub(super) fn binds_service(&self, _: &ServiceKey) -> bool {
        false
    }

    /// The same of a workload.
    pub(super) fn binds_workload(&self, _: &WorkloadUid) -> bool {
        false
    }

    /// The normalisation of paths.
    pub(super) fn path_rules(&self) -> PathRules {
        PathRules::default()
    }

    /// Decides about a request.
    pub(super) fn judge(&self, _: &Canonical) -> Verdict {
        Verdict::Admitted
    }

    /// Decides about a connection that nobody looks into.
    pub(super) fn judge_stream(&self) -> Verdict {
        Verdict::Admitted
    }
}
