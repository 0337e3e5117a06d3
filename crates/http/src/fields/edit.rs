//! Changes to a field list: arrival, addition, replacement, removal by marking.

use std::ops::Range;

use crate::fields::{END, Fields, MAX_BYTES, MAX_SPANS, Span};
use crate::known::{Known, NameSet};
use crate::name::FieldName;
use crate::refusal::Cause;

impl Fields {
    /// Adds a field of the head's bytes. The ranges lie within them, and the caller has judged name and value.
    #[inline]
    pub(crate) fn arrive(
        &mut self,
        name: Range<usize>,
        value: Range<usize>,
        known: Option<Known>,
    ) -> Result<(), Cause> {
        self.push(Span {
            name: name.start as u16,
            name_end: name.end as u16,
            value: value.start as u16,
            value_end: value.end as u16,
            known,
            next: END,
            tail: END,
            flags: 0,
        })
    }

    /// Adds a field of HTTP/2 whose name is that of a number. Its value lies within the head's bytes and is judged.
    #[inline]
    pub(crate) fn arrive_numbered(
        &mut self,
        known: Known,
        value: Range<usize>,
    ) -> Result<(), Cause> {
        self.push(Span {
            name: 0,
            name_end: 0,
            value: value.start as u16,
            value_end: value.end as u16,
            known: Some(known),
            next: END,
            tail: END,
            flags: Span::NAME_ADDED,
        })
    }

    /// Notes that the field which was added last is never indexed.
    #[cold]
    pub(crate) fn never_index(&mut self) {
        if let Some(span) = self.0.spans.last_mut() {
            span.flags |= Span::NEVER_INDEXED;
        }
    }

    #[inline]
    fn push(&mut self, mut span: Span) -> Result<(), Cause> {
        let list = &mut *self.0;
        let at = list.spans.len();
        if at >= MAX_SPANS {
            return Err(Cause::TooManyFields { limit: MAX_SPANS });
        }
        match span.known {
            None => list.others += 1,
            Some(known) => {
                let first = &mut list.first[known as usize & 127];
                if *first == END {
                    *first = at as u8;
                    list.present.insert(known);
                    span.tail = at as u8;
                } else {
                    let first = *first;
                    self.link(known, first, at as u8);
                }
            }
        }
        self.0.spans.push(span);
        Ok(())
    }

    /// Puts the field at `at` behind the others of its number, of which `first` is the first one.
    #[inline(never)]
    fn link(&mut self, known: Known, first: u8, at: u8) {
        self.0.repeated.insert(known);
        if let Some(first) = self.0.spans.get_mut(first as usize) {
            let tail = std::mem::replace(&mut first.tail, at) as usize;
            if let Some(tail) = self.0.spans.get_mut(tail) {
                tail.next = at;
            }
        }
    }

    /// Copies a text behind the added ones.
    fn append(&mut self, parts: &[&[u8]]) -> Result<Range<u16>, Cause> {
        let start = self.0.added.len();
        let length: usize = parts.iter().map(|part| part.len()).sum();
        if start + length > MAX_BYTES {
            return Err(Cause::NoRoom);
        }
        parts
            .iter()
            .for_each(|part| self.0.added.extend_from_slice(part));
        Ok(start as u16..(start + length) as u16)
    }

    /// Adds a field. The value, made of `parts`, is valid.
    pub(crate) fn add(&mut self, known: Known, parts: &[&[u8]]) -> Result<(), Cause> {
        let value = self.append(parts)?;
        self.push(Span {
            name: 0,
            name_end: 0,
            value: value.start,
            value_end: value.end,
            known: Some(known),
            next: END,
            tail: END,
            flags: Span::NAME_ADDED | Span::VALUE_ADDED,
        })
    }

    /// Adds a field of any name.
    pub(crate) fn add_named(&mut self, name: &FieldName, value: &[u8]) -> Result<(), Cause> {
        if let Some(known) = name.known() {
            return self.add(known, &[value]);
        }
        let name = self.append(&[name.as_str().as_bytes()])?;
        let value = self.append(&[value])?;
        self.push(Span {
            name: name.start,
            name_end: name.end,
            value: value.start,
            value_end: value.end,
            known: None,
            next: END,
            tail: END,
            flags: Span::NAME_ADDED | Span::VALUE_ADDED,
        })
    }

    /// Gives the first field of a number this value and removes the others. Without one, adds one. It is never indexed if one of them
    /// was not, for the value may be made of theirs.
    pub(crate) fn set(&mut self, known: Known, parts: &[&[u8]]) -> Result<(), Cause> {
        let first = self.first_of(known) as usize;
        if first >= self.0.spans.len() {
            return self.add(known, parts);
        }
        let value = self.append(parts)?;
        let mut rest = END;
        if let Some(span) = self.0.spans.get_mut(first) {
            (span.value, span.value_end) = (value.start, value.end);
            span.flags |= Span::VALUE_ADDED;
            span.tail = first as u8;
            rest = std::mem::replace(&mut span.next, END);
        }
        self.0.repeated.remove(known);
        let flags = self.remove_chain(rest);
        if let Some(span) = self.0.spans.get_mut(first) {
            span.flags |= flags & Span::NEVER_INDEXED;
        }
        Ok(())
    }

    /// Replaces all values of a number by one of them all, with `between` between them, and `last` behind if it is not empty.
    pub(crate) fn join(&mut self, known: Known, between: &[u8], last: &[u8]) -> Result<(), Cause> {
        let mut joined = Vec::new();
        let last = (!last.is_empty()).then_some(last);
        for value in self
            .all(known)
            .chain(last)
            .filter(|value| !value.is_empty())
        {
            if !joined.is_empty() {
                joined.extend_from_slice(between);
            }
            joined.extend_from_slice(value);
        }
        self.set(known, &[&joined])
    }

    /// Removes all fields of a number.
    pub(crate) fn remove(&mut self, known: Known) {
        if self.0.present.has(known) {
            let first = std::mem::replace(&mut self.0.first[known as usize & 127], END);
            self.0.present.remove(known);
            self.0.repeated.remove(known);
            self.remove_chain(first);
        }
    }

    /// Removes a field and those behind it of its number. Returns the flags that any of them has.
    fn remove_chain(&mut self, mut at: u8) -> u8 {
        let mut flags = 0;
        while let Some(span) = self.0.spans.get_mut(at as usize) {
            span.flags |= Span::REMOVED;
            flags |= span.flags;
            self.0.removed += 1;
            at = span.next;
        }
        flags
    }

    /// Removes all fields whose numbers are in `set`.
    #[inline]
    pub(crate) fn remove_all(&mut self, set: NameSet) {
        let found = self.among(set);
        if !found.is_empty() {
            found.iter().for_each(|known| self.remove(known));
        }
    }

    /// Removes the fields without a number whose names `is_unwanted` names. Returns how many.
    pub(crate) fn remove_others(&mut self, is_unwanted: impl Fn(&[u8]) -> bool) -> usize {
        let before = self.0.removed;
        if !self.has_others() {
            return 0;
        }
        for at in 0..self.0.spans.len() {
            let span = self.0.spans[at];
            if span.known.is_none() && span.is_live() && is_unwanted(self.name(&span)) {
                self.0.spans[at].flags |= Span::REMOVED;
                self.0.removed += 1;
            }
        }
        (self.0.removed - before) as usize
    }

    /// Removes all fields of a name.
    pub(crate) fn remove_named(&mut self, name: &FieldName) {
        match name.known() {
            Some(known) => self.remove(known),
            None => {
                let text = name.as_str().as_bytes();
                self.remove_others(|other| other.eq_ignore_ascii_case(text));
            }
        }
    }
}
