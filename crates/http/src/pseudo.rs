//! Names of pseudo-header fields.

/// A pseudo-header field of HTTP/2 (RFC 9113 §8.3, RFC 8441 §4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PseudoField {
    /// `:method`
    Method,
    /// `:scheme`
    Scheme,
    /// `:authority`
    Authority,
    /// `:path`
    Path,
    /// `:protocol`
    Protocol,
    /// `:status`
    Status,
}

/// A set of pseudo-header fields.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PseudoSet(u8);

impl PseudoSet {
    pub(crate) fn insert(&mut self, field: PseudoField) {
        self.0 |= 1 << field as u8;
    }

    #[inline]
    pub(crate) fn has(self, field: PseudoField) -> bool {
        self.0 >> field as u8 & 1 == 1
    }
}

impl PseudoField {
    /// The name with its colon.
    pub const fn as_str(self) -> &'static str {
        match self {
            PseudoField::Method => ":method",
            PseudoField::Scheme => ":scheme",
            PseudoField::Authority => ":authority",
            PseudoField::Path => ":path",
            PseudoField::Protocol => ":protocol",
            PseudoField::Status => ":status",
        }
    }
}
