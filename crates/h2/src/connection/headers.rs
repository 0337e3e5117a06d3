//! Header blocks: assembly, decoding, validation, delivery to their streams.

use super::{Closing, Connection};
use crate::abuse::Abuse;
use crate::code::Code;
use crate::error::{Cause, ConnectionError, StreamId};
use crate::event::{Event, Outcome};
use crate::flags;
use crate::frame::{self, kind};
use crate::message::{BLANK, Length, MessageSummary, Shape, validate};
use crate::timestamp::Timestamp;

impl Connection {
    /// Some of a block came. It is kept if it is not the whole.
    pub(super) fn fragment(
        &mut self,
        begins: bool,
        frame: bool,
        bytes: &[u8],
        over: bool,
    ) -> Result<(), ConnectionError> {
        if begins {
            self.pieces = 0;
        }
        if frame {
            self.pieces += 1;
        }
        let whole = begins && over;
        // Huffman can make a string longer, up to 30 bits a byte; nobody who means well lets it.
        let most = self.config.max_header_list as usize * 2;
        if self.pieces > self.config.header_pieces || self.block.len() + bytes.len() > most {
            return Err(ConnectionError::abuse(Abuse::HeaderFlood));
        }
        if !whole {
            self.block.extend_from_slice(bytes);
        }
        Ok(())
    }

    /// The block is whole: it is what was kept, or else this piece. It is decoded whatever becomes of it, for the
    /// table's sake.
    pub(super) fn decode(&mut self, piece: &[u8]) -> Result<(), ConnectionError> {
        self.fields.clear();
        let block = std::mem::take(&mut self.block);
        let bytes = if block.is_empty() { piece } else { &block[..] };
        self.decoder
            .decode(bytes, &mut self.fields)
            .map_err(|why| {
                ConnectionError::new(Code::COMPRESSION_ERROR, Cause::Compression(why))
            })?;
        match self.fields.is_bomb() {
            true => Err(ConnectionError::abuse(Abuse::HeaderFlood)),
            false => Ok(()),
        }
    }

    /// A header list came on a stream.
    #[inline(never)]
    pub(super) fn headers(&mut self, id: u32, end: bool, now: Timestamp) -> Outcome<'static> {
        let Some(stream) = self.streams.get(id) else {
            if self.server && id % 2 == 1 && id > self.highest {
                return self.request_came(id, end, now);
            }
            self.absent(id, now)?;
            return Ok(None);
        };
        if stream.is(flags::RESET) {
            self.charge(Abuse::UselessFrames, now)?;
            return Ok(None);
        }
        if stream.is(flags::HEARD) {
            let error = ConnectionError::new(Code::STREAM_CLOSED, Cause::ClosedStream);
            return Err(error);
        }
        let state = stream.state;
        let answer = state & flags::OURS != 0 && state & flags::ANSWERED == 0;
        let shape = if answer {
            Shape::Response
        } else {
            Shape::Trailers
        };
        let summary = match self.validated(shape) {
            Ok(summary) => summary,
            Err((code, cause)) => return self.fault(id, code, cause, now).map(Some),
        };
        let bad = match (answer, end) {
            (true, true) if summary.status < 200 => {
                Some("an informational answer that ends its stream")
            }
            // On a tunnel RFC 9113 §8.5 wants none at all; what ends it is taken for its end, for some peers end so.
            (false, false) => Some("a header block that is no answer and does not end its stream"),
            _ => None,
        };
        if let Some(why) = bad {
            let fault = self.fault(id, Code::PROTOCOL_ERROR, Cause::Malformed(why), now);
            return fault.map(Some);
        }
        let status = summary.status;
        let length = if answer {
            content_of_answer(state, &summary)
        } else {
            Length::Open
        };
        if let Some(why) = self.expect_content(id, length, end) {
            let fault = self.fault(id, Code::PROTOCOL_ERROR, Cause::Malformed(why), now);
            return fault.map(Some);
        }
        if end {
            self.end(id, flags::HEARD);
        }
        let stream = StreamId::of(id);
        if !answer {
            return Ok(Some(Event::Trailers { stream }));
        }
        if status < 200 {
            self.charge(Abuse::HeaderFlood, now)?;
            return Ok(Some(Event::Informational { stream, status }));
        }
        if let Some(stream) = self.streams.get(id) {
            stream.set(flags::ANSWERED);
            if status >= 300 {
                // No tunnel after all.
                stream.unset(flags::CONNECT);
            }
        }
        Ok(Some(Event::Response {
            stream,
            status,
            end,
        }))
    }

    /// A request that is new.
    fn request_came(&mut self, id: u32, end: bool, now: Timestamp) -> Outcome<'static> {
        self.is_read()?;
        self.highest = id;
        if matches!(self.closing, Closing::After(_)) {
            // It is beyond the last one, and the peer was told.
            self.charge(Abuse::UselessFrames, now)?;
            return Ok(None);
        }
        if self.active >= self.config.max_streams
            || self.streams.len() as u32 >= 2 * self.config.max_streams
        {
            self.charge(Abuse::TooManyStreams, now)?;
            self.streams.remember(id);
            self.reply(&frame::word(kind::RST_STREAM, id, Code::REFUSED_STREAM.0))?;
            return Ok(None);
        }
        let shape = Shape::Request {
            extended_connect: self.config.extended_connect,
        };
        let summary = match self.validated(shape) {
            Ok(summary) => summary,
            Err((_, Cause::HeaderList | Cause::TooManyFields)) if self.config.tell_large => {
                self.charge(Abuse::ProvokedResets, now)?;
                self.open(id, 0);
                if end {
                    self.end(id, flags::HEARD);
                }
                let stream = StreamId::of(id);
                return Ok(Some(Event::TooLarge { stream, end }));
            }
            Err((code, cause)) => return self.fault(id, code, cause, now).map(Some),
        };
        let (flags, length) = match summary {
            // Whatever it says of a length (RFC 9110 §9.3.6).
            MessageSummary { connect: true, .. } => (flags::CONNECT, Length::Open),
            MessageSummary { head: true, .. } => (flags::HEAD, summary.length),
            _ => (0, summary.length),
        };
        self.open(id, flags);
        if let Some(why) = self.expect_content(id, length, end) {
            let fault = self.fault(id, Code::PROTOCOL_ERROR, Cause::Malformed(why), now);
            self.release(StreamId::of(id));
            return fault.map(Some);
        }
        if end {
            self.end(id, flags::HEARD);
        }
        Ok(Some(Event::Request {
            stream: StreamId::of(id),
            connect: summary.connect,
            end,
        }))
    }

    /// Takes note of the length of the content that follows a header block, and judges the end of content that has one.
    fn expect_content(&mut self, id: u32, length: Length, end: bool) -> Option<&'static str> {
        let stream = self.streams.get(id)?;
        match length {
            Length::Bad => return Some("a content-length that is no number"),
            Length::Bytes(bytes) => {
                stream.set(flags::COUNTED);
                stream.left = bytes;
            }
            Length::Open => {}
        }
        if end { stream.content(0, true) } else { None }
    }

    fn validated(&mut self, shape: Shape) -> Result<MessageSummary, (Code, Cause)> {
        if self.fields.is_too_large() {
            return Err((Code::ENHANCE_YOUR_CALM, Cause::HeaderList));
        }
        if self.fields.is_too_many() {
            return Err((Code::ENHANCE_YOUR_CALM, Cause::TooManyFields));
        }
        let summary = match validate(&self.fields, shape) {
            // RFC 9113 §8.2.1 calls it malformed. But libraries of gRPC send the text of an error as it is, and others accept it. A
            // server is strict, since a request may be read differently behind it.
            Err(BLANK) if !self.server => {
                self.fields.trim();
                validate(&self.fields, shape)
            }
            judged => judged,
        };
        summary.map_err(|why| (Code::PROTOCOL_ERROR, Cause::Malformed(why)))
    }
}

/// How long the content is that follows an answer to a request of this state (RFC 9110 §6.4.1, RFC 9113 §8.1.1).
fn content_of_answer(state: u16, summary: &MessageSummary) -> Length {
    match summary.status {
        ..200 => Length::Open,
        // A tunnel, whatever it says of a length.
        200..300 if state & flags::CONNECT != 0 => Length::Open,
        // It may say how long the content would have been; there is none.
        204 | 304 if summary.length != Length::Bad => Length::Bytes(0),
        _ if state & flags::HEAD != 0 && summary.length != Length::Bad => Length::Bytes(0),
        _ => summary.length,
    }
}
