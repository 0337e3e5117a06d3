//! Errors of the service.

use std::io;
use std::net::SocketAddr;

/// Why the service cannot run.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address is not to be had.
    #[error(
        "listen on {address}: {source}; is the port taken, and is the address one of this host?"
    )]
    Listen {
        /// The address that was asked for.
        address: SocketAddr,
        /// What the kernel said.
        source: io::Error,
    },
    /// TLS cannot be spoken.
    #[error(transparent)]
    Tls(#[from] crate::tls::TlsError),
    /// The kernel refused something that the event loop cannot do without.
    #[error("event loop: {0}")]
    Loop(#[from] io::Error),
}
