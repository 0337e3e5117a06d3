//! Checks of a frame's length and place, and parsing of the first bytes of its payload.

use super::{Part, Reader, Stage};
use crate::code::Code;
use crate::error::{Cause, ConnectionError};
use crate::frame::{Head, flag, kind};

impl Reader {
    /// A frame's header is whole.
    pub(super) fn begin(&mut self, head: Head) -> Result<Option<Part<'static>>, ConnectionError> {
        if head.length > self.max_frame {
            return Err(size(Cause::FrameTooLarge));
        }
        if self.block != 0 && (head.kind != kind::CONTINUATION || head.stream != self.block) {
            return Err(ConnectionError::protocol(Cause::Interleaved));
        }
        if self.first {
            if head.kind != kind::SETTINGS || head.has(flag::ACK) {
                return Err(ConnectionError::protocol(Cause::Preface));
            }
            self.first = false;
        }
        self.head = head;
        self.left = head.length;
        self.tail = 0;
        self.padding = 0;
        self.begins = true;
        let padded = u8::from(head.has(flag::PADDED));
        let on_stream = head.stream != 0;
        let (need, fits, placed) = match head.kind {
            kind::DATA => (padded, true, on_stream),
            kind::HEADERS => {
                self.block = head.stream;
                self.block_ends = head.has(flag::END_STREAM);
                let priority = if head.has(flag::PRIORITY) { 5 } else { 0 };
                (padded + priority, true, on_stream)
            }
            kind::CONTINUATION => (0, true, self.block != 0),
            kind::RST_STREAM => (4, head.length == 4, on_stream),
            kind::WINDOW_UPDATE => (4, head.length == 4, true),
            kind::SETTINGS if head.has(flag::ACK) => (0, head.length == 0, !on_stream),
            kind::SETTINGS => (6, head.length.is_multiple_of(6), !on_stream),
            kind::PING => (8, head.length == 8, !on_stream),
            kind::GOAWAY => (8, head.length >= 8, !on_stream),
            kind::PUSH_PROMISE => return Err(ConnectionError::protocol(Cause::Push)),
            kind::PRIORITY => (0, head.length == 5, on_stream),
            _ => (0, true, true),
        };
        if !placed {
            return Err(ConnectionError::protocol(match head.kind {
                kind::CONTINUATION => Cause::Interleaved,
                _ => Cause::Misplaced,
            }));
        }
        if !fits || u32::from(need) > head.length && head.kind != kind::SETTINGS {
            return Err(size(Cause::FrameLength));
        }
        self.need = need;
        if need > 0 && head.length > 0 {
            self.stage = Stage::Prefix;
            return Ok(None);
        }
        Ok(match head.kind {
            kind::DATA | kind::HEADERS | kind::CONTINUATION => {
                self.stage = Stage::Payload;
                None
            }
            kind::SETTINGS => Some(match head.has(flag::ACK) {
                true => Part::Acknowledged,
                false => Part::Settings,
            }),
            _ => {
                self.stage = Stage::Skip;
                Some(Part::Useless)
            }
        })
    }

    /// The prefix is whole.
    pub(super) fn prefixed(&mut self) -> Result<Option<Part<'static>>, ConnectionError> {
        let Head { stream, .. } = self.head;
        let [a, b, c, d, e, f, g, h, _] = self.kept;
        let word = u32::from_be_bytes([a, b, c, d]);
        // GOAWAY may go on with a text for people.
        self.stage = Stage::Skip;
        Ok(Some(match self.head.kind {
            kind::RST_STREAM => Part::Reset {
                stream,
                code: Code(word),
            },
            kind::WINDOW_UPDATE => Part::Window {
                stream,
                increment: word & 0x7fff_ffff,
            },
            kind::PING => Part::Ping {
                ack: self.head.has(flag::ACK),
                payload: [a, b, c, d, e, f, g, h],
            },
            kind::GOAWAY => Part::GoAway {
                last: word & 0x7fff_ffff,
                code: Code(u32::from_be_bytes([e, f, g, h])),
            },
            kind::SETTINGS => {
                if self.need == 0 {
                    self.stage = Stage::Head;
                    return Ok(Some(Part::Settings));
                }
                if self.left == 0 {
                    // Once more with nothing, to say that they are over.
                    self.need = 0;
                }
                self.stage = Stage::Prefix;
                Part::Setting {
                    id: u16::from_be_bytes([a, b]),
                    value: u32::from_be_bytes([c, d, e, f]),
                }
            }
            _ => {
                if self.head.has(flag::PADDED) {
                    self.tail = u32::from(a);
                    self.padding = self.tail + 1;
                    if self.tail > self.left {
                        return Err(ConnectionError::protocol(Cause::Padding));
                    }
                }
                self.stage = Stage::Payload;
                return Ok(None);
            }
        }))
    }
}

fn size(cause: Cause) -> ConnectionError {
    ConnectionError::new(Code::FRAME_SIZE_ERROR, cause)
}
