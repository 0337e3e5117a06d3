//! Reader of one field line of HTTP/1 (RFC 9112 §5).

use std::ops::Range;

use crate::known::Known;
use crate::search;

/// The places of a field's name and value within the bytes from which it was read, as far as 65,535 bytes go. The name is a
/// token, and the value has no control character but HTAB.
#[derive(Debug, Clone, Copy)]
pub struct FieldLine {
    name: u16,
    colon: u16,
    value: u16,
    end: u16,
    known: Option<Known>,
}

impl FieldLine {
    /// Reads the line that begins at `start`, and says where the next one begins. None if the line is faulty or its end is
    /// not in `bytes`.
    #[inline(always)]
    pub fn read(bytes: &[u8], start: usize) -> Option<(FieldLine, usize)> {
        let colon = search::token(bytes, start);
        if colon == start || bytes.get(colon) != Some(&b':') {
            return None;
        }
        // One space is usual.
        let mut value = colon + 1 + usize::from(bytes.get(colon + 1) == Some(&b' '));
        while let Some(b' ' | b'\t') = bytes.get(value) {
            value += 1;
        }
        let line_end = search::control(bytes, value);
        let Some(b"\r\n") = bytes.get(line_end..line_end + 2) else {
            return None;
        };
        let mut end = line_end;
        while end > value && matches!(bytes[end - 1], b' ' | b'\t') {
            end -= 1;
        }
        let line = FieldLine {
            name: start as u16,
            colon: colon as u16,
            value: value as u16,
            end: u16::try_from(end).ok()?,
            known: Known::of(&bytes[start..colon]),
        };
        Some((line, line_end + 2))
    }

    /// The place of the name.
    #[inline]
    pub fn name(&self) -> Range<usize> {
        self.name as usize..self.colon as usize
    }

    /// The place of the value, without white space around it.
    #[inline]
    pub fn value(&self) -> Range<usize> {
        self.value as usize..self.end as usize
    }

    /// The number of the name, if it is well known.
    #[inline]
    pub fn known(&self) -> Option<Known> {
        self.known
    }
}
