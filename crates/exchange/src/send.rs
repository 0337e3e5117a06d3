//! Outgoing messages: heads, content and trailers, in the codec's terms.

use bytes::Bytes;
use lateen_h1::WriteError;
use lateen_h2::{Code, InformError, RequestError};
use lateen_http::{Asked, Length};

use crate::core::{Codec, Core, Past};
use crate::entry::{Entry, Key};
use crate::error::Error;
use crate::lines::Lines;
use crate::outgoing::{Answering, Outgoing};

/// The start line of a request and the facts on which its framing depends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Start<'a> {
    pub(crate) method: &'a [u8],
    /// The request target of HTTP/1. HTTP/2 has pseudo-header fields among its fields.
    pub(crate) target: &'a [u8],
    pub(crate) length: Length,
    pub(crate) asked: Asked,
}

/// The start of a response and the facts on which its framing depends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) length: Length,
    /// The value of Content-Length where no content follows: in an answer to HEAD, or with status 304.
    pub(crate) told: Option<u64>,
    pub(crate) opens_tunnel: bool,
}

/// Content that a head announces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Content {
    None,
    Bytes(u64),
    Open,
}

impl Content {
    fn of(length: Length) -> Content {
        match length {
            Length::None | Length::Known(0) => Content::None,
            Length::Known(length) => Content::Bytes(length),
            Length::Delimited | Length::UntilClose => Content::Open,
        }
    }
}

fn http1_length(length: Length) -> lateen_h1::Length {
    match length {
        Length::None => lateen_h1::Length::None,
        Length::Known(length) => lateen_h1::Length::Known(length),
        Length::Delimited | Length::UntilClose => lateen_h1::Length::Unknown,
    }
}

impl Entry {
    fn begin(&mut self, content: Content) {
        self.begun = true;
        match content {
            Content::None => self.sent = true,
            Content::Bytes(length) => self.left = Some(length),
            Content::Open => {}
        }
    }
}

impl Core {
    /// The open exchange, if it can send.
    fn sender(&mut self, key: Key) -> Result<&mut Entry, Error> {
        if let Some(error) = self.ended() {
            return Err(error.clone().into());
        }
        let entry = self.streams.get_mut(key).ok_or(Error::Over)?;
        match &entry.broken {
            Some(error) => Err((**error).clone()),
            None => Ok(entry),
        }
    }

    /// Opens an exchange with a request.
    #[inline]
    pub(crate) fn request(
        &mut self,
        start: Start<'_>,
        fields: &impl Outgoing,
    ) -> Result<Key, Error> {
        if self.ended().is_some() {
            return Err(Error::NotTaken("it has ended"));
        }
        let is_tunnel = start.asked == Asked::Connect || start.asked == Asked::Upgrade;
        let mut content = Content::of(start.length);
        let mut stream = None;
        let key = match &mut self.codec {
            Codec::Client1(http1) => {
                if !http1.is_idle() {
                    return Err(Error::NotTaken("it is closing or has a request already"));
                }
                let length = http1_length(start.length);
                http1.request_with(start.method, start.target, length, |writer| {
                    fields.http1(writer);
                })?;
                self.open = self.open.wrapping_add(1);
                self.open
            }
            Codec::Http2(http2) => {
                if is_tunnel {
                    content = Content::Open;
                }
                let end = content == Content::None;
                let id = http2
                    .request_with(None, end, |writer| fields.http2(writer))
                    .map_err(|error| match error {
                        RequestError::Closing => Error::NotTaken("it is closing"),
                        RequestError::TooMany => Error::NotTaken("as many are open as it allows"),
                        RequestError::Exhausted => Error::NotTaken("its stream numbers ran out"),
                        RequestError::HeaderList => Error::HeadTooLarge,
                        RequestError::ExtendedConnect => {
                            Error::NotTaken("the peer accepts no extended CONNECT")
                        }
                    })?;
                stream = Some(id);
                if self.past == Past::Answered && self.streams.is_empty() {
                    self.past = Past::AtRest;
                }
                id.get()
            }
            _ => return Err(Error::Over),
        };
        let entry = self.streams.insert(key);
        entry.id = stream;
        entry.block_turn = self.turn;
        entry.asked = Some(start.asked);
        entry.begin(content);
        Ok(key)
    }

    /// Writes the final answer.
    #[inline]
    pub(crate) fn respond(
        &mut self,
        key: Key,
        answer: Answer,
        fields: &impl Answering,
    ) -> Result<(), Error> {
        if self.sender(key)?.begun {
            return Err(WriteError::State.into());
        }
        if !self.admits_section(|| fields.length()) {
            return Err(Error::OverLimit);
        }
        let entry = self.sender(key)?;
        let id = entry.id;
        let asks_head = entry.asked == Some(Asked::Head);
        let connects = entry.asked == Some(Asked::Connect) && (200..300).contains(&answer.status);
        let opens_tunnel = answer.opens_tunnel || connects;
        let content = match opens_tunnel {
            true => Content::Open,
            false if asks_head || matches!(answer.status, 204 | 304) => Content::None,
            false => Content::of(answer.length),
        };
        match (&mut self.codec, id) {
            (Codec::Server1(http1), _) => {
                let length = match (opens_tunnel, answer.told) {
                    (true, _) => lateen_h1::Length::None,
                    (false, Some(told)) => lateen_h1::Length::Known(told),
                    (false, None) => http1_length(answer.length),
                };
                http1.respond_with(answer.status, length, |writer| fields.http1(writer))?;
            }
            (Codec::Http2(http2), Some(id)) => {
                let end = content == Content::None;
                http2
                    .respond_with(id, None, end, |writer| fields.http2(writer))
                    .map_err(|_| Error::Over)?;
            }
            _ => return Err(Error::Over),
        }
        if let Some(entry) = self.streams.get_mut(key) {
            entry.begin(content);
            entry.is_tunnel = opens_tunnel;
            entry.expects = false;
        }
        self.charge_section();
        if opens_tunnel {
            self.switch();
        }
        Ok(())
    }

    /// Makes a tunnel of an HTTP/1 connection whose upgrade or CONNECT was accepted.
    pub(crate) fn switch(&mut self) {
        let codec = std::mem::replace(&mut self.codec, Codec::Moving);
        self.codec = match codec {
            Codec::Server1(http1) => match http1.into_tunnel() {
                Ok(tunnel) => Codec::Tunnel(tunnel),
                Err(http1) => Codec::Server1(*http1),
            },
            Codec::Client1(http1) => match http1.into_tunnel() {
                Ok(tunnel) => Codec::Tunnel(tunnel),
                Err(http1) => Codec::Client1(*http1),
            },
            codec => codec,
        };
        if let Codec::Tunnel(_) = self.codec
            && let Some(entry) = self.streams.get_mut(self.open)
        {
            // Both directions are those of the tunnel now.
            (entry.sent, entry.heard, entry.left) = (false, false, None);
        }
    }

    /// Writes an informational answer. One that the peer cannot take is left out.
    pub(crate) fn inform(&mut self, key: Key, status: u16, lines: &Lines) -> Result<(), Error> {
        let entry = self.sender(key)?;
        if entry.begun {
            return Err(WriteError::State.into());
        }
        let is_awaited = entry.expects && status == 100;
        if status == 100 && !is_awaited {
            // The client has been told, or sends its content at once. It would discard another one (RFC 9110 §15.2.1).
            return Ok(());
        }
        entry.expects &= status != 100;
        let id = entry.id;
        // HTTP/2 has a bound of its own.
        let has_room = is_awaited || self.is_http2() || self.room(key) > 0;
        let admits = has_room && self.admits_section(|| lines.length());
        let bare = Lines::default();
        let lines = match (admits, is_awaited) {
            (true, _) => lines,
            // The client waits for the status, and its fields are no matter.
            (false, true) => &bare,
            (false, false) => return Ok(()),
        };
        match (&mut self.codec, id) {
            (Codec::Server1(http1), _) => http1.inform(status, lines.http1()?)?,
            (Codec::Http2(http2), Some(id)) => {
                let fields: Vec<_> = lines.http2().collect();
                match http2.inform(id, status, &fields) {
                    Ok(()) | Err(InformError::Unread) => {}
                    Err(InformError::Status) => return Err(WriteError::Status.into()),
                    Err(InformError::Gone) => return Err(Error::Over),
                }
            }
            _ => return Err(Error::Over),
        }
        self.charge_section();
        Ok(())
    }

    /// Bytes that an exchange may send now.
    pub(crate) fn room(&mut self, key: Key) -> usize {
        match &mut self.codec {
            Codec::Http2(http2) => {
                let id = self.streams.get(key).and_then(|entry| entry.id);
                id.map_or(0, |id| http2.room(id))
            }
            // HTTP/1 keeps payloads by reference, so one piece may exceed the buffer.
            _ => match self.queued() < self.send_buffer() {
                true => usize::MAX,
                false => 0,
            },
        }
    }

    /// Sends as much of `bytes` as there is room for. False if there was none: the exchange is announced when there is.
    pub(crate) fn send(&mut self, key: Key, bytes: &mut Bytes) -> Result<bool, Error> {
        let entry = self.sender(key)?;
        if entry.sent || !entry.begun {
            return Err(Error::Over);
        }
        if entry.left.is_some_and(|left| left < bytes.len() as u64) {
            return Err(WriteError::TooLong.into());
        }
        let id = entry.id;
        self.limit_content(key);
        let room = self.room(key).min(bytes.len());
        if room == 0 {
            if let (Codec::Http2(http2), Some(id)) = (&mut self.codec, id) {
                http2.await_room(id);
            }
            return Ok(false);
        }
        let piece = lateen_h2::pieces::take(bytes, room);
        match (&mut self.codec, id) {
            (Codec::Http2(http2), Some(id)) => http2.send(id, piece).map_err(|_| Error::Over)?,
            (Codec::Server1(http1), _) => http1.send(piece)?,
            (Codec::Client1(http1), _) => http1.send(piece)?,
            (Codec::Tunnel(tunnel), _) => tunnel.send(piece),
            _ => return Err(Error::Over),
        }
        if let Some(entry) = self.streams.get_mut(key)
            && let Some(left) = &mut entry.left
        {
            *left -= room as u64;
            // HTTP/1 is complete with the last byte.
            entry.sent = *left == 0 && id.is_none();
        }
        self.charge_sent(key, room);
        Ok(true)
    }

    /// Charges for bytes that wait for the wire. The end of the next turn says how many of them still do.
    fn charge_sent(&mut self, key: Key, bytes: usize) {
        let weight = self.weight();
        if let Some(charge) = &mut self.charge {
            return charge.raise(weight);
        }
        if let Some(entry) = self.streams.get_mut(key)
            && entry.charge.is_some()
        {
            entry.queued += bytes;
            let held = entry.weight();
            if let Some(charge) = &mut entry.charge {
                charge.raise(held);
            }
            if !std::mem::replace(&mut entry.is_sending, true) {
                self.sending.push(key);
            }
        }
    }

    /// Completes the message, with trailers if there are any and the protocol has a place for them.
    pub(crate) fn finish(&mut self, key: Key, trailers: Option<&Lines>) -> Result<(), Error> {
        let entry = self.sender(key)?;
        if entry.sent {
            return Ok(());
        }
        if !entry.begun {
            return Err(WriteError::State.into());
        }
        if entry.left.is_some_and(|left| left > 0) {
            return Err(WriteError::TooShort.into());
        }
        let id = entry.id;
        let trailers = trailers.filter(|_| self.takes_trailers());
        if let Some(lines) = trailers
            && !self.admits_section(|| lines.length())
        {
            return Err(Error::OverLimit);
        }
        match (&mut self.codec, id, trailers) {
            (Codec::Http2(http2), Some(id), Some(lines)) => {
                let fields: Vec<_> = lines.http2().collect();
                let sent = http2.trailers(id, &fields);
                sent.map_err(|_| Error::Over)?;
            }
            (Codec::Http2(http2), Some(id), None) => {
                http2.finish(id).map_err(|_| Error::Over)?;
            }
            (Codec::Server1(http1), _, Some(lines)) => http1.trailers(lines.http1()?)?,
            (Codec::Client1(http1), _, Some(lines)) => http1.trailers(lines.http1()?)?,
            (Codec::Server1(http1), _, None) => http1.finish()?,
            (Codec::Client1(http1), _, None) => http1.finish()?,
            (Codec::Tunnel(_), _, _) => self.is_finished = true,
            _ => return Err(Error::Over),
        }
        if let Some(entry) = self.streams.get_mut(key) {
            entry.sent = true;
            entry.block_turn = self.turn;
        }
        if let Some(lines) = trailers {
            // They may wait behind content.
            self.charge_sent(key, lines.length());
        }
        Ok(())
    }

    /// True if the protocol has a place for trailers.
    fn takes_trailers(&self) -> bool {
        match &self.codec {
            Codec::Http2(_) => true,
            Codec::Server1(http1) => http1.takes_trailers(),
            Codec::Client1(http1) => http1.takes_trailers(),
            Codec::Tunnel(_) | Codec::Moving => false,
        }
    }

    /// Drops the output of a client of HTTP/1 that nobody takes any more: it may still hear its answer, and makes no further request.
    /// True if its exchange is to be told of the room, for the rest of its request is dropped as well.
    pub(crate) fn drop_request(&mut self) -> bool {
        let has_ended = self.ended().is_some();
        match &mut self.codec {
            Codec::Client1(http1) if !has_ended => {
                http1.advance(usize::MAX);
                http1.close_after_exchange();
                true
            }
            _ => false,
        }
    }

    /// Gives the exchange up. HTTP/1 loses its connection with it.
    pub(crate) fn reset(&mut self, key: Key, code: Code) {
        if self.ended().is_some() {
            return;
        }
        let Some(entry) = self.streams.get_mut(key) else {
            return;
        };
        if entry.sent && entry.heard {
            return;
        }
        entry.broken.get_or_insert_with(|| Box::new(Error::Over));
        match (&mut self.codec, entry.id) {
            (Codec::Http2(http2), Some(id)) => http2.reset(id, code),
            _ => self.is_abandoned = true,
        }
    }
}
