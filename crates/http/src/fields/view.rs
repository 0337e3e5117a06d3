//! One field of a list, and searches by name.

use std::fmt;

use crate::fields::Fields;
use crate::known::Known;
use crate::name::FieldName;

/// One field of a valid message: the name is a token, the value has no control character but HTAB.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Field<'a> {
    name: &'a [u8],
    value: &'a [u8],
    known: Option<Known>,
}

impl<'a> Field<'a> {
    #[inline]
    pub(super) fn of_list(name: &'a [u8], value: &'a [u8], known: Option<Known>) -> Field<'a> {
        Field { name, value, known }
    }

    /// A field that this crate makes; its value is valid.
    pub(crate) fn made(known: Known, value: &'a [u8]) -> Field<'a> {
        Field {
            name: known.as_str().as_bytes(),
            value,
            known: Some(known),
        }
    }

    /// A pseudo-header field (RFC 9113 §8.3).
    pub(crate) fn pseudo(name: &'static str, value: &'a [u8]) -> Field<'a> {
        Field {
            name: name.as_bytes(),
            value,
            known: None,
        }
    }

    /// True if the name has no number, but a capital letter.
    fn has_capitals(&self) -> bool {
        self.known.is_none() && self.name.iter().any(u8::is_ascii_uppercase)
    }

    /// The name. Over HTTP/1 it arrives in any case of letters.
    pub fn name(&self) -> &'a [u8] {
        self.name
    }

    /// The value.
    pub fn value(&self) -> &'a [u8] {
        self.value
    }

    /// The number of the name, if it is well known.
    pub fn known(&self) -> Option<Known> {
        self.known
    }
}

impl fmt::Debug for Field<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |bytes| String::from_utf8_lossy(bytes);
        write!(f, "{}: {:?}", text(self.name), text(self.value))
    }
}

impl Fields {
    /// Gives the fields with lower-case names to `emit`. `names` holds those that arrived otherwise and have no number.
    pub(crate) fn lower<'a>(&'a self, names: &'a mut Vec<u8>, mut emit: impl FnMut(Field<'a>)) {
        names.clear();
        if self.has_others() {
            for field in self.iter().filter(Field::has_capitals) {
                names.extend(field.name.iter().map(u8::to_ascii_lowercase));
            }
        }
        let mut lowered = &names[..];
        for mut field in self.iter() {
            if let Some(known) = field.known {
                field.name = known.as_str().as_bytes();
            } else if !lowered.is_empty() && field.has_capitals() {
                (field.name, lowered) = lowered.split_at(field.name.len());
            }
            emit(field);
        }
    }

    /// The values of all fields of a name: by number if it has one, else by comparison without regard to case.
    pub fn named<'a>(&'a self, name: &'a FieldName) -> impl Iterator<Item = &'a [u8]> {
        let known = name.known();
        let numbered = known.map(|known| self.all(known));
        let others = known.is_none().then(|| self.others(name.as_str()));
        numbered
            .into_iter()
            .flatten()
            .chain(others.into_iter().flatten())
    }

    /// The values of all fields of a name without a number.
    fn others<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        self.iter()
            .filter(move |field| {
                field.known.is_none() && field.name.eq_ignore_ascii_case(name.as_bytes())
            })
            .map(|field| field.value)
    }
}
