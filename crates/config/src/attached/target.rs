//! What a policy is attached to.

use lateen_types::NamespacedName;
use serde::Serialize;

use crate::ServiceKey;

/// What a policy is attached to.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Target {
    /// Every request that the proxies of a Gateway take.
    Gateway(NamespacedName),
    /// Requests for a service.
    Service(ServiceKey),
}
