//! Requests and answers.

use super::{Connection, EVERY_STREAM};
use crate::abuse::Abuse;
use crate::error::{Gone, RequestError, StreamId};
use crate::frame::{HEAD, Head, flag, kind};
use crate::hpack::{Field, Prebuilt};
use crate::stream::is;

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
        let id = self.next;
        self.next += 2;
        let connect =
            prebuilt.is_some_and(Prebuilt::is_connect) || fields.iter().any(Field::is_connect);
        self.open(id, is::OURS | if connect { is::CONNECT } else { 0 });
        // It may be answered by "continue" and by "early hints".
        self.meters.earn(Abuse::HeaderFlood, 2);
        self.write_block(id, prebuilt, fields, end);
        if end {
            self.end(id, is::SENT);
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
        if stream.is(is::SENT | is::ANSWERED | is::OURS) || self.failed.is_some() {
            return Err(Gone);
        }
        stream.set(is::ANSWERED);
        self.write_block(id, prebuilt, fields, end);
        if end {
            self.end(id, is::SENT);
        }
        Ok(())
    }

    fn write_block(
        &mut self,
        id: u32,
        prebuilt: Option<&Prebuilt>,
        fields: &[Field<'_>],
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
            fields.iter().for_each(|field| encoder.field(*field, out));
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
