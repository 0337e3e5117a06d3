//! Field values (RFC 9110 §5.5).

use std::fmt;

use bytes::Bytes;

use crate::scan;

/// A field value without CR, LF, NUL or another control character but HTAB, and without white space at its ends.
///
/// Bytes beyond ASCII are allowed and kept (obs-text). No other code makes one, so no value splits a message.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct FieldValue(Bytes);

impl FieldValue {
    /// A value. White space at its ends is dropped. None if it has a control character.
    pub fn new(value: impl Into<Bytes>) -> Option<FieldValue> {
        let value: Bytes = value.into();
        let trimmed = value.slice_ref(scan::trim(&value));
        scan::is_value(&trimmed).then_some(FieldValue(trimmed))
    }

    /// A value that this crate makes of valid bytes.
    pub(crate) fn of_text(value: Bytes) -> FieldValue {
        FieldValue(value)
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for FieldValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(&self.0))
    }
}
