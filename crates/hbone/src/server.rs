//! The server's side of a tunnel.

use std::task::{Context, Poll};

use lateen_types::Strng;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::driver::Below;
use crate::driver::server::Server;
use crate::driver::stream::Asked;
use crate::error::{StreamError, TunnelError};
use crate::headers::{Authority, Baggage, Forwarded, TraceParent};
use crate::settings::Settings;
use crate::stream::{Slot, Stream};

/// Why a request is refused, as the HTTP status that says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// 400: no CONNECT, or not to a place that this proxy serves.
    BadRequest,
    /// 401: policy denies it.
    Unauthorized,
    /// 405: any method but CONNECT.
    MethodNotAllowed,
    /// 503: the workload could not be reached.
    Unavailable,
}

impl Status {
    /// The number.
    pub fn code(self) -> u16 {
        match self {
            Status::BadRequest => 400,
            Status::Unauthorized => 401,
            Status::MethodNotAllowed => 405,
            Status::Unavailable => 503,
        }
    }
}

/// A peer's tunnel to us. Poll [`Connection::next`] until it says `None`: that moves the streams' bytes too.
pub struct Connection<IO: AsyncRead + AsyncWrite + Unpin>(Box<Server<IO>>);

impl<IO: AsyncRead + AsyncWrite + Unpin> Connection<IO> {
    /// Waits for the client's preface; bound it by a timeout.
    ///
    /// # Errors
    /// The peer speaks no HTTP/2, or left.
    pub async fn accept(io: IO, settings: Settings) -> Result<Self, TunnelError> {
        Ok(Connection(Box::new(Server::accept(io, settings).await?)))
    }

    /// Has `below` asked how far `IO` is with what it took, and told by how many bytes its reader is to be woken. Without it a
    /// peer is held to read nothing where what was gathered for one write takes longer than [`Settings::ping_interval`] and
    /// [`Settings::ping_timeout`] to leave.
    pub fn ask(&mut self, below: Below<IO>) {
        self.0.ask(below);
    }

    /// Streams open or waiting for an answer.
    pub fn active(&self) -> usize {
        self.0.active()
    }

    /// Bytes that wait for the peer to take them.
    pub fn queued(&self) -> usize {
        self.0.queued()
    }

    #[cfg(test)]
    pub(crate) fn shared(&self) -> crate::driver::Shared {
        self.0.shared()
    }

    #[cfg(test)]
    pub(crate) fn room(&self) -> usize {
        self.0.room()
    }

    /// Ends the tunnel without losing a request, in the two steps of RFC 9113 §6.8: a GOAWAY that names no last
    /// stream and a PING; when the PING's answer shows that the peer has heard it, a GOAWAY that names the last stream.
    /// Requests that cross the first are still returned by [`Connection::next`]; open streams go on, and it
    /// ends with the last of them. A second call changes nothing.
    pub fn drain(&mut self) {
        self.0.drain()
    }

    /// The next CONNECT request; `None` when the tunnel ended in order. Safe to drop and call again.
    ///
    /// Requests that are not CONNECT to a well-formed authority are answered here with 405 or 400.
    ///
    /// # Errors
    /// The connection broke, or the peer broke HTTP/2's rules or answers no PINGs.
    pub async fn next(&mut self) -> Result<Option<Incoming>, TunnelError> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    /// [`Connection::next`] for callers that poll.
    ///
    /// # Errors
    /// As [`Connection::next`].
    pub fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Incoming>, TunnelError>> {
        self.0.poll_next(cx)
    }
}

/// A CONNECT request that waits for its answer. Dropped without one, it is reset.
#[derive(Debug)]
pub struct Incoming {
    /// Where the peer wants to go.
    pub authority: Authority,
    /// What the source says about itself; proves nothing.
    pub baggage: Option<Baggage>,
    /// What the source's proxy says about the application's connection; proves nothing.
    pub forwarded: Option<Forwarded>,
    /// The id that joins both sides' logs.
    pub traceparent: Option<TraceParent>,
    /// The network where the connection began, if it came through a gateway.
    pub network: Option<Strng>,
    pub(crate) slot: Slot,
    pub(crate) asked: Asked,
}

impl Incoming {
    /// Answers 200, with the destination's baggage: call it when the far end is connected.
    ///
    /// # Errors
    /// The peer gave up meanwhile.
    pub fn accept(self, baggage: Option<&str>) -> Result<Stream, StreamError> {
        Ok(self.asked.accept(baggage, self.slot)?.into())
    }

    /// Answers that there will be no stream.
    pub fn refuse(self, status: Status) {
        self.asked.answer(status);
    }

    /// Resolves when the peer gives up waiting or its tunnel is lost, so that a connection in the making can
    /// be dropped. To be selected against that work: dropped before it resolves, it has changed nothing.
    pub async fn cancelled(&mut self) {
        std::future::poll_fn(|cx| self.asked.poll_gone(cx)).await;
    }
}
