//! Trailer sections (RFC 9110 §6.5).

use crate::fields::Fields;
use crate::known::NameSet;
use crate::raw::RawTrailers;
use crate::trust;

/// The fields of a trailer section that an intermediary may pass on.
///
/// Fields for framing, routing, authentication, content and trust are dropped (RFC 9110 §6.5.1): a recipient that joins
/// trailers with the header would take them for statements of its neighbour.
#[derive(Debug, Clone)]
pub struct Trailers {
    fields: Fields,
    dropped: usize,
}

impl RawTrailers {
    /// Drops what no trailer section may have.
    pub fn canonical(self) -> Trailers {
        let mut fields = self.0.fields;
        let before = fields.len();
        fields.remove_all(NameSet::FORBIDDEN_IN_TRAILERS);
        fields.remove_others(is_forbidden);
        Trailers {
            dropped: before - fields.len(),
            fields,
        }
    }
}

/// True for names without a number that speak of trust, and for forbidden names that are written with underscores.
fn is_forbidden(name: &[u8]) -> bool {
    let speaks_of_trust = [&b"x-envoy-"[..], b"x-forwarded-"]
        .iter()
        .any(|prefix| begins(name, prefix));
    speaks_of_trust
        || name.contains(&b'_') && trust::is_disguise(name, NameSet::FORBIDDEN_IN_TRAILERS)
}

/// True if an application that takes underscores for hyphens finds the prefix, which has small letters and hyphens.
fn begins(name: &[u8], prefix: &[u8]) -> bool {
    let mut pairs = name.iter().zip(prefix);
    name.len() >= prefix.len()
        && pairs.all(|(byte, expected)| {
            byte.eq_ignore_ascii_case(expected) || (*byte == b'_' && *expected == b'-')
        })
}

impl Trailers {
    /// The fields.
    pub fn fields(&self) -> &Fields {
        &self.fields
    }

    /// How many fields were dropped.
    pub fn dropped(&self) -> usize {
        self.dropped
    }
}
