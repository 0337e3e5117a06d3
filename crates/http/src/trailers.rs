//! Trailer sections (RFC 9110 §6.5).

use crate::fields::Fields;
use crate::known::NameSet;
use crate::raw::RawTrailers;

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

/// True for names without a number that speak of trust.
fn is_forbidden(name: &[u8]) -> bool {
    [&b"x-envoy-"[..], b"x-forwarded-"].iter().any(|prefix| {
        name.get(..prefix.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(prefix))
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
