//! One connection of the service: finds out which protocol the peer speaks and lets that act whenever
//! something happens.

use super::context::{Kind, Next, Tools};
use super::echo::Echo;
use super::http1::Http1;
use super::http2::Http2;
use super::wire::Wire;
use crate::poll::Ready;

/// What a client that speaks HTTP/2 begins with (RFC 9113 §3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A connection.
#[derive(Debug)]
pub struct Connection {
    wire: Wire,
    speech: Speech,
    /// The round in which it was accepted.
    accepted: u32,
    /// The round in which something happened to its socket for the last time.
    seen: u32,
    /// The round in which it was asked to end, because nobody used it.
    dismissed: Option<u32>,
}

#[derive(Debug)]
enum Speech {
    /// What has arrived could be either HTTP.
    Unknown(Vec<u8>),
    Http1(Box<Http1>),
    Http2(Box<Http2>),
    Echo(Echo),
}

impl Connection {
    /// A connection that was accepted in this round.
    pub fn new(wire: Wire, kind: Kind, round: u32) -> Connection {
        let speech = match kind {
            Kind::Http => Speech::Unknown(Vec::new()),
            Kind::Echo => Speech::Echo(Echo::default()),
        };
        Connection {
            wire,
            speech,
            accepted: round,
            seen: round,
            dismissed: None,
        }
    }

    /// Something happened to the socket.
    pub fn ready(&mut self, ready: Ready, tools: &mut Tools<'_>) -> Next {
        self.wire.note(ready);
        self.seen = tools.round;
        if ready.writable && self.wire.flush().is_err() {
            return Next::Close;
        }
        self.act(tools)
    }

    /// An instant that was waited for has come.
    pub fn awake(&mut self, tools: &mut Tools<'_>) -> Next {
        if let Speech::Http1(http1) = &mut self.speech
            && http1.delay_over() == Next::Close
        {
            return self.close();
        }
        self.act(tools)
    }

    /// Another round has begun. A connection whose request, or TLS, does not come to an end, or that
    /// nobody uses, is closed.
    pub fn look_over(&mut self, tools: &mut Tools<'_>) -> Next {
        let (begun, delayed) = match &self.speech {
            _ if self.wire.is_handshaking() => (Some(self.accepted), false),
            Speech::Unknown(begin) => ((!begin.is_empty()).then_some(self.accepted), false),
            Speech::Http1(http1) => (http1.begun(), http1.is_delayed()),
            Speech::Http2(http2) => (self.dismissed, http2.is_delayed()),
            Speech::Echo(_) => (None, false),
        };
        let since = |round: u32| tools.round.wrapping_sub(round);
        if begun.is_some_and(|begun| since(begun) > tools.patience.request) {
            return self.close();
        }
        if delayed || since(self.seen) <= tools.patience.idle {
            return Next::Wait;
        }
        match &mut self.speech {
            // Its requests of this moment are told that they may be tried elsewhere.
            Speech::Http2(http2) => {
                if self.dismissed.is_some() {
                    return Next::Wait;
                }
                self.dismissed = Some(tools.round);
                http2.stop();
                self.act(tools)
            }
            _ => self.close(),
        }
    }

    /// The service is about to end: nothing is begun that has not arrived yet.
    pub fn stop(&mut self, tools: &mut Tools<'_>) -> Next {
        self.wire.look_again();
        if let Speech::Http2(http2) = &mut self.speech {
            http2.stop();
            return self.act(tools);
        }
        match self.act(tools) {
            Next::Wait => {}
            next => return next,
        }
        let idle = match &mut self.speech {
            Speech::Unknown(begin) => begin.is_empty(),
            Speech::Http1(http1) => http1.is_idle(),
            Speech::Echo(echo) => echo.is_idle(),
            // It has just turned out to be that.
            Speech::Http2(http2) => {
                http2.stop();
                return self.act(tools);
            }
        };
        if idle { self.close() } else { Next::Wait }
    }

    fn act(&mut self, tools: &mut Tools<'_>) -> Next {
        if let Speech::Unknown(begin) = &mut self.speech {
            while judge(begin).is_none() {
                match self.wire.read(tools.buffer) {
                    Ok(Some(count @ 1..)) => begin.extend_from_slice(&tools.buffer[..count]),
                    Ok(None) => return Next::Wait,
                    Ok(Some(0)) | Err(_) => return self.close(),
                }
            }
            let begin = std::mem::take(begin);
            self.speech = match judge(&begin) {
                Some(true) => Speech::Http2(Box::new(Http2::new(&begin, tools.world))),
                _ => Speech::Http1(Box::new(Http1::new(begin))),
            };
        }
        let next = match &mut self.speech {
            Speech::Unknown(_) => Next::Wait,
            Speech::Http1(http1) => http1.act(&mut self.wire, tools),
            Speech::Http2(http2) => http2.act(&mut self.wire, tools),
            Speech::Echo(echo) => echo.act(&mut self.wire, tools),
        };
        match next {
            Next::Close => self.close(),
            next => next,
        }
    }

    fn close(&mut self) -> Next {
        self.wire.say_goodbye();
        Next::Close
    }
}

/// Whether a stream that begins so is HTTP/2; `None` while it could be.
fn judge(begin: &[u8]) -> Option<bool> {
    if begin.starts_with(PREFACE) {
        Some(true)
    } else if PREFACE.starts_with(begin) {
        None
    } else {
        Some(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_preface_tells_the_protocols_apart() {
        for (begin, expected) in [
            (&b""[..], None),
            (b"P", None),
            (b"PO", Some(false)),
            (b"PRI * HTTP/1.1\r\n", Some(false)),
            (&PREFACE[..23], None),
            (PREFACE, Some(true)),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nmore", Some(true)),
            (b"\r\nGET", Some(false)),
        ] {
            assert_eq!(judge(begin), expected, "{}", begin.escape_ascii());
        }
    }
}
