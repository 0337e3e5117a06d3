//! Why there is no connection to an endpoint.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use lateen_hbone::{ConnectError, PoolError, TunnelError};
use lateen_identity::FetchError;
use lateen_tls::TlsError;
use lateen_types::Strng;

use super::owner::Owner;

/// Why there is no connection to an endpoint. Cloned to all requests that waited for it.
#[derive(Clone, Debug, thiserror::Error)]
pub enum UpstreamError {
    /// No socket, or nobody listens.
    #[error("connect to {address}: {source}")]
    Connect {
        /// The endpoint, or its tunnel port.
        address: SocketAddr,
        /// What the system said.
        source: Arc<io::Error>,
    },
    /// No answer in time.
    #[error("{0} did not answer in time; its pod may be gone, or a NetworkPolicy blocks the port")]
    Timeout(SocketAddr),
    /// No certificate for this proxy.
    #[error("identity error: {0}")]
    Identity(Arc<FetchError>),
    /// TLS with the endpoint's proxy.
    #[error("tls error: {0}")]
    Tls(Arc<TlsError>),
    /// No HTTP/2 with the endpoint's proxy.
    #[error("http2 handshake failed: {0}")]
    Tunnel(Rc<TunnelError>),
    /// The endpoint, or its proxy, allows too few streams.
    #[error(
        "every connection that may lead to {0} is full; it should allow more streams on each, and read the requests that it answers"
    )]
    Full(SocketAddr),
    /// [`UpstreamError::Full`], of the connections that one owner has beside those that all sources share.
    #[error(
        "every connection of {owner} to {address} is full: its requests there do not end, or the endpoint allows too few on each"
    )]
    FullOfOwner {
        /// The endpoint, or its tunnel port.
        address: SocketAddr,
        /// The owner of the connections.
        owner: Strng,
    },
    /// The endpoint's proxy did not take the stream.
    #[error("{0}")]
    Refused(Rc<ConnectError>),
    /// TLS with the endpoint on another network, behind its gateway.
    #[error("tls error behind the gateway: {0}")]
    Inner(Arc<TlsError>),
    /// No answer of the endpoint on another network in time.
    #[error(
        "nobody behind the gateway of network {0} finished a handshake in time; see whether the service has endpoints there"
    )]
    InnerSlow(Strng),
}

impl UpstreamError {
    /// The error of a pool's request for a stream to `address`.
    pub fn of(error: PoolError<Self>, address: SocketAddr) -> Self {
        match error {
            PoolError::Dial(error) => error,
            PoolError::Handshake(error) => Self::Tunnel(error),
            PoolError::Full => Self::Full(address),
            PoolError::Connect(error) => Self::Refused(error),
        }
    }

    /// Names the owner in an error about the owner's connections.
    pub(in crate::waypoint) fn of_owner(self, owner: &Owner) -> Self {
        match self {
            Self::Full(address) => Self::FullOfOwner {
                address,
                owner: owner.to_string().into(),
            },
            other => other,
        }
    }

    /// The address that was dialled, if that has failed.
    pub fn dialled(&self) -> Option<SocketAddr> {
        match self {
            Self::Connect { address, .. } | Self::Timeout(address) => Some(*address),
            _ => None,
        }
    }

    /// The failure of the transport, in the words of Envoy's log where it has some.
    pub fn transport(&self) -> String {
        match self {
            Self::Connect { source, .. } => {
                let text = source.to_string();
                let text = text.split(" (os error").next().unwrap_or_default();
                format!("delayed connect error: {text}")
            }
            Self::Tls(error) | Self::Inner(error) => format!("TLS error: {error}"),
            other => other.to_string(),
        }
    }

    /// True if another endpoint may do better. A fault of this proxy and an endpoint's policy are final.
    pub fn blames_endpoint(&self) -> bool {
        match self {
            Self::Connect { .. }
            | Self::Timeout(_)
            | Self::Full(_)
            | Self::FullOfOwner { .. }
            | Self::InnerSlow(_) => true,
            Self::Identity(_) => false,
            Self::Tls(error) | Self::Inner(error) => !matches!(
                **error,
                TlsError::OwnExpired { .. } | TlsError::Refused { .. } | TlsError::Other(_)
            ),
            Self::Tunnel(error) => !error.is_rejection(),
            Self::Refused(error) => match **error {
                ConnectError::Refused { status } => status == 503,
                ConnectError::Unprocessed(_) | ConnectError::Lost(_) | ConnectError::Reset(_) => {
                    true
                }
                ConnectError::Rejected(_) | ConnectError::Invalid(_) => false,
            },
        }
    }
}
