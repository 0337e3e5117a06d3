//! Request heads: the request line (RFC 9112 §3) and the judgement of a request's fields.

use std::fmt;

use bytes::Bytes;

use crate::config::Config;
use crate::error::Error;
use crate::fields::Fields;
use crate::framing::{Framing, Length, Version};
use crate::name::Name;
use crate::scan;
use crate::section::{Kind, Stop};
use crate::target::TargetForm;

/// A request head that is being read.
#[derive(Debug, Default)]
pub(crate) struct Head {
    /// The method begins behind the empty lines.
    method: u16,
    target: u16,
    /// The end of the target, or 0 before the line was read.
    end: u16,
    empty_lines: u8,
    form: TargetForm,
    is_connect: bool,
    pub(crate) framing: Framing,
}

impl Kind for Head {
    const LINE_TOO_LONG: Error = Error::TargetTooLong;

    #[inline]
    fn start(&mut self, view: &[u8], at: &mut usize, config: &Config) -> Result<(), Stop> {
        if self.has_started() {
            return Ok(());
        }
        while let Some(b"\r\n") = view.get(*at..*at + 2) {
            if self.empty_lines == config.max_empty_lines {
                return Err(Stop::Fault(Error::EmptyLines));
            }
            self.empty_lines += 1;
            *at += 2;
        }
        let method = *at;
        let method_end = scan::token(view, method);
        if method_end == method || view.get(method_end) != Some(&b' ') {
            let is_short = method_end == method || view.get(method_end) == Some(&b'\r');
            let error = if is_short {
                Error::RequestLine
            } else {
                Error::Method
            };
            return Err(Stop::control(view, method, method_end, error));
        }
        let target = method_end + 1;
        let end = scan::target(view, target);
        if view.get(end) != Some(&b' ') {
            let error = if view.get(end) == Some(&b'\r') {
                Error::RequestLine
            } else {
                Error::Target
            };
            return Err(Stop::control(view, method, end, error));
        }
        let version = &view[end + 1..];
        self.framing.version = match version.first_chunk::<10>() {
            Some(b"HTTP/1.1\r\n") => Version::Http11,
            Some(b"HTTP/1.0\r\n") => Version::Http10,
            _ => return Err(bad_version(view, method, end + 1)),
        };
        let name = &view[method..method_end];
        let Some(form) = TargetForm::of(name, &view[target..end]) else {
            return Err(Stop::Fault(if end == target {
                Error::RequestLine
            } else {
                Error::Target
            }));
        };
        self.is_connect = form == TargetForm::Authority;
        self.form = form;
        (self.method, self.target, self.end) = (method as u16, target as u16, end as u16);
        *at = end + 11;
        Ok(())
    }

    fn has_started(&self) -> bool {
        self.end != 0
    }

    #[inline]
    fn field(&mut self, name: Name, value: &[u8]) -> Result<bool, Error> {
        self.framing.field(name, value).map(|()| true)
    }

    fn end(&mut self) -> Result<(), Error> {
        self.framing.check()?;
        if self.framing.hosts == 0 && self.framing.version == Version::Http11 {
            return Err(Error::HostMissing);
        }
        if self.is_connect && (self.framing.has_coding || self.framing.length.is_some()) {
            return Err(Error::ConnectContent);
        }
        Ok(())
    }
}

/// The fault of a request line whose last word begins at `at`.
#[cold]
fn bad_version(view: &[u8], start: usize, at: usize) -> Stop {
    let end = scan::control(view, at);
    if view.get(end..end + 2) != Some(b"\r\n") {
        return Stop::control(view, start, end, Error::RequestLine);
    }
    Stop::Fault(match &view[at..end] {
        [b'H', b'T', b'T', b'P', b'/', major, b'.', minor]
            if major.is_ascii_digit() && minor.is_ascii_digit() =>
        {
            Error::Version
        }
        _ => Error::RequestLine,
    })
}

impl Head {
    pub(crate) fn length(&self) -> Length {
        match (self.framing.has_coding, self.framing.length) {
            (true, _) => Length::Unknown,
            (false, Some(length)) => Length::Known(length),
            (false, None) => Length::None,
        }
    }

    pub(crate) fn finish(self, fields: Fields) -> Request {
        Request {
            length: self.length(),
            method: self.method,
            target: self.target,
            end: self.end,
            form: self.form,
            version: self.framing.version,
            expects_continue: self.framing.expects_continue
                && self.framing.version == Version::Http11,
            upgrade: self.framing.upgrades() && !self.is_connect,
            fields,
        }
    }
}

/// A request head as it arrived: slices of one buffer (RFC 9112 §3).
#[derive(Clone)]
pub struct Request {
    fields: Fields,
    length: Length,
    method: u16,
    target: u16,
    end: u16,
    form: TargetForm,
    version: Version,
    expects_continue: bool,
    upgrade: bool,
}

impl Request {
    /// The method, a token with the peer's case (RFC 9110 §9).
    pub fn method(&self) -> &[u8] {
        &self.fields.bytes[self.method as usize..self.target as usize - 1]
    }

    /// The request target, as sent: visible ASCII without `#` (RFC 9112 §3.2).
    pub fn target(&self) -> &[u8] {
        &self.fields.bytes[self.target as usize..self.end as usize]
    }

    /// The request target without a copy. It keeps the head's buffer alive.
    pub fn target_bytes(&self) -> Bytes {
        self.fields
            .bytes
            .slice(self.target as usize..self.end as usize)
    }

    /// The form of the target, which the method allows.
    pub fn form(&self) -> TargetForm {
        self.form
    }

    /// The sender's version.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The header fields.
    pub fn fields(&self) -> &Fields {
        &self.fields
    }

    /// The length of the content.
    pub fn length(&self) -> Length {
        self.length
    }

    /// True for CONNECT (RFC 9110 §9.3.6).
    pub fn is_connect(&self) -> bool {
        self.form == TargetForm::Authority
    }

    /// True if the sender may wait for status 100 before it sends content (RFC 9110 §10.1.1).
    pub fn expects_continue(&self) -> bool {
        self.expects_continue
    }

    /// True if the sender asks for a protocol switch, named in the Upgrade field (RFC 9110 §7.8).
    pub fn asks_for_upgrade(&self) -> bool {
        self.upgrade
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |bytes| String::from_utf8_lossy(bytes);
        write!(
            f,
            "{} {} {:?} {:?}",
            text(self.method()),
            text(self.target()),
            self.version,
            self.length
        )?;
        self.fields
            .iter()
            .try_for_each(|field| write!(f, " {}={:?}", text(field.name()), text(field.value())))
    }
}
