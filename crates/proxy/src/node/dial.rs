//! Dialling from inside a pod: a prepared socket, the source address, a time limit.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use lateen_identity::FetchError;
use lateen_netns::{Kind, SocketPool};
use lateen_tls::TlsError;
use lateen_types::WorkloadUid;
use tokio::net::{TcpSocket, TcpStream};

/// Why the next hop was not reached. Cloned to everybody who waited for the same tunnel.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DialError {
    /// No socket, or no connection.
    #[error("connection failed: {address}: {source}")]
    Connect {
        /// The next hop.
        address: SocketAddr,
        /// What the system said.
        source: Arc<io::Error>,
    },
    /// The next hop did not answer in time.
    #[error("connection failed: {0} did not answer in time; its pod may be gone")]
    Timeout(SocketAddr),
    /// The next hop's tunnel port did not answer in time.
    #[error("connection timed out, maybe a NetworkPolicy is blocking HBONE port 15008: {0}")]
    TunnelTimeout(SocketAddr),
    /// The pod holds its share of this process: a tunnel from it counts there for as long as it is open.
    #[error(
        "pod {0} holds its share of the proxy's descriptors: none is left for a tunnel from it; close idle connections of it, or raise the proxy's limit of open files"
    )]
    NoRoom(WorkloadUid),
    /// No certificate for our side.
    #[error("identity error: {0}")]
    Identity(Arc<FetchError>),
    /// TLS with the next hop.
    #[error("tls error: {0}")]
    Tls(Arc<TlsError>),
}

impl DialError {
    /// Whether the fault is the next hop's or on the way there, and not our own.
    pub(super) fn blames_endpoint(&self) -> bool {
        match self {
            Self::Connect { source, .. } => matches!(
                source.kind(),
                io::ErrorKind::ConnectionRefused
                    | io::ErrorKind::ConnectionReset
                    | io::ErrorKind::ConnectionAborted
                    | io::ErrorKind::HostUnreachable
                    | io::ErrorKind::NetworkUnreachable
                    | io::ErrorKind::TimedOut
            ),
            Self::Timeout(_) | Self::TunnelTimeout(_) => true,
            Self::Identity(_) | Self::NoRoom(_) => false,
            Self::Tls(error) => peers_fault(error),
        }
    }
}

/// Connects to `address` from inside the pod; from `source`'s address, where one is given, even if the pod does not own
/// it.
pub(crate) async fn dial(
    sockets: &Arc<SocketPool>,
    source: Option<IpAddr>,
    address: SocketAddr,
    limit: Duration,
) -> Result<TcpStream, DialError> {
    let connect = async {
        // A pod that talks to itself through its own service would meet its own connection there: it comes from us.
        let source = source
            .filter(|source| *source != address.ip() && source.is_ipv4() == address.is_ipv4());
        let kind = match (source.is_some(), address) {
            (false, SocketAddr::V4(_)) => Kind::Outbound,
            (false, SocketAddr::V6(_)) => Kind::Outbound6,
            (true, SocketAddr::V4(_)) => Kind::Transparent,
            (true, SocketAddr::V6(_)) => Kind::Transparent6,
        };
        let socket = TcpSocket::from_std_stream(sockets.take(kind).await?.into());
        if let Some(source) = source {
            socket.bind(SocketAddr::new(source, 0))?;
        }
        socket.connect(address).await
    };
    match tokio::time::timeout(limit, connect).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(source)) => Err(DialError::Connect {
            address,
            source: Arc::new(source),
        }),
        Err(_) => Err(DialError::Timeout(address)),
    }
}

/// Whether a handshake failed by what the peer is, and not by what we are.
pub(super) fn peers_fault(error: &TlsError) -> bool {
    !matches!(
        error,
        TlsError::OwnExpired { .. } | TlsError::Refused { .. } | TlsError::Other(_)
    )
}
