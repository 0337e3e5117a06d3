//! Sets of well-known names as bits, and the classes of names that the rules of this crate speak of.

use super::Known;
use super::list::ALL;

/// A set of well-known names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct NameSet(u128);

impl NameSet {
    pub(crate) const fn of(names: &[Known]) -> NameSet {
        let mut bits = 0;
        let mut n = 0;
        while n < names.len() {
            bits |= 1 << names[n] as u8;
            n += 1;
        }
        NameSet(bits)
    }

    /// All names that begin with `prefix`.
    const fn with_prefix(prefix: &[u8]) -> NameSet {
        let mut bits = 0;
        let mut n = 0;
        while n < ALL.len() {
            let text = ALL[n].as_str().as_bytes();
            let mut at = 0;
            while at < prefix.len() && at < text.len() && text[at] == prefix[at] {
                at += 1;
            }
            if at == prefix.len() {
                bits |= 1 << n;
            }
            n += 1;
        }
        NameSet(bits)
    }

    pub(crate) const fn and(self, other: NameSet) -> NameSet {
        NameSet(self.0 & other.0)
    }

    pub(crate) const fn or(self, other: NameSet) -> NameSet {
        NameSet(self.0 | other.0)
    }

    #[inline]
    pub(crate) const fn has(self, name: Known) -> bool {
        self.0 >> name as u8 & 1 == 1
    }

    #[inline]
    pub(crate) fn insert(&mut self, name: Known) {
        self.0 |= 1 << name as u8;
    }

    #[inline]
    pub(crate) fn remove(&mut self, name: Known) {
        self.0 &= !(1 << name as u8);
    }

    pub(crate) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The members, least number first.
    pub(crate) fn iter(mut self) -> impl Iterator<Item = Known> {
        std::iter::from_fn(move || {
            let known = *ALL.get(self.0.trailing_zeros() as usize)?;
            self.0 &= self.0 - 1;
            Some(known)
        })
    }

    /// Fields of one connection, which no intermediary passes on (RFC 9110 §7.6.1, RFC 9113 §8.2.2).
    pub(crate) const HOP_BY_HOP: NameSet = NameSet::of(&[
        Known::Connection,
        Known::Http2Settings,
        Known::KeepAlive,
        Known::ProxyConnection,
        Known::Te,
        Known::TransferEncoding,
        Known::Upgrade,
    ]);

    /// Connection-specific fields that make an HTTP/2 message malformed (RFC 9113 §8.2.2).
    pub(crate) const FORBIDDEN_IN_HTTP2: NameSet = NameSet::of(&[
        Known::Connection,
        Known::KeepAlive,
        Known::ProxyConnection,
        Known::TransferEncoding,
        Known::Upgrade,
    ]);

    /// Fields that a writer of HTTP/1 makes itself or must look at: framing, persistence, upgrades and the host.
    pub(crate) const OF_WRITERS: NameSet =
        NameSet::HOP_BY_HOP.or(NameSet::of(&[Known::ContentLength, Known::Host]));

    /// Fields that say how long a message is, for whom, or who sends it. With underscores in its name no such field passes.
    pub(crate) const DISGUISED: NameSet =
        NameSet::OF_WRITERS.or(NameSet::of(&[Known::XForwardedClientCert]));

    /// `x-envoy-*`.
    pub(crate) const ENVOY: NameSet = NameSet::with_prefix(b"x-envoy-");

    /// Fields that this proxy writes for itself. Nobody may send them.
    pub(crate) const OWN: NameSet = NameSet::of(&[
        Known::XEnvoyInternal,
        Known::XEnvoyOriginalDstHost,
        Known::XEnvoyOriginalPath,
    ]);

    /// Statements about earlier hops that the edge believes of trusted proxies alone.
    pub(crate) const FORWARDED: NameSet = NameSet::of(&[
        Known::Forwarded,
        Known::XForwardedHost,
        Known::XForwardedPort,
        Known::XForwardedPrefix,
        Known::XRealIp,
    ]);

    /// Statements of the mesh about itself that the edge never believes.
    pub(crate) const MESH: NameSet = NameSet::of(&[
        Known::Baggage,
        Known::XForwardedNetwork,
        Known::XIstioSource,
    ]);

    /// Trace context of all formats.
    pub(crate) const TRACE: NameSet = NameSet::of(&[
        Known::B3,
        Known::Traceparent,
        Known::Tracestate,
        Known::XB3Flags,
        Known::XB3Parentspanid,
        Known::XB3Sampled,
        Known::XB3Spanid,
        Known::XB3Traceid,
    ]);

    /// Fields on which framing, routing, policy or trust depend. Connection must not name them: an attacker would remove them.
    pub(crate) const NOT_NOMINABLE: NameSet = NameSet::with_prefix(b"x-")
        .or(NameSet::TRACE)
        .or(NameSet::MESH)
        .or(NameSet::FORWARDED)
        .or(NameSet::with_prefix(b"content-"))
        .or(NameSet::with_prefix(b"grpc-"))
        .or(NameSet::with_prefix(b"access-control-"))
        .or(NameSet::with_prefix(b"sec-websocket-"))
        .or(NameSet::of(&[
            Known::Authorization,
            Known::CacheControl,
            Known::Cookie,
            Known::Expect,
            Known::Host,
            Known::MaxForwards,
            Known::Origin,
            Known::Range,
            Known::SetCookie,
            Known::Vary,
        ]));

    /// Fields that head edits must not touch: the model holds their meaning elsewhere.
    pub(crate) const RESERVED: NameSet = NameSet::HOP_BY_HOP.or(NameSet::of(&[
        Known::ContentLength,
        Known::Host,
        Known::Trailer,
    ]));

    /// Fields that no trailer section may have: framing, routing, request modifiers, authentication, content and trust
    /// (RFC 9110 §6.5.1).
    pub(crate) const FORBIDDEN_IN_TRAILERS: NameSet = NameSet::HOP_BY_HOP
        .or(NameSet::ENVOY)
        .or(NameSet::FORWARDED)
        .or(NameSet::MESH)
        .or(NameSet::TRACE)
        .or(NameSet::with_prefix(b"content-"))
        .or(NameSet::with_prefix(b"if-"))
        .or(NameSet::with_prefix(b"x-forwarded-"))
        .or(NameSet::with_prefix(b"access-control-"))
        .or(NameSet::with_prefix(b"sec-websocket-"))
        .or(NameSet::with_prefix(b"proxy-auth"))
        .or(NameSet::of(&[
            Known::Age,
            Known::Authorization,
            Known::CacheControl,
            Known::Cookie,
            Known::Expect,
            Known::Expires,
            Known::GrpcEncoding,
            Known::GrpcTimeout,
            Known::Host,
            Known::Location,
            Known::MaxForwards,
            Known::Pragma,
            Known::Range,
            Known::RetryAfter,
            Known::SetCookie,
            Known::Trailer,
            Known::Vary,
            Known::WwwAuthenticate,
            Known::XRequestId,
        ]));
}
