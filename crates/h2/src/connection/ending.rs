//! PING, graceful shutdown and end of a connection, and release of memory while it idles.

use super::{Closing, Connection, EVERY_STREAM, control};
use crate::code::Code;
use crate::error::{Cause, ConnectionError};
use crate::frame;
use crate::moment::Moment;

impl Connection {
    /// When [`Connection::tick`] is due, if ever.
    pub fn deadline(&self) -> Option<Moment> {
        self.settings_due.filter(|_| self.failed.is_none())
    }

    /// Does what is due.
    ///
    /// # Errors
    /// The peer did not acknowledge our SETTINGS in time; see [`Connection::receive`].
    pub fn tick(&mut self, now: Moment) -> Result<(), ConnectionError> {
        if self.deadline().is_some_and(|due| due <= now) {
            let error = ConnectionError::new(Code::SETTINGS_TIMEOUT, Cause::SettingsTimeout);
            self.fail(error);
        }
        self.failed.map_or(Ok(()), Err)
    }

    /// Sends a PING; [`Event::Pong`](crate::Event::Pong) with its number is the answer.
    pub fn ping(&mut self, number: u32) {
        self.output
            .small(&frame::ping(false, control::numbered(number)));
    }

    /// Takes no more requests and ends with the last stream, losing none: a server says so in the two steps of RFC 9113
    /// §6.8, a client opens none. A second call changes nothing.
    pub fn drain(&mut self) {
        if self.closing != Closing::No || self.failed.is_some() {
            return;
        }
        if !self.server {
            self.closing = Closing::After(0);
            return self.output.small(&frame::go_away(0, Code::NO_ERROR));
        }
        self.closing = Closing::Announced;
        self.output
            .small(&frame::go_away(EVERY_STREAM, Code::NO_ERROR));
        self.output.small(&frame::ping(false, control::DRAIN));
    }

    /// Ends the connection now; what was framed, and a GOAWAY with this code, are still to be written.
    pub fn close(&mut self, code: Code) {
        self.fail(ConnectionError::new(code, Cause::Ended));
    }

    /// True if nothing more is to be done: close the byte stream below.
    pub fn is_done(&self) -> bool {
        let over = match self.closing {
            Closing::After(_) => self.active == 0,
            _ => self.peer_closing && !self.server && self.active == 0,
        };
        (over || self.failed.is_some()) && self.output.len() == 0
    }

    /// Gives back memory that an idle connection does not need.
    pub fn rest(&mut self) {
        self.output.rest();
        if self.active == 0 {
            self.fields.rest();
            self.decoder.rest();
            self.streams.rest();
            self.turns.rest();
            self.waiting.rest();
        }
        if self.block.is_empty() {
            self.block = Vec::new();
        }
    }

    pub(super) fn fail(&mut self, error: ConnectionError) {
        if self.failed.is_some() {
            return;
        }
        self.failed = Some(error);
        self.turns.clear();
        let last = match self.closing {
            Closing::After(last) => last,
            _ => self.highest,
        };
        self.output.small(&frame::go_away(last, error.code));
    }
}
