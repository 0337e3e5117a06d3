//! Reasons for which a connection was refused or broke: the sentence for the access log, and the flag for the counters.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use lateen_config::next_hop;
use lateen_hbone::{ConnectError, Status, StreamError, TunnelError};
use lateen_identity::FetchError;
use lateen_policy::DenyReason;
use lateen_proxy_protocol::EncodeError;
use lateen_relay::RelayError;
use lateen_telemetry::ResponseFlags;
use lateen_tls::TlsError;
use lateen_types::{Strng, WorkloadUid};
use lateen_xds::LookupError;
use lateen_zds::PodInfo;

use super::dial::{DialError, peers_fault};
use crate::connection_table::{Cut, Fault};
use crate::dns::ResolveError;

/// Why a connection was not served, or not to its end.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The client left before it was looked at.
    #[error("the client left: {0}")]
    Gone(io::Error),
    /// A connection to the proxy itself.
    #[error("{0} is the proxy's own port; a connection to it would lead back here")]
    Loop(SocketAddr),
    /// Plaintext for a port on which the application believes what a PROXY protocol header says.
    #[error(
        "{0} is the application tunnel of its workload, which believes the PROXY header that comes first; only connections that came through a tunnel are led there"
    )]
    Unproven(SocketAddr),
    /// No configuration yet.
    #[error(
        "the control plane has not sent its configuration yet; nothing is let through until it has"
    )]
    NotConfigured,
    /// The control plane does not know the pod.
    #[error(
        "the control plane names no workload for pod {}/{} with service account {}; nothing is let through until it does",
        .0.namespace, .0.name, .0.service_account
    )]
    UnknownWorkload(PodInfo),
    /// The pod holds its share of this process.
    #[error(
        "pod {0} holds its share of the proxy's descriptors; close idle connections to it, or raise the proxy's limit of open files"
    )]
    NoRoom(WorkloadUid),
    /// The configuration leads nowhere.
    #[error(transparent)]
    NextHop(#[from] next_hop::Refusal),
    /// The control plane did not say what the destination is.
    #[error(transparent)]
    Lookup(#[from] LookupError),
    /// The next hop is known by hostname, which was not resolved.
    #[error("{0}")]
    Unresolved(#[from] ResolveError),
    /// The next hop is known by hostname, which has no address of use.
    #[error(
        "{0} has no address that can be used; give its workload an address, or correct the name"
    )]
    NoAddress(Strng),
    /// Several endpoints were tried.
    #[error("{last}; {tried} endpoints were tried")]
    Tried {
        /// Why the last one was not reached.
        last: Box<Refusal>,
        /// How many.
        tried: usize,
    },
    /// The way leads through a waypoint, which could not be reached or did not take the connection.
    #[error(
        "the waypoint {waypoint}: {why}; nothing goes around it: see whether its pods run and listen"
    )]
    Waypoint {
        /// The reference that leads to it.
        waypoint: Strng,
        /// What happened.
        why: Box<Refusal>,
    },
    /// TLS with the far end of a tunnel through another network's gateway.
    #[error("tls error behind the gateway: {0}")]
    Inner(Arc<TlsError>),
    /// The far end of a tunnel through another network's gateway.
    #[error(
        "nobody behind the gateway finished the handshake of the inner tunnel from network {0:?} in time; its endpoints may be gone"
    )]
    InnerSlow(Strng),
    /// The header of the application tunnel.
    #[error("{0}")]
    Header(#[from] EncodeError),
    /// The application did not take the header of its tunnel.
    #[error("write the PROXY header to {address}: {source}; the application must read it")]
    Handover {
        /// The application tunnel's address.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The tunnel was asked for something that it must not lead to.
    #[error(transparent)]
    Inbound(#[from] next_hop::InboundRefusal),
    /// No certificate for our side.
    #[error("identity error: {0}")]
    Identity(#[from] FetchError),
    /// The peer's side of TLS.
    #[error("tls error: {0}")]
    Tls(#[from] TlsError),
    /// The peer took too long.
    #[error(
        "the peer did not finish the handshake of its tunnel in time; it may be stuck, or no proxy"
    )]
    Slow,
    /// A policy says no.
    #[error("connection closed due to policy rejection: {0}")]
    Denied(DenyReason),
    /// It could go on, but is not to.
    #[error("{}", cut(*.0))]
    Cut(Cut),
    /// The next hop could not be reached.
    #[error(transparent)]
    Dial(#[from] DialError),
    /// The next hop speaks no tunnel.
    #[error("http2 handshake failed: {0}")]
    Tunnel(Rc<TunnelError>),
    /// The next hop allows too few streams on each tunnel.
    #[error("every tunnel that may lead to {0} is full; it should allow more streams on each")]
    TunnelsFull(SocketAddr),
    /// The next hop did not take the request.
    #[error("{0}")]
    Connect(Rc<ConnectError>),
    /// The peer gave up while the application was dialled.
    #[error("the peer gave up before the application was reached")]
    Cancelled,
    /// The peer gave up before it was answered.
    #[error("{0}")]
    Unanswered(#[from] StreamError),
    /// One side broke while bytes flowed.
    #[error("{}", standing(.0))]
    Broken(RelayError),
}

/// A relay's error, and the setting that decided it where one did.
fn standing(error: &RelayError) -> String {
    match error {
        RelayError::Broken { .. } => error.to_string(),
        RelayError::Idle { .. } => format!("{error}; LATEEN_IDLE_TIMEOUT sets it"),
        RelayError::HalfClosed { .. } => format!("{error}; LATEEN_HALF_CLOSE_TIMEOUT sets it"),
    }
}

impl Refusal {
    /// The counters' word for it.
    pub fn flags(&self) -> ResponseFlags {
        match self {
            Self::Denied(_) | Self::Cut(Cut::Policy) => ResponseFlags::Denied,
            Self::Cut(Cut::Revoked) => ResponseFlags::CertificateRevoked,
            Self::Tls(TlsError::Revoked) => ResponseFlags::CertificateRevoked,
            Self::Dial(DialError::Tls(error)) if matches!(**error, TlsError::Revoked) => {
                ResponseFlags::CertificateRevoked
            }
            Self::Identity(_) | Self::Dial(DialError::Identity(_)) => ResponseFlags::Identity,
            Self::Tls(_) | Self::Slow | Self::Dial(DialError::Tls(_)) => ResponseFlags::TlsFailure,
            Self::Dial(DialError::TunnelTimeout(_)) => ResponseFlags::NetworkPolicy,
            // With TLS 1.3 a peer refuses our certificate when our side of the handshake is done already.
            Self::Tunnel(error) if error.is_rejection() => ResponseFlags::TlsFailure,
            Self::Connect(error) if matches!(**error, ConnectError::Rejected(_)) => {
                ResponseFlags::TlsFailure
            }
            Self::Tunnel(_) => ResponseFlags::Http2Handshake,
            Self::Tried { last: why, .. } | Self::Waypoint { why, .. } => why.flags(),
            Self::Inner(_) | Self::InnerSlow(_) => ResponseFlags::TlsFailure,
            _ => ResponseFlags::ConnectionFailure,
        }
    }

    /// The party that decided. A server's proxy answers 401 for nothing but a policy; ztunnel does the same.
    pub fn fault(&self) -> Fault {
        match self {
            Self::Denied(_) | Self::Cut(Cut::Policy) => Fault::Denied,
            Self::Connect(error) if matches!(**error, ConnectError::Refused { status } if status == Status::Unauthorized.code()) => {
                Fault::DeniedByPeer
            }
            Self::Tried { last: why, .. } | Self::Waypoint { why, .. } => why.fault(),
            _ => Fault::Failed,
        }
    }

    /// Whether another endpoint might do better. A policy's refusal, a fault of our own (certificate, descriptors) and
    /// what would fail everywhere are no endpoint's fault.
    pub(super) fn blames_endpoint(&self) -> bool {
        match self {
            Self::Dial(error) => error.blames_endpoint(),
            Self::Waypoint { why, .. } => why.blames_endpoint(),
            Self::Inner(error) => peers_fault(error),
            Self::Unresolved(error) => error.blames_name(),
            Self::InnerSlow(_) | Self::NoAddress(_) | Self::TunnelsFull(_) => true,
            // Found out when the endpoint's name was resolved.
            Self::NextHop(next_hop::Refusal::Circle { .. } | next_hop::Refusal::TooFar { .. }) => {
                true
            }
            Self::Tunnel(error) => !error.is_rejection(),
            Self::Connect(error) => match **error {
                ConnectError::Refused { status } => status == 503,
                ConnectError::Unprocessed(_) | ConnectError::Lost(_) | ConnectError::Reset(_) => {
                    true
                }
                ConnectError::Rejected(_) | ConnectError::Invalid(_) => false,
            },
            _ => false,
        }
    }

    /// The same, as a failure of the waypoint on the way if it is one.
    pub(super) fn on_the_way(self, via: Option<Strng>) -> Self {
        match via {
            Some(waypoint) if self.blames_endpoint() => Self::Waypoint {
                waypoint,
                why: Box::new(self),
            },
            _ => self,
        }
    }

    /// The same, with how many endpoints were tried if they were several.
    pub(super) fn after(self, tried: usize) -> Self {
        match tried {
            0 | 1 => self,
            tried => Self::Tried {
                last: Box::new(self),
                tried,
            },
        }
    }
}

fn cut(reason: Cut) -> &'static str {
    match reason {
        Cut::Policy => "connection closed due to policy change",
        Cut::Revoked => "connection closed because the peer's certificate was revoked",
        Cut::Gone => "connection closed because its pod has ended",
        Cut::Lost => {
            "connection closed because the tunnel between its two pods was lost, through which each had proven itself"
        }
        Cut::Deadline => {
            "connection closed due to connection drain: this proxy ends, and the time that connections had to finish is \
             over; raise CONNECTION_TERMINATION_DEADLINE if they need longer"
        }
    }
}
