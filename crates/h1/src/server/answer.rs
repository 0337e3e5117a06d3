//! Answers of a server: informational ones, the final one, its content and trailers.

use bytes::Bytes;

use super::{Answer, Inbound, ServerConnection};
use crate::body::Body;
use crate::encode::{self, Announced, FieldWriter};
use crate::error::WriteError;
use crate::fields::Field;
use crate::framing::{Length, Version};

impl ServerConnection {
    /// Writes an informational response other than 101 (RFC 9110 §15.2). An HTTP/1.0 client gets none.
    pub fn inform<'a>(
        &mut self,
        status: u16,
        fields: impl IntoIterator<Item = Field<'a>>,
    ) -> Result<(), WriteError> {
        if self.answer != Answer::Due {
            return Err(WriteError::State);
        }
        if !(100..200).contains(&status) || status == 101 {
            return Err(WriteError::Status);
        }
        if self.open.version == Version::Http10 {
            return Ok(());
        }
        self.output.small(|out| {
            encode::status_line(out, status);
            let written = encode::fields(out, encode::all(fields))?;
            encode::end_head(out, &written, "", Announced::Nothing, None);
            Ok(())
        })?;
        self.open.awaits_continue &= status != 100;
        Ok(())
    }

    /// Writes the final response's head, with the framing and Connection fields that it needs.
    ///
    /// - A response without content is complete at once. `Length::None` is written as `content-length: 0` where one is due.
    /// - For HEAD and status 304 the length is told and no content follows.
    /// - Status 101 needs a complete request with an upgrade, and an Upgrade field. Then [`into_tunnel`](Self::into_tunnel) follows.
    /// - A successful answer to CONNECT has `Length::None`. Then [`into_tunnel`](Self::into_tunnel) follows.
    #[inline]
    pub fn respond<'a>(
        &mut self,
        status: u16,
        fields: impl IntoIterator<Item = Field<'a>>,
        length: Length,
    ) -> Result<(), WriteError> {
        self.respond_with(status, length, encode::all(fields))
    }

    /// The same, with fields that `write` gives to the writer.
    #[inline]
    pub fn respond_with(
        &mut self,
        status: u16,
        length: Length,
        write: impl FnOnce(&mut FieldWriter<'_>),
    ) -> Result<(), WriteError> {
        if self.answer != Answer::Due {
            return Err(WriteError::State);
        }
        let switches = match status {
            101 => true,
            200..=299 => self.open.is_connect && self.failed.is_none(),
            300..=999 => false,
            _ => return Err(WriteError::Status),
        };
        if switches {
            return self.switch(status, length, write);
        }
        let (announced, told) = self.announce(status, length)?;
        let persists = self.persists()
            && !self.leaves_unread(status, announced)
            && announced != Announced::UntilClose;
        let persistence = match (persists, self.open.version) {
            (false, _) => "close",
            (true, Version::Http10) => "keep-alive",
            (true, Version::Http11) => "",
        };
        self.output.small(|out| {
            encode::status_line(out, status);
            let written = encode::fields(out, write)?;
            encode::end_head(out, &written, persistence, announced, told);
            Ok(())
        })?;
        self.open.persists = persists;
        self.open.awaits_continue = false;
        self.answer = Answer::Content(announced);
        if announced == Announced::Nothing {
            self.complete();
        }
        Ok(())
    }

    /// The content to write, and the value of Content-Length (RFC 9110 §8.6).
    fn announce(
        &self,
        status: u16,
        length: Length,
    ) -> Result<(Announced, Option<u64>), WriteError> {
        if status == 204 {
            return match length {
                Length::None | Length::Known(0) => Ok((Announced::Nothing, None)),
                _ => Err(WriteError::Content),
            };
        }
        if self.open.is_head || status == 304 {
            let told = if let Length::Known(length) = length {
                Some(length)
            } else {
                None
            };
            return Ok((Announced::Nothing, told));
        }
        Ok(match (length, self.open.version) {
            (Length::None | Length::Known(0), _) => (Announced::Nothing, Some(0)),
            (Length::Known(length), _) => (Announced::Length(length), Some(length)),
            (Length::Unknown, Version::Http11) => (Announced::Chunked, None),
            (Length::Unknown, Version::Http10) => (Announced::UntilClose, None),
        })
    }

    /// True if another request may follow the open one, as far as is known when the answer begins.
    fn persists(&self) -> bool {
        // Nobody can tell if content follows when the client waits for a status 100 that it does not get.
        let is_ambiguous = self.open.awaits_continue;
        // The bytes behind a refused CONNECT or upgrade may belong to the protocol that was asked for.
        let is_refused_switch =
            self.open.is_connect || self.open.asks_for_upgrade && self.open.has_early_input;
        self.open.persists && !self.closing && !is_ambiguous && !is_refused_switch
    }

    /// True if more of the request is to come than is read and dropped behind this answer (RFC 9112 §9.6). A success with content may go
    /// on until the request is complete, as an echo does.
    fn leaves_unread(&self, status: u16, announced: Announced) -> bool {
        let is_short = announced == Announced::Nothing || status >= 300;
        is_short
            && matches!(self.inbound, Inbound::Content(Body::Length(left)) if left > self.config.drain)
    }

    fn switch(
        &mut self,
        status: u16,
        length: Length,
        write: impl FnOnce(&mut FieldWriter<'_>),
    ) -> Result<(), WriteError> {
        let is_asked = self.open.is_connect || self.open.asks_for_upgrade;
        let is_upgrade = status == 101;
        // `Closed` is a complete request behind which the client ended its direction.
        let is_complete =
            matches!(self.inbound, Inbound::Complete | Inbound::Closed) && self.failed.is_none();
        if !is_asked || !is_complete || is_upgrade == self.open.is_connect {
            return Err(WriteError::Upgrade);
        }
        if length != Length::None {
            return Err(WriteError::Content);
        }
        self.output.small(|out| {
            encode::status_line(out, status);
            let written = encode::fields(out, write)?;
            if is_upgrade && !written.upgrade {
                return Err(WriteError::Upgrade);
            }
            encode::end_head(out, &written, "", Announced::Nothing, None);
            Ok(())
        })?;
        self.answer = Answer::Switched;
        self.inbound = Inbound::Complete;
        Ok(())
    }

    /// Writes content by reference. No bytes are no content, in any state.
    /// Content of an announced length is complete with its last byte.
    #[inline]
    pub fn send(&mut self, bytes: Bytes) -> Result<(), WriteError> {
        if bytes.is_empty() {
            return Ok(());
        }
        let Answer::Content(announced) = &mut self.answer else {
            return Err(WriteError::State);
        };
        if announced.send(&mut self.output, bytes)? {
            self.complete();
        }
        Ok(())
    }

    /// Ends the content. It does nothing if the answer is complete already.
    pub fn finish(&mut self) -> Result<(), WriteError> {
        match self.answer {
            Answer::Due => return Err(WriteError::State),
            Answer::Content(announced) => {
                announced.finish(&mut self.output)?;
                self.complete();
            }
            Answer::None | Answer::Complete | Answer::Switched => {}
        }
        Ok(())
    }

    /// Ends chunked content with a trailer section (RFC 9112 §7.1.2). Other content cannot have one: call [`finish`](Self::finish).
    pub fn trailers<'a>(
        &mut self,
        fields: impl IntoIterator<Item = Field<'a>>,
    ) -> Result<(), WriteError> {
        let Answer::Content(announced) = self.answer else {
            return Err(WriteError::State);
        };
        announced.trailers(&mut self.output, fields)?;
        self.complete();
        Ok(())
    }

    /// True if the answer can end with [`trailers`](Self::trailers).
    pub fn takes_trailers(&self) -> bool {
        self.answer == Answer::Content(Announced::Chunked)
    }

    fn complete(&mut self) {
        self.answer = Answer::Complete;
        self.turn();
    }
}
