//! Places of outgoing fields in the peer's header table (RFC 7541 §7.1.3).

use lateen_h2::{Field, Keep, Known};

/// A field of this name, with its place.
#[inline]
pub(crate) fn named<'a>(name: &'a [u8], value: &'a [u8]) -> Field<'a> {
    match Known::of(name) {
        Some(known) => Field::known(known, value).with_keep(keep(known)),
        None => Field::unnumbered(name, value),
    }
}

/// The place of a name's fields: those that come again on a connection are kept, secrets never.
#[inline]
pub(crate) const fn keep(known: Known) -> Keep {
    match known {
        Known::Authorization | Known::Cookie | Known::SetCookie | Known::ProxyAuthorization => {
            Keep::Never
        }
        Known::Authority
        | Known::Accept
        | Known::AcceptEncoding
        | Known::AcceptLanguage
        | Known::ContentType
        | Known::GrpcAcceptEncoding
        | Known::GrpcEncoding
        | Known::Server
        | Known::Te
        | Known::UserAgent
        | Known::Vary
        | Known::XForwardedProto => Keep::Yes,
        _ => Keep::No,
    }
}
