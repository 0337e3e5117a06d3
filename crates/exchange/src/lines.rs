//! Outgoing header fields: a copy in one buffer, in the form that each codec takes.

use std::cell::RefCell;

use lateen_h2::Keep;

use crate::keep::named;

/// Fields of one message that is being written.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    bytes: Vec<u8>,
    spans: Vec<Span>,
}

#[derive(Debug, Clone, Copy)]
struct Span {
    name: u32,
    value: u32,
    end: u32,
    /// It came as an HPACK literal that is never indexed.
    never_indexed: bool,
}

thread_local! {
    /// Shared by the connections of a thread, so that an idle one holds no buffer.
    static SCRATCH: RefCell<Lines> = RefCell::default();
}

/// Bytes that the shared buffer keeps.
const KEPT: usize = 16 * 1024;

/// Fills the shared buffer and has it written.
#[inline]
pub(crate) fn with<R>(work: impl FnOnce(&mut Lines) -> R) -> R {
    let mut lines = SCRATCH.take();
    let result = work(&mut lines);
    lines.clear();
    if lines.bytes.capacity() <= KEPT {
        SCRATCH.replace(lines);
    }
    result
}

impl Lines {
    fn clear(&mut self) {
        self.bytes.clear();
        self.spans.clear();
    }

    /// The bytes of all fields.
    pub(crate) fn length(&self) -> usize {
        self.bytes.len()
    }

    /// Adds a field.
    #[inline]
    pub(crate) fn add(&mut self, name: &[u8], value: &[u8]) {
        self.push(name, value, false);
    }

    #[inline]
    fn push(&mut self, name: &[u8], value: &[u8], never_indexed: bool) {
        let start = self.bytes.len() as u32;
        self.bytes.extend_from_slice(name);
        self.bytes.extend_from_slice(value);
        self.spans.push(Span {
            name: start,
            value: start + name.len() as u32,
            end: self.bytes.len() as u32,
            never_indexed,
        });
    }

    /// Adds a field of the message model.
    #[inline]
    pub(crate) fn field(&mut self, field: lateen_http::Field<'_>) {
        self.push(field.name(), field.value(), field.is_never_indexed());
    }

    /// Adds fields with their names in lower case.
    pub(crate) fn lower(&mut self, fields: &lateen_http::Fields) {
        for field in fields.iter() {
            let start = self.bytes.len();
            self.field(field);
            self.bytes[start..start + field.name().len()].make_ascii_lowercase();
        }
    }

    #[inline]
    fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8], bool)> {
        self.spans.iter().map(|span| {
            let (name, value) = (span.name as usize, span.value as usize);
            (
                &self.bytes[name..value],
                &self.bytes[value..span.end as usize],
                span.never_indexed,
            )
        })
    }

    /// The fields for HTTP/1, without those that its writer makes.
    pub(crate) fn http1(&self) -> Result<Vec<lateen_h1::Field<'_>>, lateen_h1::WriteError> {
        let mut fields = Vec::with_capacity(self.spans.len());
        for (name, value, _) in self.iter() {
            if !is_made_by_the_writer(name) {
                fields.push(lateen_h1::Field::new(name, value)?);
            }
        }
        Ok(fields)
    }

    /// The fields for HTTP/2. Names are in lower case.
    pub(crate) fn http2(&self) -> impl Iterator<Item = lateen_h2::Field<'_>> {
        self.iter().map(|(name, value, never_indexed)| {
            let field = named(name, value);
            match never_indexed {
                true => field.with_keep(Keep::Never),
                false => field,
            }
        })
    }
}

/// The fields that `lateen_h1` makes from the length and the persistence of a message.
#[inline]
fn is_made_by_the_writer(name: &[u8]) -> bool {
    match name.len() {
        10 => name.eq_ignore_ascii_case(b"connection") || name.eq_ignore_ascii_case(b"keep-alive"),
        14 => name.eq_ignore_ascii_case(b"content-length"),
        16 => name.eq_ignore_ascii_case(b"proxy-connection"),
        17 => name.eq_ignore_ascii_case(b"transfer-encoding"),
        _ => false,
    }
}
