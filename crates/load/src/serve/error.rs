//! Errors of the service.

use std::io;
use std::net::SocketAddr;

/// Most addresses to listen on.
pub const MAX_LISTENERS: usize = 1000;

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
    /// There are more places to listen than tokens for them.
    #[error("listen on more than {MAX_LISTENERS} addresses: start a second service for the rest")]
    TooMany,
    /// TLS cannot be spoken.
    #[error(transparent)]
    Tls(#[from] crate::tls::TlsError),
    /// The kernel refused something that the event loop cannot do without.
    #[error("event loop: {0}")]
    Loop(#[from] io::Error),
}
