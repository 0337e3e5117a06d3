//! Response heads: the status line (RFC 9112 §4) and the judgement of a response's fields.

use std::fmt;

use crate::config::Config;
use crate::error::Error;
use crate::fields::Fields;
use crate::framing::{Framing, Length, Version};
use crate::name::Name;
use crate::scan;
use crate::section::{Kind, Stop};

/// A response head that is being read.
#[derive(Debug, Default)]
pub(crate) struct Head {
    /// 0 before the line was read.
    pub(crate) status: u16,
    reason: u16,
    end: u16,
    pub(crate) framing: Framing,
}

impl Kind for Head {
    const LINE_TOO_LONG: Error = Error::HeadTooLarge;

    /// `HTTP/1.x SP 3DIGIT SP [reason]`. Some servers omit the second space when they send no reason.
    #[inline]
    fn start(&mut self, view: &[u8], at: &mut usize, _: &Config) -> Result<(), Stop> {
        if self.has_started() {
            return Ok(());
        }
        let bad = |error| Err(Stop::fault(view, 0, error));
        let Some((line, rest)) = view.split_first_chunk::<12>() else {
            return bad(Error::StatusLine);
        };
        let [
            b'H',
            b'T',
            b'T',
            b'P',
            b'/',
            major,
            b'.',
            minor,
            b' ',
            a,
            b,
            c,
        ] = *line
        else {
            return bad(Error::StatusLine);
        };
        // Digits first: a line that ends within these twelve bytes has the same fault whatever follows it.
        let digits = [a, b, c];
        if !digits.iter().all(u8::is_ascii_digit) || a == b'0' {
            return bad(Error::StatusLine);
        }
        self.framing.version = match (major, minor) {
            (b'1', b'1') => Version::Http11,
            (b'1', b'0') => Version::Http10,
            (b'0'..=b'9', b'0'..=b'9') => return bad(Error::Version),
            _ => return bad(Error::StatusLine),
        };
        let mut reason = 12;
        match rest.first() {
            Some(b' ') => reason = 13,
            Some(b'\r') => {}
            Some(b'\n') => return Err(Stop::Fault(Error::BareLineFeed)),
            _ => return bad(Error::StatusLine),
        }
        let end = scan::control(view, reason);
        let Some(b"\r\n") = view.get(end..end + 2) else {
            return Err(Stop::control(view, 0, end, Error::ControlCharacter));
        };
        self.status = digits
            .iter()
            .fold(0, |sum, digit| sum * 10 + u16::from(digit - b'0'));
        (self.reason, self.end) = (reason as u16, end as u16);
        *at = end + 2;
        Ok(())
    }

    fn has_started(&self) -> bool {
        self.status != 0
    }

    #[inline]
    fn field(&mut self, name: Name, value: &[u8]) -> Result<bool, Error> {
        // Host and Expect mean nothing in a response.
        match name {
            Name::Host | Name::Expect => Ok(true),
            _ => self.framing.field(name, value).map(|()| true),
        }
    }

    fn end(&mut self) -> Result<(), Error> {
        self.framing.check()
    }
}

impl Head {
    pub(crate) fn finish(self, fields: Fields, length: Length) -> Response {
        Response {
            fields,
            length,
            content_length: self.framing.length,
            status: self.status,
            reason: self.reason,
            end: self.end,
            version: self.framing.version,
        }
    }
}

/// A response head as it arrived: slices of one buffer (RFC 9112 §4).
#[derive(Clone)]
pub struct Response {
    fields: Fields,
    length: Length,
    content_length: Option<u64>,
    status: u16,
    reason: u16,
    end: u16,
    version: Version,
}

impl Response {
    /// The status code, 100 to 999. Codes from 600 are to be read as 500 (RFC 9110 §15).
    pub fn status(&self) -> u16 {
        self.status
    }

    /// The reason phrase, which may be empty.
    pub fn reason(&self) -> &[u8] {
        &self.fields.bytes[self.reason as usize..self.end as usize]
    }

    /// The sender's version.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The header fields.
    pub fn fields(&self) -> &Fields {
        &self.fields
    }

    /// The length of the content that follows. `Unknown` is chunked or ends with the connection.
    pub fn length(&self) -> Length {
        self.length
    }

    /// The Content-Length field. A response to HEAD and status 304 may have one without content (RFC 9110 §8.6).
    pub fn content_length(&self) -> Option<u64> {
        self.content_length
    }
}

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |bytes| String::from_utf8_lossy(bytes);
        write!(
            f,
            "{} {} {:?} {:?}",
            self.status,
            text(self.reason()),
            self.version,
            self.length
        )?;
        self.fields
            .iter()
            .try_for_each(|field| write!(f, " {}={:?}", text(field.name()), text(field.value())))
    }
}
