//! Facts of the connection from which a request came, prepared once for all of its requests.

use std::net::{IpAddr, SocketAddr};

use crate::authority::HostPattern;
use crate::scheme::Scheme;

/// The place of the sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerKind {
    /// Outside of the mesh. Its statements about earlier hops are worth as much as the trusted proxies in front.
    ///
    /// The listener's role says so. An address never does: a private address proves nothing (CVE-2024-45806).
    Edge,
    /// A workload or proxy of the mesh, by its certificate or because it shares the pod.
    Mesh,
}

/// A client certificate that the TLS handshake verified, as text for `x-forwarded-client-cert`.
#[derive(Debug, Clone, Default)]
pub struct ClientCertificate {
    /// SHA-256 of the certificate, in hexadecimal digits.
    pub hash: String,
    /// The subject's distinguished name (RFC 2253).
    pub subject: String,
    /// URI names, of which a SPIFFE identity is one.
    pub uris: Vec<String>,
    /// DNS names.
    pub dns: Vec<String>,
    /// The certificate in PEM.
    pub pem: String,
    /// The chain in PEM.
    pub chain: String,
    /// URI names of the certificate of this proxy.
    pub local_uris: Vec<String>,
}

/// Facts of a connection.
#[derive(Debug, Clone)]
pub struct Downstream {
    pub(crate) kind: PeerKind,
    pub(crate) address: IpAddr,
    /// The address as `x-forwarded-for` has it.
    pub(crate) address_text: Box<str>,
    /// The scheme that the transport proves.
    pub(crate) scheme: Scheme,
    pub(crate) certificate: Option<ClientCertificate>,
    /// Hosts that the listener serves on this connection; all if empty.
    pub(crate) hosts: Vec<HostPattern>,
}

impl Downstream {
    /// A connection from `peer`. `scheme` is https if the connection has TLS.
    pub fn new(kind: PeerKind, peer: SocketAddr, scheme: Scheme) -> Downstream {
        let address = peer.ip().to_canonical();
        Downstream {
            kind,
            address,
            address_text: address.to_string().into(),
            scheme,
            certificate: None,
            hosts: Vec::new(),
        }
    }

    /// With a verified client certificate.
    pub fn with_certificate(mut self, certificate: ClientCertificate) -> Downstream {
        self.certificate = Some(certificate);
        self
    }

    /// With the hosts that the listener serves for the connection's server name. Others are answered with 421.
    pub fn with_hosts(mut self, hosts: Vec<HostPattern>) -> Downstream {
        self.hosts = hosts;
        self
    }
}

/// The address in an element of `x-forwarded-for`: with or without a port, with or without brackets.
pub(crate) fn parse_address(element: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(element).ok()?;
    let bare = text
        .strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'));
    let address = bare.unwrap_or(text).parse::<IpAddr>().ok();
    let address = address.or_else(|| Some(text.parse::<SocketAddr>().ok()?.ip()));
    address.map(|address| address.to_canonical())
}
