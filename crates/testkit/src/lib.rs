//! Helpers that tests of several crates share: certificate authorities, identities, WDS builders. No program that is shipped
//! depends on this crate, and its certificates and objects are good for tests only.
#![forbid(unsafe_code)]

mod ca;
pub mod wds;

pub use ca::{Bundle, Ca, Leaf};

use lateen_types::{Identity, VerifiedPeer};

/// The identity of a service account in namespace `default` of trust domain `cluster.local`.
pub fn identity(service_account: &str) -> Identity {
    Identity::new("cluster.local", "default", service_account).expect("a test's name is valid")
}

/// A peer that counts as having proven the identity of a service account, which [`identity`] names.
pub fn verified_peer(service_account: &str) -> VerifiedPeer {
    VerifiedPeer::by_certificate(identity(service_account))
}
