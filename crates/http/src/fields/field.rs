//! One field of a list.

use std::fmt;

use crate::known::Known;
use crate::pseudo::PseudoField;
use crate::value::FieldValue;

/// One field of a valid message: the name is a token, the value has no control character but HTAB.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Field<'a> {
    pub(super) name: &'a [u8],
    pub(super) value: &'a [u8],
    pub(super) known: Option<Known>,
    pub(super) pseudo: Option<PseudoField>,
    never_indexed: bool,
}

// Encoders take fields by value.
const _: () = assert!(size_of::<Field<'_>>() == 40);

impl<'a> Field<'a> {
    #[inline]
    pub(super) fn of_list(name: &'a [u8], value: &'a [u8], known: Option<Known>) -> Field<'a> {
        Field {
            name,
            value,
            known,
            pseudo: None,
            never_indexed: false,
        }
    }

    /// A field of a well-known name that is made for a message beside its list.
    #[inline]
    pub fn numbered(known: Known, value: &'a FieldValue) -> Field<'a> {
        Field::made(known, value.as_bytes())
    }

    /// A field that this crate makes; its value is valid.
    pub(crate) fn made(known: Known, value: &'a [u8]) -> Field<'a> {
        Field {
            name: known.as_str().as_bytes(),
            value,
            known: Some(known),
            pseudo: None,
            never_indexed: false,
        }
    }

    /// A pseudo-header field (RFC 9113 §8.3).
    #[inline]
    pub(crate) fn of_pseudo(field: PseudoField, value: &'a [u8]) -> Field<'a> {
        Field {
            name: field.as_str().as_bytes(),
            value,
            known: None,
            pseudo: Some(field),
            never_indexed: false,
        }
    }

    /// The same, with the mark of [`Field::is_never_indexed`] or without it.
    #[inline]
    pub(crate) fn with_never_indexed(self, never_indexed: bool) -> Self {
        Field {
            never_indexed,
            ..self
        }
    }

    /// True if the name has no number, but a capital letter.
    pub(super) fn has_capitals(&self) -> bool {
        self.known.is_none() && self.name.iter().any(u8::is_ascii_uppercase)
    }

    /// The name. Over HTTP/1 it arrives in any case of letters.
    #[inline]
    pub fn name(&self) -> &'a [u8] {
        self.name
    }

    /// The value.
    #[inline]
    pub fn value(&self) -> &'a [u8] {
        self.value
    }

    /// The number of the name, if it is well known.
    #[inline]
    pub fn known(&self) -> Option<Known> {
        self.known
    }

    /// True if it came over HTTP/2 as a literal that is never indexed. Over HTTP/2 it must be sent on so (RFC 7541 §6.2.3).
    #[inline]
    pub fn is_never_indexed(&self) -> bool {
        self.never_indexed
    }

    /// The pseudo-header field that it is, if it is one.
    #[inline]
    pub fn pseudo(&self) -> Option<PseudoField> {
        self.pseudo
    }
}

impl fmt::Debug for Field<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |bytes| String::from_utf8_lossy(bytes);
        write!(f, "{}: {:?}", text(self.name), text(self.value))
    }
}
