//! Decoded header list: all names and values in one buffer, which the next list reuses.

use std::ops::Range;

use super::{Known, OVERHEAD, TABLE};

/// Bytes of buffers that a connection keeps for its next list: twice as much as most heads have. No account is charged with them.
const KEPT: usize = 8 * 1024;

#[derive(Debug, Clone, Copy, Default)]
struct Span {
    name: u32,
    value: u32,
    end: u32,
    known: Option<Known>,
    never_indexed: bool,
}

// A list has up to a hundred, and each connection one list.
const _: () = assert!(size_of::<Span>() == 16);

/// One field line of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FieldLine<'a> {
    /// The number of the name, if it has one: a comparison of one byte.
    pub known: Option<Known>,
    /// The name, without capital letters.
    pub name: &'a [u8],
    /// The value. In a message that was announced it has no NUL, CR or LF.
    pub value: &'a [u8],
    /// It came as a literal that is never indexed. Whoever sends it on sends it so (RFC 7541 §6.2.3).
    pub never_indexed: bool,
}

/// The place of one field line in the buffer of its list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldPlace {
    /// The number of the name, if it has one.
    pub known: Option<Known>,
    /// The place of the name.
    pub name: Range<usize>,
    /// The place of the value.
    pub value: Range<usize>,
    /// See [`FieldLine::never_indexed`].
    pub never_indexed: bool,
}

/// Limits of a list that is decoded.
#[derive(Debug, Clone, Copy, Default)]
pub struct Limits {
    /// Bytes as RFC 9113 §6.5.2 counts them.
    pub size: u32,
    /// Field lines other than pseudo-header fields.
    pub fields: u32,
}

/// A header list in the order in which it came. Names and values are bytes; names have no capital letters.
#[derive(Debug, Default)]
pub struct Fields {
    bytes: Vec<u8>,
    spans: Vec<Span>,
    /// As RFC 9113 §6.5.2 counts it, dropped fields included.
    size: usize,
    /// Field lines other than pseudo-header fields, dropped ones included.
    count: u32,
    limits: Limits,
    /// The length of the field that is being made, dropped bytes included.
    length: u32,
    /// Where the field that is being made begins, and where its value does.
    making: Span,
}

impl Fields {
    /// An empty list with these limits.
    pub fn new(limits: Limits) -> Self {
        Fields {
            limits,
            ..Fields::default()
        }
    }

    /// All fields, pseudo-header fields first.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.lines().map(|line| (line.name, line.value))
    }

    /// The same, with the numbers of their names.
    pub fn lines(&self) -> impl Iterator<Item = FieldLine<'_>> {
        self.spans.iter().map(|span| self.line(*span))
    }

    /// The bytes in which the names and values of all fields lie; see [`Fields::places`].
    pub fn buffer(&self) -> &[u8] {
        &self.bytes
    }

    /// The places of each name and its value in [`Fields::buffer`], and the number of the name.
    #[inline]
    pub fn places(&self) -> impl Iterator<Item = FieldPlace> {
        self.spans.iter().map(|span| {
            let (name, value) = (span.name as usize, span.value as usize);
            FieldPlace {
                known: span.known,
                name: name..value,
                value: value..span.end as usize,
                never_indexed: span.never_indexed,
            }
        })
    }

    /// The value of the first field of this name.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.all(name).next()
    }

    /// The values of all fields of this name.
    pub fn all(&self, name: &str) -> impl Iterator<Item = &[u8]> {
        self.iter()
            .filter(move |(key, _)| *key == name.as_bytes())
            .map(|(_, value)| value)
    }

    /// The value of the first field of this name, without a comparison of text.
    pub fn find(&self, known: Known) -> Option<&[u8]> {
        self.find_all(known).next()
    }

    /// The values of all fields of this name, without a comparison of text.
    pub fn find_all(&self, known: Known) -> impl Iterator<Item = &[u8]> {
        self.spans
            .iter()
            .filter(move |span| span.known == Some(known))
            .map(|span| self.line(*span).value)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    #[inline]
    fn line(&self, span: Span) -> FieldLine<'_> {
        let (name, value) = (span.name as usize, span.value as usize);
        FieldLine {
            known: span.known,
            name: &self.bytes[name..value],
            value: &self.bytes[value..span.end as usize],
            never_indexed: span.never_indexed,
        }
    }

    /// Takes spaces and tabs from both ends of the values, but for those of pseudo-header fields.
    #[cold]
    pub(crate) fn trim(&mut self) {
        for span in &mut self.spans {
            let (start, end) = (span.value as usize, span.end as usize);
            if is_pseudo(span.known, &self.bytes[span.name as usize..start]) {
                continue;
            }
            let value = &self.bytes[start..end];
            let is_text = |byte: &u8| !matches!(byte, b' ' | b'\t');
            let first = value.iter().position(is_text).unwrap_or(value.len());
            let length = value
                .iter()
                .rposition(is_text)
                .map_or(0, |last| last + 1 - first);
            self.bytes
                .copy_within(start + first..start + first + length, start);
            span.end = span.value + length as u32;
        }
    }

    /// Drops all fields and keeps the buffers.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.spans.clear();
        self.size = 0;
        self.count = 0;
    }

    /// Exchanges the list with the buffer of another, which is emptied and gets the limits of this one.
    pub(crate) fn swap(&mut self, other: &mut Fields) {
        other.clear();
        other.limits = self.limits;
        std::mem::swap(self, other);
    }

    /// Gives memory back; the list is gone.
    pub(crate) fn rest(&mut self) {
        *self = Fields::new(self.limits);
    }

    /// True if the buffers have more room than an open connection may keep.
    #[inline]
    pub(crate) fn is_large(&self) -> bool {
        self.bytes.capacity() + self.spans.capacity() * size_of::<Span>() > KEPT
    }

    /// True if fields were dropped for their size.
    pub fn is_too_large(&self) -> bool {
        self.size > self.limits.size as usize
    }

    pub(crate) fn is_too_many(&self) -> bool {
        self.count > self.limits.fields
    }

    /// True of a list that no mistake explains: a few bytes that refer to large entries, again and again.
    pub(crate) fn is_bomb(&self) -> bool {
        self.size / 4 > self.limits.size as usize
    }

    #[cfg(test)]
    pub(crate) fn kept(&self) -> usize {
        self.bytes.len()
    }

    /// Counts a field of so many bytes; `false` if the list has no room for it.
    #[inline]
    fn count(&mut self, length: usize, is_pseudo: bool) -> bool {
        self.size += length + OVERHEAD;
        self.count += u32::from(!is_pseudo);
        !self.is_too_large() && !self.is_too_many()
    }

    /// Adds a whole field, unless the list is too large with it.
    #[inline]
    pub(crate) fn push(&mut self, known: Option<Known>, name: &[u8], value: &[u8]) {
        if !self.count(name.len() + value.len(), is_pseudo(known, name)) {
            return;
        }
        let at = self.bytes.len() as u32;
        self.bytes.extend_from_slice(name);
        self.bytes.extend_from_slice(value);
        self.spans.push(Span {
            name: at,
            value: at + name.len() as u32,
            end: self.bytes.len() as u32,
            known,
            never_indexed: false,
        });
    }

    /// The same, of a field whose name and value lie one after the other.
    #[inline]
    pub(crate) fn push_entry(&mut self, known: Option<Known>, both: &[u8], name: usize) {
        if !self.count(both.len(), is_pseudo(known, both)) {
            return;
        }
        let at = self.bytes.len() as u32;
        self.bytes.extend_from_slice(both);
        self.spans.push(Span {
            name: at,
            value: at + name as u32,
            end: self.bytes.len() as u32,
            known,
            never_indexed: false,
        });
    }

    /// Begins a field that is a literal.
    pub(crate) fn begin(&mut self, never_indexed: bool) {
        let kept = self.spans.last().map_or(0, |span| span.end as usize);
        self.bytes.truncate(kept);
        self.making.name = self.bytes.len() as u32;
        self.making.never_indexed = never_indexed;
        self.length = 0;
    }

    /// A field may be too much for the list and yet be an entry of the table.
    fn room(&self) -> usize {
        (self.limits.size as usize + TABLE as usize).saturating_sub(self.bytes.len())
    }

    pub(crate) fn append(&mut self, text: &[u8]) {
        self.length = self.length.saturating_add(text.len() as u32);
        let room = self.room();
        self.bytes.extend_from_slice(&text[..text.len().min(room)]);
    }

    /// Adds what `write` writes within so many bytes; it returns how many it would have been.
    pub(crate) fn append_with<E>(
        &mut self,
        write: impl FnOnce(&mut Vec<u8>, usize) -> Result<usize, E>,
    ) -> Result<(), E> {
        let room = self.room();
        let written = write(&mut self.bytes, room)?;
        self.length = self.length.saturating_add(written as u32);
        Ok(())
    }

    /// The name is whole, and this is its number.
    pub(crate) fn end_name(&mut self, known: Option<Known>) {
        self.making.value = self.bytes.len() as u32;
        self.making.known = known;
    }

    /// The name is whole, and its number is looked up.
    pub(crate) fn end_new_name(&mut self) {
        self.end_name(Known::of(&self.bytes[self.making.name as usize..]));
    }

    /// The field is whole; `None` if it is larger than the table and not all of it was kept. It is in the list unless that
    /// is too large with it.
    pub(crate) fn end_value(&mut self) -> Option<(Option<Known>, &[u8], &[u8])> {
        self.making.end = self.bytes.len() as u32;
        let span = self.making;
        let line = self.line(span);
        let is_pseudo = is_pseudo(line.known, line.name);
        let has_room = self.count(self.length as usize, is_pseudo);
        if span.end - span.name != self.length {
            return None;
        }
        if has_room {
            self.spans.push(span);
        }
        let line = self.line(span);
        Some((line.known, line.name, line.value))
    }
}

/// True of a pseudo-header field, known or not.
#[inline]
fn is_pseudo(known: Option<Known>, name: &[u8]) -> bool {
    match known {
        Some(known) => known.is_pseudo(),
        None => name.first() == Some(&b':'),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_fields_are_counted() {
        let mut fields = Fields::new(Limits {
            size: 1000,
            fields: 2,
        });
        fields.push(Some(Known::Method), b":method", b"GET");
        for _ in 0..2 {
            fields.push(None, b"a", b"b");
        }
        assert!(!fields.is_too_many());
        fields.push(None, b"a", b"b");
        assert!(fields.is_too_many() && !fields.is_too_large());
        assert_eq!(fields.len(), 3);
        // A field that the size drops counts too.
        fields.clear();
        for _ in 0..3 {
            fields.push(None, b"a", &[b'b'; 1000]);
        }
        assert!(fields.is_too_many() && fields.is_empty());
    }

    #[test]
    fn a_list_is_handed_over_with_its_buffer() {
        let mut fields = Fields::new(Limits {
            size: 1000,
            fields: 9,
        });
        fields.push(Some(Known::Host), b"host", b"a");
        let buffer = fields.bytes.as_ptr();
        let mut taken = Fields::default();
        fields.swap(&mut taken);
        assert_eq!(taken.find(Known::Host), Some(&b"a"[..]));
        assert_eq!(taken.bytes.as_ptr(), buffer);
        assert!(fields.is_empty());
        fields.push(Some(Known::Via), b"via", b"b");
        assert_eq!(fields.find(Known::Via), Some(&b"b"[..]));
        // And back: nothing of the earlier list shows.
        fields.swap(&mut taken);
        assert_eq!(fields.bytes.as_ptr(), buffer);
        assert!(fields.is_empty());
    }
}
