//! Fields of a header or trailer section, as spans of the bytes in which they arrived.

use bytes::Bytes;
use lateen_http::FieldLine;

use crate::error::WriteError;
use crate::name::Name;
use crate::scan;

/// A field section (RFC 9110 §5) in order of arrival. Names keep the peer's case; compare them without regard to case.
#[derive(Debug, Clone, Default)]
pub struct Fields {
    /// The whole section, with the start line of a head. It keeps the read buffer alive of which it is a part.
    pub(crate) bytes: Bytes,
    pub(crate) lines: Vec<FieldLine>,
}

impl Fields {
    /// All fields.
    #[inline]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Field<'_>> {
        self.lines.iter().map(|line| self.field(line))
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
        self.lines.len()
    }

    /// True if the section has no fields.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// The section as it arrived, with the start line of a head.
    pub fn buffer(&self) -> &Bytes {
        &self.bytes
    }

    /// The places of the fields within the section.
    #[inline]
    pub fn lines(&self) -> &[FieldLine] {
        &self.lines
    }

    #[inline]
    fn field(&self, line: &FieldLine) -> Field<'_> {
        let (name, value) = (line.name(), line.value());
        // With one space behind the colon and none behind the value the line is written as it came.
        let is_plain = value.start == name.end + 2
            && self.bytes[name.end + 1] == b' '
            && self.bytes[value.end] == b'\r';
        let whole = name.start..value.end + 2;
        Field {
            name: &self.bytes[name],
            value: &self.bytes[value],
            line: if is_plain { &self.bytes[whole] } else { &[] },
            number: line.known().map_or(Name::Other, Name::of_known),
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

    /// A field whose name and value were judged.
    #[inline]
    pub(crate) fn judged(name: &'a [u8], value: &'a [u8], number: Name) -> Field<'a> {
        Field {
            name,
            value,
            line: &[],
            number,
        }
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
