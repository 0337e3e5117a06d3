//! Application protocols of connections that carry HTTP (RFC 7301).

/// A protocol that ALPN names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Alpn {
    /// `h2`: HTTP/2 over TLS (RFC 9113 §3.2).
    Http2,
    /// `http/1.1` (RFC 7301 §6).
    Http1,
}

impl Alpn {
    /// The protocol's name on the wire.
    pub fn name(self) -> &'static [u8] {
        match self {
            Alpn::Http2 => b"h2",
            Alpn::Http1 => b"http/1.1",
        }
    }

    /// The protocol that a handshake agreed on. `None`: the peers did not negotiate one.
    pub(crate) fn negotiated(name: Option<&[u8]>) -> Option<Self> {
        [Alpn::Http2, Alpn::Http1]
            .into_iter()
            .find(|alpn| Some(alpn.name()) == name)
    }

    /// A list in the form that rustls takes, most preferred first.
    pub(crate) fn list(protocols: &[Alpn]) -> Vec<Vec<u8>> {
        protocols.iter().map(|alpn| alpn.name().to_vec()).collect()
    }
}
