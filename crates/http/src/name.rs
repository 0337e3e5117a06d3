//! Field names of rules and edits (RFC 9110 §5.1).

use std::fmt;

use crate::known::Known;
use crate::scan;

/// A field name in lower case: the number of a well-known one, or its text.
///
/// Names within a message are spans of its buffer and no `FieldName`s.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct FieldName(Repr);

#[derive(Clone, PartialEq, Eq, Hash)]
enum Repr {
    Known(Known),
    /// A lower-case token that `Known` does not list.
    Other(Box<str>),
}

impl FieldName {
    /// A name in any case of letters. None if it is not a token, as `:path` is not (RFC 9110 §5.6.2).
    pub fn new(name: &str) -> Option<FieldName> {
        if let Some(known) = Known::of(name.as_bytes()) {
            return Some(FieldName(Repr::Known(known)));
        }
        scan::is_token(name.as_bytes())
            .then(|| FieldName(Repr::Other(name.to_ascii_lowercase().into())))
    }

    /// The number, if the name is well known.
    pub fn known(&self) -> Option<Known> {
        match self.0 {
            Repr::Known(known) => Some(known),
            Repr::Other(_) => None,
        }
    }

    /// The name in lower case.
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Repr::Known(known) => known.as_str(),
            Repr::Other(text) => text,
        }
    }
}

impl From<Known> for FieldName {
    fn from(known: Known) -> Self {
        FieldName(Repr::Known(known))
    }
}

impl fmt::Debug for FieldName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for FieldName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
