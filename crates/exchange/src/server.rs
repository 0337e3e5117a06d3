//! The server's side of a connection: requests come in, each with an exchange that answers it.

use std::future::poll_fn;
use std::ops::Deref;
use std::rc::Rc;
use std::task::{Context, Poll};

use lateen_h1::ServerConnection;
use lateen_h2::Timestamp;
use lateen_http::{
    FieldName, FieldValue, FramedRequest, Known, Length, RequestHead, ResponseHead, Status,
    Upgrade, WebSocketKey,
};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::config::{Config, Protocol};
use crate::core::{Codec, Shared};
use crate::driver::Driver;
use crate::entry::Key;
use crate::error::{ConnectionError, Error};
use crate::lines::{self, Lines};
use crate::outgoing::Dated;
use crate::receive::News;
use crate::send::Answer;
use crate::stream::Stream;
use crate::tunnel::Tunnel;

/// A peer's connection to us.
///
/// Everything on it moves while [`Connection::next`] is polled, answers included: poll it until it gives none.
#[derive(Debug)]
pub struct Connection<IO> {
    driver: Driver<IO>,
}

impl<IO: AsyncRead + AsyncWrite + Unpin> Connection<IO> {
    /// A connection over a byte stream, whose protocol the configuration says. [`Config::timeouts`] need a runtime of tokio.
    ///
    /// Connections may share a configuration.
    pub fn new(io: IO, config: impl Into<Rc<Config>>) -> Self {
        let config = config.into();
        let codec = match config.protocol {
            Protocol::Http1 => Codec::Server1(ServerConnection::new(config.http1)),
            Protocol::Http2 => {
                let http2 = lateen_h2::Connection::server(&config.http2, Timestamp::default());
                Codec::Http2(Box::new(http2))
            }
        };
        Connection {
            driver: Driver::new(io, codec, config, true),
        }
    }

    /// The next request; none when the connection is over. HTTP/1 gives the next one when the answer before is complete.
    ///
    /// Requests with an invalid, too large or too slow head are answered here, with 400, 408, 414, 431, 501 or 505.
    ///
    /// # Errors
    /// The connection failed.
    pub fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<(FramedRequest, Exchange)>, ConnectionError>> {
        let mut next = self.driver.shared.borrow().incoming.pop_front();
        // No more input is read while requests wait.
        if next.is_none() {
            self.driver.turn(cx, |shared, news| {
                if let News::Over(key) = news
                    && shared.is_waiting(key)
                {
                    // Nobody took the request, so its exchange goes here.
                    shared.let_go(key);
                }
            });
            next = self.driver.shared.borrow().incoming.pop_front();
        }
        if let Some((key, request)) = next {
            let stream = Stream::new(self.driver.shared.clone(), key);
            return Poll::Ready(Ok(Some((request, Exchange { stream }))));
        }
        self.driver.poll_end(cx).map_ok(|()| None)
    }

    /// The next request; see [`Connection::poll_next`].
    ///
    /// # Errors
    /// The connection failed.
    pub async fn next(&mut self) -> Result<Option<(FramedRequest, Exchange)>, ConnectionError> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// Does `work` with the exchanges of this connection in the task that polls it. They need not wake that task then: the second
    /// result is true if the connection is to be polled again before the task rests.
    pub fn attend<R>(&mut self, work: impl FnOnce() -> R) -> (R, bool) {
        self.driver.shared.attend(work)
    }

    /// The status of a request that was answered here, since its head is invalid, too large or too slow; see
    /// [`Connection::poll_next`]. Each is
    /// given once, and of many that nobody asks for some are forgotten.
    pub fn next_refused(&mut self) -> Option<u16> {
        self.driver.shared.borrow().refused.pop_front()
    }

    /// Bytes of the stream below so far: received, then sent.
    pub fn bytes(&self) -> (u64, u64) {
        self.driver.bytes()
    }

    /// Takes no further requests and ends behind the open ones: GOAWAY in HTTP/2 (RFC 9113 §6.8), `Connection: close` in
    /// HTTP/1 (RFC 9112 §9.6).
    pub fn drain(&mut self) {
        self.driver.shared.act(crate::core::Core::drain);
    }
}

/// One request that waits for its answer, with its content.
///
/// Its [`Stream`] reads the request's content and writes the answer's.
#[derive(Debug)]
pub struct Exchange {
    stream: Stream,
}

impl Deref for Exchange {
    type Target = Stream;

    fn deref(&self) -> &Stream {
        &self.stream
    }
}

impl Exchange {
    /// Sends an informational answer (RFC 9110 §15.2), as an upstream gave it.
    ///
    /// # Errors
    /// The exchange is over or answered, or the status is 101.
    pub fn inform(&self, head: &ResponseHead) -> Result<(), Error> {
        lines::with(|lines| {
            lines.lower(head.fields());
            let status = head.status().code();
            self.shared
                .act(|core| core.inform(self.stream.key, status, lines))
        })
    }

    /// True if nothing of the exchange is still to come. Over HTTP/1 a complete answer says so: the rest of the request is dropped, and
    /// the last byte of a known length completes the answer. Over HTTP/2 the request has ended as well, and trailers may follow that byte.
    pub fn is_complete(&self) -> bool {
        let core = self.shared.borrow();
        let entry = core.streams.get(self.stream.key);
        entry.is_some_and(|entry| entry.sent && (entry.heard || !core.is_http2()))
    }

    /// Sends the head of the answer, as an upstream gave it. `key` is the one of an HTTP/1 client that asked for a WebSocket.
    ///
    /// Content follows as [`ResponseHead::length`] says, unless the request is HEAD.
    ///
    /// # Errors
    /// The exchange is over or answered, or the head does not fit it. [`Error::OverLimit`]: it has no room in the client's account, and
    /// nothing was sent.
    pub fn respond(&self, head: &ResponseHead, key: Option<&WebSocketKey>) -> Result<(), Error> {
        self.respond_dated(head, key, None)
    }

    /// The same, with a Date behind the fields of the head, which has none (RFC 9110 §6.6.1).
    ///
    /// # Errors
    /// See [`Exchange::respond`].
    pub fn respond_dated(
        &self,
        head: &ResponseHead,
        key: Option<&WebSocketKey>,
        date: Option<&FieldValue>,
    ) -> Result<(), Error> {
        let told = match head.length() {
            Length::None => head.fields().get(Known::ContentLength).and_then(decimal),
            _ => None,
        };
        let fields = Dated { head, key, date };
        self.shared.act(|core| {
            let status = match core.is_http2() {
                true => head.status(),
                false => head.http1_status(key),
            };
            let answer = Answer {
                status: status.code(),
                length: head.length(),
                told,
                opens_tunnel: head.opens_tunnel(),
            };
            core.respond(self.stream.key, answer, &fields)
        })
    }

    /// Sends the head of an answer of our own. Fields for framing and persistence are made from `length`.
    ///
    /// # Errors
    /// See [`Exchange::respond`].
    pub fn reply(
        &self,
        status: Status,
        fields: &[(FieldName, FieldValue)],
        length: Length,
    ) -> Result<(), Error> {
        lines::with(|lines| {
            let is_http2 = self.shared.borrow().is_http2();
            let told = match length {
                Length::Known(length) => Some(length),
                _ => None,
            };
            if is_http2 {
                lines.add(b":status", status.to_string().as_bytes());
                if let Some(length) = told {
                    lines.add(b"content-length", length.to_string().as_bytes());
                }
            }
            for (name, value) in fields {
                lines.add(name.as_str().as_bytes(), value.as_bytes());
            }
            self.answer(status, length, told, false, lines)
        })
    }

    /// Accepts the WebSocket that `head` asks for: with 101 in HTTP/1 (RFC 6455 §4.2.2), with 200 in HTTP/2 (RFC 8441 §5).
    /// [`Exchange::into_tunnel`] follows.
    ///
    /// # Errors
    /// The request asks for no WebSocket, or see [`Exchange::respond`].
    pub fn accept(&self, head: &RequestHead) -> Result<(), Error> {
        let Some(Upgrade::WebSocket { key }) = head.upgrade() else {
            return Err(lateen_h1::WriteError::Upgrade.into());
        };
        let is_http2 = self.shared.borrow().is_http2();
        lines::with(|lines| {
            let status = match (is_http2, key) {
                (false, Some(key)) => {
                    lines.add(b"upgrade", b"websocket");
                    lines.add(b"sec-websocket-accept", key.accept().as_bytes());
                    Status::SWITCHING_PROTOCOLS
                }
                (false, None) => return Err(Error::WebSocketKey),
                (true, _) => {
                    lines.add(b":status", b"200");
                    Status::OK
                }
            };
            self.answer(status, Length::None, None, true, lines)
        })
    }

    fn answer(
        &self,
        status: Status,
        length: Length,
        told: Option<u64>,
        opens_tunnel: bool,
        lines: &Lines,
    ) -> Result<(), Error> {
        let answer = Answer {
            status: status.code(),
            length,
            told,
            opens_tunnel,
        };
        self.shared
            .act(|core| core.respond(self.stream.key, answer, &lines))
    }

    /// The tunnel behind an answer that accepted an upgrade or CONNECT. Otherwise the exchange itself.
    pub fn into_tunnel(self) -> Result<Tunnel, Exchange> {
        match is_tunnel(&self.shared, self.stream.key) {
            true => Ok(Tunnel::new(self.stream)),
            false => Err(self),
        }
    }
}

/// True if the answer of an exchange has opened a tunnel.
pub(crate) fn is_tunnel(shared: &Shared, key: Key) -> bool {
    let core = shared.borrow();
    let entry = core.streams.get(key);
    entry.is_some_and(|entry| entry.is_tunnel)
        && matches!(core.codec, Codec::Tunnel(_) | Codec::Http2(_))
}

fn decimal(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}
