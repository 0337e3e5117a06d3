//! Trailer sections (RFC 9110 §6.5).

use crate::config::Config;
use crate::error::Error;
use crate::fields::Fields;
use crate::name::Name;
use crate::section::{Kind, Stop};

/// A trailer section that is being read. Forbidden fields are dropped and counted: a recipient that does not know them as
/// trailers may ignore them (RFC 9110 §6.5.1), and none can be taken for a header field.
#[derive(Debug, Default)]
pub(crate) struct Judge {
    pub(crate) dropped: u16,
}

impl Kind for Judge {
    const LINE_TOO_LONG: Error = Error::HeadTooLarge;

    fn start(&mut self, _: &[u8], _: &mut usize, _: &Config) -> Result<(), Stop> {
        Ok(())
    }

    fn has_started(&self) -> bool {
        true
    }

    fn field(&mut self, name: Name, _: &[u8]) -> Result<bool, Error> {
        let is_dropped = name.is_forbidden_in_trailers();
        self.dropped += u16::from(is_dropped);
        Ok(!is_dropped)
    }

    fn end(&mut self) -> Result<(), Error> {
        Ok(())
    }
}

/// The trailer section of a message (RFC 9112 §7.1.2).
#[derive(Debug, Clone)]
pub struct Trailers {
    /// The fields that a trailer section may have.
    pub fields: Fields,
    /// Fields that were dropped: framing, routing, authentication and content fields (RFC 9110 §6.5.1).
    pub dropped: u16,
}
