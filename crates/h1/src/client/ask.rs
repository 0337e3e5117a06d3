//! Requests of a client: the head, its content and trailers.

use bytes::Bytes;

use super::{ClientConnection, Inbound, Open};
use crate::encode::{self, Announced, FieldWriter};
use crate::error::WriteError;
use crate::fields::Field;
use crate::framing::Length;
use crate::scan;
use crate::target::TargetForm;

impl ClientConnection {
    /// Writes a request's head, with the framing and Connection fields that it needs. Exactly one Host field must be given.
    ///
    /// An Upgrade field asks for a protocol switch (RFC 9110 §7.8). CONNECT cannot have content.
    #[inline]
    pub fn request<'a>(
        &mut self,
        method: &[u8],
        target: &[u8],
        fields: impl IntoIterator<Item = Field<'a>>,
        length: Length,
    ) -> Result<(), WriteError> {
        self.request_with(method, target, length, encode::all(fields))
    }

    /// The same, with fields that `write` gives to the writer.
    #[inline]
    pub fn request_with(
        &mut self,
        method: &[u8],
        target: &[u8],
        length: Length,
        write: impl FnOnce(&mut FieldWriter<'_>),
    ) -> Result<(), WriteError> {
        match self.inbound {
            Inbound::Idle => {}
            Inbound::Closed => return Err(WriteError::Closed),
            _ => return Err(WriteError::State),
        }
        if !scan::is_token(method) {
            return Err(WriteError::Method);
        }
        let form = match scan::target(target, 0) == target.len() {
            true => TargetForm::of(method, target).ok_or(WriteError::Target)?,
            false => return Err(WriteError::Target),
        };
        let is_connect = form == TargetForm::Authority;
        if is_connect && length != Length::None {
            return Err(WriteError::Content);
        }
        let (announced, told) = match length {
            Length::None => (Announced::Nothing, None),
            Length::Known(0) => (Announced::Nothing, Some(0)),
            Length::Known(length) => (Announced::Length(length), Some(length)),
            Length::Unknown => (Announced::Chunked, None),
        };
        let persistence = if self.closing { "close" } else { "" };
        let mut asks_for_upgrade = false;
        self.output.small(|out| {
            out.reserve(512);
            out.extend_from_slice(method);
            out.push(b' ');
            out.extend_from_slice(target);
            out.extend_from_slice(b" HTTP/1.1\r\n");
            let written = encode::fields(out, write)?;
            if written.hosts != 1 {
                return Err(WriteError::Host);
            }
            asks_for_upgrade = written.upgrade && !is_connect;
            encode::end_head(out, &written, persistence, announced, told);
            Ok(())
        })?;
        self.open = Open {
            content: announced,
            is_complete: announced == Announced::Nothing,
            is_head: method == b"HEAD",
            is_connect,
            asks_for_upgrade,
            persists: true,
            informational: 0,
        };
        self.inbound = Inbound::Head;
        Ok(())
    }

    /// Opens an exchange whose request the caller writes itself, as one does that sends the same bytes again and again.
    ///
    /// The request is complete, is no CONNECT, and asks for no upgrade.
    #[inline]
    pub fn expect(&mut self, is_head: bool) -> Result<(), WriteError> {
        match self.inbound {
            Inbound::Idle => {}
            Inbound::Closed => return Err(WriteError::Closed),
            _ => return Err(WriteError::State),
        }
        self.open = Open {
            content: Announced::Nothing,
            is_complete: true,
            is_head,
            is_connect: false,
            asks_for_upgrade: false,
            persists: true,
            informational: 0,
        };
        self.inbound = Inbound::Head;
        Ok(())
    }

    /// Writes content by reference. No bytes are no content, in any state.
    /// Content of an announced length is complete with its last byte.
    #[inline]
    pub fn send(&mut self, bytes: Bytes) -> Result<(), WriteError> {
        if bytes.is_empty() {
            return Ok(());
        }
        if self.open.is_complete {
            return Err(WriteError::State);
        }
        if self.open.content.send(&mut self.output, bytes)? {
            self.complete();
        }
        Ok(())
    }

    /// Ends the content. It does nothing if the request is complete already.
    pub fn finish(&mut self) -> Result<(), WriteError> {
        if !self.open.is_complete {
            self.open.content.finish(&mut self.output)?;
            self.complete();
        }
        Ok(())
    }

    /// Ends chunked content with a trailer section (RFC 9112 §7.1.2). Other content cannot have one: call [`finish`](Self::finish).
    pub fn trailers<'a>(
        &mut self,
        fields: impl IntoIterator<Item = Field<'a>>,
    ) -> Result<(), WriteError> {
        if self.open.is_complete {
            return Err(WriteError::State);
        }
        self.open.content.trailers(&mut self.output, fields)?;
        self.complete();
        Ok(())
    }

    /// True if the request can end with [`trailers`](Self::trailers).
    pub fn takes_trailers(&self) -> bool {
        !self.open.is_complete && self.open.content == Announced::Chunked
    }

    fn complete(&mut self) {
        self.open.is_complete = true;
        self.turn();
    }
}
