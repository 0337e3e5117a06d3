//! Raw heads: fields as a codec found them, each name and value judged.

use std::ops::Range;

use bytes::Bytes;

use crate::fields::{Fields, MAX_BYTES};
use crate::known::{Known, NameSet};
use crate::line::FieldLine;
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
}

/// A head that is being filled with fields.
#[derive(Debug, Clone)]
pub(crate) struct Raw {
    pub(crate) fields: Fields,
    pub(crate) pseudo: Pseudo,
    pub(crate) version: Version,
    /// The message ends with its head.
    pub(crate) ends: bool,
    limits: Limits,
}

impl Raw {
    fn new(bytes: Bytes, version: Version, limits: Limits) -> Result<Raw, Cause> {
        let limit = limits.bytes.min(MAX_BYTES);
        if bytes.len() > limit {
            return Err(Cause::TooLarge { limit });
        }
        Ok(Raw {
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
        let has_blank = matches!(content, [b' ' | b'\t', ..] | [.., b' ' | b'\t']);
        if self.version == Version::Http2 {
            let known = Known::of_lower(text);
            if !scan::is_value(content) {
                return Err(known.map_or(Cause::Value, Cause::KnownValue));
            }
            if text.first() == Some(&b':') {
                return self.pseudo_field(name, value);
            }
            judge_http2(text, known, content)?;
            if has_blank {
                return Err(Cause::ValueSpace);
            }
            self.check_count(1)?;
            return self.fields.arrive(name, value, known);
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

    /// Takes a pseudo-header field (RFC 9113 §8.3).
    fn pseudo_field(&mut self, name: Range<usize>, value: Range<usize>) -> Result<(), Cause> {
        let bytes = self.fields.bytes();
        let text = &bytes[name];
        if !self.fields.is_empty() {
            return Err(Cause::PseudoLate);
        }
        let (slot, name) = match text {
            b":method" => (&mut self.pseudo.method, ":method"),
            b":scheme" => (&mut self.pseudo.scheme, ":scheme"),
            b":authority" => (&mut self.pseudo.authority, ":authority"),
            b":path" => (&mut self.pseudo.path, ":path"),
            b":protocol" => (&mut self.pseudo.protocol, ":protocol"),
            b":status" => (&mut self.pseudo.status, ":status"),
            _ => return Err(Cause::PseudoUnknown),
        };
        if slot.is_some() || value.is_empty() {
            return Err(Cause::PseudoTwice(name));
        }
        if name == ":path" && value.len() > self.limits.target {
            return Err(Cause::TargetTooLong {
                limit: self.limits.target,
            });
        }
        *slot = Some((value.start as u16, value.end as u16));
        Ok(())
    }

    /// The bytes of a span.
    #[inline]
    pub(crate) fn text(&self, span: Span) -> Option<&[u8]> {
        let (start, end) = span?;
        self.fields.bytes().get(start as usize..end as usize)
    }
}

/// Judges a regular field of HTTP/2 (RFC 9113 §8.2).
#[inline]
fn judge_http2(name: &[u8], known: Option<Known>, value: &[u8]) -> Result<(), Cause> {
    match known {
        None if !scan::is_lower_token(name) => {
            let is_case = name.iter().any(u8::is_ascii_uppercase);
            Err(match is_case {
                true => Cause::NameCase,
                false => Cause::Name,
            })
        }
        Some(known) if NameSet::FORBIDDEN_IN_HTTP2.has(known) => Err(Cause::Forbidden(known)),
        Some(Known::Te) if !value.eq_ignore_ascii_case(b"trailers") => Err(Cause::Te),
        _ => Ok(()),
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
}
