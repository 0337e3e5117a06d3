//! Raw heads: fields as a codec found them, each name and value judged.

use std::ops::Range;

use bytes::Bytes;

use crate::fields::{Fields, MAX_BYTES};
use crate::known::{Known, NameSet};
use crate::line::FieldLine;
use crate::pseudo::{PseudoField, PseudoSet};
use crate::refusal::{Cause, Refusal};
use crate::scan;
use crate::status::Status;

/// The protocol version of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Version {
    /// HTTP/1.0
    Http10,
    /// HTTP/1.1
    Http11,
    /// HTTP/2
    Http2,
}

impl Version {
    /// Reads the version of a start line (RFC 9112 §2.3).
    pub fn parse(version: &[u8]) -> Result<Version, Refusal> {
        match version {
            b"HTTP/1.1" => Ok(Version::Http11),
            b"HTTP/1.0" => Ok(Version::Http10),
            _ => Err(Cause::Version.into()),
        }
    }
}

/// Limits of a head. Codecs apply their own before; these hold for all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The most fields, at most 200.
    pub fields: usize,
    /// The most bytes of the head with its start line, at most 65,535.
    pub bytes: usize,
    /// The most bytes of the request target.
    pub target: usize,
}

impl Default for Limits {
    /// Istio's limits: 100 fields and 60 KiB, the target within them.
    fn default() -> Self {
        Limits {
            fields: 100,
            bytes: 60 << 10,
            target: 60 << 10,
        }
    }
}

/// A span of the head's bytes.
pub(crate) type Span = Option<(u16, u16)>;

/// Pseudo-header fields, or what stands for them in an HTTP/1 start line.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Pseudo {
    pub(crate) method: Span,
    pub(crate) scheme: Span,
    pub(crate) authority: Span,
    /// `:path`, or the request target of HTTP/1 in any form.
    pub(crate) path: Span,
    pub(crate) protocol: Span,
    pub(crate) status: Span,
    /// The fields that came as HPACK literals that are never indexed.
    pub(crate) never_indexed: PseudoSet,
}

/// A head that is being filled with fields.
#[derive(Debug, Clone)]
pub(crate) struct Raw {
    pub(crate) fields: Fields,
    pub(crate) pseudo: Pseudo,
    pub(crate) version: Version,
    /// The message ends with its head.
    pub(crate) ends: bool,
    /// No byte of an HTTP/2 head is a control character, so no value has one. One search costs less than one for each value.
    is_clean: bool,
    limits: Limits,
}

impl Raw {
    fn new(bytes: Bytes, version: Version, limits: Limits) -> Result<Raw, Cause> {
        let limit = limits.bytes.min(MAX_BYTES);
        if bytes.len() > limit {
            return Err(Cause::TooLarge { limit });
        }
        Ok(Raw {
            is_clean: version == Version::Http2 && !scan::contains(&bytes, scan::is_control),
            fields: Fields::new(bytes, 24),
            pseudo: Pseudo::default(),
            version,
            ends: false,
            limits: Limits {
                fields: limits.fields.min(200),
                ..limits
            },
        })
    }

    #[inline]
    fn field(&mut self, name: Range<usize>, value: Range<usize>) -> Result<(), Cause> {
        let bytes = self.fields.bytes();
        let (Some(text), Some(content)) = (bytes.get(name.clone()), bytes.get(value.clone()))
        else {
            return Err(Cause::Span);
        };
        let has_blank = has_blank(content);
        if self.version == Version::Http2 {
            if text.first() == Some(&b':') {
                return self.named_pseudo(name, value);
            }
            let Some(known) = Known::of_lower(text) else {
                if !self.is_clean && !scan::is_value(content) {
                    return Err(Cause::Value);
                }
                judge_http2_name(text)?;
                if has_blank {
                    return Err(Cause::ValueSpace);
                }
                self.check_count(1)?;
                return self.fields.arrive(name, value, None);
            };
            return self.numbered(known, value);
        }
        let known = Known::of(text);
        if !scan::is_value(content) {
            return Err(known.map_or(Cause::Value, Cause::KnownValue));
        }
        if known.is_none() && !scan::is_token(text) {
            return Err(Cause::Name);
        }
        self.check_count(1)?;
        let value = match has_blank {
            true => trimmed(content, value),
            false => value,
        };
        self.fields.arrive(name, value, known)
    }

    /// Judges if so many more fields are within the limit.
    #[inline]
    fn check_count(&self, more: usize) -> Result<(), Cause> {
        let limit = self.limits.fields;
        match self.fields.len() + more > limit {
            true => Err(Cause::TooManyFields { limit }),
            false => Ok(()),
        }
    }

    /// Takes fields that were judged when they were read.
    #[inline]
    fn lines(&mut self, lines: &[FieldLine]) -> Result<(), Cause> {
        self.check_count(lines.len())?;
        if lines
            .last()
            .is_some_and(|line| line.value().end > self.fields.bytes().len())
        {
            return Err(Cause::Span);
        }
        lines
            .iter()
            .try_for_each(|line| self.fields.arrive(line.name(), line.value(), line.known()))
    }

    /// Takes a field of HTTP/2 by the number of its name. The list makes its name from the number, whatever the bytes hold.
    #[inline(always)]
    fn numbered(&mut self, known: Known, value: Range<usize>) -> Result<(), Cause> {
        let Some(content) = self.fields.bytes().get(value.clone()) else {
            return Err(Cause::Span);
        };
        if !self.is_clean && !scan::is_value(content) {
            return Err(Cause::KnownValue(known));
        }
        judge_http2(known, content)?;
        if has_blank(content) {
            return Err(Cause::ValueSpace);
        }
        self.check_count(1)?;
        self.fields.arrive_numbered(known, value)
    }

    /// Takes a pseudo-header field by its text.
    fn named_pseudo(&mut self, name: Range<usize>, value: Range<usize>) -> Result<(), Cause> {
        let bytes = self.fields.bytes();
        let field = match &bytes[name] {
            b":method" => PseudoField::Method,
            b":scheme" => PseudoField::Scheme,
            b":authority" => PseudoField::Authority,
            b":path" => PseudoField::Path,
            b":protocol" => PseudoField::Protocol,
            b":status" => PseudoField::Status,
            _ if !scan::is_value(&bytes[value.clone()]) => return Err(Cause::Value),
            _ if !self.fields.is_empty() => return Err(Cause::PseudoLate),
            _ => return Err(Cause::PseudoUnknown),
        };
        self.pseudo_field(field, value)
    }

    /// Takes a pseudo-header field (RFC 9113 §8.3).
    #[inline]
    fn pseudo_field(&mut self, field: PseudoField, value: Range<usize>) -> Result<(), Cause> {
        let Some(content) = self.fields.bytes().get(value.clone()) else {
            return Err(Cause::Span);
        };
        if !self.is_clean && !scan::is_value(content) {
            return Err(Cause::Value);
        }
        if !self.fields.is_empty() {
            return Err(Cause::PseudoLate);
        }
        let slot = match field {
            PseudoField::Method => &mut self.pseudo.method,
            PseudoField::Scheme => &mut self.pseudo.scheme,
            PseudoField::Authority => &mut self.pseudo.authority,
            PseudoField::Path => &mut self.pseudo.path,
            PseudoField::Protocol => &mut self.pseudo.protocol,
            PseudoField::Status => &mut self.pseudo.status,
        };
        if slot.is_some() || value.is_empty() {
            return Err(Cause::PseudoTwice(field.as_str()));
        }
        if field == PseudoField::Path && value.len() > self.limits.target {
            return Err(Cause::TargetTooLong {
                limit: self.limits.target,
            });
        }
        *slot = Some((value.start as u16, value.end as u16));
        Ok(())
    }

    /// Notes that a field is never indexed: the pseudo-header field, or the regular field that was taken last.
    #[cold]
    fn never_index(&mut self, pseudo: Option<PseudoField>) {
        match pseudo {
            Some(field) => self.pseudo.never_indexed.insert(field),
            None => self.fields.never_index(),
        }
    }

    /// The bytes of a span.
    #[inline]
    pub(crate) fn text(&self, span: Span) -> Option<&[u8]> {
        let (start, end) = span?;
        self.fields.bytes().get(start as usize..end as usize)
    }
}

/// True if white space stands at an end of a value.
#[inline]
fn has_blank(content: &[u8]) -> bool {
    matches!(content, [b' ' | b'\t', ..] | [.., b' ' | b'\t'])
}

/// Judges the name of a regular field of HTTP/2 that has no number (RFC 9113 §8.2.1).
fn judge_http2_name(name: &[u8]) -> Result<(), Cause> {
    match scan::is_lower_token(name) {
        true => Ok(()),
        false if name.iter().any(u8::is_ascii_uppercase) => Err(Cause::NameCase),
        false => Err(Cause::Name),
    }
}

/// Judges a regular field of HTTP/2 whose name has a number (RFC 9113 §8.2.2).
#[inline]
fn judge_http2(known: Known, value: &[u8]) -> Result<(), Cause> {
    match JUDGED[known as usize & 127] {
        false => Ok(()),
        true => judge_connection_field(known, value),
    }
}

/// The numbers that [`judge_connection_field`] may refuse.
static JUDGED: [bool; 128] = {
    let mut judged = [false; 128];
    let mut n = 0;
    while n < Known::ALL.len() {
        let known = Known::ALL[n];
        judged[n] = NameSet::FORBIDDEN_IN_HTTP2.has(known) || known as u8 == Known::Te as u8;
        n += 1;
    }
    judged
};

#[cold]
fn judge_connection_field(known: Known, value: &[u8]) -> Result<(), Cause> {
    match known {
        Known::Te if value.eq_ignore_ascii_case(b"trailers") => Ok(()),
        Known::Te => Err(Cause::Te),
        _ => Err(Cause::Forbidden(known)),
    }
}

/// The range of `content` without white space at its ends, where `value` is the range of `content`.
#[cold]
fn trimmed(content: &[u8], value: Range<usize>) -> Range<usize> {
    let before = content.len() - content.trim_ascii_start().len();
    let start = value.start + before;
    start..start + scan::trim(content).len()
}

/// The head of a request as a codec found it. `field` takes the fields in order; `frame` judges the body's length.
#[derive(Debug, Clone)]
pub struct RawRequest(pub(crate) Raw);

impl RawRequest {
    /// The head of an HTTP/1 request: its bytes, and the spans of method and target within them (RFC 9112 §3).
    pub fn http1(
        bytes: Bytes,
        method: Range<usize>,
        target: Range<usize>,
        version: Version,
        limits: Limits,
    ) -> Result<RawRequest, Refusal> {
        let mut raw = Raw::new(bytes, version.min(Version::Http11), limits)?;
        let bytes = raw.fields.bytes();
        if bytes.get(method.clone()).is_none() || bytes.get(target.clone()).is_none() {
            return Err(Cause::Span.into());
        }
        if target.len() > limits.target {
            return Err(Cause::TargetTooLong {
                limit: limits.target,
            }
            .into());
        }
        raw.pseudo.method = Some((method.start as u16, method.end as u16));
        raw.pseudo.path = Some((target.start as u16, target.end as u16));
        Ok(RawRequest(raw))
    }

    /// The head of an HTTP/2 request: the buffer of its names and values. `ends` says that it has END_STREAM.
    pub fn http2(bytes: Bytes, ends: bool, limits: Limits) -> Result<RawRequest, Refusal> {
        let mut raw = Raw::new(bytes, Version::Http2, limits)?;
        raw.ends = ends;
        Ok(RawRequest(raw))
    }

    /// Takes the next field: the spans of its name and its value. In HTTP/2 pseudo-header fields come first.
    #[inline]
    pub fn field(&mut self, name: Range<usize>, value: Range<usize>) -> Result<(), Refusal> {
        self.0.field(name, value).map_err(Refusal::from)
    }

    /// Takes the next field of HTTP/2 by the number of its name, which a codec has found, and the span of its value.
    #[inline]
    pub fn numbered(&mut self, name: Known, value: Range<usize>) -> Result<(), Refusal> {
        self.0.numbered(name, value).map_err(Refusal::from)
    }

    /// Takes a pseudo-header field of HTTP/2, which a codec has recognised: the span of its value.
    #[inline]
    pub fn pseudo(&mut self, field: PseudoField, value: Range<usize>) -> Result<(), Refusal> {
        self.0.pseudo_field(field, value).map_err(Refusal::from)
    }

    /// Notes that a field came as an HPACK literal that is never indexed (RFC 7541 §6.2.3): a pseudo-header field, or the regular
    /// field that was taken last.
    pub fn never_index(&mut self, pseudo: Option<PseudoField>) {
        self.0.never_index(pseudo);
    }

    /// Takes fields of HTTP/1. [`FieldLine::read`] has read them from the bytes of this head, and so judged them.
    #[inline]
    pub fn lines(&mut self, lines: &[FieldLine]) -> Result<(), Refusal> {
        self.0.lines(lines).map_err(Refusal::from)
    }
}

/// The head of a response as a codec found it.
#[derive(Debug, Clone)]
pub struct RawResponse {
    pub(crate) raw: Raw,
    /// Of HTTP/1; HTTP/2 has a pseudo-header field.
    pub(crate) status: Option<Status>,
}

impl RawResponse {
    /// The head of an HTTP/1 response: its bytes, and its status (RFC 9112 §4).
    pub fn http1(
        bytes: Bytes,
        status: Status,
        version: Version,
        limits: Limits,
    ) -> Result<RawResponse, Refusal> {
        let raw = Raw::new(bytes, version.min(Version::Http11), limits);
        Ok(RawResponse {
            raw: raw.map_err(Refusal::response)?,
            status: Some(status),
        })
    }

    /// The head of an HTTP/2 response. `ends` says that it has END_STREAM.
    pub fn http2(bytes: Bytes, ends: bool, limits: Limits) -> Result<RawResponse, Refusal> {
        let mut raw = Raw::new(bytes, Version::Http2, limits).map_err(Refusal::response)?;
        raw.ends = ends;
        Ok(RawResponse { raw, status: None })
    }

    /// Takes the next field.
    #[inline]
    pub fn field(&mut self, name: Range<usize>, value: Range<usize>) -> Result<(), Refusal> {
        self.raw.field(name, value).map_err(Refusal::response)
    }

    /// Takes the next field of HTTP/2; see [`RawRequest::numbered`].
    #[inline]
    pub fn numbered(&mut self, name: Known, value: Range<usize>) -> Result<(), Refusal> {
        self.raw.numbered(name, value).map_err(Refusal::response)
    }

    /// Takes a pseudo-header field of HTTP/2; see [`RawRequest::pseudo`].
    #[inline]
    pub fn pseudo(&mut self, field: PseudoField, value: Range<usize>) -> Result<(), Refusal> {
        self.raw
            .pseudo_field(field, value)
            .map_err(Refusal::response)
    }

    /// Notes that a field is never indexed; see [`RawRequest::never_index`].
    pub fn never_index(&mut self, pseudo: Option<PseudoField>) {
        self.raw.never_index(pseudo);
    }

    /// Takes fields of HTTP/1. [`FieldLine::read`] has read them from the bytes of this head, and so judged them.
    #[inline]
    pub fn lines(&mut self, lines: &[FieldLine]) -> Result<(), Refusal> {
        self.raw.lines(lines).map_err(Refusal::response)
    }
}

/// The fields of a trailer section as a codec found them.
#[derive(Debug, Clone)]
pub struct RawTrailers(pub(crate) Raw);

impl RawTrailers {
    /// A trailer section over its bytes.
    pub fn new(bytes: Bytes, version: Version, limits: Limits) -> Result<RawTrailers, Refusal> {
        Ok(RawTrailers(Raw::new(bytes, version, limits)?))
    }

    /// Takes the next field.
    pub fn field(&mut self, name: Range<usize>, value: Range<usize>) -> Result<(), Refusal> {
        let text = self.0.fields.bytes().get(name.clone());
        if text.and_then(<[u8]>::first) == Some(&b':') {
            return Err(Cause::PseudoInTrailers.into());
        }
        self.0.field(name, value).map_err(Refusal::from)
    }

    /// Notes that the field which was taken last is never indexed; see [`RawRequest::never_index`].
    pub fn never_index(&mut self) {
        self.0.never_index(None);
    }
}
