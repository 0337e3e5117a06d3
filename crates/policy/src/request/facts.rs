//! The facts by which connections and requests are judged.

use std::net::{IpAddr, SocketAddr};

use lateen_http::FieldName;
use lateen_types::VerifiedPeer;

/// The facts of a connection. They hold for all of its requests.
#[derive(Debug, Clone, Copy)]
pub struct PeerFacts<'a> {
    /// The identity that the peer proved; `None` for plaintext.
    pub peer: Option<&'a VerifiedPeer>,
    /// The direct peer's address.
    pub source_ip: IpAddr,
    /// The destination of the request as the CONNECT named it: an address of the service, and the service's port.
    pub destination: SocketAddr,
    /// The server name of the TLS handshake (RFC 6066 §3), if there was one.
    pub sni: Option<&'a [u8]>,
}

/// The facts of a request. Texts are bytes: a path or a value that is not UTF-8 is judged like any other.
pub trait RequestFacts {
    /// The host with its port, if the request has one.
    fn authority(&self) -> &[u8];

    /// The method.
    fn method(&self) -> &[u8];

    /// The canonical path without the query: the one that is forwarded. Empty for a CONNECT, which has none.
    fn path(&self) -> &[u8];

    /// The canonical path with the query, which conditions on `:path` see.
    fn target(&self) -> &[u8];

    /// The scheme, which conditions on `:scheme` see.
    fn scheme(&self) -> &[u8];

    /// The values of all fields of a name, in order of arrival.
    fn fields<'a>(&'a self, name: &'a FieldName) -> impl Iterator<Item = &'a [u8]>;

    /// False only if there is no field of a name: then nobody need search for it.
    #[inline]
    fn may_have(&self, _name: &FieldName) -> bool {
        true
    }

    /// The client's address as far as header trust believes it.
    fn remote_ip(&self) -> IpAddr;

    /// True if there is anything in a place where a token is looked for. Tokens are not verified yet. An ALLOW rule with a
    /// condition on a token does not match a request with a token; other rules take the condition for true.
    fn token_present(&self) -> bool;
}
