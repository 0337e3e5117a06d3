//! Incremental reader of a head or trailer section: a start line, field lines and an empty line (RFC 9112 §2.1).
//!
//! A section that arrives in one piece is parsed in place. Otherwise its bytes are collected, and only complete lines are
//! judged, so the cuts of the input change neither the result nor the error. Each byte is read at most three times.

use bytes::{Buf, Bytes, BytesMut};
use lateen_http::FieldLine;

use crate::config::Config;
use crate::error::Error;
use crate::fields::Fields;
use crate::name::Name;
use crate::scan;

/// Bytes that are collected before the next look for complete lines. It bounds the bytes copied beyond the section.
const STEP: usize = 1024;

/// Fields for which a section has room at once.
const USUAL_FIELDS: usize = 16;

/// A line that is not good: either its end has not arrived, or it is faulty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The view ends within the line.
    Incomplete,
    Fault(Error),
}

impl Stop {
    /// A fault, if the line that begins at `start` is complete. A line without its end is not judged.
    #[cold]
    pub(crate) fn fault(view: &[u8], start: usize, error: Error) -> Stop {
        match view[start..].contains(&b'\n') {
            true => Stop::Fault(error),
            false => Stop::Incomplete,
        }
    }

    /// The fault of a line in which a control character stands at `at`, where a CRLF or other text was due.
    #[cold]
    pub(crate) fn control(view: &[u8], start: usize, at: usize, other: Error) -> Stop {
        let error = match view.get(at) {
            None => return Stop::Incomplete,
            Some(b'\n') => Error::BareLineFeed,
            Some(b'\r') if view.get(at + 1) != Some(&b'\n') => Error::BareCarriageReturn,
            Some(_) => other,
        };
        Stop::fault(view, start, error)
    }
}

/// The kind of a section: its start line and the judgement of its fields.
pub(crate) trait Kind: Default {
    /// The fault of a section whose start line alone is too long.
    const LINE_TOO_LONG: Error;

    /// Reads the start line, if the kind has one and has not read it, and moves `at` behind it.
    fn start(&mut self, view: &[u8], at: &mut usize, config: &Config) -> Result<(), Stop>;

    /// True once the start line was read.
    fn has_started(&self) -> bool;

    /// Judges one field; false drops it.
    fn field(&mut self, name: Name, value: &[u8]) -> Result<bool, Error>;

    /// Judges the whole section.
    fn end(&mut self) -> Result<(), Error>;
}

/// Progress within the section's bytes, however they are held.
#[derive(Debug, Default)]
struct Progress<K> {
    kind: K,
    /// The position behind the last complete line.
    at: usize,
    /// Field lines so far, dropped ones included.
    lines: u16,
    fields: Vec<FieldLine>,
}

/// A section that is being read.
#[derive(Debug, Default)]
pub(crate) struct Section<K> {
    progress: Progress<K>,
    /// The bytes of a section that did not arrive in one piece.
    held: BytesMut,
    /// The part of `held` in which no line end is left to be found.
    scanned: usize,
}

impl<K: Kind> Section<K> {
    /// True if part of a section is held; empty lines before a request do not count.
    pub(crate) fn has_begun(&self) -> bool {
        self.held.len() > self.progress.at || self.progress.kind.has_started()
    }

    /// Bytes of the section that are held. None are while it arrives in one piece.
    pub(crate) fn held(&self) -> usize {
        self.held.len()
    }

    /// Takes the section's bytes from `input`. Returns the section once it is complete; its successor begins then.
    #[inline]
    pub(crate) fn read(
        &mut self,
        input: &mut Bytes,
        config: &Config,
    ) -> Result<Option<(K, Fields)>, Error> {
        if input.is_empty() {
            return Ok(None);
        }
        if !self.held.is_empty() {
            return self.read_on(input, config);
        }
        let most = usize::from(config.max_head);
        let view = &input[..input.len().min(most)];
        if self.progress.parse(view, config)? {
            let bytes = input.split_to(self.progress.at);
            return Ok(Some(self.progress.take(bytes)));
        }
        if view.len() == most {
            return Err(self.progress.too_large());
        }
        self.held.extend_from_slice(view);
        self.scanned = view.len();
        *input = Bytes::new();
        Ok(None)
    }

    #[cold]
    fn read_on(
        &mut self,
        input: &mut Bytes,
        config: &Config,
    ) -> Result<Option<(K, Fields)>, Error> {
        let most = usize::from(config.max_head);
        while !input.is_empty() {
            let before = self.held.len();
            let piece = &input[..input.len().min(STEP).min(most - before)];
            self.held.extend_from_slice(piece);
            let has_line_end = self.held[self.scanned..].contains(&b'\n');
            self.scanned = self.held.len();
            if has_line_end && self.progress.parse(&self.held, config)? {
                let used = self.progress.at - before;
                let bytes = std::mem::take(&mut self.held)
                    .freeze()
                    .slice(..self.progress.at);
                self.scanned = 0;
                input.advance(used);
                return Ok(Some(self.progress.take(bytes)));
            }
            let used = self.held.len() - before;
            input.advance(used);
            if self.held.len() == most {
                return Err(self.progress.too_large());
            }
        }
        Ok(None)
    }
}

impl<K: Kind> Progress<K> {
    /// Reads the complete lines of `view` from where it stopped. True once the section is complete.
    #[inline]
    fn parse(&mut self, view: &[u8], config: &Config) -> Result<bool, Error> {
        match self.lines(view, config) {
            Ok(()) => {}
            Err(Stop::Incomplete) => return Ok(false),
            Err(Stop::Fault(error)) => return Err(error),
        }
        self.kind.end()?;
        Ok(true)
    }

    #[inline]
    fn lines(&mut self, view: &[u8], config: &Config) -> Result<(), Stop> {
        self.kind.start(view, &mut self.at, config)?;
        if self.fields.capacity() == 0 {
            self.fields = Vec::with_capacity(USUAL_FIELDS);
        }
        let (mut at, mut lines) = (self.at, self.lines);
        while let Some((line, next)) = FieldLine::read(view, at) {
            if lines == config.max_fields {
                return Err(Stop::Fault(Error::TooManyFields));
            }
            lines += 1;
            let number = line.known().map_or(Name::Other, Name::of_known);
            if number == Name::Other
                || self
                    .kind
                    .field(number, &view[line.value()])
                    .map_err(Stop::Fault)?
            {
                self.fields.push(line);
            }
            at = next;
        }
        (self.at, self.lines) = (at, lines);
        if view[self.at..].starts_with(b"\r\n") {
            self.at += 2;
            return Ok(());
        }
        Err(no_line(view, self.at))
    }

    /// Hands the section out and begins the next one.
    fn take(&mut self, bytes: Bytes) -> (K, Fields) {
        let done = std::mem::take(self);
        (
            done.kind,
            Fields {
                bytes,
                lines: done.fields,
            },
        )
    }

    #[cold]
    fn too_large(&self) -> Error {
        match self.kind.has_started() {
            true => Error::HeadTooLarge,
            false => K::LINE_TOO_LONG,
        }
    }
}

/// The fault of the line at `start`, which is no field line, or has not arrived as a whole (RFC 9112 §5).
#[cold]
fn no_line(view: &[u8], start: usize) -> Stop {
    let colon = scan::token(view, start);
    if colon == start || view.get(colon) != Some(&b':') {
        return bad_name(view, start, colon);
    }
    let end = scan::control(view, colon + 1);
    Stop::control(view, start, end, Error::ControlCharacter)
}

/// The fault of a line whose name ends at `end`, but not with a colon.
#[cold]
fn bad_name(view: &[u8], start: usize, end: usize) -> Stop {
    let other = match view.get(end) {
        Some(b' ' | b'\t') if end == start => Error::FoldedLine,
        Some(b' ' | b'\t') if scan::trim(&view[end..]).first() == Some(&b':') => {
            Error::SpaceBeforeColon
        }
        Some(b':') => Error::EmptyName,
        _ => Error::FieldName,
    };
    Stop::control(view, start, end, other)
}
