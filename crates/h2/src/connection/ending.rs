//! PING, graceful shutdown and end of a connection, and release of memory while it idles.

use super::{Closing, Connection, EVERY_STREAM, control};
use crate::code::Code;
use crate::error::{Cause, ConnectionError};
use crate::frame;
use crate::timestamp::Timestamp;

impl Connection {
    /// The time at which [`Connection::tick`] is due, if there is one.
    pub fn deadline(&self) -> Option<Timestamp> {
        self.settings_due.filter(|_| self.failed.is_none())
    }

    /// Checks the time-outs.
    ///
    /// # Errors
    /// The peer did not acknowledge our SETTINGS in time. The connection is lost, as after an error of [`Connection::receive`].
    pub fn tick(&mut self, now: Timestamp) -> Result<(), ConnectionError> {
        if self.deadline().is_some_and(|due| due <= now) {
            let error = ConnectionError::new(Code::SETTINGS_TIMEOUT, Cause::SettingsTimeout);
            self.fail(error);
        }
        self.failed.map_or(Ok(()), Err)
    }

    /// Sends a PING with a number. Its answer is an [`Event::Pong`](crate::Event::Pong) with the same number.
    pub fn ping(&mut self, number: u32) {
        self.numbered = self.numbered.saturating_add(1);
        self.output
            .small(&frame::ping(false, control::numbered(number)));
    }

    /// Shuts the connection down in order: it takes no more requests and ends with the last stream. A server sends the two
    /// GOAWAYs of RFC 9113 §6.8, two round trips apart, so no request is lost. A client opens no more streams. A second call
    /// changes nothing.
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

    /// True once [`Connection::drain`] was called.
    pub fn is_draining(&self) -> bool {
        self.closing != Closing::No
    }

    /// Sends the last GOAWAY of a server's drain without the peer's answers to its PINGs. The GOAWAY names the last request
    /// that came, so the peer learns that later ones were not processed. Without a drain this does nothing.
    pub fn end_drain(&mut self) {
        if matches!(self.closing, Closing::Announced | Closing::Heard) && self.failed.is_none() {
            self.closing = Closing::After(self.highest);
            self.output
                .small(&frame::go_away(self.highest, Code::NO_ERROR));
        }
    }

    /// Ends the connection now. Frames that wait and a GOAWAY with this code are still to be written.
    pub fn close(&mut self, code: Code) {
        self.fail(ConnectionError::new(code, Cause::Ended));
    }

    /// True if the connection has ended and all output is written. The caller closes the byte stream then.
    pub fn is_done(&self) -> bool {
        let over = match self.closing {
            Closing::After(_) => self.active == 0,
            _ => self.peer_closing && !self.server && self.active == 0,
        };
        (over || self.failed.is_some()) && self.output.len() == 0
    }

    /// Frees memory that an idle connection does not need.
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

    /// Frees memory that many more streams took than there are now.
    pub fn shrink(&mut self) {
        self.streams.shrink();
        self.turns.shrink();
        self.waiting.shrink();
    }

    /// Ends the connection with an error. Queued data is dropped, and a GOAWAY is the last output.
    pub(super) fn fail(&mut self, error: ConnectionError) {
        if self.failed.is_some() {
            return;
        }
        self.failed = Some(error);
        // Nobody decodes the rest of a header block, or reads another list.
        self.block = Vec::new();
        self.fields.rest();
        self.turns.clear();
        let last = match self.closing {
            Closing::After(last) => last,
            _ => self.highest,
        };
        self.output.small(&frame::go_away(last, error.code));
    }
}
