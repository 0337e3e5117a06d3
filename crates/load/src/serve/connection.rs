//! One connection of the echo service: read a request → wait if asked to → write the response →
//! again. One request at a time; while a response is under way nothing is read, so a peer that does
//! not read cannot make us hold more than one response.

use std::io::{ErrorKind, Read};
use std::net::TcpStream;
use std::time::Instant;

use super::Tools;
use super::params::Params;
use super::response::Outgoing;
use crate::http::{Malformed, Request, RequestParser};
use crate::poll::Ready;

/// A connection.
#[derive(Debug)]
pub struct Connection {
    socket: TcpStream,
    parser: RequestParser,
    phase: Phase,
    /// Bytes that arrived behind the request that is being answered.
    ahead: Vec<u8>,
    /// Something may have arrived that was not read.
    readable: bool,
    /// The peer sent its last byte.
    ended: bool,
    /// TCP_NODELAY as it is set.
    nodelay: bool,
}

#[derive(Debug)]
enum Phase {
    Reading,
    Delayed(Outgoing),
    Writing(Outgoing),
}

/// What a connection wants done next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Nothing until something happens to its socket.
    Wait,
    /// Be told when this instant has come.
    WakeAt(Instant),
    /// Be closed.
    Close,
}

impl Connection {
    /// A connection that was just accepted, from a listener that sets TCP_NODELAY.
    pub fn new(socket: TcpStream) -> Connection {
        Connection {
            socket,
            parser: RequestParser::default(),
            phase: Phase::Reading,
            ahead: Vec::new(),
            readable: false,
            ended: false,
            nodelay: true,
        }
    }

    /// Whether no request is under way.
    pub fn is_idle(&self) -> bool {
        matches!(self.phase, Phase::Reading) && !self.parser.has_begun()
    }

    /// Something happened to the socket.
    pub fn ready(&mut self, ready: Ready, tools: &mut Tools<'_>) -> Next {
        self.readable |= ready.readable;
        self.ended |= ready.ended;
        match self.phase {
            Phase::Reading => self.go_on(tools),
            Phase::Delayed(_) => Next::Wait,
            Phase::Writing(_) if ready.writable => self.go_on(tools),
            Phase::Writing(_) => Next::Wait,
        }
    }

    /// The delay of the response is over.
    pub fn delay_over(&mut self, tools: &mut Tools<'_>) -> Next {
        match std::mem::replace(&mut self.phase, Phase::Reading) {
            Phase::Delayed(outgoing) => self.phase = Phase::Writing(outgoing),
            other => self.phase = other,
        }
        self.go_on(tools)
    }

    /// Reads and writes until one of them cannot go on.
    fn go_on(&mut self, tools: &mut Tools<'_>) -> Next {
        loop {
            if let Phase::Writing(outgoing) = &mut self.phase {
                match outgoing.write_to(&mut self.socket) {
                    Ok(false) => return Next::Wait,
                    Ok(true) if outgoing.close || tools.stopping => return Next::Close,
                    Ok(true) => self.phase = Phase::Reading,
                    Err(_) => return Next::Close,
                }
            }
            let request = match self.read(tools.buffer) {
                Ok(Some(request)) => request,
                Ok(None) => return Next::Wait,
                Err(Ended::Closed) => return Next::Close,
                Err(Ended::Malformed(malformed)) => {
                    self.phase =
                        Phase::Writing(Outgoing::text(400, &malformed.to_string(), true, false));
                    continue;
                }
            };
            if let Some(next) = self.answer(request, tools) {
                return next;
            }
        }
    }

    /// Reads up to the end of one request.
    fn read(&mut self, buffer: &mut [u8]) -> Result<Option<Request>, Ended> {
        if !self.ahead.is_empty() {
            let ahead = std::mem::take(&mut self.ahead);
            if let Some((request, used)) = self.parser.feed(&ahead)? {
                self.ahead.extend_from_slice(&ahead[used..]);
                return Ok(Some(request));
            }
        }
        while self.readable {
            let count = match self.socket.read(buffer) {
                Ok(0) => return Err(Ended::Closed),
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.readable = false;
                    break;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => return Err(Ended::Closed),
            };
            // A short read has emptied the socket; a later byte is an event of its own. But the
            // end of the stream, once reported, is not reported again.
            self.readable = count == buffer.len() || self.ended;
            if let Some((request, used)) = self.parser.feed(&buffer[..count])? {
                self.ahead.extend_from_slice(&buffer[used..count]);
                return Ok(Some(request));
            }
            if self.parser.take_expectation() {
                // Seventeen bytes into an empty send buffer; if they do not fit, the peer is broken.
                let _ = std::io::Write::write(&mut self.socket, b"HTTP/1.1 100 Continue\r\n\r\n");
            }
        }
        Ok(None)
    }

    /// Prepares the response. Returns what to do if it does not leave at once.
    fn answer(&mut self, request: Request, tools: &mut Tools<'_>) -> Option<Next> {
        let close = !request.persists || tools.stopping;
        let headless = request.method == "HEAD";
        let path = request.target.split('?').next().unwrap_or_default();
        if path == "/health" {
            self.phase = Phase::Writing(Outgoing::text(200, "ok", close, headless));
            return None;
        }
        let params = match Params::parse(&request.target, tools.random) {
            Ok(params) => params,
            Err(reason) => {
                self.phase = Phase::Writing(Outgoing::text(400, &reason, close, headless));
                return None;
            }
        };
        if params.nodelay != self.nodelay && self.socket.set_nodelay(params.nodelay).is_ok() {
            self.nodelay = params.nodelay;
        }
        let outgoing = Outgoing::new(&params, request.body, close, headless);
        if params.delay.is_zero() {
            self.phase = Phase::Writing(outgoing);
            return None;
        }
        self.phase = Phase::Delayed(outgoing);
        Some(Next::WakeAt(Instant::now() + params.delay))
    }
}

/// Why no further request comes.
#[derive(Debug)]
enum Ended {
    Closed,
    Malformed(Malformed),
}

impl From<Malformed> for Ended {
    fn from(malformed: Malformed) -> Ended {
        Ended::Malformed(malformed)
    }
}
