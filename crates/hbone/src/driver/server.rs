//! The server's side of a tunnel: requests, and the connection below.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};

use lateen_h2::{Code, Config, Connection, FLOOR, StreamId};
use lateen_types::Strng;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;

use super::core::{Core, News, Shared};
use super::stream::Asked;
use super::wire::{Below, Wire, farewell};
use crate::ended::Ended;
use crate::error::TunnelError;
use crate::headers::{self, Authority, Forwarded};
use crate::keepalive::KeepAlive;
use crate::outbox::Outbox;
use crate::server::{Incoming, Status};
use crate::settings::Settings;
use crate::stream::Load;
use crate::windows::Windows;

/// Bytes of the client's preface (RFC 9113 §3.4).
const PREFACE: u64 = 24;

/// Answers that may wait for a peer; where there are fewer, nothing more is read of it, see [`super::wire`].
const UNREAD_REPLIES: usize = 192 * 1024;

/// Streams of which each finds room for its first window, whoever does not read: as many where the ledger lends a tunnel its
/// whole allowance, and else as fit into half of what it lends.
const FIRST_WINDOWS: u32 = 64;

/// Requests that an empty queue keeps room for.
const FEW: usize = 8;

/// The core's parameters for these settings. Its windows follow the path, within what the budget lends.
pub(super) fn config(settings: &Settings, max_streams: u32) -> lateen_h2::SharedConfig {
    let most = i32::MAX as u32;
    let allowance = FLOOR.saturating_add(settings.connection_window).min(most);
    Config {
        max_frame: settings.max_frame,
        max_header_list: settings.max_header_list,
        max_streams,
        stream_first: FLOOR,
        stream_most: settings.stream_window,
        first_windows: FIRST_WINDOWS,
        connection_first: FLOOR,
        connection_most: allowance,
        allowance,
        send_buffer: u32::try_from(settings.send_buffer).unwrap_or(most),
        send_total: settings.tunnel_send_buffer,
        unread_replies: UNREAD_REPLIES,
        ..Config::tunnel()
    }
    .share()
}

/// What both sides have: a tunnel's state and its account.
pub(super) fn begin(
    settings: &Settings,
    max_streams: u32,
    open: impl FnOnce(&lateen_h2::SharedConfig, lateen_h2::Moment) -> Connection,
) -> (Shared, Rc<Load>) {
    let outbox = Rc::new(Outbox::new(
        &settings.send_budget,
        settings.tunnel_send_buffer,
    ));
    let mut http2 = open(&config(settings, max_streams), lateen_h2::Moment::default());
    http2.set_allowance(FLOOR);
    let load = Load::new(&outbox);
    (Shared::new(http2, outbox, Instant::now()), load)
}

/// Has the core lend what the account says: less if `beat`, else more.
pub(super) fn lend(core: &mut Core, windows: &mut Windows, load: &Load, beat: bool) {
    let credit = core.http2.credit();
    load.set_read(credit.came - u64::from(credit.held));
    let inflow = crate::windows::Inflow {
        came: credit.came,
        granted: (credit.came + u64::from(credit.credit)).saturating_sub(u64::from(FLOOR)),
        wanted: credit.wanted,
    };
    let window = match beat {
        true => windows.shrink(load, inflow),
        false => windows.grow(load, inflow),
    };
    if let Some(window) = window {
        core.http2.set_allowance(window);
    }
    // Windows that have not grown need no room to grow into.
    if credit.wanted - credit.held > FLOOR {
        core.http2.set_most(windows.reach());
    }
}

/// Tells those who are on a tunnel that it is over, when its task is.
#[derive(Debug)]
pub(super) struct EndOnDrop(pub(super) Shared);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.end(Ended::closed());
    }
}

/// A peer's tunnel to us.
pub(crate) struct Server<IO: AsyncRead + AsyncWrite + Unpin> {
    shared: Shared,
    wire: Wire<IO>,
    keepalive: KeepAlive,
    load: Rc<Load>,
    windows: Windows,
    settings: Settings,
    /// Requests that nobody has asked for yet.
    incoming: VecDeque<Incoming>,
    farewell: Option<Code>,
    draining: bool,
    _end: EndOnDrop,
}

impl<IO: AsyncRead + AsyncWrite + Unpin> Server<IO> {
    pub(crate) async fn accept(io: IO, settings: Settings) -> Result<Self, TunnelError> {
        let (shared, load) = begin(&settings, settings.max_streams, Connection::server);
        let windows = Windows::new(
            &settings.budget,
            settings.stream_window,
            settings.connection_window,
        );
        let mut server = Server {
            keepalive: KeepAlive::new(shared.clone(), &settings),
            _end: EndOnDrop(shared.clone()),
            shared,
            wire: Wire::new(io),
            load,
            windows,
            settings,
            incoming: VecDeque::new(),
            farewell: None,
            draining: false,
        };
        poll_fn(|cx| {
            server.turn(cx)?;
            match server.wire.received() >= PREFACE {
                true => Poll::Ready(Ok(())),
                false if server.wire.is_over() => {
                    let left = io::ErrorKind::UnexpectedEof.into();
                    Poll::Ready(Err(TunnelError::Io(left)))
                }
                false => Poll::Pending,
            }
        })
        .await?;
        Ok(server)
    }

    pub(crate) fn ask(&mut self, below: Below<IO>) {
        self.wire.ask(below);
    }

    pub(crate) fn active(&self) -> usize {
        self.load.active()
    }

    #[cfg(test)]
    pub(crate) fn shared(&self) -> Shared {
        self.shared.clone()
    }

    /// Requests that the queue keeps room for.
    #[cfg(test)]
    pub(crate) fn room(&self) -> usize {
        self.incoming.capacity()
    }

    pub(crate) fn queued(&self) -> usize {
        self.shared.borrow().http2.queued()
    }

    pub(crate) fn drain(&mut self) {
        self.draining = true;
        self.shared.act(|core| core.http2.drain());
    }

    pub(crate) fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Incoming>, TunnelError>> {
        let next = self.poll_request(cx);
        match &next {
            Poll::Ready(Err(error)) => self.shared.end(error.ended()),
            Poll::Ready(Ok(None)) => self.shared.end(Ended::closed()),
            _ => {}
        }
        next
    }

    fn poll_request(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Incoming>, TunnelError>> {
        // Nothing more is read before those that came are taken up: they would be too many.
        while self.incoming.is_empty() {
            self.poll_beats(cx)?;
            if !self.turn(cx)? {
                break;
            }
        }
        if let Some(incoming) = self.incoming.pop_front() {
            if self.incoming.is_empty() && self.incoming.capacity() > FEW {
                // A burst is over, and most tunnels have one: when a peer's connections are opened anew.
                self.incoming = VecDeque::new();
            }
            return Poll::Ready(Ok(Some(incoming)));
        }
        // What cannot be written to has an end to be read, which may say why.
        if self.wire.is_over() {
            let goes = self.draining || self.farewell == Some(Code::NO_ERROR);
            if goes && self.shared.borrow().http2.active() == 0 {
                // Whoever goes with the last stream need not hear the rest.
                return Poll::Ready(Ok(None));
            }
            self.wire.check().map_err(TunnelError::Io)?;
            return Poll::Ready(farewell(self.farewell).map(|()| None));
        }
        if self.shared.borrow().http2.is_done() && !self.wire.is_dirty() {
            // It is over whether or not the peer hears of it.
            let _ = std::task::ready!(self.wire.poll_shutdown(cx));
            return Poll::Ready(Ok(None));
        }
        Poll::Pending
    }

    fn poll_beats(&mut self, cx: &mut Context<'_>) -> Result<(), TunnelError> {
        while let Poll::Ready(beat) =
            self.keepalive
                .poll_beat(cx, self.wire.received(), self.wire.moved(), None)
        {
            beat?;
            let patience = self.settings.ping_interval + self.settings.ping_timeout;
            if self.wire.stuck_for() > patience {
                return Err(TunnelError::Stalled);
            }
            let mut core = self.shared.borrow();
            lend(&mut core, &mut self.windows, &self.load, true);
            core.rest();
            drop(core);
            if let Some(since) = self.load.idle_since() {
                let idle = since.elapsed();
                if self.settings.idle_timeout.is_some_and(|most| idle >= most)
                    || self.windows.in_the_way(idle, &self.settings)
                {
                    self.drain();
                }
            }
        }
        Ok(())
    }

    /// Reads, hands out and writes; `true` if a PING was answered.
    fn turn(&mut self, cx: &mut Context<'_>) -> Result<bool, TunnelError> {
        self.shared.driven_by(cx);
        let mut pong = false;
        let Server {
            shared,
            wire,
            load,
            incoming,
            farewell,
            ..
        } = self;
        let read = wire.poll_receive(cx, shared, |news| match news {
            News::Request { stream, connect } => {
                incoming.extend(take_up(shared, load, stream, connect));
            }
            News::Over(stream) => incoming.retain(|one| !one.asked.is(shared, stream)),
            News::Pong => pong = true,
            News::GoAway(code) => *farewell = Some(code),
            News::Settings | News::None => {}
        });
        lend(&mut shared.borrow(), &mut self.windows, load, false);
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
