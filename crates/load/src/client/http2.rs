//! HTTP/2 (RFC 9113), and gRPC upon it: requests on streams of one connection, as many at once as the
//! server allows.

mod requests;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use lateen_h2::{Code, Connection, ConnectionError, Event, Field, Known, StreamId, Timestamp};

use super::interface::{Answer, Client, Completion, Malformed, Output, Start};
use crate::frames::Frames;
use crate::record::Failure;
pub use requests::{Form, Requests};

/// The most bytes of acknowledgements that wait for a server to read them.
const MAX_ACKNOWLEDGEMENTS: usize = 64 * 1024;

#[derive(Debug)]
struct Stream {
    id: StreamId,
    /// The request whose answer comes; `None` for a stream of messages between two of them.
    slot: Option<usize>,
    request: usize,
    status: u16,
    grpc_status: Option<u32>,
    content: u64,
    messages: Frames,
    answers: u32,
}

/// A client of HTTP/2.
#[derive(Debug)]
pub struct Http2 {
    requests: Arc<Requests>,
    connection: Connection,
    streams: BTreeMap<u32, Stream>,
    /// Streams of messages that wait for the next.
    idle: Vec<u32>,
    /// Requests that the server's limits do not allow.
    refused: Vec<usize>,
    /// Bytes of acknowledgements among what has not been sent.
    owed: usize,
    over: bool,
}

impl Http2 {
    /// A client that has said nothing.
    pub fn new(requests: Arc<Requests>) -> Http2 {
        let mut connection = Connection::client(&requests.config, Timestamp::default());
        // The server gets the whole window at once.
        connection.set_allowance(u32::MAX);
        Http2 {
            connection,
            requests,
            streams: BTreeMap::new(),
            idle: Vec::new(),
            refused: Vec::new(),
            owed: 0,
            over: false,
        }
    }

    /// Opens a stream with the fields of a request.
    fn open_stream(&mut self, start: Start) {
        let message = &self.requests.messages[start.request];
        let end = message.body.is_empty();
        let opened = self.connection.request_with(None, end, |block| {
            for (known, name, value) in &message.fields {
                let field = match known {
                    Some(known) => Field::known(*known, value),
                    None => Field::unnumbered(name.as_bytes(), value.as_bytes()),
                };
                block.field(field.kept());
            }
        });
        let Ok(id) = opened else {
            return self.refused.push(start.slot);
        };
        let stream = Stream {
            id,
            slot: Some(start.slot),
            request: start.request,
            status: 0,
            grpc_status: None,
            content: 0,
            messages: Frames::default(),
            answers: 0,
        };
        self.streams.insert(id.get(), stream);
        self.send_body(id, start.request);
    }

    /// Sends a request's body as far as the windows allow. A stream of messages stays open behind it.
    fn send_body(&mut self, id: StreamId, request: usize) {
        let body = &self.requests.messages[request].body;
        // A stream that is over by now takes nothing; its end was or will be told.
        let sent = self.connection.send(id, body.clone());
        if sent.is_ok() && !body.is_empty() && self.requests.form != Form::Streaming {
            let _ = self.connection.finish(id);
        }
    }

    /// Hands out all that may be sent now.
    fn put_out(&mut self, Output { bytes: out, .. }: &mut Output) {
        self.owed += self.connection.unread();
        while self.connection.has_output() {
            let before = out.len();
            for piece in self.connection.output() {
                out.extend_from_slice(piece);
            }
            self.connection.advance(out.len() - before);
        }
    }

    fn take(&mut self, event: Event<'_>, done: &mut Vec<Completion>) -> Result<(), Malformed> {
        match event {
            Event::Response {
                stream,
                status,
                end,
            } => {
                if status >= 600 {
                    return Err(Malformed::Rule("status is not between 100 and 599"));
                }
                self.take_grpc_status(stream);
                if let Some(stream) = self.streams.get_mut(&stream.get()) {
                    stream.status = status;
                }
                if end {
                    self.end_stream(stream, None, done);
                }
            }
            Event::Trailers { stream } => {
                self.take_grpc_status(stream);
                self.end_stream(stream, None, done);
            }
            Event::Data { stream, bytes, end } => {
                self.connection.consumed(stream, bytes.len());
                self.take_data(stream, bytes, done)?;
                if end {
                    self.end_stream(stream, None, done);
                }
            }
            Event::Reset { stream, .. } | Event::Unprocessed { stream } => {
                self.end_stream(stream, Some(Failure::Refusal), done);
            }
            Event::Failed(error) => {
                let (code, cause) = (error.code, error.cause);
                return Err(ConnectionError { code, cause }.into());
            }
            Event::GoAway { .. } => {
                self.over = true;
                // Streams that wait for a message would keep the connection for ever.
                for id in std::mem::take(&mut self.idle) {
                    self.release(id);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Takes the status of gRPC from the fields that have just come. A value that is not a number is UNKNOWN.
    fn take_grpc_status(&mut self, stream: StreamId) {
        if self.requests.form == Form::Http {
            return;
        }
        let number = |text: &[u8]| std::str::from_utf8(text).ok()?.parse::<u32>().ok();
        let status = self.connection.fields().find_all(Known::GrpcStatus).last();
        let status = status.map(|value| number(value).unwrap_or(2));
        if let Some(stream) = self.streams.get_mut(&stream.get()) {
            stream.grpc_status = status.or(stream.grpc_status);
        }
    }

    fn take_data(
        &mut self,
        id: StreamId,
        content: &[u8],
        done: &mut Vec<Completion>,
    ) -> Result<(), Malformed> {
        let Some(stream) = self.streams.get_mut(&id.get()) else {
            return Ok(());
        };
        if self.requests.form == Form::Http || stream.status != 200 {
            stream.content += content.len() as u64;
            return Ok(());
        }
        stream.messages.push(content);
        let prefix = |_| Malformed::Rule("not the prefix of a message of gRPC");
        while let Some(length) = stream.messages.skip().map_err(prefix)? {
            stream.content = length as u64;
            stream.answers += 1;
            if self.requests.form == Form::Streaming {
                let unasked = Malformed::Rule("a message came that answers none");
                let slot = stream.slot.take().ok_or(unasked)?;
                let (status, content) = (200, stream.content);
                let outcome = Ok(Answer { status, content });
                done.push(Completion { slot, outcome });
                self.idle.push(id.get());
            }
        }
        Ok(())
    }

    /// Lets a stream go. One that is not over is reset.
    fn release(&mut self, id: u32) -> Option<Stream> {
        let stream = self.streams.remove(&id)?;
        self.connection.reset(stream.id, Code::CANCEL);
        self.connection.release(stream.id);
        Some(stream)
    }

    /// A stream is over, by itself or by a failure.
    fn end_stream(&mut self, id: StreamId, failure: Option<Failure>, done: &mut Vec<Completion>) {
        // It is reset if the server has answered without having heard all.
        let Some(stream) = self.release(id.get()) else {
            return;
        };
        self.idle.retain(|idle| *idle != id.get());
        let message = &self.requests.messages[stream.request];
        let Some(slot) = stream.slot else { return };
        let answer = Answer {
            status: stream.status,
            content: if message.head { 0 } else { stream.content },
        };
        let whole = stream.answers == 1 && stream.messages.is_empty();
        let outcome = match (failure, self.requests.form, stream.grpc_status) {
            (Some(failure), _, _) => Err(failure),
            (None, Form::Http, _) => Ok(answer),
            (None, _, Some(status @ 1..)) => Err(Failure::Grpc(status)),
            (None, _, _) if stream.status != 200 => Err(Failure::Status(stream.status)),
            (None, Form::Unary, Some(0)) if whole => Ok(answer),
            (None, Form::Streaming, Some(0)) => Err(Failure::Closed),
            (None, _, _) => Err(Failure::Malformed),
        };
        done.push(Completion { slot, outcome });
    }
}

impl Client for Http2 {
    fn open(&mut self, out: &mut Output) {
        self.put_out(out);
    }

    fn is_established(&self) -> bool {
        self.connection.is_acquainted()
    }

    fn room(&self) -> usize {
        if self.is_over() {
            return 0;
        }
        let open = self.streams.len();
        self.connection.limit().saturating_sub(open) + self.idle.len()
    }

    fn start(&mut self, start: Start, out: &mut Output) {
        let request = start.request;
        let fits = |id| self.streams[id].request == request;
        let kept = self.idle.iter().position(fits);
        if let Some(id) = kept.map(|place| self.idle.swap_remove(place))
            && let Some(stream) = self.streams.get_mut(&id)
        {
            stream.slot = Some(start.slot);
            let id = stream.id;
            self.send_body(id, request);
        } else {
            if self.streams.len() >= self.connection.limit()
                && let Some(id) = self.idle.pop()
            {
                self.release(id);
            }
            self.open_stream(start);
        }
        self.put_out(out);
    }

    fn receive(&mut self, input: &Bytes, now: u64, out: &mut Output) -> Result<(), Malformed> {
        // Bytes that are not here any more were sent.
        self.owed = self.owed.min(out.bytes.len());
        let mut input = &input[..];
        let now = Timestamp::from_micros(now / 1000);
        loop {
            match self.connection.receive(&mut input, now) {
                Ok(Some(event)) => self.take(event, &mut out.done)?,
                Ok(None) => break,
                Err(error) => {
                    // The server is told why.
                    self.put_out(out);
                    return Err(error.into());
                }
            }
        }
        let outcome = Err(Failure::Refusal);
        let refused = self.refused.drain(..);
        let refused = refused.map(|slot| Completion { slot, outcome });
        out.done.extend(refused);
        self.put_out(out);
        if self.owed >= MAX_ACKNOWLEDGEMENTS {
            let reason = "the server asks for acknowledgements and does not read them";
            return Err(Malformed::Rule(reason));
        }
        Ok(())
    }

    fn end(&mut self, _: &mut Output) {
        self.over = true;
    }

    fn cancel(&mut self, slot: usize, out: &mut Output) -> bool {
        let has = |(id, stream): (&u32, &Stream)| (stream.slot == Some(slot)).then_some(*id);
        if let Some(id) = self.streams.iter().find_map(has) {
            self.release(id);
            self.put_out(out);
        }
        self.refused.retain(|refused| *refused != slot);
        true
    }

    fn is_over(&self) -> bool {
        self.over || !self.connection.takes_requests()
    }
}

#[cfg(test)]
mod tests;
