//! Fields of a header or trailer section, as spans of the bytes in which they arrived.

use bytes::Bytes;

use crate::error::WriteError;
use crate::name::Name;
use crate::scan;

/// Positions of one field within the section's buffer. A section has at most 65,535 bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    pub(crate) name: u16,
    pub(crate) colon: u16,
    pub(crate) value: u16,
    pub(crate) end: u16,
    pub(crate) number: Name,
}

/// A field section (RFC 9110 §5) in order of arrival. Names keep the peer's case; compare them without regard to case.
#[derive(Debug, Clone, Default)]
pub struct Fields {
    /// The whole section, with the start line of a head. It keeps the read buffer alive of which it is a part.
    pub(crate) bytes: Bytes,
    pub(crate) spans: Vec<Span>,
}

impl Fields {
    /// All fields.
    #[inline]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Field<'_>> {
        self.spans.iter().map(|span| self.field(span))
    }

    /// The value of the first field of this name, in any case of letters.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        let mut fields = self.iter();
        fields
            .find(|field| field.name.eq_ignore_ascii_case(name.as_bytes()))
            .map(|field| field.value)
    }

    /// The values of all fields of this name.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        self.iter()
            .filter(move |field| field.name.eq_ignore_ascii_case(name.as_bytes()))
            .map(|field| field.value)
    }

    /// The number of fields.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// True if the section has no fields.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// The section as it arrived, with the start line of a head.
    pub fn buffer(&self) -> &Bytes {
        &self.bytes
    }

    #[inline]
    fn field(&self, span: &Span) -> Field<'_> {
        let (name, colon) = (span.name as usize, span.colon as usize);
        let (value, end) = (span.value as usize, span.end as usize);
        // With one space behind the colon and none behind the value the line is written as it came.
        let is_plain =
            value == colon + 2 && self.bytes[colon + 1] == b' ' && self.bytes[end] == b'\r';
        Field {
            name: &self.bytes[name..colon],
            value: &self.bytes[value..end],
            line: if is_plain {
                &self.bytes[name..end + 2]
            } else {
                &[]
            },
            number: span.number,
        }
    }
}

/// One valid field. It comes from a parsed section or from [`Field::new`], so no CR, LF or NUL is in it.
#[derive(Debug, Clone, Copy)]
pub struct Field<'a> {
    name: &'a [u8],
    value: &'a [u8],
    /// `name: value` with its CRLF, or empty if it is not at hand in this form.
    line: &'a [u8],
    number: Name,
}

impl<'a> Field<'a> {
    /// A field of a name, which must be a token, and a value (RFC 9110 §5.1, §5.5). White space around the value is dropped.
    pub fn new(
        name: &'a (impl AsRef<[u8]> + ?Sized),
        value: &'a (impl AsRef<[u8]> + ?Sized),
    ) -> Result<Field<'a>, WriteError> {
        let (name, value) = (name.as_ref(), scan::trim(value.as_ref()));
        if !scan::is_token(name) || scan::control(value, 0) != value.len() {
            return Err(WriteError::Field);
        }
        Ok(Field {
            name,
            value,
            line: &[],
            number: Name::of(name),
        })
    }

    /// The name, as sent.
    pub fn name(&self) -> &'a [u8] {
        self.name
    }

    /// The value, without surrounding white space.
    pub fn value(&self) -> &'a [u8] {
        self.value
    }

    pub(crate) fn number(&self) -> Name {
        self.number
    }

    #[inline]
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        if !self.line.is_empty() {
            out.extend_from_slice(self.line);
            return;
        }
        out.extend_from_slice(self.name);
        out.extend_from_slice(b": ");
        out.extend_from_slice(self.value);
        out.extend_from_slice(b"\r\n");
    }
}
