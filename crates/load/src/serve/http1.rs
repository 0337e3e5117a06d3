//! HTTP/1.1 on one connection: read a request → wait if asked to → write the response → again. One
//! request at a time; while a response is under way nothing is read, so a peer that does not read
//! cannot make us hold more than one response.

use std::io::Write;
use std::time::Instant;

use super::context::{Next, Tools};
use super::reply::{Asked, Course, Reply};
use super::response::Outgoing;
use super::wire::Wire;
use crate::http::{Malformed, Request, RequestParser};

/// The server's side of HTTP/1.1.
#[derive(Debug)]
pub struct Http1 {
    parser: RequestParser,
    phase: Phase,
    /// Bytes that arrived behind the request that is being answered.
    ahead: Vec<u8>,
    /// The round in which the request that is being read began.
    begun: Option<u32>,
    /// Whether the client meant to go on after the request that is being answered.
    persists: bool,
}

#[derive(Debug)]
enum Phase {
    Reading,
    /// `None` is to hang up afterwards.
    Delayed(Option<Outgoing>),
    Writing(Outgoing),
}

impl Http1 {
    /// A connection on which this has arrived.
    pub fn new(begin: Vec<u8>) -> Http1 {
        Http1 {
            parser: RequestParser::default(),
            phase: Phase::Reading,
            ahead: begin,
            begun: None,
            persists: true,
        }
    }

    /// The round in which the request that has not arrived in whole began.
    pub fn begun(&self) -> Option<u32> {
        self.begun
    }

    /// Whether the response waits for its time.
    pub fn is_delayed(&self) -> bool {
        matches!(self.phase, Phase::Delayed(_))
    }

    /// Whether nobody waits for the response any more. A client that sends its last byte has gone, unless
    /// it had said before that this was its last request: such a one may wait with its half closed.
    fn is_abandoned(&self, wire: &Wire) -> bool {
        wire.is_broken() || wire.has_ended() && self.persists
    }

    /// Whether no request is under way.
    pub fn is_idle(&self) -> bool {
        matches!(self.phase, Phase::Reading) && !self.parser.has_begun()
    }

    /// The delay of the response is over. Returns whether that is the end.
    pub fn delay_over(&mut self) -> Next {
        match std::mem::replace(&mut self.phase, Phase::Reading) {
            Phase::Delayed(Some(outgoing)) => self.phase = Phase::Writing(outgoing),
            Phase::Delayed(None) => return Next::Close,
            other => self.phase = other,
        }
        Next::Wait
    }

    /// Reads and writes until one of them cannot go on.
    pub fn act(&mut self, wire: &mut Wire, tools: &mut Tools<'_>) -> Next {
        loop {
            match &mut self.phase {
                Phase::Reading => {}
                Phase::Delayed(_) => {
                    return match self.is_abandoned(wire) {
                        true => Next::Close,
                        false => Next::Wait,
                    };
                }
                Phase::Writing(outgoing) => {
                    match outgoing
                        .write_to(wire)
                        .and_then(|left| Ok(left && Wire::flush(wire)?))
                    {
                        Ok(false) => return Next::Wait,
                        Ok(true) if outgoing.close || tools.stopping => return Next::Close,
                        Ok(true) => self.phase = Phase::Reading,
                        Err(_) => return Next::Close,
                    }
                }
            }
            let request = match self.read(wire, tools.buffer) {
                Ok(Some(request)) => {
                    self.begun = None;
                    request
                }
                Ok(None) => {
                    if self.begun.is_none() && self.parser.has_begun() {
                        self.begun = Some(tools.round);
                    }
                    return Next::Wait;
                }
                Err(Ended::Closed) => return Next::Close,
                Err(Ended::Malformed(malformed)) => {
                    let reply = Reply::text(400, &malformed.to_string());
                    let date = &mut tools.world.date.borrow_mut();
                    self.phase = Phase::Writing(Outgoing::new(reply, 1, true, date.now()));
                    continue;
                }
            };
            if let Some(next) = self.answer(request, wire, tools) {
                return next;
            }
        }
    }

    /// Reads up to the end of one request.
    fn read(&mut self, wire: &mut Wire, buffer: &mut [u8]) -> Result<Option<Request>, Ended> {
        if !self.ahead.is_empty() {
            let ahead = std::mem::take(&mut self.ahead);
            if let Some((request, used)) = self.parser.feed(&ahead)? {
                self.ahead.extend_from_slice(&ahead[used..]);
                return Ok(Some(request));
            }
            self.invite(wire);
        }
        loop {
            let count = match wire.read(buffer) {
                Ok(Some(count @ 1..)) => count,
                Ok(None) => return Ok(None),
                Ok(Some(0)) | Err(_) => return Err(Ended::Closed),
            };
            if let Some((request, used)) = self.parser.feed(&buffer[..count])? {
                self.ahead.extend_from_slice(&buffer[used..count]);
                return Ok(Some(request));
            }
            self.invite(wire);
        }
    }

    /// Asks for the body, if the peer waits for that.
    fn invite(&mut self, wire: &mut Wire) {
        if self.parser.take_expectation() {
            // Seventeen bytes into an empty send buffer; if they do not fit, the peer is broken.
            let _ = wire.write(b"HTTP/1.1 100 Continue\r\n\r\n");
        }
    }

    /// Prepares the response. Returns what to do if it does not leave at once.
    fn answer(&mut self, request: Request, wire: &mut Wire, tools: &mut Tools<'_>) -> Option<Next> {
        self.persists = request.persists;
        let stays = request.persists && !tools.stopping;
        let asked = Asked {
            head: request.method == "HEAD",
            target: request.target,
            content_type: request.content_type,
            accepts_gzip: request.accepts_gzip,
            body: request.body.into(),
        };
        let (reply, params) = match tools.world.course(asked) {
            Course::Answer(reply, params) => (Some(reply), params),
            Course::HangUp(params) => (None, params),
        };
        let outgoing = reply.map(|reply| {
            let close = params.close || !stays;
            let date = &mut tools.world.date.borrow_mut();
            Outgoing::new(reply, params.writes, close, date.now())
        });
        wire.set_nodelay(params.nodelay);
        self.phase = match (outgoing, params.delay.is_zero()) {
            (Some(outgoing), true) => Phase::Writing(outgoing),
            (None, true) => return Some(Next::Close),
            (outgoing, false) => Phase::Delayed(outgoing),
        };
        if params.delay.is_zero() {
            return None;
        }
        if self.is_abandoned(wire) {
            return Some(Next::Close);
        }
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
