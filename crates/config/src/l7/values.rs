//! Values of attributes from the wire. None is left out quietly: without it a rule would match more, or less.

use ipnet::IpNet;
use lateen_policy::request::{PathPattern, PathTemplate, Values};
use lateen_policy::{ServiceAccount, StringMatch};
use lateen_proto::l7 as proto;

use crate::{Rejection, wire};

/// The positive and negative values of one attribute.
pub(super) fn both<W, T>(
    field: &'static str,
    any: &[W],
    not: &[W],
    parse: impl Fn(&'static str, &W) -> Result<T, Rejection>,
) -> Result<Values<T>, Rejection> {
    let all = |list: &[W]| -> Result<Vec<T>, Rejection> {
        list.iter().map(|one| parse(field, one)).collect()
    };
    Ok(Values {
        any: all(any)?,
        not: all(not)?,
    })
}

/// A pattern over a text.
pub(super) fn text(
    field: &'static str,
    wire: &proto::StringMatch,
) -> Result<StringMatch, Rejection> {
    use proto::string_match::Match;
    match wire.r#match.as_ref().ok_or(Rejection::Missing { field })? {
        Match::Exact(text) => Ok(StringMatch::Exact(text.as_str().into())),
        Match::Prefix(text) => Ok(StringMatch::Prefix(text.as_str().into())),
        Match::Suffix(text) => Ok(StringMatch::Suffix(text.as_str().into())),
        Match::Present(true) => Ok(StringMatch::Presence),
        Match::Present(false) => Err(Rejection::Invalid(format!(
            "{field}: present is false; leave the value out, or name it among the negative ones"
        ))),
    }
}

/// A pattern over a path.
pub(super) fn path(field: &'static str, wire: &proto::PathMatch) -> Result<PathPattern, Rejection> {
    use proto::path_match::Match;
    match wire.r#match.as_ref().ok_or(Rejection::Missing { field })? {
        Match::Text(pattern) => text(field, pattern).map(PathPattern::Text),
        Match::Template(template) => PathTemplate::new(template)
            .map(PathPattern::Template)
            .map_err(|error| Rejection::Invalid(format!("{field}: {error}"))),
    }
}

/// A range of addresses.
pub(super) fn block(field: &'static str, wire: &proto::Block) -> Result<IpNet, Rejection> {
    wire::range(field, &wire.address, wire.length)
}

/// A port.
pub(super) fn port(field: &'static str, wire: &u32) -> Result<u16, Rejection> {
    wire::port_or_zero(field, *wire)
}

/// A service account.
pub(super) fn account(
    field: &'static str,
    wire: &proto::ServiceAccount,
) -> Result<ServiceAccount, Rejection> {
    if wire.namespace.is_empty() || wire.name.is_empty() {
        return Err(Rejection::Invalid(format!(
            "{field}: the service account \"{}/{}\" lacks its namespace or its name",
            wire.namespace, wire.name
        )));
    }
    Ok(ServiceAccount {
        namespace: wire.namespace.as_str().into(),
        name: wire.name.as_str().into(),
    })
}
