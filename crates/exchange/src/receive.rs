//! Received events: each is handed to its exchange, or answered here if no exchange can take it.

use bytes::Bytes;
use lateen_h1::{ClientEvent, Length, ServerEvent};
use lateen_h2::{Code, Event, Field, Known, StreamId, Timestamp};
use lateen_http::{Asked, FramedRequest, FramedResponse, Method, Refusal, Status, Trailers};

use crate::account::{FREE, Held};
use crate::core::{Codec, Core, Past};
use crate::entry::{Entry, Key, Wakes};
use crate::error::{ConnectionError, Error};
use crate::inbound;

/// Informational responses that wait for their reader. Later ones are dropped, as an intermediary may (RFC 9110 §15.2).
const INFORMATIONAL: usize = 4;

/// Refused requests that wait to be asked for.
const REFUSED: usize = 64;

/// The meaning of an event beyond its exchange.
#[derive(Debug)]
pub(crate) enum News {
    None,
    /// An exchange is over that may wait in the queue of requests.
    Over(Key),
    /// The peer takes no more requests, or gives up for this reason.
    GoAway(Code),
}

type Outcome = Result<Option<(News, Wakes)>, ConnectionError>;

const QUIET: (News, Wakes) = (News::None, [None, None]);

impl Core {
    /// True if the socket should be read.
    pub(crate) fn wants_read(&mut self) -> bool {
        if !self.input.is_empty() || self.is_full() {
            self.is_paused = true;
            return false;
        }
        let wants = match &self.codec {
            Codec::Server1(http1) => {
                let wants = http1.wants_input();
                self.is_ahead &= !wants;
                // One buffer may be read ahead: it shows a reset, or the end of the peer's direction.
                wants || !self.is_ahead
            }
            Codec::Client1(http1) => !http1.is_done(),
            Codec::Tunnel(_) | Codec::Http2(_) => true,
            Codec::Moving => false,
        };
        self.is_paused = !wants;
        wants
    }

    /// True while a client of HTTP/1 has not heard the whole answer of its open exchange. A server may answer early and close its
    /// side (RFC 9112 §9.5).
    pub(crate) fn awaits_answer(&self) -> bool {
        let open = self.streams.get(self.open);
        matches!(self.codec, Codec::Client1(_))
            && open.is_some_and(|entry| !entry.heard && entry.broken.is_none())
    }

    /// True while the open exchange of HTTP/1 has as much content as may wait for its reader.
    fn is_full(&self) -> bool {
        if let Codec::Http2(_) = self.codec {
            return false;
        }
        let open = self.streams.get(self.open);
        open.is_some_and(|entry| entry.held >= self.config.receive_buffer)
    }

    /// Takes input of HTTP/1. [`Core::wants_read`] allowed it.
    pub(crate) fn fill(&mut self, input: Bytes) {
        if let Codec::Server1(http1) = &self.codec {
            self.is_ahead = !http1.wants_input();
        }
        self.input = input;
    }

    /// True if HTTP/1 input is at hand, which may have events.
    #[inline]
    pub(crate) fn has_input(&self) -> bool {
        !self.input.is_empty()
    }

    /// The next event of HTTP/1 input that is at hand.
    pub(crate) fn next1(&mut self) -> Outcome {
        // Without input there is no event.
        if self.input.is_empty() || self.ended().is_some() || self.is_full() {
            return Ok(None);
        }
        let came = match &mut self.codec {
            Codec::Server1(http1) => match http1.receive(&mut self.input) {
                Ok(event) => event.map(|event| self.serve1(event)),
                Err(error) => return Err(self.refuse1(error)),
            },
            Codec::Client1(http1) => {
                let event = http1.receive(&mut self.input)?;
                event.map(|event| self.hear1(event))
            }
            Codec::Tunnel(tunnel) => {
                let bytes = tunnel.receive(&mut self.input);
                Some(self.data1(&bytes, false))
            }
            Codec::Moving | Codec::Http2(_) => None,
        };
        if self.input.is_empty() {
            // Even an empty part keeps the buffer that it was read into.
            self.input = Bytes::new();
        }
        Ok(came)
    }

    /// The end of the peer's direction.
    pub(crate) fn end_of_input(&mut self) -> Outcome {
        match &mut self.codec {
            Codec::Server1(http1) => match http1.end_of_input() {
                Ok(()) if !self.config.half_close && self.has_unanswered() => {
                    Err(ConnectionError::ClosedByPeer)
                }
                Ok(()) => Ok(None),
                Err(error) => Err(self.refuse1(error)),
            },
            Codec::Client1(http1) => match http1.end_of_input()? {
                Some(event) => Ok(Some(self.hear1(event))),
                None => Ok(None),
            },
            Codec::Tunnel(_) => Ok(Some(self.data1(&Bytes::new(), true))),
            Codec::Moving => Ok(None),
            Codec::Http2(http2) => match http2.active() {
                0 => Ok(None),
                _ => Err(ConnectionError::ClosedByPeer),
            },
        }
    }

    /// True while an exchange of HTTP/1 waits for the end of its answer.
    fn has_unanswered(&self) -> bool {
        self.streams.get(self.open).is_some_and(|entry| !entry.sent)
    }

    /// Answers a fault of an HTTP/1 client, unless an answer has begun.
    fn refuse1(&mut self, error: lateen_h1::Error) -> ConnectionError {
        // A client that left within a head has made no request.
        if !self.has_unanswered() && error != lateen_h1::Error::Truncated {
            self.note_refused(error.status());
        }
        if let Codec::Server1(http1) = &mut self.codec {
            self.is_abandoned = http1.respond(error.status(), [], Length::None).is_err();
        }
        error.into()
    }

    /// Answers a request head of HTTP/1 that takes too long. Where the rest of an answered request does, there is no answer.
    pub(crate) fn refuse_slow_head(&mut self) {
        if let Codec::Server1(http1) = &mut self.codec {
            let error = http1.head_timed_out();
            if http1.respond(error.status(), [], Length::None).is_ok() {
                self.note_refused(error.status());
            }
        }
    }

    fn serve1(&mut self, event: ServerEvent) -> (News, Wakes) {
        match event {
            ServerEvent::Request { head, end } => {
                let Codec::Server1(http1) = &mut self.codec else {
                    return QUIET;
                };
                match inbound::http1_request(&head, self.config.limits) {
                    Ok(request) => {
                        self.open = self.open.wrapping_add(1);
                        let entry = self.streams.insert(self.open);
                        entry.begin_request(&request, end);
                        entry.expects = http1.awaits_continue();
                        entry.head = head.fields().buffer().len();
                        self.held += entry.head;
                        self.incoming.push_back((self.open, request));
                        QUIET
                    }
                    Err(refusal) => {
                        http1.close_after_exchange();
                        let status = refusal.status().code();
                        self.is_abandoned = http1.respond(status, [], Length::None).is_err();
                        self.note_refused(status);
                        QUIET
                    }
                }
            }
            ServerEvent::Data { bytes, end } => self.data1(&bytes, end),
            ServerEvent::Trailers(trailers) => self.trailers1(&trailers),
            ServerEvent::End => self.data1(&Bytes::new(), true),
        }
    }

    fn hear1(&mut self, event: ClientEvent) -> (News, Wakes) {
        match event {
            ClientEvent::Informational(head) => self.answer1(&head, false),
            ClientEvent::Response { head, end } => self.answer1(&head, end),
            ClientEvent::Tunnel(head) => {
                let wakes = self.answer1(&head, false);
                self.switch();
                wakes
            }
            ClientEvent::Data { bytes, end } => self.data1(&bytes, end),
            ClientEvent::Trailers(trailers) => self.trailers1(&trailers),
            ClientEvent::End => self.data1(&Bytes::new(), true),
        }
    }

    fn answer1(&mut self, head: &lateen_h1::Response, end: bool) -> (News, Wakes) {
        let limits = self.config.limits;
        let Some(entry) = self.streams.get_mut(self.open) else {
            return QUIET;
        };
        let asked = entry.asked.unwrap_or(Asked::Ordinary);
        let head = inbound::http1_response(head, asked, limits);
        if let Ok(head) = &head {
            self.keep_alive = head.keep_alive();
        }
        entry.heard |= end;
        if head.is_err() {
            // Nobody reads the rest of it.
            self.is_abandoned = true;
        }
        (News::None, entry.take_answer(head))
    }

    fn data1(&mut self, bytes: &Bytes, end: bool) -> (News, Wakes) {
        let Some(entry) = self.streams.get_mut(self.open) else {
            return QUIET;
        };
        self.held += entry.take_data(bytes, bytes, end);
        let held = entry.weight();
        if let Some(charge) = &mut entry.charge {
            charge.raise(held);
        }
        (News::None, [entry.reader.take(), None])
    }

    fn trailers1(&mut self, trailers: &lateen_h1::Trailers) -> (News, Wakes) {
        let limits = self.config.limits;
        let Some(entry) = self.streams.get_mut(self.open) else {
            return QUIET;
        };
        entry.heard = true;
        // Invalid trailers are dropped, as a recipient may do with all (RFC 9110 §6.5.1).
        if let Ok(valid) = inbound::http1_trailers(trailers, limits) {
            let bytes = trailers.fields.buffer().len();
            entry.take_trailers(valid, bytes);
            self.held += bytes;
            let held = entry.weight();
            if let Some(charge) = &mut entry.charge {
                charge.raise(held);
            }
        }
        (News::None, [entry.reader.take(), None])
    }

    /// Trailers of HTTP/2, which the codec has decoded.
    fn trailers2(&mut self, stream: StreamId) -> (News, Wakes) {
        let Codec::Http2(http2) = &self.codec else {
            return QUIET;
        };
        let valid = inbound::http2_trailers(http2.fields(), self.config.limits).ok();
        let bytes = match &valid {
            Some(_) => http2.fields().buffer().len(),
            None => 0,
        };
        if self.streams.get(stream.get()).is_none() {
            return QUIET;
        }
        if bytes > 0 && !self.admits(stream, bytes) {
            return self.end2(stream, 0);
        }
        let Some(entry) = self.streams.get_mut(stream.get()) else {
            return QUIET;
        };
        entry.heard = true;
        if let Some(valid) = valid {
            entry.take_trailers(valid, bytes);
            self.held += bytes;
        }
        (News::None, [entry.reader.take(), None])
    }

    /// The next event of HTTP/2 `input`, which is the rest of `buffer`.
    pub(crate) fn next2(&mut self, buffer: &Bytes, input: &mut &[u8], now: Timestamp) -> Outcome {
        let Codec::Http2(http2) = &mut self.codec else {
            return Ok(None);
        };
        let Some(event) = http2.receive(input, now)? else {
            return match http2.incomplete() {
                0 => Ok(None),
                bytes => self.hold_block(bytes),
            };
        };
        Ok(Some(self.take2(event, buffer)))
    }

    /// Charges for so many bytes of a header block that has not ended. More than a connection may hold without a charge need room;
    /// without it the connection ends.
    #[cold]
    fn hold_block(&mut self, bytes: usize) -> Outcome {
        let weight = self.weight();
        let Some(charge) = &mut self.charge else {
            return Ok(None);
        };
        if bytes > FREE && !charge.admits_block(weight.all()) {
            if let Codec::Http2(http2) = &mut self.codec {
                http2.close(Code::ENHANCE_YOUR_CALM);
            }
            return Err(ConnectionError::OverLimit);
        }
        charge.raise(weight);
        Ok(None)
    }

    fn take2(&mut self, event: Event<'_>, buffer: &Bytes) -> (News, Wakes) {
        let limits = self.config.limits;
        if let Event::Data { stream, bytes, .. } = &event
            && !self.admits(*stream, bytes.len())
        {
            return self.end2(*stream, bytes.len());
        }
        let Codec::Http2(http2) = &mut self.codec else {
            return QUIET;
        };
        match event {
            Event::Data { stream, bytes, end } => match self.streams.get_mut(stream.get()) {
                Some(entry) => {
                    self.held += entry.take_data(buffer, bytes, end);
                    (News::None, [entry.reader.take(), None])
                }
                None => {
                    http2.consumed(stream, bytes.len());
                    QUIET
                }
            },
            Event::Request { stream, end, .. } => {
                let head = http2.fields().buffer().len();
                let held = Held {
                    requests: self.held + head,
                    answers: http2.queued(),
                };
                let open = self.streams.len() + 1;
                if self.charge.as_ref().is_some_and(|charge| {
                    !charge.admits_open(open) || !charge.admits_head(held.all())
                }) {
                    // Nothing is done with it, so it may come again (RFC 9113 §8.7).
                    http2.reset(stream, Code::REFUSED_STREAM);
                    http2.release(stream);
                    return QUIET;
                }
                match inbound::http2_request(http2.fields(), end, limits) {
                    Ok(request) => {
                        let entry = self.streams.insert(stream.get());
                        entry.begin_request(&request, end);
                        entry.id = Some(stream);
                        entry.head = head;
                        self.held += head;
                        if let Some(charge) = &mut self.charge {
                            charge.raise(held);
                            charge.set_open(open);
                        }
                        entry.expects = !end
                            && http2
                                .fields()
                                .find(Known::Expect)
                                .is_some_and(|value| value.eq_ignore_ascii_case(b"100-continue"));
                        self.incoming.push_back((stream.get(), request));
                        QUIET
                    }
                    Err(refusal) => self.refuse2(stream, refusal.status()),
                }
            }
            Event::TooLarge { stream, .. } => self.refuse2(stream, Status::HEADER_FIELDS_TOO_LARGE),
            Event::Response { stream, end, .. } => match self.streams.get_mut(stream.get()) {
                Some(entry) => {
                    let asked = entry.asked.unwrap_or(Asked::Ordinary);
                    let head = inbound::http2_response(http2.fields(), end, asked, limits);
                    entry.heard |= end;
                    self.past = Past::Answered;
                    (News::None, entry.take_answer(head))
                }
                None => QUIET,
            },
            Event::Informational { stream, .. } => match self.streams.get_mut(stream.get()) {
                Some(entry) => {
                    let asked = entry.asked.unwrap_or(Asked::Ordinary);
                    let head = inbound::http2_response(http2.fields(), false, asked, limits);
                    self.past = Past::Answered;
                    (News::None, entry.take_answer(head))
                }
                None => QUIET,
            },
            Event::Trailers { stream } => self.trailers2(stream),
            Event::Reset { stream, code, .. } => {
                if self.past == Past::AtRest {
                    self.past = Past::Answered;
                }
                self.break_off(stream, Error::Reset(code))
            }
            Event::Failed(error) => self.break_off(error.stream, error.into()),
            Event::Unprocessed { stream } => self.break_off(stream, Error::Unprocessed),
            Event::GoAway { code, .. } => (News::GoAway(code), [None, None]),
            Event::Settings | Event::Acknowledged | Event::Pong(_) => QUIET,
        }
    }

    /// True if the account has room for so much content of an exchange, which is charged for it.
    #[inline]
    fn admits(&mut self, stream: StreamId, bytes: usize) -> bool {
        let mut weight = self.weight();
        if let Some(charge) = &mut self.charge {
            weight.requests += bytes;
            let admits = charge.admits(weight.all());
            if admits {
                charge.raise(weight);
            }
            return admits;
        }
        let entry = self.streams.get_mut(stream.get());
        let Some(entry) = entry.filter(|entry| entry.charge.is_some()) else {
            return true;
        };
        let mut held = entry.weight();
        held.answers += bytes;
        entry.charge.as_mut().is_none_or(|charge| {
            let admits = held.answers <= FREE || charge.admits(held.all());
            if admits {
                charge.raise(held);
            }
            admits
        })
    }

    /// Ends an exchange of HTTP/2 whose content has no room, and drops so many bytes of it.
    fn end2(&mut self, stream: StreamId, bytes: usize) -> (News, Wakes) {
        if let Codec::Http2(http2) = &mut self.codec {
            http2.consumed(stream, bytes);
            http2.reset(stream, Code::ENHANCE_YOUR_CALM);
        }
        self.break_off(stream, Error::OverLimit)
    }

    /// Answers a request of HTTP/2 that no exchange can take.
    fn refuse2(&mut self, stream: StreamId, status: Status) -> (News, Wakes) {
        self.note_refused(status.code());
        if let Codec::Http2(http2) = &mut self.codec {
            let status = status.to_string();
            // The stream may be over by now, and then the peer wants no answer.
            let _ = http2.respond(stream, None, &[Field::known(Known::Status, &status)], true);
            http2.release(stream);
        }
        QUIET
    }

    /// Notes an answer for the owner of the connection. Nobody need ask for it.
    fn note_refused(&mut self, status: u16) {
        if self.refused.len() < REFUSED {
            self.refused.push_back(status);
        }
    }

    fn break_off(&mut self, stream: StreamId, error: Error) -> (News, Wakes) {
        let key = stream.get();
        let wakes = self.streams.get_mut(key).map_or([None, None], |entry| {
            entry.broken = Some(Box::new(error));
            [entry.reader.take(), entry.writer.take()]
        });
        (News::Over(key), wakes)
    }
}

impl Entry {
    fn begin_request(&mut self, request: &FramedRequest, end: bool) {
        self.heard = end;
        self.asked = Some(match request.method() {
            method if *method == Method::HEAD => Asked::Head,
            method if *method == Method::CONNECT => Asked::Connect,
            _ => Asked::Ordinary,
        });
    }

    /// Takes content, a part of `buffer`, and returns its length.
    #[inline]
    fn take_data(&mut self, buffer: &Bytes, bytes: &[u8], end: bool) -> usize {
        self.heard |= end;
        if !bytes.is_empty() {
            self.held += bytes.len();
            self.inbox.push(buffer, bytes);
        }
        bytes.len()
    }

    fn take_trailers(&mut self, trailers: Trailers, bytes: usize) {
        self.trailers = Some(Box::new(trailers));
        self.trailing = bytes;
    }

    fn take_answer(&mut self, head: Result<FramedResponse, Refusal>) -> Wakes {
        match head {
            Ok(head) if head.status().is_informational() && !head.opens_tunnel() => {
                if self.informational.len() < INFORMATIONAL {
                    self.informational.push_back(head);
                }
            }
            Ok(head) => {
                self.is_tunnel = head.opens_tunnel();
                self.answer = Some(head);
            }
            Err(refusal) => {
                self.broken = Some(Box::new(refusal.into()));
                return [self.reader.take(), self.writer.take()];
            }
        }
        [self.reader.take(), None]
    }
}
