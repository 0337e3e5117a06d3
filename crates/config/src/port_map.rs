//! Mapping of a service's port to the port of an endpoint, and the protocol that is spoken there.

use lateen_proto::workload::AppProtocol;

/// A port of a service and the port that serves it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PortMap {
    /// The service's port, never 0.
    pub service: u16,
    /// The port that the application listens on; 0 where the owner leaves it open.
    pub target: u16,
    /// The protocol that the owner names.
    pub protocol: PortProtocol,
}

/// The protocol of a port, as its owner names it. Proxies that read requests go by it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum PortProtocol {
    /// The owner names none: the first bytes of a connection decide.
    #[default]
    Unknown,
    /// HTTP/1.1; HTTP/2 with prior knowledge passes as well.
    Http1,
    /// HTTP/2 without TLS.
    Http2,
    /// gRPC, which is HTTP/2.
    Grpc,
    /// Bytes that no proxy looks into.
    Tcp,
    /// TLS of the applications' own.
    Tls,
}

impl PortProtocol {
    /// The protocol of a value on the wire. A value of a later version of the contract is unknown, and detection decides.
    pub(crate) fn of(value: i32) -> Self {
        match AppProtocol::try_from(value) {
            Ok(AppProtocol::Http11) => Self::Http1,
            Ok(AppProtocol::Http2) => Self::Http2,
            Ok(AppProtocol::Grpc) => Self::Grpc,
            Ok(AppProtocol::Tcp) => Self::Tcp,
            Ok(AppProtocol::Tls) => Self::Tls,
            Ok(AppProtocol::Unknown) | Err(_) => Self::Unknown,
        }
    }
}
