//! Sending of requests and responses.

use super::{Connection, EVERY_STREAM};
use crate::abuse::Abuse;
use crate::error::{Gone, InformError, RequestError, StreamId};
use crate::flags;
use crate::frame::{HEAD, Head, flag, kind};
use crate::hpack::{Field, Known, Prebuilt};

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
        if !self.takes_requests() {
            return Err(match self.next > EVERY_STREAM {
                true => RequestError::Exhausted,
                false => RequestError::Closing,
            });
        }
        if self.active() >= self.limit() {
            return Err(RequestError::TooMany);
        }
        let size =
            prebuilt.map_or(0, Prebuilt::size) + fields.iter().map(Field::size).sum::<usize>();
        if size > self.peer.max_header_list as usize {
            return Err(RequestError::HeaderList);
        }
        let flags = prebuilt.map_or(0, Prebuilt::request_flags);
        let flags = fields
            .iter()
            .fold(flags, |flags, field| flags | field.request_flags());
        if flags & flags::EXTENDED != 0 && !self.peer.extended_connect {
            return Err(RequestError::ExtendedConnect);
        }
        let id = self.next;
        self.next += 2;
        self.open(id, flags::OURS | flags);
        // It may be answered by "continue" and by "early hints".
        self.earn(Abuse::HeaderFlood, 2);
        self.write_block(id, prebuilt, fields.iter().copied(), end);
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
        let id = stream.0;
        let stream = self.streams.get(id).ok_or(Gone)?;
        if stream.is(flags::SENT | flags::ANSWERED | flags::OURS) || self.failed.is_some() {
            return Err(Gone);
        }
        stream.set(flags::ANSWERED);
        self.write_block(id, prebuilt, fields.iter().copied(), end);
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
        let status = std::iter::once(Field::known(Known::Status, &digits));
        self.write_block(id, None, status.chain(fields.iter().copied()), false);
        Ok(())
    }

    /// Writes a header block in as many frames as the peer's SETTINGS_MAX_FRAME_SIZE needs.
    pub(super) fn write_block<'a>(
        &mut self,
        id: u32,
        prebuilt: Option<&Prebuilt>,
        fields: impl Iterator<Item = Field<'a>>,
        end: bool,
    ) {
        let most = self.peer.max_frame as usize;
        let encoder = &mut self.encoder;
        let end = if end { flag::END_STREAM } else { 0 };
        let head = |kind, flags, length| Head {
            length: length as u32,
            kind,
            flags,
            stream: id,
        };
        self.output.small_with(self.server, |out| {
            let at = out.len();
            out.extend_from_slice(&[0; HEAD]);
            encoder.begin(out);
            if let Some(prebuilt) = prebuilt {
                out.extend_from_slice(prebuilt.bytes());
            }
            fields.for_each(|field| encoder.field(field, out));
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
        });
    }
}
