//! Errors of a run.

use std::io;
use std::net::SocketAddr;

use crate::target::TargetError;
use crate::tls::TlsError;

/// A reason why a run could not begin or go on.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A URL is of no use.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// TLS cannot be set up as it was asked for.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The options do not fit together.
    #[error("{0}")]
    Plan(String),
    /// No connection to the target before the start; the fault, and a cure.
    #[error("connect to {0}: {1}")]
    Connect(SocketAddr, String),
    /// The kernel refused something that the event loop cannot do without.
    #[error("event loop: {0}")]
    Loop(#[from] io::Error),
}
