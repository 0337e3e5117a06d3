//! A server's side of a connection: one request after the other, each answered before the next is read.

mod answer;

use bytes::Bytes;

use crate::body::Body;
use crate::config::Config;
use crate::encode::Announced;
use crate::error::Error;
use crate::event::ServerEvent;
use crate::framing::{Length, Version};
use crate::output::Output;
use crate::piece::Piece;
use crate::request::Head;
use crate::section::Section;
use crate::tunnel::Tunnel;

/// Progress of the request that is being read.
#[derive(Debug)]
enum Inbound {
    /// The next request's head.
    Head,
    Content(Body),
    /// Content of an answered request, which is dropped. At most so many more bytes.
    Drain(Body, u64),
    /// The request is complete. The next one stays unread until the answer is complete.
    Complete,
    /// No request follows.
    Closed,
}

/// Progress of the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    /// No request is open.
    None,
    Due,
    Content(Announced),
    Complete,
    /// The connection is a tunnel.
    Switched,
}

/// Facts of the open request that the answer depends on.
#[derive(Debug, Clone, Copy, Default)]
struct Open {
    version: Version,
    is_head: bool,
    is_connect: bool,
    asks_for_upgrade: bool,
    /// The request allows another one behind it, and nothing since has forbidden it.
    persists: bool,
    /// The client may wait for status 100 before it sends content.
    awaits_continue: bool,
    /// Input stood behind the complete request.
    has_early_input: bool,
}

/// A server's side of an HTTP/1 connection (RFC 9112).
///
/// The caller keeps unread input: it calls [`receive`](Self::receive) until that returns none, and reads from the socket
/// only while [`wants_input`](Self::wants_input) holds. Not calling is the back-pressure.
#[derive(Debug)]
pub struct ServerConnection {
    config: Config,
    section: Section<Head>,
    inbound: Inbound,
    answer: Answer,
    open: Open,
    /// The caller wants no further request.
    closing: bool,
    failed: Option<Error>,
    output: Output,
}

// An idle connection of a gateway holds one of these.
const _: () = assert!(size_of::<ServerConnection>() <= 376);

impl ServerConnection {
    /// A connection that waits for its first request.
    pub fn new(config: Config) -> Self {
        ServerConnection {
            config,
            section: Section::default(),
            inbound: Inbound::Head,
            answer: Answer::None,
            open: Open::default(),
            closing: false,
            failed: None,
            output: Output::default(),
        }
    }

    /// Takes input up to the next event. None leaves what belongs to a later request in `input`, or needs more input.
    ///
    /// After an error no input is taken. The caller may [`respond`](Self::respond) with [`Error::status`] if no answer has begun.
    #[inline]
    pub fn receive(&mut self, input: &mut Bytes) -> Result<Option<ServerEvent>, Error> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let result = self.step(input);
        if let Err(error) = result {
            self.fail(error);
        }
        result
    }

    fn step(&mut self, input: &mut Bytes) -> Result<Option<ServerEvent>, Error> {
        loop {
            match &mut self.inbound {
                Inbound::Head => {
                    let Some((head, fields)) = self.section.read(input, &self.config)? else {
                        return Ok(None);
                    };
                    return Ok(Some(self.begin(head, fields)));
                }
                Inbound::Content(body) => {
                    let Some(piece) = body.read(input, &self.config)? else {
                        return Ok(None);
                    };
                    self.open.awaits_continue = false;
                    if !matches!(piece, Piece::Data { end: false, .. }) {
                        self.end_of_content();
                    }
                    return Ok(Some(match piece {
                        Piece::Data { bytes, end } => ServerEvent::Data { bytes, end },
                        Piece::Trailers(trailers) => ServerEvent::Trailers(trailers),
                        Piece::End => ServerEvent::End,
                    }));
                }
                Inbound::Drain(body, left) => match body.read(input, &self.config)? {
                    None => return Ok(None),
                    Some(Piece::Data { bytes, .. }) if bytes.len() as u64 > *left => {
                        self.inbound = Inbound::Closed
                    }
                    Some(Piece::Data { bytes, end: false }) => *left -= bytes.len() as u64,
                    Some(_) => self.end_of_content(),
                },
                Inbound::Complete => {
                    self.open.has_early_input |= !input.is_empty();
                    return Ok(None);
                }
                Inbound::Closed => {
                    *input = Bytes::new();
                    return Ok(None);
                }
            }
        }
    }

    #[inline]
    fn begin(&mut self, head: Head, fields: crate::fields::Fields) -> ServerEvent {
        let persists = head.framing.persists();
        let head = head.finish(fields);
        self.inbound = match head.length() {
            Length::None | Length::Known(0) => Inbound::Complete,
            Length::Known(length) => Inbound::Content(Body::Length(length)),
            Length::Unknown => Inbound::Content(Body::chunked()),
        };
        let end = matches!(self.inbound, Inbound::Complete);
        self.open = Open {
            version: head.version(),
            is_head: head.method() == b"HEAD",
            is_connect: head.is_connect(),
            asks_for_upgrade: head.asks_for_upgrade(),
            persists,
            awaits_continue: head.expects_continue() && !end,
            has_early_input: false,
        };
        self.answer = Answer::Due;
        ServerEvent::Request { head, end }
    }

    fn end_of_content(&mut self) {
        self.inbound = Inbound::Complete;
        self.turn();
    }

    /// Begins the next request once request and answer are complete.
    fn turn(&mut self) {
        if self.answer != Answer::Complete {
            return;
        }
        let persists = self.open.persists && !self.closing;
        match std::mem::replace(&mut self.inbound, Inbound::Closed) {
            Inbound::Complete if persists => {
                self.inbound = Inbound::Head;
                self.answer = Answer::None;
            }
            Inbound::Content(body) if persists => match body {
                Body::Length(length) if length > self.config.drain => {}
                body => self.inbound = Inbound::Drain(body, self.config.drain),
            },
            Inbound::Drain(body, left) => self.inbound = Inbound::Drain(body, left),
            _ => {}
        }
    }

    fn fail(&mut self, error: Error) {
        self.failed = Some(error);
        // Nobody reads the rest of an incomplete head.
        self.section = Section::default();
        if self.answer == Answer::None {
            self.open = Open::default();
            self.answer = Answer::Due;
        }
        self.open.persists = false;
        self.inbound = Inbound::Closed;
    }

    /// Says that the head of the next request takes too long. It may be answered as one with the fault that this returns.
    pub fn head_timed_out(&mut self) -> Error {
        self.fail(Error::HeadTimeout);
        Error::HeadTimeout
    }

    /// Says that the peer sends no more. A request that is complete can still be answered (RFC 9112 §9.5).
    pub fn end_of_input(&mut self) -> Result<(), Error> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let is_cut = match self.inbound {
            Inbound::Head => self.section.has_begun(),
            Inbound::Content(_) => true,
            _ => false,
        };
        if is_cut {
            self.fail(Error::Truncated);
            return Err(Error::Truncated);
        }
        self.open.persists = false;
        self.inbound = Inbound::Closed;
        Ok(())
    }

    /// True if input can be used now: the caller should read from the socket.
    pub fn wants_input(&self) -> bool {
        matches!(
            self.inbound,
            Inbound::Head | Inbound::Content(_) | Inbound::Drain(..)
        )
    }

    /// True between requests, while no byte of the next one has been taken.
    pub fn is_idle(&self) -> bool {
        matches!(self.inbound, Inbound::Head) && !self.section.has_begun()
    }

    /// Bytes of a head or a trailer section that has not ended: at most [`Config::max_head`].
    #[inline]
    pub fn incomplete(&self) -> usize {
        match &self.inbound {
            Inbound::Head => self.section.held(),
            Inbound::Content(body) | Inbound::Drain(body, _) => body.incomplete(),
            Inbound::Complete | Inbound::Closed => 0,
        }
    }

    /// True while the client may wait for status 100 (RFC 9110 §10.1.1). Call [`inform`](Self::inform) with 100 to read content.
    pub fn awaits_continue(&self) -> bool {
        self.open.awaits_continue
    }

    /// Ends the connection behind the open exchange, or at once if none is open.
    pub fn close_after_exchange(&mut self) {
        self.closing = true;
        if self.is_idle() {
            self.inbound = Inbound::Closed;
        }
    }

    /// True once nothing is left to read or to write: shut the connection down.
    pub fn is_done(&self) -> bool {
        matches!(self.inbound, Inbound::Closed)
            && matches!(self.answer, Answer::None | Answer::Complete)
            && self.output.len() == 0
    }

    /// Bytes to write, in order.
    pub fn output(&self) -> impl Iterator<Item = &[u8]> {
        self.output.pieces()
    }

    /// Says that so many bytes of the output were written.
    pub fn advance(&mut self, bytes: usize) {
        self.output.advance(bytes);
    }

    /// Bytes that wait to be written.
    pub fn queued(&self) -> usize {
        self.output.len()
    }

    /// Gives memory back that an idle connection does not need. The next message asks for it again.
    pub fn rest(&mut self) {
        self.output.rest();
    }

    /// The tunnel behind an answer that accepted an upgrade or CONNECT. Otherwise the connection itself.
    pub fn into_tunnel(self) -> Result<Tunnel, Box<ServerConnection>> {
        match self.answer {
            Answer::Switched => Ok(Tunnel::new(self.output)),
            _ => Err(Box::new(self)),
        }
    }
}
