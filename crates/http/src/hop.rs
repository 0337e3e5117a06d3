//! Removal of hop-by-hop fields (RFC 9110 §7.6.1).

use crate::fields::Fields;
use crate::known::{Known, NameSet};
use crate::raw::Version;
use crate::refusal::Cause;
use crate::scan;

/// The most options of all Connection fields together. Each costs a search.
const MAX_OPTIONS: usize = 16;

/// What hop-by-hop fields said before they went.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Hop {
    /// The sender accepts trailers: `te: trailers`, which stays as the only value of TE.
    pub(crate) accepts_trailers: bool,
    /// The sender asks for a protocol that this crate converts.
    pub(crate) websocket: bool,
}

/// Removes hop-by-hop fields and those that Connection names. A request must not name fields on which decisions depend;
/// in a response the name of such a field is ignored.
#[inline]
pub(crate) fn remove(
    fields: &mut Fields,
    version: Version,
    is_request: bool,
) -> Result<Hop, Cause> {
    let mut hop = Hop::default();
    let found = fields.among(NameSet::HOP_BY_HOP);
    if found.is_empty() {
        return Ok(hop);
    }
    let mut asks_for_upgrade = false;
    if found.has(Known::Connection) {
        asks_for_upgrade = nominated(fields, is_request)?;
    }
    if found.has(Known::Te) {
        hop.accepts_trailers = fields
            .all(Known::Te)
            .flat_map(scan::elements)
            .any(|element| element.eq_ignore_ascii_case(b"trailers"));
    }
    // HTTP/1.0 has no Upgrade (RFC 9110 §7.8). With several protocols the first one alone counts, as in Envoy.
    if asks_for_upgrade && version == Version::Http11 {
        let protocol = fields.all(Known::Upgrade).flat_map(scan::elements).next();
        hop.websocket = protocol.is_some_and(|name| name.eq_ignore_ascii_case(b"websocket"));
    }
    for known in found.iter() {
        match known {
            Known::Te if hop.accepts_trailers && is_request => {
                fields.set(Known::Te, &[b"trailers"])?;
            }
            known => fields.remove(known),
        }
    }
    Ok(hop)
}

/// Removes the fields that Connection names. Returns true if it names `upgrade`.
fn nominated(fields: &mut Fields, is_request: bool) -> Result<bool, Cause> {
    // `close` and `keep-alive` are nearly all that there is.
    if !fields.is_repeated(Known::Connection)
        && let Some(b"keep-alive" | b"close") = fields.get(Known::Connection)
    {
        return Ok(false);
    }
    let mut asks_for_upgrade = false;
    let options: Vec<Vec<u8>> = fields
        .all(Known::Connection)
        .flat_map(scan::elements)
        .take(MAX_OPTIONS + 1)
        .map(<[u8]>::to_ascii_lowercase)
        .collect();
    if options.len() > MAX_OPTIONS {
        return Err(Cause::TooManyOptions { limit: MAX_OPTIONS });
    }
    for option in options {
        if !scan::is_token(&option) {
            return Err(Cause::Option);
        }
        match Known::of(&option) {
            Some(Known::Upgrade) => asks_for_upgrade = true,
            Some(known) if NameSet::HOP_BY_HOP.has(known) => {}
            Some(known) if NameSet::NOT_NOMINABLE.has(known) => {
                if is_request {
                    return Err(Cause::Nominated(known));
                }
            }
            Some(known) => fields.remove(known),
            None => {
                fields.remove_others(|name| name.eq_ignore_ascii_case(&option));
            }
        }
    }
    Ok(asks_for_upgrade)
}
