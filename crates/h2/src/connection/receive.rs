//! Input: parts of frames become events.

use super::{Closing, Connection};
use crate::abuse::Abuse;
use crate::code::Code;
use crate::error::{Cause, ConnectionError, StreamError, StreamId};
use crate::event::{Event, Outcome};
use crate::flags;
use crate::frame::{self, kind};
use crate::reader::Part;
use crate::timestamp::Timestamp;

impl Connection {
    /// Takes input from the front until there is an event; `None` when all of it is used up. Call it until then, and look
    /// for output afterwards. `now` is never to be earlier than before.
    ///
    /// # Errors
    /// The connection is lost; write what there is, which ends with a GOAWAY, and close it. The same error comes again.
    pub fn receive<'a>(&mut self, input: &mut &'a [u8], now: Timestamp) -> Outcome<'a> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let outcome = self.step(input, now);
        match outcome {
            Ok(Some(_)) => {}
            // The caller has seen the last list. A peer must not pin the buffer of a large one by an open stream.
            Ok(None) if self.fields.is_large() => self.fields.rest(),
            Ok(None) => {}
            Err(error) => self.fail(error),
        }
        outcome
    }

    fn step<'a>(&mut self, input: &mut &'a [u8], now: Timestamp) -> Outcome<'a> {
        loop {
            if let Some(id) = self.next_unprocessed() {
                let stream = StreamId::of(id);
                if self.is_anybodys(stream) {
                    return Ok(Some(Event::Unprocessed { stream }));
                }
                continue;
            }
            let Some(part) = self.reader.next(input)? else {
                return Ok(None);
            };
            let event = match part {
                Part::Data {
                    stream,
                    begins,
                    length,
                    padding,
                    bytes,
                    over,
                    end_stream,
                } => {
                    let event = match begins {
                        true => self.data_begins(stream, length, padding, end_stream, now)?,
                        false => None,
                    };
                    match event {
                        Some(_) => event,
                        None => self.data(stream, begins, bytes, over && end_stream),
                    }
                }
                Part::Block {
                    stream,
                    begins,
                    frame,
                    bytes,
                    over,
                    end_stream,
                } => {
                    self.fragment(begins, frame, bytes, over)?;
                    if !over {
                        continue;
                    }
                    self.decode(bytes)?;
                    self.headers(stream, end_stream, now)?
                }
                Part::Reset { stream, code } => self.reset_came(stream, code, now)?,
                Part::Window { stream, increment } => self.window_came(stream, increment, now)?,
                Part::Setting { id, value } => self.setting_came(id, value)?,
                Part::Settings => self.settings_came(now)?,
                Part::Acknowledged => self.acknowledged()?,
                Part::Ping { ack, payload } => self.ping_came(ack, payload, now)?,
                Part::GoAway { last, code } => self.go_away_came(last, code, now)?,
                Part::Useless => {
                    self.charge(Abuse::UselessFrames, now)?;
                    None
                }
            };
            match event {
                Some(Event::Data { .. }) => return Ok(event),
                Some(told) if told.stream().is_none_or(|stream| self.is_anybodys(stream)) => {
                    return Ok(event);
                }
                _ => {}
            }
        }
    }

    #[inline]
    fn next_unprocessed(&mut self) -> Option<u32> {
        let next = self.unprocessed.as_mut()?.pop_front();
        if next.is_none() {
            self.unprocessed = None;
        }
        next
    }

    /// False of a stream that its caller let go, which is over with it if it is over.
    fn is_anybodys(&mut self, stream: StreamId) -> bool {
        let Some(state) = self.streams.get(stream.0) else {
            return true;
        };
        let let_go = state.is(flags::LET_GO);
        if let_go && state.is_over() {
            self.release(stream);
        }
        !let_go
    }

    /// A DATA frame begins: it is charged whole, also where only some of it has come.
    fn data_begins(
        &mut self,
        id: u32,
        length: u32,
        padding: u32,
        end_stream: bool,
        now: Timestamp,
    ) -> Outcome<'static> {
        self.ignoring = false;
        self.is_read()?;
        if !self.recv_flow.receive(length) {
            let error = ConnectionError::new(Code::FLOW_CONTROL_ERROR, Cause::WindowExceeded);
            return Err(error);
        }
        if length > padding {
            // Some peers that pass on pieces of another protocol have an empty one behind each.
            self.earn(Abuse::EmptyData, 1);
        } else if !end_stream {
            self.charge(Abuse::EmptyData, now)?;
        }
        let Some(stream) = self.streams.get(id) else {
            self.absent(id, now)?;
            self.drop_data(length);
            return Ok(None);
        };
        if stream.is(flags::RESET) {
            self.charge(Abuse::UselessFrames, now)?;
            self.drop_data(length);
            return Ok(None);
        }
        if stream.is(flags::HEARD) {
            let error = ConnectionError::new(Code::STREAM_CLOSED, Cause::ClosedStream);
            return Err(error);
        }
        let (ours, answered) = (stream.is(flags::OURS), stream.is(flags::ANSWERED));
        let let_go = stream.is(flags::LET_GO);
        let fault = if length > stream.credit {
            Some((Code::FLOW_CONTROL_ERROR, Cause::WindowExceeded))
        } else if ours && !answered {
            let cause = Cause::Malformed("data before the header block");
            Some((Code::PROTOCOL_ERROR, cause))
        } else {
            let why = stream.content(length - padding, end_stream);
            why.map(|why| (Code::PROTOCOL_ERROR, Cause::Malformed(why)))
        };
        if let Some((code, cause)) = fault {
            self.drop_data(length);
            return self.fault(id, code, cause, now).map(Some);
        }
        stream.credit -= length;
        stream.held += length;
        if let_go {
            self.ignoring = true;
            self.recv_flow.let_go(stream);
            self.grant();
            return Ok(None);
        }
        if self.recv_flow.wants_sample(now) {
            self.output
                .small(&frame::ping(false, super::control::SAMPLE));
        }
        if padding > 0 {
            self.consumed(StreamId::of(id), padding as usize);
        }
        self.grant();
        Ok(None)
    }

    #[inline]
    fn data<'a>(&mut self, id: u32, begins: bool, bytes: &'a [u8], end: bool) -> Option<Event<'a>> {
        // A caller may let a stream go between two pieces of a frame.
        if !begins && !self.ignoring {
            self.ignoring = self
                .streams
                .get(id)
                .is_none_or(|stream| stream.is(flags::RESET | flags::LET_GO));
        }
        if self.ignoring && end {
            self.end(id, flags::HEARD);
        }
        if self.ignoring || bytes.is_empty() && !end {
            return None;
        }
        if end {
            self.end(id, flags::HEARD);
        }
        let stream = StreamId::of(id);
        Some(Event::Data { stream, bytes, end })
    }

    /// The data frame that begins is nobody's.
    fn drop_data(&mut self, length: u32) {
        self.ignoring = true;
        self.recv_flow.dropped(length);
        self.grant();
    }

    /// A frame came for a stream that is not here: that is a fault unless we reset it, or refuse all of its kind.
    pub(super) fn absent(&mut self, id: u32, now: Timestamp) -> Result<(), ConnectionError> {
        if self.is_idle(id) {
            return Err(ConnectionError::protocol(Cause::IdleStream));
        }
        let refused = matches!(self.closing, Closing::After(last) if self.server && id > last);
        if !refused && !self.streams.may_have_been_reset(id) {
            let error = ConnectionError::new(Code::STREAM_CLOSED, Cause::ClosedStream);
            return Err(error);
        }
        self.charge(Abuse::UselessFrames, now)
    }

    fn reset_came(&mut self, id: u32, code: Code, now: Timestamp) -> Outcome<'static> {
        let Some(stream) = self.streams.get(id) else {
            if self.is_idle(id) {
                return Err(ConnectionError::protocol(Cause::IdleStream));
            }
            self.charge(Abuse::UselessFrames, now)?;
            return Ok(None);
        };
        if stream.is_over() {
            self.charge(Abuse::UselessFrames, now)?;
            return Ok(None);
        }
        let (ended, answered) = (stream.is(flags::HEARD), stream.is(flags::ANSWERED));
        self.end(id, flags::SENT | flags::HEARD);
        if self.server && !answered {
            self.charge(Abuse::RapidReset, now)?;
        }
        let stream = StreamId::of(id);
        Ok(Some(Event::Reset {
            stream,
            code,
            ended,
        }))
    }

    /// The peer broke a rule of this stream: it is reset, for which the peer has an allowance.
    pub(super) fn fault(
        &mut self,
        id: u32,
        code: Code,
        cause: Cause,
        now: Timestamp,
    ) -> Result<Event<'static>, ConnectionError> {
        self.charge(Abuse::ProvokedResets, now)?;
        if self.streams.get(id).is_some() {
            self.end(id, flags::SENT | flags::HEARD | flags::RESET);
        } else {
            self.streams.remember(id);
        }
        self.reply(&frame::word(kind::RST_STREAM, id, code.0))?;
        let stream = StreamId::of(id);
        Ok(Event::Failed(StreamError {
            stream,
            code,
            cause,
        }))
    }

    /// The caller is done with so many bytes that came on a stream: the peer may send more.
    #[inline]
    pub fn consumed(&mut self, stream: StreamId, bytes: usize) {
        self.consumed_within(stream, bytes, u32::MAX);
    }

    /// The same for a stream whose window is to be no larger than `most` bytes, though never smaller than its first one. Credit
    /// that the peer has it keeps.
    pub fn consumed_within(&mut self, stream: StreamId, bytes: usize, most: u32) {
        let id = stream.0;
        let Some(stream) = self.streams.get(id) else {
            return;
        };
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let open = !stream.is(flags::HEARD) && self.failed.is_none();
        let streams = self.config.first_windows.min(self.config.max_streams);
        let others = streams.saturating_sub(self.active);
        let more = self.recv_flow.consumed(stream, (bytes, most), open, others);
        if let Some(more) = more {
            self.output
                .reply(&frame::word(kind::WINDOW_UPDATE, id, more));
        }
        if self.failed.is_none() {
            self.grant();
        }
    }
}
