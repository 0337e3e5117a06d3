//! Output of streams: data in fair turns, ends of streams, and the gathering of both into one write.

use bytes::Bytes;

use super::Connection;
use super::requests::all;
use crate::abuse::Abuse;
use crate::code::Code;
use crate::error::{Gone, StreamId};
use crate::flags;
use crate::frame::{HEAD, Head, flag, kind};
use crate::hpack::Field;
use crate::notes::FrameNote;
use crate::stream::MOST;
use crate::trailers::Trailers;

/// Frames of a stream that may be under way when we reset it.
const UNDER_WAY: u32 = 100;

/// Bytes of a small message of gRPC. Some libraries give each message a frame of its own.
const SMALL_FRAME: u32 = 32;

/// A turn's frame is not cut below this for the sake of a write's bound.
const LEAST_FRAME: usize = 1024;

/// Data is framed while fewer bytes of output than this wait, where frames are noted. A peer that does not read would collect frames, which a
/// stream's limit on what waits does not count.
const REFILLED: usize = 4096;

/// Bytes that a grant must have at least, where more waits, to explain itself.
const CRUMBS: u32 = 64;

impl Connection {
    /// Room for data of a stream, in bytes: what waits of it and of all streams is bounded, and nothing waits that its own
    /// window does not allow, so that streams whose peers take nothing leave the room to others; beyond the connection's window no more than a write. [`Connection::send`] takes
    /// more all the same, for what is here already must wait somewhere.
    pub fn room(&mut self, stream: StreamId) -> usize {
        let left = self.room_left();
        let most = self.config.send_buffer;
        match self.streams.get(stream.0) {
            Some(stream) => left.min(stream.room(most) as usize),
            None => 0,
        }
    }

    /// Lets so many bytes of a stream's data wait, rounded down to a power of two, and no more than [`Config::send_buffer`](crate::Config::send_buffer). What
    /// waits beyond is still sent.
    #[inline]
    pub fn set_send_buffer(&mut self, stream: StreamId, bytes: usize) {
        if let Some(stream) = self.streams.get(stream.0) {
            let most = bytes.max(1).ilog2().min(u32::from(MOST)) as u8;
            if std::mem::replace(&mut stream.most, most) < most {
                self.waiting.may_have_room(stream);
            }
        }
    }

    /// What all streams together may add to what waits.
    fn room_left(&self) -> usize {
        // A write's worth waits ready for the connection's next window.
        let within = (self.window as usize).saturating_add(self.config.write);
        let most = self.send_total.min(within);
        most.saturating_sub(self.queued)
    }

    /// How many streams it makes sense to tell of the room that there is now: a turn's worth for each. Those behind them are
    /// told when there is more, or when those leave it; see [`Connection::has_waiting`]. None if [`Connection::next_with_room`]
    /// gives none.
    #[inline]
    pub fn worth_telling(&self) -> usize {
        match self.waiting.has_changed() {
            true => 1 + self.room_left() / self.config.turn as usize,
            false => 0,
        }
    }

    /// True if [`Connection::next_with_room`] has not come to an end, while nothing is queued whose leaving would bring it on.
    #[inline]
    pub fn has_waiting(&self) -> bool {
        self.waiting.has_changed() && self.queued() == 0
    }

    /// Asks to be told by [`Connection::next_with_room`] when there is room for this stream.
    pub fn await_room(&mut self, stream: StreamId) {
        if let Some(stream) = self.streams.get(stream.0) {
            stream.set(flags::WAITING);
            self.waiting.may_have_room(stream);
            self.waiting.tidy(&mut self.streams);
        }
    }

    /// A stream that waited and has room now, or is over. Ask until there is none, whenever output was taken.
    pub fn next_with_room(&mut self) -> Option<StreamId> {
        if !self.waiting.has_changed() {
            return None;
        }
        let (left, most) = (self.room_left(), self.config.send_buffer);
        while let Some(stream) = self.waiting.first(&mut self.streams) {
            let is_over = stream.is(flags::SENT);
            if left == 0 && !is_over {
                break;
            }
            self.waiting.leave(stream);
            if is_over || stream.room(most) > 0 {
                stream.unset(flags::WAITING);
                return Some(StreamId::of(stream.id));
            }
        }
        self.waiting.looked();
        None
    }

    /// Bytes of a stream that wait to be framed: data, and trailers behind it.
    pub fn queued_of(&mut self, stream: StreamId) -> usize {
        self.streams.get(stream.0).map_or(0, |stream| {
            stream.queued as usize + stream.queue.trailers_size()
        })
    }

    /// Bytes of a stream that were sent and for which the peer has not given it window back.
    pub fn unreturned(&mut self, stream: StreamId) -> u32 {
        let first = self.peer.window as i32;
        self.streams.get(stream.0).map_or(0, |stream| {
            first.saturating_sub(stream.window).max(0) as u32
        })
    }

    /// Bytes of frames that wait to be written.
    pub fn unsent(&self) -> usize {
        self.output.len()
    }

    /// Bytes of all streams that wait, framed or not.
    pub fn queued(&self) -> usize {
        self.queued + self.trailers_queued + self.output.len()
    }

    /// Sends data: it is kept by reference until it was written.
    ///
    /// # Errors
    /// The stream is over, or its end was announced before.
    pub fn send(&mut self, stream: StreamId, bytes: Bytes) -> Result<(), Gone> {
        let stream = self.streams.get(stream.0).ok_or(Gone)?;
        if stream.is(flags::SENT | flags::ENDING) || self.failed.is_some() {
            return Err(Gone);
        }
        let length = u32::try_from(bytes.len()).map_err(|_| Gone)?;
        if length == 0 {
            return Ok(());
        }
        stream.queued = stream.queued.checked_add(length).ok_or(Gone)?;
        stream.queue.push(bytes);
        self.queued += length as usize;
        self.turns.add(stream);
        Ok(())
    }

    /// Ends our direction of a stream behind what is queued.
    ///
    /// # Errors
    /// The stream is over.
    pub fn finish(&mut self, stream: StreamId) -> Result<(), Gone> {
        let stream = self.streams.get(stream.0).ok_or(Gone)?;
        if stream.is(flags::SENT) || self.failed.is_some() {
            return Err(Gone);
        }
        stream.set(flags::ENDING);
        self.turns.add(stream);
        Ok(())
    }

    /// Ends our direction of a stream behind what is queued with trailers (RFC 9113 §8.1), in place of
    /// [`Connection::finish`]. No field may be a pseudo-header field; names are in lower case.
    ///
    /// # Errors
    /// The stream is over, its end was announced before, or its request was not answered yet.
    pub fn trailers(&mut self, stream: StreamId, fields: &[Field<'_>]) -> Result<(), Gone> {
        let id = stream.0;
        let stream = self.streams.get(id).ok_or(Gone)?;
        let begun = stream.is(flags::OURS | flags::ANSWERED);
        if stream.is(flags::SENT | flags::ENDING) || !begun || self.failed.is_some() {
            return Err(Gone);
        }
        if stream.queued == 0 {
            self.write_any_block(id, None, true, all(fields));
            self.end(id, flags::SENT);
            return Ok(());
        }
        let trailers = Trailers::new(fields);
        self.trailers_queued += trailers.size();
        stream.queue.set_trailers(trailers);
        stream.set(flags::ENDING | flags::TRAILERS);
        self.turns.add(stream);
        Ok(())
    }

    /// Resets a stream, unless it is over; what was queued is dropped.
    pub fn reset(&mut self, stream: StreamId, code: Code) {
        let open = self.streams.get(stream.0).filter(|open| !open.is_over());
        if let Some(open) = open
            && self.failed.is_none()
        {
            // Until the peer hears of it, it may use its window up, with a frame for each small message.
            let under_way = UNDER_WAY.max(open.credit / SMALL_FRAME);
            self.reset_with(stream.0, code);
            self.earn(Abuse::UselessFrames, under_way);
        }
    }

    /// Lets a stream go; what was not consumed of it is. What it said arrives if it was [finished](Connection::finish), as far
    /// as the peer takes it. Then, if it is not over, it is reset: with NO_ERROR if we have said all (RFC 9113 §8.1), else
    /// with CANCEL.
    pub fn release(&mut self, stream: StreamId) {
        let id = stream.0;
        let Some(state) = self.streams.get(id) else {
            return;
        };
        if state.is(flags::ENDING) && !state.is(flags::SENT) && self.failed.is_none() {
            state.set(flags::LET_GO);
            self.recv_flow.let_go(state);
            return self.grant();
        }
        let code = match state.is(flags::SENT) && self.server {
            true => Code::NO_ERROR,
            false => Code::CANCEL,
        };
        self.reset(stream, code);
        if let Some(mut state) = self.streams.remove(id) {
            if state.is(flags::RESET) {
                self.streams.remember(id);
            }
            self.recv_flow.removed(&mut state);
            if self.failed.is_none() {
                self.grant();
            }
        }
    }

    /// Gives up requests of a client that were let go before the last call and of which something still waits: their streams are reset.
    /// A peer that has answered them, and takes nothing of the rest, would keep the streams for ever. A server's answers stay, for its
    /// client may pause.
    pub fn expire_let_go(&mut self) {
        if self.server || self.failed.is_some() {
            return;
        }
        let mut late = Vec::new();
        for stream in self.streams.iter_mut() {
            match stream.is(flags::AGED) {
                true => late.push(StreamId::of(stream.id)),
                false if stream.is(flags::LET_GO) => stream.set(flags::AGED),
                false => {}
            }
        }
        for stream in late {
            self.reset(stream, Code::CANCEL);
            self.release(stream);
        }
    }

    /// Writes the trailers of a stream whose data is framed.
    #[cold]
    #[inline(never)]
    fn write_trailers(&mut self, id: u32) {
        let stream = self.streams.get(id);
        if let Some(trailers) = stream.and_then(|stream| stream.queue.take_trailers()) {
            self.trailers_queued -= trailers.size();
            self.write_any_block(id, None, true, |writer| {
                trailers.fields().for_each(|field| writer.field(field));
            });
        }
    }

    /// Frames data of streams in turn, until a write is full.
    #[inline]
    fn fill(&mut self) {
        let is_wanted = self.output.len() < REFILLED || !self.output.notes_frames();
        if !self.turns.is_empty() && is_wanted {
            self.frame();
        }
    }

    #[inline(never)]
    fn frame(&mut self) {
        while self.output.len() < self.config.write {
            let Some(id) = self.turns.next(self.window > 0) else {
                return;
            };
            let Some(stream) = self.streams.get(id) else {
                continue;
            };
            stream.unset(flags::READY);
            if !stream.has_work() {
                continue;
            }
            let turn = match self.turns.has_data() {
                true => self.config.turn,
                false => self.config.turn * 4,
            };
            let most = turn
                .min(self.peer.max_frame)
                .min(self.window)
                .min(stream.window.max(0) as u32);
            // With its head it ends where the write does, and so where a TLS record does.
            let left = self.config.write - self.output.len();
            let left = left.max(LEAST_FRAME + HEAD) - HEAD;
            let length = stream.queued.min(most).min(left as u32);
            let end = length == stream.queued && stream.is(flags::ENDING);
            let trailers = end && stream.is(flags::TRAILERS);
            let head = Head {
                length,
                kind: kind::DATA,
                flags: if end && !trailers {
                    flag::END_STREAM
                } else {
                    0
                },
                stream: id,
            };
            self.output.small(&head.bytes());
            let mut rest = length as usize;
            while rest > 0 {
                let piece = stream.queue.pop(rest);
                rest -= piece.len();
                self.output.payload(piece);
            }
            self.output.note(id, HEAD + length as usize, false);
            let more = length < stream.queued || stream.is(flags::WAITING);
            stream.queued -= length;
            stream.window -= length as i32;
            self.window -= length;
            self.queued -= length as usize;
            self.waiting.change();
            self.waiting.may_have_room(stream);
            if !end {
                self.turns.add(stream);
            }
            let crumb =
                more && (length as usize) < LEAST_FRAME && (stream.window <= 0 || self.window == 0);
            let let_go = stream.is(flags::LET_GO);
            if end {
                if trailers {
                    self.write_trailers(id);
                }
                self.end(id, flags::SENT);
                if let_go {
                    self.release(StreamId::of(id));
                }
            }
            // One for the stream and one for the connection, for frames as small as they may be; but who grants a few bytes
            // at a time, so that what there is to send goes in crumbs, has no right to many such grants (CVE-2019-9511).
            let explained = match crumb {
                true => length / CRUMBS,
                false => (length + HEAD as u32) / 5,
            };
            self.earn(Abuse::WindowUpdateFlood, explained);
            // The libraries of gRPC measure the path by a PING for DATA that comes, as soon as the one before is answered. Crumbs explain none.
            self.earn(Abuse::PingFlood, u32::from(!crumb));
        }
    }

    /// What there is to write, in pieces and in order, up to about [`Config::write`](crate::Config::write) bytes of data.
    /// Say how much was written with [`Connection::advance`], and ask again until there is none.
    pub fn output(&mut self) -> impl Iterator<Item = &[u8]> {
        self.fill();
        self.output.pieces()
    }

    /// True if a frame waits to be written; data that waits for its turn is none yet.
    pub fn has_framed(&self) -> bool {
        self.output.len() > 0
    }

    /// True if there is something to write.
    pub fn has_output(&mut self) -> bool {
        self.fill();
        self.output.len() > 0
    }

    /// True if there is something to write beside replies to the peer's frames; see [`Connection::unread`].
    pub fn has_own_output(&mut self) -> bool {
        self.fill();
        self.output.len() > self.output.replies()
    }

    /// Notes header blocks and frames of data from now on, for [`Connection::take_notes`]. Data is framed no more while 4 KiB of output wait.
    pub fn note_frames(&mut self) {
        self.output.note_frames();
    }

    /// True if frames are noted.
    pub fn notes_frames(&self) -> bool {
        self.output.notes_frames()
    }

    /// The position up to which bytes were written, and notes of the frames beyond it that were made since the last call, in order. There are
    /// none before [`Connection::note_frames`].
    pub fn take_notes(&mut self) -> (u64, impl Iterator<Item = FrameNote>) {
        self.output.take_notes()
    }

    /// The position up to which bytes were written. 0 before [`Connection::note_frames`].
    pub fn written(&self) -> u64 {
        self.output.written()
    }

    /// Drops what waits, framed or not. Nothing is written any more.
    pub fn drop_output(&mut self) {
        self.output.advance(usize::MAX);
        self.turns.clear();
        for stream in self.streams.iter_mut() {
            stream.queued = 0;
            stream.queue = Default::default();
        }
        (self.queued, self.trailers_queued) = (0, 0);
    }

    /// So many bytes of the output were written.
    pub fn advance(&mut self, bytes: usize) {
        self.output.advance(bytes);
    }
}
