//! Places of outgoing fields in the peer's header table (RFC 7541 §7.1.3).

use lateen_h2::{Field, Known};

/// A field of this name, with its place.
#[inline]
pub(crate) fn named<'a>(name: &'a [u8], value: &'a [u8]) -> Field<'a> {
    match Known::of(name) {
        Some(known) => placed(known, value),
        None => Field::unnumbered(name, value),
    }
}

/// A field with its place: those that come again on a connection are kept, secrets never.
#[inline]
pub(crate) fn placed<'a>(known: Known, value: &'a [u8]) -> Field<'a> {
    let field = Field::known(known, value);
    match known {
        Known::Authorization | Known::Cookie | Known::SetCookie | Known::ProxyAuthorization => {
            field.secret()
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
        | Known::XForwardedProto => field.kept(),
        _ => field,
    }
}
