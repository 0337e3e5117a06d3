//! `:authority` of a CONNECT request, as far as routing makes or reads one.

use std::fmt;
use std::net::SocketAddr;

use lateen_types::Strng;

/// What a CONNECT request asks for. Written `ip:port`, `[ipv6]:port` or `hostname:port`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Authority {
    /// An address: of a workload, or the one that the client dialled.
    Address(SocketAddr),
    /// A service, by the name that every network knows it by.
    Host {
        /// The service's hostname.
        hostname: Strng,
        /// The service's port, not the application's.
        port: u16,
    },
}

impl Authority {
    /// Reads what a peer sent; `None` if it is neither form.
    pub fn parse(text: &str) -> Option<Self> {
        if let Ok(address) = text.parse::<SocketAddr>() {
            return (address.port() != 0).then_some(Authority::Address(address));
        }
        let (hostname, port) = text.rsplit_once(':')?;
        // Digits alone: Rust's own parser would take a sign.
        let digits = port.bytes().all(|byte| byte.is_ascii_digit());
        let port = port.parse().ok().filter(|port| digits && *port != 0)?;
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '*');
        (!hostname.is_empty() && hostname.chars().all(is_name)).then(|| Authority::Host {
            hostname: hostname.into(),
            port,
        })
    }
}

impl From<SocketAddr> for Authority {
    fn from(address: SocketAddr) -> Self {
        Authority::Address(address)
    }
}

impl fmt::Display for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Authority::Address(address) => address.fmt(f),
            Authority::Host { hostname, port } => write!(f, "{hostname}:{port}"),
        }
    }
}
