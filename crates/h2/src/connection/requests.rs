//! Sending of requests and responses.

use super::{Connection, EVERY_STREAM};
use crate::abuse::Abuse;
use crate::error::{Gone, InformError, RequestError, StreamId};
use crate::flags;
use crate::frame::{HEAD, Head, flag, kind};
use crate::hpack::{BlockWriter, Field, Known, Prebuilt};

impl Connection {
    /// Opens a stream with a request: `prebuilt` first, then `fields`. `end` says that no data follows. The fields must
    /// make a well-formed request, with names in lower case.
    ///
    /// # Errors
    /// None was opened, see [`RequestError`].
    pub fn request(
        &mut self,
        prebuilt: Option<&Prebuilt>,
        fields: &[Field<'_>],
        end: bool,
    ) -> Result<StreamId, RequestError> {
        self.request_with(prebuilt, end, all(fields))
    }

    /// The same, with fields that `write` gives to the writer.
    ///
    /// # Errors
    /// See [`Connection::request`].
    #[inline]
    pub fn request_with(
        &mut self,
        prebuilt: Option<&Prebuilt>,
        end: bool,
        write: impl FnOnce(&mut BlockWriter<'_>),
    ) -> Result<StreamId, RequestError> {
        if !self.takes_requests() {
            return Err(match self.next > EVERY_STREAM {
                true => RequestError::Exhausted,
                false => RequestError::Closing,
            });
        }
        if self.active() >= self.limit() {
            return Err(RequestError::TooMany);
        }
        let id = self.next;
        let (most, extended) = (self.peer.max_header_list, self.peer.extended_connect);
        let flags = self.write_block(id, prebuilt, end, write, |size, flags| {
            if size > most as usize {
                return Err(RequestError::HeaderList);
            }
            match flags & flags::EXTENDED != 0 && !extended {
                true => Err(RequestError::ExtendedConnect),
                false => Ok(flags),
            }
        })?;
        self.next += 2;
        self.open(id, flags::OURS | flags);
        // It may be answered by "continue" and by "early hints".
        self.earn(Abuse::HeaderFlood, 2);
        if end {
            self.end(id, flags::SENT);
        }
        Ok(StreamId::of(id))
    }

    /// Answers a request, likewise; once, and not with an informational status.
    ///
    /// # Errors
    /// The stream is over.
    pub fn respond(
        &mut self,
        stream: StreamId,
        prebuilt: Option<&Prebuilt>,
        fields: &[Field<'_>],
        end: bool,
    ) -> Result<(), Gone> {
        self.respond_with(stream, prebuilt, end, all(fields))
    }

    /// The same, with fields that `write` gives to the writer.
    ///
    /// # Errors
    /// The stream is over.
    #[inline]
    pub fn respond_with(
        &mut self,
        stream: StreamId,
        prebuilt: Option<&Prebuilt>,
        end: bool,
        write: impl FnOnce(&mut BlockWriter<'_>),
    ) -> Result<(), Gone> {
        let id = stream.0;
        let stream = self.streams.get(id).ok_or(Gone)?;
        if stream.is(flags::SENT | flags::ANSWERED | flags::OURS) || self.failed.is_some() {
            return Err(Gone);
        }
        stream.set(flags::ANSWERED);
        self.write_any_block(id, prebuilt, end, write);
        if end {
            self.end(id, flags::SENT);
        }
        Ok(())
    }

    /// Sends an informational answer (RFC 9110 §15.2) before the answer: a status of 100 to 199 but 101, which HTTP/2 does
    /// not have (RFC 9113 §8.6), and fields.
    ///
    /// # Errors
    /// Nothing was sent, see [`InformError`].
    pub fn inform(
        &mut self,
        stream: StreamId,
        status: u16,
        fields: &[Field<'_>],
    ) -> Result<(), InformError> {
        let id = stream.0;
        let stream = self.streams.get(id).ok_or(InformError::Gone)?;
        if stream.is(flags::SENT | flags::ENDING | flags::ANSWERED | flags::OURS)
            || self.failed.is_some()
        {
            return Err(InformError::Gone);
        }
        if !(100..200).contains(&status) || status == 101 {
            return Err(InformError::Status);
        }
        // The other half is left to final answers.
        if self.output.replies() > self.config.unread_replies / 2 {
            return Err(InformError::Unread);
        }
        let digits = [status / 100, status / 10 % 10, status % 10].map(|digit| b'0' + digit as u8);
        self.write_any_block(id, None, false, |writer| {
            writer.field(Field::known(Known::Status, &digits));
            fields.iter().for_each(|field| writer.field(*field));
        });
        Ok(())
    }

    /// Writes a header block of fields that nothing forbids.
    #[inline]
    pub(super) fn write_any_block(
        &mut self,
        id: u32,
        prebuilt: Option<&Prebuilt>,
        end: bool,
        write: impl FnOnce(&mut BlockWriter<'_>),
    ) {
        let Ok(()) = self.write_block(id, prebuilt, end, write, |_, _| {
            Ok::<_, std::convert::Infallible>(())
        });
    }

    /// Writes a header block in as many frames as the peer's SETTINGS_MAX_FRAME_SIZE needs. `judge` gets the size of the
    /// fields and what they make of a request; if it refuses them, nothing is written.
    #[inline]
    fn write_block<T, E>(
        &mut self,
        id: u32,
        prebuilt: Option<&Prebuilt>,
        end: bool,
        write: impl FnOnce(&mut BlockWriter<'_>),
        judge: impl FnOnce(usize, u16) -> Result<T, E>,
    ) -> Result<T, E> {
        let most = self.peer.max_frame as usize;
        let encoder = &mut self.encoder;
        let mark = encoder.mark();
        let before = self.output.len();
        let judged = self.output.small_with(self.server, |out| {
            let at = out.len();
            out.extend_from_slice(&[0; HEAD]);
            let mut writer = BlockWriter::new(encoder, out, prebuilt);
            write(&mut writer);
            let (size, flags) = writer.end();
            match judge(size, flags) {
                Ok(judged) => {
                    frame_block(out, at, id, end, most);
                    Ok(judged)
                }
                Err(error) => {
                    encoder.restore(mark);
                    Err(error)
                }
            }
        })?;
        self.output.note(id, self.output.len() - before, true);
        Ok(judged)
    }
}

/// Writes fields that are at hand.
#[inline]
pub(super) fn all<'a>(fields: &'a [Field<'a>]) -> impl FnOnce(&mut BlockWriter<'_>) {
    move |writer| fields.iter().for_each(|field| writer.field(*field))
}

/// Makes frames of the header block that begins at `at` of `out` behind the place of one frame header.
fn frame_block(out: &mut Vec<u8>, at: usize, id: u32, end: bool, most: usize) {
    let end = if end { flag::END_STREAM } else { 0 };
    let head = |kind, flags, length| Head {
        length: length as u32,
        kind,
        flags,
        stream: id,
    };
    let length = out.len() - at - HEAD;
    if length <= most {
        let head = head(kind::HEADERS, flag::END_HEADERS | end, length);
        out[at..at + HEAD].copy_from_slice(&head.bytes());
        return;
    }
    let block = out.split_off(at + HEAD);
    out.truncate(at);
    let last = (length - 1) / most;
    for (number, piece) in block.chunks(most).enumerate() {
        let (kind, flags) = if number == 0 {
            (kind::HEADERS, end)
        } else {
            (kind::CONTINUATION, 0)
        };
        let over = if number == last { flag::END_HEADERS } else { 0 };
        out.extend_from_slice(&head(kind, flags | over, piece.len()).bytes());
        out.extend_from_slice(piece);
    }
}
