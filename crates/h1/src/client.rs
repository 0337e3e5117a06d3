//! A client's side of a connection: one request at a time, and the responses to it.

mod ask;

use bytes::Bytes;

use crate::body::Body;
use crate::config::Config;
use crate::encode::Announced;
use crate::error::Error;
use crate::event::ClientEvent;
use crate::fields::Fields;
use crate::framing::Length;
use crate::output::Output;
use crate::piece::Piece;
use crate::response::Head;
use crate::section::Section;
use crate::tunnel::Tunnel;

/// Progress of the response.
#[derive(Debug)]
enum Inbound {
    /// No request is open.
    Idle,
    Head,
    Content(Body),
    /// The response is complete, and the request is not.
    Complete,
    /// The connection is a tunnel.
    Switched,
    /// No request may follow.
    Closed,
}

/// Facts of the open request that the response depends on.
#[derive(Debug, Clone, Copy)]
struct Open {
    content: Announced,
    /// The request is written as a whole.
    is_complete: bool,
    is_head: bool,
    is_connect: bool,
    asks_for_upgrade: bool,
    persists: bool,
    informational: u16,
}

/// A client's side of an HTTP/1 connection (RFC 9112).
///
/// The caller keeps unread input: it calls [`receive`](Self::receive) until that returns none. Not calling is the
/// back-pressure. Requests are not pipelined.
#[derive(Debug)]
pub struct ClientConnection {
    config: Config,
    section: Section<Head>,
    inbound: Inbound,
    open: Open,
    closing: bool,
    failed: Option<Error>,
    output: Output,
}

// A pool holds one of these for each idle upstream connection.
const _: () = assert!(size_of::<ClientConnection>() <= 384);

impl ClientConnection {
    /// A connection that waits for a request.
    pub fn new(config: Config) -> Self {
        ClientConnection {
            config,
            section: Section::default(),
            inbound: Inbound::Idle,
            open: Open {
                content: Announced::Nothing,
                is_complete: true,
                is_head: false,
                is_connect: false,
                asks_for_upgrade: false,
                persists: true,
                informational: 0,
            },
            closing: false,
            failed: None,
            output: Output::default(),
        }
    }

    /// Takes input up to the next event. None needs more input. After an error no input is taken.
    #[inline]
    pub fn receive(&mut self, input: &mut Bytes) -> Result<Option<ClientEvent>, Error> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let result = self.step(input);
        if let Err(error) = result {
            self.fail(error);
        }
        result
    }

    fn step(&mut self, input: &mut Bytes) -> Result<Option<ClientEvent>, Error> {
        match &mut self.inbound {
            Inbound::Head => match self.section.read(input, &self.config)? {
                None => Ok(None),
                Some((head, fields)) => self.begin(head, fields).map(Some),
            },
            Inbound::Content(body) => {
                let Some(piece) = body.read(input, &self.config)? else {
                    return Ok(None);
                };
                if !matches!(piece, Piece::Data { end: false, .. }) {
                    self.end_of_content();
                }
                Ok(Some(match piece {
                    Piece::Data { bytes, end } => ClientEvent::Data { bytes, end },
                    Piece::Trailers(trailers) => ClientEvent::Trailers(trailers),
                    Piece::End => ClientEvent::End,
                }))
            }
            Inbound::Idle | Inbound::Complete if !input.is_empty() => Err(Error::Unsolicited),
            Inbound::Idle | Inbound::Complete | Inbound::Switched => Ok(None),
            Inbound::Closed => {
                *input = Bytes::new();
                Ok(None)
            }
        }
    }

    /// Judges a response's head, and says where its content ends (RFC 9112 §6.3).
    #[inline]
    fn begin(&mut self, head: Head, fields: Fields) -> Result<ClientEvent, Error> {
        let status = head.status;
        let accepts_connect = self.open.is_connect && (200..300).contains(&status);
        if status == 101 && !(self.open.asks_for_upgrade && head.framing.upgrades()) {
            return Err(Error::UnaskedSwitch);
        }
        if status == 101 || accepts_connect {
            self.inbound = Inbound::Switched;
            return Ok(ClientEvent::Tunnel(head.finish(fields, Length::None)));
        }
        if status < 200 {
            self.open.informational += 1;
            if self.open.informational > self.config.max_informational {
                return Err(Error::Informational);
            }
            return Ok(ClientEvent::Informational(
                head.finish(fields, Length::None),
            ));
        }
        let is_bodiless = self.open.is_head || matches!(status, 204 | 304);
        let (length, body) = match head.framing.length {
            _ if is_bodiless => (Length::None, None),
            _ if head.framing.has_coding => (Length::Unknown, Some(Body::chunked())),
            Some(0) => (Length::Known(0), None),
            Some(length) => (Length::Known(length), Some(Body::Length(length))),
            None => (Length::Unknown, Some(Body::UntilClose)),
        };
        self.open.persists &= head.framing.persists() && !matches!(body, Some(Body::UntilClose));
        let head = head.finish(fields, length);
        let end = body.is_none();
        match body {
            Some(body) => self.inbound = Inbound::Content(body),
            None => self.end_of_content(),
        }
        Ok(ClientEvent::Response { head, end })
    }

    fn end_of_content(&mut self) {
        self.inbound = Inbound::Complete;
        self.turn();
    }

    /// Makes the connection idle, or closes it, once request and response are complete.
    fn turn(&mut self) {
        if !matches!(self.inbound, Inbound::Complete) {
            return;
        }
        if !self.open.persists || self.closing {
            self.inbound = Inbound::Closed;
        } else if self.open.is_complete {
            self.inbound = Inbound::Idle;
        }
    }

    fn fail(&mut self, error: Error) {
        self.failed = Some(error);
        // Nobody reads the rest of an incomplete head.
        self.section = Section::default();
        self.inbound = Inbound::Closed;
    }

    /// Says that the peer sends no more. It ends a response that has no other end; any other open response is cut off.
    pub fn end_of_input(&mut self) -> Result<Option<ClientEvent>, Error> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let error = match self.inbound {
            Inbound::Content(Body::UntilClose) => {
                self.inbound = Inbound::Closed;
                return Ok(Some(ClientEvent::End));
            }
            Inbound::Content(_) => Error::Truncated,
            Inbound::Head if self.section.has_begun() || self.open.informational > 0 => {
                Error::Truncated
            }
            Inbound::Head => Error::ClosedUnanswered,
            Inbound::Switched => return Ok(None),
            Inbound::Idle | Inbound::Complete | Inbound::Closed => {
                self.inbound = Inbound::Closed;
                return Ok(None);
            }
        };
        self.fail(error);
        Err(error)
    }

    /// Bytes of a head or a trailer section that has not ended: at most [`Config::max_head`].
    #[inline]
    pub fn incomplete(&self) -> usize {
        match &self.inbound {
            Inbound::Head => self.section.held(),
            Inbound::Content(body) => body.incomplete(),
            Inbound::Idle | Inbound::Complete | Inbound::Switched | Inbound::Closed => 0,
        }
    }

    /// True if [`request`](Self::request) may be called: the exchange before is complete, and the peer keeps the connection.
    pub fn is_idle(&self) -> bool {
        matches!(self.inbound, Inbound::Idle)
    }

    /// True once no request may follow and the response is complete. The rest of an incomplete request need not be written.
    pub fn is_done(&self) -> bool {
        matches!(self.inbound, Inbound::Closed)
    }

    /// Ends the connection behind the open exchange, or at once if none is open.
    pub fn close_after_exchange(&mut self) {
        self.closing = true;
        if self.is_idle() {
            self.inbound = Inbound::Closed;
        }
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

    /// The tunnel behind [`ClientEvent::Tunnel`], once the request is written as a whole. Otherwise the connection itself.
    pub fn into_tunnel(self) -> Result<Tunnel, Box<ClientConnection>> {
        match self.inbound {
            Inbound::Switched if self.open.is_complete => Ok(Tunnel::new(self.output)),
            _ => Err(Box::new(self)),
        }
    }
}
