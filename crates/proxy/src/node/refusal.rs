//! Why a connection was refused or broke: the sentence for the access log, and the flag for the counters.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

use lateen_capture::zds::PodInfo;
use lateen_config::route;
use lateen_hbone::{ConnectError, StreamError, TunnelError};
use lateen_identity::FetchError;
use lateen_policy::DenyReason;
use lateen_relay::RelayError;
use lateen_telemetry::ResponseFlags;
use lateen_tls::TlsError;
use lateen_types::{Strng, WorkloadUid};

use super::dial::DialError;
use crate::live::Cut;

/// Why a connection was not served, or not to its end.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The client left before it was looked at.
    #[error("the client left: {0}")]
    Gone(io::Error),
    /// A connection to the proxy itself.
    #[error("{0} is the proxy's own port; a connection to it would lead back here")]
    Loop(SocketAddr),
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
    Route(#[from] route::Refusal),
    /// The next hop is known by hostname, and no resolver is asked yet.
    #[error("{0} has no address, and its hostname was not resolved; give its workload an address")]
    Unresolved(Strng),
    /// The next hop is another network's gateway, which takes a tunnel in a tunnel.
    #[error("the destination is on another network, and tunnels through gateways are not made yet")]
    GatewayUnsupported,
    /// A connection that wants a PROXY protocol header.
    #[error("the workload asks for PROXY protocol, which this proxy does not write yet")]
    ProxyProtocolUnsupported,
    /// The tunnel was asked for something that it must not lead to.
    #[error(transparent)]
    Inbound(#[from] route::InboundRefusal),
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
            _ => ResponseFlags::ConnectionFailure,
        }
    }
}

fn cut(reason: Cut) -> &'static str {
    match reason {
        Cut::Policy => "connection closed due to policy change",
        Cut::Revoked => "connection closed because the peer's certificate was revoked",
        Cut::Deadline => {
            "connection closed due to connection drain: this proxy ends, and the time that connections had to finish is \
             over; raise CONNECTION_TERMINATION_DEADLINE if they need longer"
        }
    }
}
