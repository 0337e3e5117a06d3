//! Reasons for which the process cannot start, or go on.

use std::io;

use lateen_identity::CaError;

use crate::revocations;

/// Why the proxy cannot start, or go on.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The system refuses something that the proxy cannot do without.
    #[error("{0}")]
    System(#[from] io::Error),
    /// Connections are accepted no more. The agent keeps the listeners for the next process.
    #[error("{0}")]
    AcceptFailed(io::Error),
    /// The certificate authority's settings.
    #[error("{0}")]
    Authority(#[from] CaError),
    /// The revocation lists.
    #[error("{0}")]
    Revocations(#[from] revocations::Unusable),
    /// The control plane's settings.
    #[error("XDS_ADDRESS={0:?}: use https://HOST:PORT")]
    Address(String),
    /// A header of the control plane's settings.
    #[error("XDS_HEADER_{0}: name or value has characters that a header cannot carry")]
    Header(String),
}
