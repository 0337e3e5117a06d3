//! The labels that Istio's standard metrics of connections and of requests share, as Istio's proxies fill them.

use lateen_types::{Direction, Identity, Strng};

/// The proxy that reports a connection or a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reporter {
    /// The client's proxy.
    Source,
    /// The server's proxy.
    Destination,
    /// A waypoint, between the two.
    Waypoint,
}

impl From<Direction> for Reporter {
    fn from(direction: Direction) -> Self {
        match direction {
            Direction::Outbound => Self::Source,
            Direction::Inbound => Self::Destination,
        }
    }
}

impl Reporter {
    /// The label's value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Destination => "destination",
            Self::Waypoint => "waypoint",
        }
    }

    /// The access log's word for it.
    pub fn direction(self) -> &'static str {
        match self {
            Self::Source => "outbound",
            Self::Destination | Self::Waypoint => "inbound",
        }
    }
}

/// What cut a connection short; `None` for one that was served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ResponseFlags {
    /// Served.
    #[default]
    None,
    /// An authorization policy denied it.
    Denied,
    /// The upstream could not be reached or broke.
    ConnectionFailure,
    /// TLS with the peer failed.
    TlsFailure,
    /// The peer's certificate is revoked.
    CertificateRevoked,
    /// The peer does not speak HTTP/2 as a tunnel should.
    Http2Handshake,
    /// The tunnel's port did not answer: a NetworkPolicy may block it.
    NetworkPolicy,
    /// No certificate for the workload on this side.
    Identity,
}

impl ResponseFlags {
    /// All of them, in their order.
    pub(crate) const ALL: [Self; 8] = [
        Self::None,
        Self::Denied,
        Self::ConnectionFailure,
        Self::TlsFailure,
        Self::CertificateRevoked,
        Self::Http2Handshake,
        Self::NetworkPolicy,
        Self::Identity,
    ];

    /// The label's value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "-",
            Self::Denied => "DENY",
            Self::ConnectionFailure => "CONNECT",
            Self::TlsFailure => "TLS_FAILURE",
            Self::CertificateRevoked => "CERT_REVOKED",
            Self::Http2Handshake => "H2_HANDSHAKE_FAILURE",
            Self::NetworkPolicy => "NETWORK_POLICY",
            Self::Identity => "IDENTITY_ERROR",
        }
    }
}

/// What protects a connection between the two proxies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Security {
    /// Both ends proved who they are.
    MutualTls,
    /// Nothing that we know of.
    Unknown,
}

impl Security {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::MutualTls => "mutual_tls",
            Self::Unknown => "unknown",
        }
    }
}

/// One end of a connection; what is not known is reported as `unknown`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Party {
    /// The workload that the pod belongs to, such as a Deployment.
    pub workload: Option<Strng>,
    /// Istio's canonical service.
    pub canonical_service: Option<Strng>,
    /// Its revision.
    pub canonical_revision: Option<Strng>,
    /// The namespace.
    pub namespace: Option<Strng>,
    /// The identity: of a source, only one that TLS proved.
    pub principal: Option<Identity>,
    /// The `app` label.
    pub app: Option<Strng>,
    /// The `version` label.
    pub version: Option<Strng>,
    /// The cluster.
    pub cluster: Option<Strng>,
    /// Region and zone; the labels are left out where neither end has a locality.
    pub locality: Option<(Option<Strng>, Option<Strng>)>,
}

/// The service that a connection was addressed to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Service {
    /// Its host name.
    pub hostname: Strng,
    /// Its name.
    pub name: Strng,
    /// Its namespace.
    pub namespace: Strng,
}

/// All labels of one series.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Labels {
    /// Which end reports.
    pub reporter: Reporter,
    /// The client.
    pub source: Party,
    /// The service, where one was addressed.
    pub service: Option<Service>,
    /// The server.
    pub destination: Party,
    /// How it ended.
    pub flags: ResponseFlags,
    /// What protects it.
    pub security: Security,
}
