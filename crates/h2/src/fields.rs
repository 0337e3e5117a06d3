//! A decoded header list: all names and values in one buffer, which the next list uses again.

use crate::hpack::{OVERHEAD, TABLE};

#[derive(Debug, Clone, Copy)]
struct Span {
    name: u32,
    value: u32,
    end: u32,
}

/// A header list in the order in which it came. Names and values are bytes; names have no capital letters.
#[derive(Debug)]
pub struct Fields {
    bytes: Vec<u8>,
    spans: Vec<Span>,
    /// As RFC 9113 §6.5.2 counts it, with what was dropped.
    size: usize,
    most: usize,
    /// The field that is being made: where it begins, where its value begins, and its bytes with those that were dropped.
    making: Span,
    length: usize,
}

impl Fields {
    pub(crate) fn new(most: u32) -> Self {
        Fields {
            bytes: Vec::new(),
            spans: Vec::new(),
            size: 0,
            most: most as usize,
            making: Span {
                name: 0,
                value: 0,
                end: 0,
            },
            length: 0,
        }
    }

    /// All fields, pseudo-header fields first.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.spans.iter().map(|span| self.field(*span))
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

    /// How many there are.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    #[inline]
    fn field(&self, span: Span) -> (&[u8], &[u8]) {
        let (name, value) = (span.name as usize, span.value as usize);
        (
            &self.bytes[name..value],
            &self.bytes[value..span.end as usize],
        )
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.spans.clear();
        self.size = 0;
    }

    /// Gives memory back; the list is gone.
    pub(crate) fn rest(&mut self) {
        *self = Fields::new(self.most as u32);
    }

    pub(crate) fn is_too_large(&self) -> bool {
        self.size > self.most
    }

    /// True of a list that no mistake explains: a few bytes that refer to large entries, again and again.
    pub(crate) fn is_bomb(&self) -> bool {
        self.size / 4 > self.most
    }

    #[cfg(test)]
    pub(crate) fn kept(&self) -> usize {
        self.bytes.len()
    }

    /// Adds a whole field, unless the list is too large with it.
    #[inline]
    pub(crate) fn push(&mut self, name: &[u8], value: &[u8]) {
        self.size += name.len() + value.len() + OVERHEAD;
        if self.is_too_large() {
            return;
        }
        let at = self.bytes.len() as u32;
        self.bytes.extend_from_slice(name);
        self.bytes.extend_from_slice(value);
        self.spans.push(Span {
            name: at,
            value: at + name.len() as u32,
            end: self.bytes.len() as u32,
        });
    }

    pub(crate) fn begin(&mut self) {
        let kept = self.spans.last().map_or(0, |span| span.end as usize);
        self.bytes.truncate(kept);
        self.making.name = self.bytes.len() as u32;
        self.length = 0;
    }

    /// A field may be too much for the list and yet be an entry of the table.
    fn room(&self) -> usize {
        (self.most + TABLE as usize).saturating_sub(self.bytes.len())
    }

    pub(crate) fn append(&mut self, text: &[u8]) {
        self.length += text.len();
        let room = self.room();
        self.bytes.extend_from_slice(&text[..text.len().min(room)]);
    }

    /// Adds what `write` writes within so many bytes; it returns how many it would have been.
    pub(crate) fn append_with<E>(
        &mut self,
        write: impl FnOnce(&mut Vec<u8>, usize) -> Result<usize, E>,
    ) -> Result<(), E> {
        let room = self.room();
        self.length += write(&mut self.bytes, room)?;
        Ok(())
    }

    pub(crate) fn end_name(&mut self) {
        self.making.value = self.bytes.len() as u32;
    }

    /// The field is whole; `None` if it is larger than the table and not all of it was kept. It is in the list unless that is too large with it.
    pub(crate) fn end_value(&mut self) -> Option<(&[u8], &[u8])> {
        self.making.end = self.bytes.len() as u32;
        let span = self.making;
        self.size += self.length + OVERHEAD;
        if (span.end - span.name) as usize != self.length {
            return None;
        }
        if !self.is_too_large() {
            self.spans.push(span);
        }
        Some(self.field(span))
    }
}
