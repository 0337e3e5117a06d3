//! HTTP/2 (RFC 9113), and gRPC upon it: requests on streams of one connection, as many at once as the
//! server allows.

use std::collections::BTreeMap;
use std::sync::Arc;

use lateen_h2::hpack::{Decoder, Fields, Known, Limits};

use super::grpc::{self, Messages};
use super::interface::{Answer, Client, Completion, Malformed, Request, Start, USER_AGENT};
use crate::http2::frame::{self, Frame, flag, kind, setting};
use crate::http2::hpack::Encoder;
use crate::record::Failure;

/// How much a server may send before it hears that it was read; all of it is dropped at once.
const WINDOW: u32 = 1 << 30;

/// The window of a peer that has not said otherwise.
const INITIAL_WINDOW: i64 = 65_535;

/// How many streams are opened before the server has said how many it allows (RFC 9113 §6.5.2).
const ASSUMED_STREAMS: usize = 100;

/// The most bytes of compressed fields that one answer may have.
const MAX_BLOCK: usize = 256 * 1024;

/// The most bytes of decoded fields that are kept of one answer, as RFC 9113 §6.5.2 counts them.
const MAX_FIELDS: u32 = 1024 * 1024;

/// The most bytes of acknowledgements that wait for a server to read them.
const MAX_ACKNOWLEDGEMENTS: usize = 64 * 1024;

/// RFC 9113 §7: the stream is no longer needed.
const CANCEL: u32 = 8;

/// What a stream carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// A request of HTTP.
    Http,
    /// One message of gRPC there and one back.
    Unary,
    /// Messages of gRPC, each answered by one, on streams that stay.
    Streaming,
}

/// Requests as HTTP/2 sends them.
#[derive(Debug)]
pub struct Requests {
    form: Form,
    messages: Vec<Message>,
}

#[derive(Debug)]
struct Message {
    fields: Vec<(String, String)>,
    body: Arc<[u8]>,
    head: bool,
}

impl Requests {
    /// Prepares requests for `http` or `https`.
    pub fn new(requests: &[Request], scheme: &str, form: Form) -> Requests {
        let messages = requests.iter().map(|request| {
            let (mut authority, mut agent) = (request.authority.clone(), true);
            let mut more = Vec::new();
            for (name, value) in &request.headers {
                let name = name.to_ascii_lowercase();
                agent &= name != "user-agent";
                match &*name {
                    "host" => authority.clone_from(value),
                    _ => more.push((name, value.clone())),
                }
            }
            let mut fields = vec![
                (":method".to_owned(), request.method.clone()),
                (":scheme".to_owned(), scheme.to_owned()),
                (":path".to_owned(), request.path.clone()),
                (":authority".to_owned(), authority),
            ];
            if form != Form::Http {
                fields.push(("content-type".to_owned(), "application/grpc".to_owned()));
                fields.push(("te".to_owned(), "trailers".to_owned()));
            } else if !request.body.is_empty() {
                fields.push(("content-length".to_owned(), request.body.len().to_string()));
            }
            if agent {
                fields.push(("user-agent".to_owned(), USER_AGENT.to_owned()));
            }
            fields.append(&mut more);
            Message {
                fields,
                body: match form {
                    Form::Http => Arc::clone(&request.body),
                    Form::Unary | Form::Streaming => grpc::frame(&request.body).into(),
                },
                head: request.method == "HEAD",
            }
        });
        Requests {
            form,
            messages: messages.collect(),
        }
    }
}

#[derive(Debug)]
struct Stream {
    /// Whose answer comes; `None` for a stream of messages between two of them.
    slot: Option<usize>,
    request: usize,
    /// Bytes of the body that were sent.
    sent: usize,
    window: i64,
    /// Bytes that came and for which no room was made.
    unacknowledged: u32,
    status: u16,
    grpc_status: Option<u32>,
    content: u64,
    messages: Messages,
    answers: u32,
}

/// A block of fields that has not come to its end.
#[derive(Debug)]
struct Block {
    stream: u32,
    ends: bool,
    bytes: Vec<u8>,
}

/// An encoded block, and what the server knew before and after it was.
#[derive(Debug, Default)]
struct Encoded {
    generation: Option<(usize, bool, bool)>,
    bytes: Vec<u8>,
}

/// A client of HTTP/2.
#[derive(Debug)]
pub struct Http2 {
    requests: Arc<Requests>,
    encoder: Encoder,
    encoded: Vec<Encoded>,
    decoder: Decoder,
    /// The last block that was decoded.
    fields: Fields,
    /// A frame that is not all there.
    held: Vec<u8>,
    block: Option<Block>,
    streams: BTreeMap<u32, Stream>,
    /// Streams of messages that wait for the next.
    idle: Vec<u32>,
    next: u32,
    allowed: usize,
    initial_window: i64,
    window: i64,
    unacknowledged: u32,
    /// Bytes of acknowledgements among what has not been sent.
    owed: usize,
    established: bool,
    over: bool,
}

impl Http2 {
    /// A client that has said nothing.
    pub fn new(requests: Arc<Requests>) -> Http2 {
        Http2 {
            encoder: Encoder::default(),
            encoded: requests
                .messages
                .iter()
                .map(|_| Encoded::default())
                .collect(),
            requests,
            decoder: Decoder::new(),
            fields: Fields::new(Limits {
                size: MAX_FIELDS,
                fields: u32::MAX,
            }),
            held: Vec::new(),
            block: None,
            streams: BTreeMap::new(),
            idle: Vec::new(),
            next: 1,
            allowed: ASSUMED_STREAMS,
            initial_window: INITIAL_WINDOW,
            window: INITIAL_WINDOW,
            unacknowledged: 0,
            owed: 0,
            established: false,
            over: false,
        }
    }

    /// Opens a stream with the fields of a request.
    fn open_stream(&mut self, request: usize, ends: bool, out: &mut Vec<u8>) -> u32 {
        let id = self.next;
        self.next += 2;
        self.over |= self.next > i32::MAX as u32;
        let generation = self.encoder.generation();
        let encoded = &mut self.encoded[request];
        if encoded.generation != Some(generation) {
            encoded.generation = Some(generation);
            encoded.bytes.clear();
            self.encoder.begin(&mut encoded.bytes);
            for (name, value) in &self.requests.messages[request].fields {
                self.encoder.field(name, value, &mut encoded.bytes);
            }
        }
        let mut rest = &encoded.bytes[..];
        let (mut kind, mut flags) = (kind::HEADERS, if ends { flag::END_STREAM } else { 0 });
        loop {
            let (now, later) = rest.split_at(rest.len().min(frame::MAX_PAYLOAD));
            if later.is_empty() {
                flags |= flag::END_HEADERS;
            }
            frame::write(kind, flags, id, now, out);
            if later.is_empty() {
                return id;
            }
            (kind, flags, rest) = (kind::CONTINUATION, 0, later);
        }
    }

    /// Sends what the windows allow of a stream's body.
    fn send_body(&mut self, id: u32, out: &mut Vec<u8>) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        let body = &self.requests.messages[stream.request].body;
        while stream.sent < body.len() {
            let room = self.window.min(stream.window).max(0);
            let room = usize::try_from(room).unwrap_or(usize::MAX);
            let length = room.min(frame::MAX_PAYLOAD).min(body.len() - stream.sent);
            if length == 0 {
                return;
            }
            let end = stream.sent + length;
            let last = end == body.len() && self.requests.form != Form::Streaming;
            let flags = if last { flag::END_STREAM } else { 0 };
            frame::write(kind::DATA, flags, id, &body[stream.sent..end], out);
            stream.sent = end;
            stream.window -= length as i64;
            self.window -= length as i64;
        }
    }

    fn take(
        &mut self,
        frame: Frame<'_>,
        out: &mut Vec<u8>,
        done: &mut Vec<Completion>,
    ) -> Result<(), Malformed> {
        if !self.established && frame.kind != kind::SETTINGS {
            return Err(Malformed::Rule("the server does not begin as HTTP/2 does"));
        }
        if let Some(block) = &self.block
            && (frame.kind, frame.stream) != (kind::CONTINUATION, block.stream)
        {
            return Err(Malformed::Rule("a block of fields is interrupted"));
        }
        match frame.kind {
            kind::DATA => self.take_data(frame, out, done)?,
            kind::HEADERS => {
                let block = Block {
                    stream: frame.stream,
                    ends: frame.has(flag::END_STREAM),
                    bytes: Vec::new(),
                };
                self.take_fields(block, frame.content()?, frame, out, done)?;
            }
            kind::CONTINUATION => {
                let unasked = Malformed::Rule("a block of fields goes on that has not begun");
                let block = self.block.take().ok_or(unasked)?;
                self.take_fields(block, frame.payload, frame, out, done)?;
            }
            kind::RST_STREAM => {
                frame.number()?;
                self.end_stream(frame.stream, Some(Failure::Refusal), out, done);
            }
            kind::SETTINGS if !frame.has(flag::ACK) => {
                self.take_settings(frame)?;
                self.established = true;
                self.confirm(kind::SETTINGS, &[], out)?;
                self.send_bodies(out);
            }
            kind::PING if !frame.has(flag::ACK) => {
                self.confirm(kind::PING, frame.payload, out)?;
            }
            kind::GOAWAY => {
                self.over = true;
                let last = frame
                    .payload
                    .first_chunk()
                    .map_or(0, |last| u32::from_be_bytes(*last));
                let unheard: Vec<u32> = self
                    .streams
                    .keys()
                    .copied()
                    .filter(|id| *id > last)
                    .collect();
                for id in unheard {
                    self.end_stream(id, Some(Failure::Refusal), out, done);
                }
                // Streams that wait for a message would keep the connection for ever.
                for id in std::mem::take(&mut self.idle) {
                    self.streams.remove(&id);
                }
            }
            kind::WINDOW_UPDATE => {
                let more = i64::from(frame.number()? & 0x7fff_ffff);
                if frame.stream == 0 {
                    self.window += more;
                    self.send_bodies(out);
                } else if let Some(stream) = self.streams.get_mut(&frame.stream) {
                    stream.window += more;
                    self.send_body(frame.stream, out);
                }
            }
            kind::PUSH_PROMISE => {
                return Err(Malformed::Rule(
                    "the server pushes although it was told not to",
                ));
            }
            _ => {}
        }
        Ok(())
    }

    /// Acknowledges a frame. A server that asks and does not read must not fill the memory.
    fn confirm(&mut self, kind: u8, payload: &[u8], out: &mut Vec<u8>) -> Result<(), Malformed> {
        if self.owed >= MAX_ACKNOWLEDGEMENTS {
            return Err(Malformed::Rule(
                "the server asks for acknowledgements and does not read them",
            ));
        }
        let before = out.len();
        frame::write(kind, flag::ACK, 0, payload, out);
        self.owed += out.len() - before;
        Ok(())
    }

    fn send_bodies(&mut self, out: &mut Vec<u8>) {
        let waits = |(id, stream): (&u32, &Stream)| {
            let body = &self.requests.messages[stream.request].body;
            (stream.sent < body.len()).then_some(*id)
        };
        let waiting: Vec<u32> = self.streams.iter().filter_map(waits).collect();
        for id in waiting {
            self.send_body(id, out);
        }
    }

    fn take_settings(&mut self, frame: Frame<'_>) -> Result<(), Malformed> {
        for (name, value) in frame.settings()? {
            match name {
                setting::HEADER_TABLE_SIZE => self.encoder.limit(value as usize),
                setting::MAX_CONCURRENT_STREAMS => self.allowed = value as usize,
                setting::INITIAL_WINDOW_SIZE if value > i32::MAX as u32 => {
                    return Err(Malformed::Rule("a window larger than windows may be"));
                }
                setting::INITIAL_WINDOW_SIZE => {
                    let more = i64::from(value) - self.initial_window;
                    self.initial_window = i64::from(value);
                    self.streams
                        .values_mut()
                        .for_each(|stream| stream.window += more);
                }
                // What it allows is not made use of: longer frames would save nothing here.
                setting::MAX_FRAME_SIZE if !frame::ALLOWED_PAYLOADS.contains(&value) => {
                    return Err(Malformed::Rule("a frame size that none may have"));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn take_data(
        &mut self,
        frame: Frame<'_>,
        out: &mut Vec<u8>,
        done: &mut Vec<Completion>,
    ) -> Result<(), Malformed> {
        // Also for streams that were given up: the server has used the room.
        let length = frame.payload.len() as u32;
        acknowledge(&mut self.unacknowledged, length, 0, out);
        let content = frame.content()?;
        let form = self.requests.form;
        let Some(stream) = self.streams.get_mut(&frame.stream) else {
            return self.check_known(frame.stream);
        };
        if stream.status == 0 {
            return Err(Malformed::Rule("content before the fields of an answer"));
        }
        stream.content += content.len() as u64;
        if !frame.has(flag::END_STREAM) {
            acknowledge(&mut stream.unacknowledged, length, frame.stream, out);
        }
        if form != Form::Http && stream.status == 200 {
            let complete = stream.messages.feed(content)?;
            stream.answers += complete;
            if form == Form::Streaming && complete > 0 {
                let unasked = Malformed::Rule("a message came that answers none");
                let slot = stream
                    .slot
                    .take()
                    .filter(|_| complete == 1)
                    .ok_or(unasked)?;
                done.push(Completion {
                    slot,
                    outcome: Ok(Answer {
                        status: 200,
                        content: std::mem::take(&mut stream.content).saturating_sub(5),
                    }),
                });
                self.idle.push(frame.stream);
            }
        }
        if frame.has(flag::END_STREAM) {
            self.end_stream(frame.stream, None, out, done);
        }
        Ok(())
    }

    /// What comes on a stream that is not open may belong to one that was.
    fn check_known(&self, stream: u32) -> Result<(), Malformed> {
        if stream % 2 == 1 && stream < self.next {
            return Ok(());
        }
        Err(Malformed::Rule(
            "an answer on a stream that was never opened",
        ))
    }

    fn take_fields(
        &mut self,
        mut block: Block,
        piece: &[u8],
        frame: Frame<'_>,
        out: &mut Vec<u8>,
        done: &mut Vec<Completion>,
    ) -> Result<(), Malformed> {
        if block.bytes.len() + piece.len() > MAX_BLOCK {
            return Err(Malformed::Rule(
                "the fields of an answer are longer than 256 KiB",
            ));
        }
        if !frame.has(flag::END_HEADERS) {
            block.bytes.extend_from_slice(piece);
            self.block = Some(block);
            return Ok(());
        }
        let bytes = if block.bytes.is_empty() {
            piece
        } else {
            block.bytes.extend_from_slice(piece);
            &block.bytes
        };
        self.fields.clear();
        self.decoder
            .decode(bytes, &mut self.fields)
            .map_err(Malformed::Rule)?;
        if self.fields.is_too_large() {
            return Err(Malformed::Rule(
                "the fields of an answer are longer than 1 MiB when they are decoded",
            ));
        }
        let number = |text: &[u8]| std::str::from_utf8(text).ok()?.parse::<u32>().ok();
        let status = self
            .fields
            .find_all(Known::Status)
            .last()
            .and_then(number)
            .and_then(|status| u16::try_from(status).ok());
        // A value that is not a number is the status UNKNOWN of gRPC.
        let grpc_status = self
            .fields
            .all("grpc-status")
            .last()
            .map(|value| number(value).unwrap_or(2));
        let Some(stream) = self.streams.get_mut(&block.stream) else {
            return self.check_known(block.stream);
        };
        if stream.status == 0 {
            match status {
                Some(100..200) if !block.ends => return Ok(()),
                Some(status @ 200..600) => stream.status = status,
                _ => return Err(Malformed::Rule("an answer without a status")),
            }
        } else if !block.ends {
            return Err(Malformed::Rule("fields in the middle of an answer"));
        }
        stream.grpc_status = grpc_status.or(stream.grpc_status);
        if block.ends {
            self.end_stream(block.stream, None, out, done);
        }
        Ok(())
    }

    /// A stream is over, by itself or by a failure.
    fn end_stream(
        &mut self,
        id: u32,
        failure: Option<Failure>,
        out: &mut Vec<u8>,
        done: &mut Vec<Completion>,
    ) {
        let Some(stream) = self.streams.remove(&id) else {
            return;
        };
        self.idle.retain(|idle| *idle != id);
        let message = &self.requests.messages[stream.request];
        // The server has answered without having heard all.
        let unheard = stream.sent < message.body.len() || self.requests.form == Form::Streaming;
        if failure.is_none() && unheard {
            frame::write(kind::RST_STREAM, 0, id, &CANCEL.to_be_bytes(), out);
        }
        let Some(slot) = stream.slot else { return };
        let answer = Answer {
            status: stream.status,
            content: if message.head { 0 } else { stream.content },
        };
        let whole = stream.answers == 1 && !stream.messages.is_within();
        let outcome = match (failure, self.requests.form, stream.grpc_status) {
            (Some(failure), _, _) => Err(failure),
            (None, Form::Http, _) => Ok(answer),
            (None, _, Some(status @ 1..)) => Err(Failure::Grpc(status)),
            (None, _, _) if stream.status != 200 => Err(Failure::Status(stream.status)),
            (None, Form::Unary, Some(0)) if whole => Ok(Answer {
                content: stream.content - 5,
                ..answer
            }),
            (None, Form::Streaming, Some(0)) => Err(Failure::Closed),
            (None, _, _) => Err(Failure::Malformed),
        };
        done.push(Completion { slot, outcome });
    }
}

/// Makes room for more once half of the window was used.
fn acknowledge(unacknowledged: &mut u32, length: u32, stream: u32, out: &mut Vec<u8>) {
    *unacknowledged += length;
    if *unacknowledged >= WINDOW / 2 {
        let more = std::mem::take(unacknowledged).to_be_bytes();
        frame::write(kind::WINDOW_UPDATE, 0, stream, &more, out);
    }
}

impl Client for Http2 {
    fn open(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(frame::PREFACE);
        frame::write_settings(
            &[
                (setting::ENABLE_PUSH, 0),
                (setting::INITIAL_WINDOW_SIZE, WINDOW),
            ],
            out,
        );
        let more = WINDOW - INITIAL_WINDOW as u32;
        frame::write(kind::WINDOW_UPDATE, 0, 0, &more.to_be_bytes(), out);
    }

    fn is_established(&self) -> bool {
        self.established
    }

    fn room(&self) -> usize {
        if self.over {
            return 0;
        }
        self.allowed.saturating_sub(self.streams.len()) + self.idle.len()
    }

    fn start(&mut self, start: Start, out: &mut Vec<u8>) {
        let request = start.request;
        let kept = self
            .idle
            .iter()
            .position(|id| self.streams[id].request == request);
        if let Some(id) = kept.map(|place| self.idle.swap_remove(place))
            && let Some(stream) = self.streams.get_mut(&id)
        {
            stream.slot = Some(start.slot);
            stream.sent = 0;
            return self.send_body(id, out);
        }
        if self.streams.len() >= self.allowed
            && let Some(id) = self.idle.pop()
        {
            self.streams.remove(&id);
            frame::write(kind::RST_STREAM, 0, id, &CANCEL.to_be_bytes(), out);
        }
        let empty = self.requests.messages[request].body.is_empty();
        let id = self.open_stream(request, empty, out);
        self.streams.insert(
            id,
            Stream {
                slot: Some(start.slot),
                request,
                sent: 0,
                window: self.initial_window,
                unacknowledged: 0,
                status: 0,
                grpc_status: None,
                content: 0,
                messages: Messages::default(),
                answers: 0,
            },
        );
        self.send_body(id, out);
    }

    fn receive(
        &mut self,
        input: &[u8],
        out: &mut Vec<u8>,
        done: &mut Vec<Completion>,
    ) -> Result<(), Malformed> {
        // What is not here any more was sent.
        self.owed = self.owed.min(out.len());
        let mut held = std::mem::take(&mut self.held);
        let mut rest = input;
        if !held.is_empty() {
            held.extend_from_slice(input);
            rest = &held;
        }
        while let Some(frame) = Frame::cut(&mut rest)? {
            self.take(frame, out, done)?;
        }
        self.held = rest.to_vec();
        Ok(())
    }

    fn end(&mut self, _done: &mut Vec<Completion>) {
        self.over = true;
    }

    fn cancel(&mut self, slot: usize, out: &mut Vec<u8>) -> bool {
        let has = |(id, stream): (&u32, &Stream)| (stream.slot == Some(slot)).then_some(*id);
        if let Some(id) = self.streams.iter().find_map(has) {
            self.streams.remove(&id);
            frame::write(kind::RST_STREAM, 0, id, &CANCEL.to_be_bytes(), out);
        }
        true
    }

    fn is_over(&self) -> bool {
        self.over
    }
}

#[cfg(test)]
mod tests;
