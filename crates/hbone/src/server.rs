//! Server role of a tunnel.

mod incoming;

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};

use lateen_h2::{Code, StreamId};
use lateen_types::Strng;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;

use crate::driver::{Below, EndOnDrop, News, Shared, Wire, begin, farewell, set_allowance};
use crate::ended::Ended;
use crate::error::TunnelError;
use crate::headers::{self, Authority, Forwarded};
use crate::keepalive::KeepAlive;
use crate::load::Load;
use crate::recv_window::RecvWindow;
use crate::settings::Settings;
use incoming::Asked;
pub use incoming::{Incoming, Status};

/// Bytes of the client's preface (RFC 9113 §3.4).
const PREFACE: u64 = 24;

/// Requests that an empty queue keeps room for.
const FEW: usize = 8;

/// A peer's tunnel to us. Poll [`Connection::next`] until it says `None`: that moves the streams' bytes too.
pub struct Connection<IO: AsyncRead + AsyncWrite + Unpin>(Box<State<IO>>);

/// A drain, in which the peer has to answer PINGs.
#[derive(Debug, Clone, Copy)]
struct Drain {
    since: Instant,
    /// The peer had its time. The tunnel ends once it has no stream.
    is_over: bool,
}

/// State of a [`Connection`].
struct State<IO: AsyncRead + AsyncWrite + Unpin> {
    shared: Shared,
    wire: Wire<IO>,
    keepalive: KeepAlive,
    load: Rc<Load>,
    recv_window: RecvWindow,
    settings: Settings,
    /// Requests that nobody has asked for yet.
    incoming: VecDeque<Incoming>,
    farewell: Option<Code>,
    drain: Option<Drain>,
    _end: EndOnDrop,
}

impl<IO: AsyncRead + AsyncWrite + Unpin> Connection<IO> {
    /// Waits for the client's preface; bound it by a timeout.
    ///
    /// # Errors
    /// The peer speaks no HTTP/2, or left.
    pub async fn accept(io: IO, settings: Settings) -> Result<Self, TunnelError> {
        let (shared, load) = begin(
            &settings,
            settings.max_streams,
            lateen_h2::Connection::server,
        );
        let recv_window = RecvWindow::new(
            &settings.budget,
            settings.stream_window,
            settings.connection_window,
        );
        let mut connection = Connection(Box::new(State {
            keepalive: KeepAlive::new(shared.clone(), &settings),
            _end: EndOnDrop(shared.clone()),
            shared,
            wire: Wire::new(io),
            load,
            recv_window,
            settings,
            incoming: VecDeque::new(),
            farewell: None,
            drain: None,
        }));
        poll_fn(|cx| {
            connection.turn(cx)?;
            match connection.0.wire.received() >= PREFACE {
                true => Poll::Ready(Ok(())),
                false if connection.0.wire.is_over() => {
                    let left = io::ErrorKind::UnexpectedEof.into();
                    Poll::Ready(Err(TunnelError::Io(left)))
                }
                false => Poll::Pending,
            }
        })
        .await?;
        Ok(connection)
    }

    /// Has `below` asked how far `IO` is with what it took, and told by how many bytes its reader is to be woken. Without it a
    /// peer is held to read nothing where what was gathered for one write takes longer than [`Settings::ping_interval`] and
    /// [`Settings::ping_timeout`] to leave.
    pub fn ask(&mut self, below: Below<IO>) {
        self.0.wire.ask(below);
    }

    /// Streams open or waiting for an answer.
    pub fn active(&self) -> usize {
        self.0.load.active()
    }

    /// Bytes that wait for the peer to take them.
    pub fn queued(&self) -> usize {
        self.0.shared.borrow().http2.queued()
    }

    #[cfg(test)]
    pub(crate) fn shared(&self) -> crate::driver::Shared {
        self.0.shared.clone()
    }

    /// Requests that the queue keeps room for.
    #[cfg(test)]
    pub(crate) fn room(&self) -> usize {
        self.0.incoming.capacity()
    }

    /// Ends the tunnel without losing a request, in the two steps of RFC 9113 §6.8: a GOAWAY that names no last
    /// stream and a PING; when the answers to that PING and to a second one show that the peer has heard it, a GOAWAY that names
    /// the last stream. Requests that cross the first GOAWAY are still returned by [`Connection::next`]. Open streams go on, and
    /// the tunnel ends with the last of them. A second call changes nothing.
    ///
    /// A peer that answers neither PING has [`Settings::ping_timeout`] from the end of the last stream. The next tick of the
    /// keepalive then ends the tunnel in order, with a GOAWAY that names the last stream.
    pub fn drain(&mut self) {
        self.0.drain.get_or_insert_with(|| Drain {
            since: Instant::now(),
            is_over: false,
        });
        self.0.shared.act(|core| core.http2.drain());
    }

    /// The next CONNECT request; `None` when the tunnel ended in order. Safe to drop and call again.
    ///
    /// Requests that are not CONNECT to a well-formed authority are answered here with 405 or 400.
    ///
    /// # Errors
    /// The connection broke, or the peer broke HTTP/2's rules or answers no PINGs.
    pub async fn next(&mut self) -> Result<Option<Incoming>, TunnelError> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// [`Connection::next`] for callers that poll.
    ///
    /// # Errors
    /// As [`Connection::next`].
    pub fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Incoming>, TunnelError>> {
        let next = self.poll_request(cx);
        match &next {
            Poll::Ready(Err(error)) => self.0.shared.end(error.ended()),
            Poll::Ready(Ok(None)) => self.0.shared.end(Ended::closed()),
            _ => {}
        }
        next
    }

    fn poll_request(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Incoming>, TunnelError>> {
        // Nothing more is read before those that came are taken up: they would be too many.
        while self.0.incoming.is_empty() {
            self.poll_beats(cx)?;
            if !self.turn(cx)? {
                break;
            }
        }
        if let Some(incoming) = self.0.incoming.pop_front() {
            if self.0.incoming.is_empty() && self.0.incoming.capacity() > FEW {
                // A burst is over, and most tunnels have one: when a peer's connections are opened anew.
                self.0.incoming = VecDeque::new();
            }
            return Poll::Ready(Ok(Some(incoming)));
        }
        // What cannot be written to has an end to be read, which may say why.
        if self.0.wire.is_over() {
            let goes = self.0.drain.is_some() || self.0.farewell == Some(Code::NO_ERROR);
            if goes && self.0.shared.borrow().http2.active() == 0 {
                // Whoever goes with the last stream need not hear the rest.
                return Poll::Ready(Ok(None));
            }
            self.0.wire.check().map_err(TunnelError::Io)?;
            return Poll::Ready(farewell(self.0.farewell).map(|()| None));
        }
        if self.is_done() && !self.0.wire.is_dirty() {
            // It is over whether or not the peer hears of it.
            std::task::ready!(self.0.wire.poll_shutdown(cx));
            return Poll::Ready(Ok(None));
        }
        Poll::Pending
    }

    /// True if nothing is left to carry and to write.
    fn is_done(&self) -> bool {
        let http2 = &mut self.0.shared.borrow().http2;
        // A request that was turned away, or a stream that was let go, may wait for its peer for ever.
        let is_forsaken = self.0.drain.is_some_and(|drain| drain.is_over)
            && self.0.load.active() == 0
            && !http2.has_output();
        http2.is_done() || is_forsaken
    }

    /// Ends the wait for the peer of a drained tunnel that has had no stream for [`Settings::ping_timeout`].
    fn check_drain(&mut self) {
        let (Some(drain), Some(idle)) = (&mut self.0.drain, self.0.load.idle_since()) else {
            return;
        };
        let mut core = self.0.shared.borrow();
        if drain.since.max(idle).elapsed() >= self.0.settings.ping_timeout {
            drain.is_over = true;
            core.http2.end_drain();
        }
    }

    fn poll_beats(&mut self, cx: &mut Context<'_>) -> Result<(), TunnelError> {
        while let Poll::Ready(tick) =
            self.0
                .keepalive
                .poll_tick(cx, self.0.wire.received(), self.0.wire.moved(), None)
        {
            tick?;
            let limit = self.0.settings.ping_interval + self.0.settings.ping_timeout;
            if self.0.wire.stuck_for() > limit {
                return Err(TunnelError::Stalled);
            }
            let mut core = self.0.shared.borrow();
            set_allowance(&mut core, &mut self.0.recv_window, &self.0.load, true);
            core.rest();
            drop(core);
            self.check_drain();
            if let Some(since) = self.0.load.idle_since() {
                let idle = since.elapsed();
                if self
                    .0
                    .settings
                    .idle_timeout
                    .is_some_and(|most| idle >= most)
                    || self.0.recv_window.in_the_way(idle, &self.0.settings)
                {
                    self.drain();
                }
            }
        }
        Ok(())
    }

    /// Reads, hands out and writes; `true` if a PING was answered.
    fn turn(&mut self, cx: &mut Context<'_>) -> Result<bool, TunnelError> {
        self.0.shared.driven_by(cx);
        let mut pong = false;
        let State {
            shared,
            wire,
            load,
            incoming,
            farewell,
            recv_window,
            ..
        } = &mut *self.0;
        let read = wire.poll_receive(cx, shared, |news| match news {
            News::Request { stream, connect } => {
                incoming.extend(take_up(shared, load, stream, connect));
            }
            News::Over(stream) => incoming.retain(|one| !one.asked.is(shared, stream)),
            News::Pong => pong = true,
            News::GoAway(code) => *farewell = Some(code),
            News::Settings | News::None => {}
        });
        set_allowance(&mut shared.borrow(), recv_window, load, false);
        if !wire.is_over() {
            wire.poll_send(cx, shared);
        }
        shared.turned();
        read.map(|()| pong)
    }
}

/// A request that came, unless it is answered here.
fn take_up(shared: &Shared, load: &Rc<Load>, stream: StreamId, connect: bool) -> Option<Incoming> {
    let asked = Asked::new(shared.clone(), stream);
    if !connect {
        asked.turn_away(Status::MethodNotAllowed);
        return None;
    }
    let core = shared.borrow();
    let line = |name| core.lines(name).next();
    let authority: Option<Authority> = line(":authority").and_then(|text| text.parse().ok());
    let Some(authority) = authority else {
        drop(core);
        asked.turn_away(Status::BadRequest);
        return None;
    };
    Some(Incoming {
        authority,
        baggage: core.baggage(),
        forwarded: line(headers::FORWARDED).map(Forwarded::parse),
        traceparent: line(headers::TRACEPARENT).and_then(|line| line.parse().ok()),
        network: line(headers::FORWARDED_NETWORK).map(Strng::from),
        slot: load.occupy(),
        asked,
    })
}
