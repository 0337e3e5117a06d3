//! The proxy's own pod, and the Gateway that it serves.

use lateen_types::{Identity, NamespacedName, Strng, WorkloadUid};

/// The proxy's own pod, and the Gateway that it serves.
#[derive(Clone, Debug)]
pub struct Own {
    /// `namespace/name` of the Gateway.
    pub gateway: NamespacedName,
    /// The pod's name.
    pub pod: Strng,
    /// The pod's uid in the mesh.
    pub uid: WorkloadUid,
    /// The identity that the proxy proves.
    pub identity: Identity,
}
