//! Writer of heads, content and trailers (RFC 9112 §2 to §7). It makes the framing and Connection fields itself.

use bytes::Bytes;
use lateen_http::Line;

use crate::error::WriteError;
use crate::fields::Field;
use crate::name::Name;
use crate::output::Output;

/// Content that a head announced and that is still to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Announced {
    Nothing,
    /// So many bytes, at least one.
    Length(u64),
    Chunked,
    UntilClose,
}

/// Facts of the fields that were written.
#[derive(Debug, Default)]
pub(crate) struct Written {
    pub(crate) hosts: u16,
    pub(crate) upgrade: bool,
    te: bool,
}

/// Writer of the fields of one head. The first fault of a field refuses the head.
#[derive(Debug)]
pub struct FieldWriter<'a> {
    out: &'a mut Vec<u8>,
    written: Written,
    fault: Option<WriteError>,
}

impl FieldWriter<'_> {
    /// Writes a field. Fields for framing and persistence are refused: they are made from the message's length.
    #[inline]
    pub fn field(&mut self, field: Field<'_>) {
        match field.number() {
            Name::Other => {}
            number if number.is_made_by_the_writer() => {
                return self.fail(WriteError::ReservedField);
            }
            Name::Host if !crate::target::is_host(field.value()) => {
                return self.fail(WriteError::Host);
            }
            _ => {}
        }
        self.write(field);
    }

    #[inline]
    fn write(&mut self, field: Field<'_>) {
        match field.number() {
            Name::Host => self.written.hosts += 1,
            Name::Upgrade => self.written.upgrade |= !field.value().is_empty(),
            Name::Te => self.written.te = true,
            _ => {}
        }
        field.write(self.out);
    }

    /// Writes fields of the message model, which were judged when they came. Those for framing and persistence are left out:
    /// they are made from the message's length.
    #[inline]
    pub fn line(&mut self, line: Line<'_>) {
        match line {
            Line::Lines(lines) => self.out.extend_from_slice(lines.as_bytes()),
            Line::Field(field) => {
                let number = field.known().map_or(Name::Other, Name::of_known);
                if number == Name::Other && field.name().first() == Some(&b':') {
                    return self.fail(WriteError::Field);
                }
                if !number.is_made_by_the_writer() {
                    self.write(Field::judged(field.name(), field.value(), number));
                }
            }
        }
    }

    /// Refuses the head.
    #[cold]
    pub fn fail(&mut self, fault: WriteError) {
        self.fault.get_or_insert(fault);
    }
}

/// Has the caller write the fields of a head.
#[inline]
pub(crate) fn fields(
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut FieldWriter<'_>),
) -> Result<Written, WriteError> {
    let mut writer = FieldWriter {
        out,
        written: Written::default(),
        fault: None,
    };
    write(&mut writer);
    match writer.fault {
        Some(fault) => Err(fault),
        None => Ok(writer.written),
    }
}

/// Writes fields that are at hand.
#[inline]
pub(crate) fn all<'a>(
    fields: impl IntoIterator<Item = Field<'a>>,
) -> impl FnOnce(&mut FieldWriter<'_>) {
    move |writer| fields.into_iter().for_each(|field| writer.field(field))
}

/// Ends a head: framing, Connection and the empty line. `persistence` is `close`, `keep-alive` or empty.
pub(crate) fn end_head(
    out: &mut Vec<u8>,
    written: &Written,
    persistence: &'static str,
    announced: Announced,
    length: Option<u64>,
) {
    if let Some(length) = length {
        content_length(out, length);
    } else if announced == Announced::Chunked {
        out.extend_from_slice(b"transfer-encoding: chunked\r\n");
    }
    if written.upgrade || written.te || !persistence.is_empty() {
        let upgrade = if written.upgrade { "upgrade" } else { "" };
        let te = if written.te { "te" } else { "" };
        out.extend_from_slice(b"connection: ");
        let mut separator: &[u8] = b"";
        for option in [upgrade, te, persistence] {
            if !option.is_empty() {
                out.extend_from_slice(separator);
                out.extend_from_slice(option.as_bytes());
                separator = b", ";
            }
        }
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"\r\n");
}

fn content_length(out: &mut Vec<u8>, mut length: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (length % 10) as u8;
        length /= 10;
        if length == 0 {
            break;
        }
    }
    out.extend_from_slice(b"content-length: ");
    out.extend_from_slice(&digits[at..]);
    out.extend_from_slice(b"\r\n");
}

/// Writes a status line with the usual reason phrase, or an empty one.
pub(crate) fn status_line(out: &mut Vec<u8>, status: u16) {
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(
        &[status / 100 % 10, status / 10 % 10, status % 10].map(|digit| b'0' + digit as u8),
    );
    out.push(b' ');
    out.extend_from_slice(crate::reason::phrase(status).as_bytes());
    out.extend_from_slice(b"\r\n");
}

impl Announced {
    /// Writes content of at least one byte, and says if the message is complete with it.
    #[inline]
    pub(crate) fn send(&mut self, output: &mut Output, bytes: Bytes) -> Result<bool, WriteError> {
        match self {
            Announced::Nothing => return Err(WriteError::Content),
            Announced::Length(left) => {
                *left = left
                    .checked_sub(bytes.len() as u64)
                    .ok_or(WriteError::TooLong)?;
                output.payload(bytes);
                return Ok(*left == 0);
            }
            Announced::Chunked => {
                let mut line = [0; 18];
                output.copy(chunk_line(bytes.len(), &mut line));
                output.payload(bytes);
                output.copy(b"\r\n");
            }
            Announced::UntilClose => output.payload(bytes),
        }
        Ok(false)
    }

    /// Ends the content.
    pub(crate) fn finish(&self, output: &mut Output) -> Result<(), WriteError> {
        match self {
            Announced::Length(_) => return Err(WriteError::TooShort),
            Announced::Chunked => output.copy(b"0\r\n\r\n"),
            Announced::Nothing | Announced::UntilClose => {}
        }
        Ok(())
    }

    /// Ends the content with a trailer section, which chunked content alone can have.
    pub(crate) fn trailers<'a>(
        &self,
        output: &mut Output,
        fields: impl IntoIterator<Item = Field<'a>>,
    ) -> Result<(), WriteError> {
        if *self != Announced::Chunked {
            return Err(WriteError::Content);
        }
        output.small(|out| {
            out.extend_from_slice(b"0\r\n");
            for field in fields {
                if field.number().is_forbidden_in_trailers() {
                    return Err(WriteError::ReservedField);
                }
                field.write(out);
            }
            out.extend_from_slice(b"\r\n");
            Ok(())
        })
    }
}

/// The line before a chunk of `size` bytes.
fn chunk_line(mut size: usize, line: &mut [u8; 18]) -> &[u8] {
    line[16..].copy_from_slice(b"\r\n");
    let mut at = 16;
    while size > 0 {
        at -= 1;
        line[at] = b"0123456789abcdef"[size % 16];
        size /= 16;
    }
    &line[at..]
}
