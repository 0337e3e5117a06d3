//! Message framing and persistence, from the fields of a head (RFC 9112 §6, §9.3).

use crate::error::Error;
use crate::name::Name;
use crate::scan;

/// A version of HTTP/1 (RFC 9112 §2.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Version {
    /// HTTP/1.0.
    Http10,
    /// HTTP/1.1.
    #[default]
    Http11,
}

/// The length of a message's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Length {
    /// No content and no framing field.
    #[default]
    None,
    /// So many bytes, told by Content-Length.
    Known(u64),
    /// Told by the end of the content: chunked, or up to the end of the connection for an HTTP/1.0 client.
    Unknown,
}

/// What the fields of a head say about framing and persistence.
#[derive(Debug, Default)]
pub(crate) struct Framing {
    pub(crate) version: Version,
    pub(crate) length: Option<u64>,
    /// Elements of Transfer-Encoding that are `chunked`.
    chunked: u16,
    coding: Option<CodingFault>,
    pub(crate) has_coding: bool,
    close: bool,
    keep_alive: bool,
    /// The Connection field names Upgrade.
    upgrade_option: bool,
    upgrade_field: bool,
    pub(crate) expects_continue: bool,
    pub(crate) hosts: u16,
}

#[derive(Debug, Clone, Copy)]
enum CodingFault {
    Unknown,
    Malformed,
}

impl Framing {
    /// Takes one field of a head into account.
    pub(crate) fn field(&mut self, name: Name, value: &[u8]) -> Result<(), Error> {
        match name {
            Name::ContentLength => {
                if self.length.is_some() {
                    return Err(Error::ContentLengthRepeated);
                }
                self.length = Some(scan::decimal(value).ok_or(Error::ContentLength)?);
            }
            Name::TransferEncoding => self.coding(value),
            Name::Connection => {
                for option in scan::elements(value) {
                    self.close |= option.eq_ignore_ascii_case(b"close");
                    self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
                    self.upgrade_option |= option.eq_ignore_ascii_case(b"upgrade");
                }
            }
            Name::Upgrade => self.upgrade_field |= !value.is_empty(),
            Name::Expect => self.expects_continue |= value.eq_ignore_ascii_case(b"100-continue"),
            Name::Host => {
                self.hosts += 1;
                if self.hosts > 1 {
                    return Err(Error::HostRepeated);
                }
                if !crate::target::is_host(value) {
                    return Err(Error::HostInvalid);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn coding(&mut self, value: &[u8]) {
        self.has_coding = true;
        for coding in scan::elements(value) {
            if coding.eq_ignore_ascii_case(b"chunked") {
                self.chunked += 1;
            } else if scan::is_token(coding) {
                self.coding.get_or_insert(CodingFault::Unknown);
            } else {
                self.coding = Some(CodingFault::Malformed);
            }
        }
    }

    /// Judges what the fields say together (RFC 9112 §6.1, §6.3).
    pub(crate) fn check(&self) -> Result<(), Error> {
        if !self.has_coding {
            return Ok(());
        }
        if self.length.is_some() {
            return Err(Error::LengthAndCoding);
        }
        if self.version == Version::Http10 {
            return Err(Error::CodingInHttp10);
        }
        match self.coding {
            Some(CodingFault::Unknown) => Err(Error::CodingUnknown),
            None if self.chunked == 1 => Ok(()),
            _ => Err(Error::CodingMalformed),
        }
    }

    /// True if the sender allows another message behind this one (RFC 9112 §9.3).
    pub(crate) fn persists(&self) -> bool {
        !self.close && (self.version == Version::Http11 || self.keep_alive)
    }

    /// True if the message asks for or makes a protocol switch (RFC 9110 §7.8). HTTP/1.0 has none.
    pub(crate) fn upgrades(&self) -> bool {
        self.upgrade_option && self.upgrade_field && self.version == Version::Http11
    }
}
