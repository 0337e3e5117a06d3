//! Field lines of HTTP/1 as they arrived, joined where nothing stands between them.

use std::ops::Range;

use crate::fields::{Field, Fields, Span};
use crate::known::NameSet;

/// Part of a field section of HTTP/1.
#[derive(Debug, Clone, Copy)]
pub enum Line<'a> {
    /// Whole field lines.
    Lines(Lines<'a>),
    /// One field, whose line is to be made.
    Field(Field<'a>),
}

/// Field lines with their CRLF, in the bytes of the message in which they arrived. Each is `name: value`, name and value are
/// valid, and no name decides about framing, persistence or the host (RFC 9112 §5).
#[derive(Debug, Clone, Copy)]
pub struct Lines<'a>(&'a [u8]);

impl<'a> Lines<'a> {
    /// The bytes.
    #[inline]
    pub fn as_bytes(&self) -> &'a [u8] {
        self.0
    }
}

impl Fields {
    /// Gives the fields to `emit` in order. If `joins`, neighbours that arrived as lines come in one piece.
    #[inline]
    pub(crate) fn lines<'a>(&'a self, joins: bool, mut emit: impl FnMut(Line<'a>)) {
        let mut run = 0..0;
        for span in self.0.spans.iter().filter(|span| span.is_live()) {
            let line = if joins { self.line(span) } else { None };
            match line {
                Some(line) if line.start == run.end => run.end = line.end,
                Some(line) => self.end_run(std::mem::replace(&mut run, line), &mut emit),
                None => {
                    self.end_run(std::mem::take(&mut run), &mut emit);
                    emit(Line::Field(self.field(span)));
                }
            }
        }
        self.end_run(run, &mut emit);
    }

    #[inline]
    fn end_run<'a>(&'a self, run: Range<usize>, emit: &mut impl FnMut(Line<'a>)) {
        if !run.is_empty()
            && let Some(lines) = self.0.bytes.get(run)
        {
            emit(Line::Lines(Lines(lines)));
        }
    }

    /// The place of the field's line, if it arrived as one that can be written as it is.
    #[inline]
    fn line(&self, span: &Span) -> Option<Range<usize>> {
        if span.flags != 0
            || span
                .known
                .is_some_and(|known| NameSet::OF_WRITERS.has(known))
        {
            return None;
        }
        let (middle, end) = (span.name_end as usize, span.value_end as usize);
        let bytes = &self.0.bytes[..];
        let is_line = bytes.get(middle..span.value as usize) == Some(b": ")
            && bytes.get(end..end + 2) == Some(b"\r\n");
        is_line.then_some(span.name as usize..end + 2)
    }
}
