//! The server's side of a tunnel.

use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use lateen_types::Strng;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::batch::Batch;
use crate::client::{SMALL_FRAMES, read_baggage};
use crate::error::{Reason, StreamError, TunnelError};
use crate::headers::{self, Authority, Baggage, Forwarded, TraceParent};
use crate::keepalive::KeepAlive;
use crate::outbox::CloseOnDrop;
use crate::settings::Settings;
use crate::stream::{Load, Slot, Stream};
use crate::windows::{FLOOR, Windows};

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
        self.http().as_u16()
    }

    fn http(self) -> http::StatusCode {
        match self {
            Status::BadRequest => http::StatusCode::BAD_REQUEST,
            Status::Unauthorized => http::StatusCode::UNAUTHORIZED,
            Status::MethodNotAllowed => http::StatusCode::METHOD_NOT_ALLOWED,
            Status::Unavailable => http::StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

/// A peer's tunnel to us. Poll [`Connection::next`] until it says `None`: that moves the streams' bytes too.
pub struct Connection<IO: AsyncRead + AsyncWrite + Unpin> {
    connection: h2::server::Connection<Batch<IO>, Bytes>,
    flusher: Batch<IO>,
    keepalive: KeepAlive,
    load: Rc<Load>,
    windows: Windows,
    settings: Settings,
    _close: CloseOnDrop,
}

impl<IO: AsyncRead + AsyncWrite + Unpin> Connection<IO> {
    /// Waits for the client's preface; bound it by a timeout.
    ///
    /// # Errors
    /// The peer speaks no HTTP/2, or left.
    pub async fn accept(io: IO, settings: Settings) -> Result<Self, TunnelError> {
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
        Ok(Connection {
            connection,
            keepalive: KeepAlive::new(pings, &settings),
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

    /// Streams open or waiting for an answer.
    pub fn active(&self) -> usize {
        self.load.active()
    }

    /// Bytes that wait for the peer to take them.
    pub fn queued(&self) -> usize {
        self.flusher.outbox().queued()
    }

    /// Ends the tunnel without losing a request, in the two steps of RFC 9113 §6.8: a GOAWAY that names no last
    /// stream and a PING; when the PING's answer shows that the peer has heard it, a GOAWAY that names the last stream.
    /// Requests that cross the first are still returned by [`Connection::next`]; open streams go on, and it
    /// ends with the last of them. A second call changes nothing.
    pub fn drain(&mut self) {
        self.connection.graceful_shutdown();
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
        while let Poll::Ready(beat) = self.keepalive.poll_beat(cx, self.flusher.received()) {
            beat?;
            if self.flusher.stuck_for() > self.settings.ping_interval + self.settings.ping_timeout {
                return Poll::Ready(Err(TunnelError::Stalled));
            }
            if let Some(window) = self.windows.shrink(&self.load) {
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
            if let Some(incoming) = Incoming::parse(request, respond, self.load.occupy()) {
                return Poll::Ready(Ok(Some(incoming)));
            }
        }
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
    respond: h2::server::SendResponse<Bytes>,
    recv: h2::RecvStream,
    slot: Slot,
    /// The peer's reset was noted.
    abandoned: bool,
}

impl Incoming {
    fn parse(
        request: http::Request<h2::RecvStream>,
        mut respond: h2::server::SendResponse<Bytes>,
        slot: Slot,
    ) -> Option<Self> {
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
            respond,
            recv,
            slot,
            abandoned: false,
        })
    }

    fn note_abandoned(&mut self) {
        if !std::mem::replace(&mut self.abandoned, true) {
            self.slot.load().was_abandoned();
        }
    }

    /// Answers 200, with the destination's baggage: call it when the far end is connected.
    ///
    /// # Errors
    /// The peer gave up meanwhile.
    pub fn accept(mut self, baggage: Option<&str>) -> Result<Stream, StreamError> {
        let mut response = http::Response::new(());
        if let Some(value) = baggage.and_then(|b| http::HeaderValue::from_str(b).ok()) {
            response.headers_mut().insert(headers::BAGGAGE, value);
        }
        match self.respond.send_response(response, false) {
            Ok(send) => Ok(Stream::new(send, self.recv, self.slot)),
            Err(error) => {
                self.note_abandoned();
                Err(StreamError(Reason::new(error)))
            }
        }
    }

    /// Answers that there will be no stream.
    pub fn refuse(mut self, status: Status) {
        if !answer(&mut self.respond, status) {
            self.note_abandoned();
        }
    }

    /// Resolves when the peer gives up waiting or its tunnel is lost, so that a connection in the making can
    /// be dropped. To be selected against that work: dropped before it resolves, it has changed nothing.
    pub async fn cancelled(&mut self) {
        // Either way there is nobody left to answer.
        let _ = std::future::poll_fn(|cx| self.respond.poll_reset(cx)).await;
        self.note_abandoned();
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
