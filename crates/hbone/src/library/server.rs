//! The server's side of a tunnel on the `h2` crate.

use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use lateen_types::Strng;
use tokio::io::{AsyncRead, AsyncWrite};

use super::stream::Stream;
use super::{SMALL_FRAMES, read_baggage};
use crate::batch::Batch;
use crate::error::{Reason, StreamError, TunnelError};
use crate::headers::{self, Forwarded};
use crate::keepalive::{KeepAlive, Pings};
use crate::outbox::CloseOnDrop;
use crate::server::{Answer, Incoming, Status};
use crate::settings::Settings;
use crate::stream::{Load, Slot};
use crate::windows::{FLOOR, Windows};

/// A peer's tunnel to us.
pub(crate) struct Server<IO: AsyncRead + AsyncWrite + Unpin> {
    connection: h2::server::Connection<Batch<IO>, Bytes>,
    flusher: Batch<IO>,
    keepalive: KeepAlive,
    load: Rc<Load>,
    windows: Windows,
    settings: Settings,
    _close: CloseOnDrop,
}

impl<IO: AsyncRead + AsyncWrite + Unpin> Server<IO> {
    pub(crate) async fn accept(io: IO, settings: Settings) -> Result<Self, TunnelError> {
        let io = Batch::new(io, true, &settings);
        let flusher = io.handle();
        let mut connection = h2::server::Builder::new()
            .initial_window_size(settings.stream_window)
            .initial_connection_window_size(FLOOR)
            .data_frame_budget(SMALL_FRAMES)
            .max_frame_size(settings.max_frame)
            .max_header_list_size(settings.max_header_list)
            .max_concurrent_streams(settings.max_streams)
            .max_send_buffer_size(settings.send_buffer)
            // Streams that came and went before we looked; as many as may be open at once.
            .max_pending_accept_reset_streams(settings.max_streams as usize)
            // Counted over a tunnel's whole life there; `Guard` counts them over time.
            .max_local_error_reset_streams(None)
            .handshake(io)
            .await
            .map_err(TunnelError::from_h2)?;
        let pings = connection
            .ping_pong()
            .expect("nobody else took the connection's pings");
        flusher.gather();
        Ok(Server {
            connection,
            keepalive: KeepAlive::new(Pings::Library(pings), &settings),
            load: Load::new(flusher.outbox()),
            _close: CloseOnDrop(Rc::clone(flusher.outbox())),
            flusher,
            windows: Windows::new(
                &settings.budget,
                settings.stream_window,
                settings.connection_window,
            ),
            settings,
        })
    }

    pub(crate) fn active(&self) -> usize {
        self.load.active()
    }

    pub(crate) fn queued(&self) -> usize {
        self.flusher.outbox().queued()
    }

    pub(crate) fn drain(&mut self) {
        self.connection.graceful_shutdown();
    }

    pub(crate) fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Incoming>, TunnelError>> {
        while let Poll::Ready(beat) = self.keepalive.poll_beat(cx, self.flusher.received(), None) {
            beat?;
            if self.flusher.stuck_for() > self.settings.ping_interval + self.settings.ping_timeout {
                return Poll::Ready(Err(TunnelError::Stalled));
            }
            if let Some(window) = self.windows.shrink(&self.load, self.flusher.inflow()) {
                self.connection.set_target_window_size(window);
            }
            if let Some(since) = self.load.idle_since() {
                let idle = since.elapsed();
                if self.settings.idle_timeout.is_some_and(|most| idle >= most)
                    || self.windows.in_the_way(idle, &self.settings)
                {
                    self.drain();
                }
            }
        }
        let accepted = self.poll_accept(cx);
        if let Some(window) = self.windows.grow(&self.load, self.flusher.inflow()) {
            // It wakes us to tell the peer.
            self.connection.set_target_window_size(window);
        }
        self.flusher.unanswered(self.load.take_unanswered());
        if let Some(abuse) = self.flusher.abuse() {
            self.dismiss(cx);
            return Poll::Ready(Err(TunnelError::Abusive(abuse)));
        }
        self.flusher.poll_owed(cx).map_err(TunnelError::Io)?;
        accepted
    }

    /// Tells a peer that it is too much (RFC 9113 §7), as far as it listens.
    fn dismiss(&mut self, cx: &mut Context<'_>) {
        self.connection
            .abrupt_shutdown(h2::Reason::ENHANCE_YOUR_CALM);
        // Both fail only when there is nobody to be told.
        let _ = self.connection.poll_closed(cx);
        let _ = self.flusher.poll_owed(cx);
    }

    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Incoming>, TunnelError>> {
        loop {
            let Some(accepted) = std::task::ready!(self.connection.poll_accept(cx)) else {
                return Poll::Ready(Ok(None));
            };
            let (request, respond) =
                accepted.map_err(|e| self.flusher.explain(TunnelError::from_h2(e)))?;
            if let Some(incoming) = parse(request, respond, self.load.occupy()) {
                return Poll::Ready(Ok(Some(incoming)));
            }
        }
    }
}

fn parse(
    request: http::Request<h2::RecvStream>,
    mut respond: h2::server::SendResponse<Bytes>,
    slot: Slot,
) -> Option<Incoming> {
    let (head, recv) = request.into_parts();
    let mut turn_away = |status| {
        if !answer(&mut respond, status) {
            slot.load().was_abandoned();
        }
        None
    };
    if head.method != http::Method::CONNECT {
        return turn_away(Status::MethodNotAllowed);
    }
    let authority = head.uri.authority().and_then(|a| a.as_str().parse().ok());
    let Some(authority) = authority else {
        return turn_away(Status::BadRequest);
    };
    let line = |name| head.headers.get(name)?.to_str().ok();
    Some(Incoming {
        authority,
        baggage: read_baggage(&head.headers),
        forwarded: line(headers::FORWARDED).map(Forwarded::parse),
        traceparent: line(headers::TRACEPARENT).and_then(|line| line.parse().ok()),
        network: line(headers::FORWARDED_NETWORK).map(Strng::from),
        slot,
        answer: Answer::Library(Box::new(Asked {
            respond,
            recv,
            abandoned: false,
        })),
    })
}

/// A request that waits for its answer.
#[derive(Debug)]
pub(crate) struct Asked {
    respond: h2::server::SendResponse<Bytes>,
    recv: h2::RecvStream,
    /// The peer's reset was noted.
    abandoned: bool,
}

impl Asked {
    fn note_abandoned(&mut self, slot: &Slot) {
        if !std::mem::replace(&mut self.abandoned, true) {
            slot.load().was_abandoned();
        }
    }

    /// See [`Incoming::accept`].
    pub(crate) fn accept(
        mut self,
        baggage: Option<&str>,
        slot: Slot,
    ) -> Result<Stream, StreamError> {
        let mut response = http::Response::new(());
        if let Some(value) = baggage.and_then(|b| http::HeaderValue::from_str(b).ok()) {
            response.headers_mut().insert(headers::BAGGAGE, value);
        }
        match self.respond.send_response(response, false) {
            Ok(send) => Ok(Stream::new(send, self.recv, slot)),
            Err(error) => {
                self.note_abandoned(&slot);
                Err(StreamError(Reason::new(error)))
            }
        }
    }

    /// See [`Incoming::refuse`].
    pub(crate) fn refuse(mut self, status: Status, slot: &Slot) {
        if !answer(&mut self.respond, status) {
            self.note_abandoned(slot);
        }
    }

    /// `Ready` when there is nobody left to answer: the peer gave up, or the tunnel is lost.
    pub(crate) fn poll_cancelled(&mut self, cx: &mut Context<'_>, slot: &Slot) -> Poll<()> {
        // Either way.
        let _ = std::task::ready!(self.respond.poll_reset(cx));
        self.note_abandoned(slot);
        Poll::Ready(())
    }
}

/// `false` when the peer has left.
fn answer(respond: &mut h2::server::SendResponse<Bytes>, status: Status) -> bool {
    let mut response = http::Response::new(());
    *response.status_mut() = status.http();
    if status == Status::MethodNotAllowed {
        let connect = http::HeaderValue::from_static("CONNECT");
        response.headers_mut().insert(http::header::ALLOW, connect);
    }
    respond.send_response(response, true).is_ok()
}
