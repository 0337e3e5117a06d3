//! Identities, names and ports that all other crates use, and the one type that says "this peer proved who it is". The crate
//! does no I/O, knows no protocol and decides nothing.
#![forbid(unsafe_code)]

mod identity;
mod name;
pub mod ports;

pub use identity::{Identity, IdentityError, VerifiedPeer};
pub use name::{NameError, NamespacedName, WorkloadUid};

/// A shared, immutable string: names are held by many tables and copied by reference count.
pub type Strng = std::sync::Arc<str>;

/// Which way a connection goes, seen from the workload on this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Towards the workload.
    Inbound,
    /// From the workload.
    Outbound,
}

impl std::fmt::Display for Direction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Direction::Inbound => "inbound",
            Direction::Outbound => "outbound",
        })
    }
}
