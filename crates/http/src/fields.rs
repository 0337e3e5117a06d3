//! Field lists: spans of the head's bytes, an index by number, and text that was added.

mod edit;
mod field;
mod lines;
mod view;

use bytes::Bytes;

use crate::known::{Known, NameSet};
pub use field::Field;
pub use lines::{Line, Lines};

/// No position: the end of a chain.
const END: u8 = u8::MAX;
/// The most fields of a list, removed and added ones included.
const MAX_SPANS: usize = END as usize;
/// The most bytes of a buffer: spans have 16 bits.
pub(crate) const MAX_BYTES: usize = u16::MAX as usize;

/// One field. Positions refer to `Fields::bytes`, or to `Fields::added` where a flag says so.
#[derive(Debug, Clone, Copy)]
struct Span {
    name: u16,
    name_end: u16,
    value: u16,
    value_end: u16,
    /// None for names without a number.
    known: Option<Known>,
    /// The position of the next live field of the same number, or `END`.
    next: u8,
    /// In the first live field of a number: the position of the last one.
    tail: u8,
    flags: u8,
}

impl Span {
    /// The name is in `added`; known names are nowhere then.
    const NAME_ADDED: u8 = 1;
    /// The value is in `added`.
    const VALUE_ADDED: u8 = 2;
    /// The field is gone.
    const REMOVED: u8 = 4;
    /// The field came as an HPACK literal that is never indexed.
    const NEVER_INDEXED: u8 = 8;

    fn is_live(&self) -> bool {
        self.flags & Span::REMOVED == 0
    }
}

/// The fields of a message in order of arrival, added ones behind them (RFC 9110 §5.3).
///
/// Names and values are spans of one buffer of at most 65,535 bytes. Removed fields are marked, not moved.
#[derive(Clone)]
pub struct Fields(Box<List>);

/// The list itself. Heads are handed on several times, so it stays in one place.
#[derive(Clone)]
struct List {
    /// The head as it arrived. It keeps the read buffer alive.
    bytes: Bytes,
    /// Names and values that were added.
    added: Vec<u8>,
    spans: Vec<Span>,
    /// Numbers of which there is a live field.
    present: NameSet,
    /// Numbers of which there are several live fields.
    repeated: NameSet,
    /// The position of the first live field of each number, or `END`.
    first: [u8; 128],
    /// How many fields are removed.
    removed: u8,
    /// How many fields have no number, removed ones included.
    others: u8,
}

impl Fields {
    /// A list over `bytes` without fields.
    pub(crate) fn new(bytes: Bytes, room: usize) -> Fields {
        Fields(Box::new(List {
            bytes,
            added: Vec::new(),
            spans: Vec::with_capacity(room.min(MAX_SPANS)),
            present: NameSet::default(),
            repeated: NameSet::default(),
            first: [END; 128],
            removed: 0,
            others: 0,
        }))
    }

    /// The value of the first field of a number.
    #[inline]
    pub fn get(&self, name: Known) -> Option<&[u8]> {
        let span = self.0.spans.get(self.first_of(name) as usize)?;
        Some(self.value(span))
    }

    /// The values of all fields of a number.
    pub fn all(&self, name: Known) -> impl Iterator<Item = &[u8]> {
        let mut at = self.first_of(name);
        std::iter::from_fn(move || {
            let span = self.0.spans.get(at as usize)?;
            at = span.next;
            Some(self.value(span))
        })
    }

    /// True if there is a field of this number.
    #[inline]
    pub fn has(&self, name: Known) -> bool {
        self.0.present.has(name)
    }

    /// All fields.
    pub fn iter(&self) -> impl Iterator<Item = Field<'_>> {
        self.0
            .spans
            .iter()
            .filter(|span| span.is_live())
            .map(|span| self.field(span))
    }

    /// The number of fields.
    pub fn len(&self) -> usize {
        self.0.spans.len() - self.0.removed as usize
    }

    /// True if there are no fields.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes of the head as it arrived.
    pub(crate) fn bytes(&self) -> &Bytes {
        &self.0.bytes
    }

    /// Copies the head out of the read buffer, which others may then have.
    pub(crate) fn detach(&mut self) {
        self.0.bytes = Bytes::copy_from_slice(&self.0.bytes);
        self.0.spans.shrink_to_fit();
    }

    /// The numbers of `set` of which there are fields.
    #[inline]
    pub(crate) fn among(&self, set: NameSet) -> NameSet {
        self.0.present.and(set)
    }

    /// True if several fields have this number.
    #[inline]
    pub(crate) fn is_repeated(&self, name: Known) -> bool {
        self.0.repeated.has(name)
    }

    /// The numbers that several fields have.
    #[inline]
    pub(crate) fn repeated(&self) -> NameSet {
        self.0.repeated
    }

    /// True if a name without a number may be in the list.
    #[inline]
    pub(crate) fn has_others(&self) -> bool {
        self.0.others != 0
    }

    #[inline]
    fn first_of(&self, name: Known) -> u8 {
        self.0.first[name as usize & 127]
    }

    #[inline]
    fn value(&self, span: &Span) -> &[u8] {
        let buffer = match span.flags & Span::VALUE_ADDED {
            0 => &self.0.bytes[..],
            _ => &self.0.added[..],
        };
        buffer
            .get(span.value as usize..span.value_end as usize)
            .unwrap_or_default()
    }

    #[inline]
    fn name(&self, span: &Span) -> &[u8] {
        let buffer = match (span.flags & Span::NAME_ADDED, span.known) {
            (0, _) => &self.0.bytes[..],
            (_, Some(known)) => return known.as_str().as_bytes(),
            (_, None) => &self.0.added[..],
        };
        buffer
            .get(span.name as usize..span.name_end as usize)
            .unwrap_or_default()
    }

    #[inline]
    fn field(&self, span: &Span) -> Field<'_> {
        let never_indexed = span.flags & Span::NEVER_INDEXED != 0;
        Field::of_list(self.name(span), self.value(span), span.known)
            .with_never_indexed(never_indexed)
    }
}

impl std::fmt::Debug for Fields {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
