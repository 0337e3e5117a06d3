//! The client's side of a tunnel on the `h2` crate.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite};

use super::stream::Stream;
use super::{SMALL_FRAMES, read_baggage};
use crate::batch::Batch;
use crate::client::{ASSUMED_LIMIT, ConnectRequest};
use crate::error::{ConnectError, Reason, TunnelError};
use crate::headers::{self, Baggage};
use crate::keepalive::Pings;
use crate::outbox::CloseOnDrop;
use crate::settings::Settings;
use crate::stream::{Load, Slot};
use crate::windows::{FLOOR, Windows};

pub(crate) type SendRequest = h2::client::SendRequest<Bytes>;

/// Asks for errors only: nothing is pending on this handle, requests are made on clones.
pub(crate) fn is_alive(send: &RefCell<Option<SendRequest>>) -> bool {
    let mut send = send.borrow_mut();
    let Some(send) = send.as_mut() else {
        return false;
    };
    let mut cx = Context::from_waker(Waker::noop());
    matches!(send.poll_ready(&mut cx), Poll::Ready(Ok(())))
}

/// The connection below a tunnel.
pub(crate) struct Link<IO: AsyncRead + AsyncWrite + Unpin> {
    connection: h2::client::Connection<Batch<IO>, Bytes>,
    flusher: Batch<IO>,
    pings: Cell<Option<h2::PingPong>>,
    _close: CloseOnDrop,
}

impl<IO: AsyncRead + AsyncWrite + Unpin> Link<IO> {
    pub(crate) async fn new(
        io: IO,
        settings: &Settings,
    ) -> Result<(SendRequest, Self, Rc<Load>), TunnelError> {
        let io = Batch::new(io, false, settings);
        let flusher = io.handle();
        let (send, mut connection) = h2::client::Builder::new()
            .initial_window_size(settings.stream_window)
            .initial_connection_window_size(FLOOR)
            .data_frame_budget(SMALL_FRAMES)
            .max_frame_size(settings.max_frame)
            .max_header_list_size(settings.max_header_list)
            .max_send_buffer_size(settings.send_buffer)
            .initial_max_send_streams(ASSUMED_LIMIT)
            // Counted over a tunnel's whole life there; `Guard` counts them over time.
            .max_local_error_reset_streams(None)
            .enable_push(false)
            .handshake(io)
            .await
            .map_err(TunnelError::from_h2)?;
        let pings = Cell::new(connection.ping_pong());
        flusher.gather();
        let load = Load::new(flusher.outbox());
        let link = Link {
            connection,
            pings,
            _close: CloseOnDrop(Rc::clone(flusher.outbox())),
            flusher,
        };
        Ok((send, link, load))
    }

    pub(crate) fn pings(&self) -> Pings {
        let pings = self.pings.take();
        Pings::Library(pings.expect("nobody else took the connection's pings"))
    }

    pub(crate) fn writes(&self) -> &Rc<Cell<u64>> {
        self.flusher.writes()
    }

    pub(crate) fn received(&self) -> u64 {
        self.flusher.received()
    }

    pub(crate) fn stuck_for(&self) -> Duration {
        self.flusher.stuck_for()
    }

    pub(crate) fn beat(&mut self, windows: &mut Windows, load: &Load) {
        if let Some(window) = windows.shrink(load, self.flusher.inflow()) {
            self.connection.set_target_window_size(window);
        }
    }

    /// Reads and writes. It sees by itself whether it stays.
    pub(crate) fn poll_turn(
        &mut self,
        cx: &mut Context<'_>,
        _stays: bool,
        windows: &mut Windows,
        load: &Load,
    ) -> Poll<Result<(), TunnelError>> {
        let result = Pin::new(&mut self.connection).poll(cx);
        if let Some(window) = windows.grow(load, self.flusher.inflow()) {
            // It wakes us to tell the peer.
            self.connection.set_target_window_size(window);
        }
        if let Some(abuse) = self.flusher.abuse() {
            return Poll::Ready(Err(TunnelError::Abusive(abuse)));
        }
        result.map_err(|e| self.flusher.explain(TunnelError::from_h2(e)))
    }

    /// Whoever waits for a PING's answer is woken for it.
    pub(crate) fn was_answered(&mut self) -> bool {
        false
    }

    /// Pays the flush that is owed.
    pub(crate) fn settle(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        self.flusher.poll_owed(cx)
    }

    /// The library does not tell.
    pub(crate) fn went_in_order(&self) -> bool {
        false
    }

    /// Streams that the peer allows at once, and whether that is its word.
    pub(crate) fn limit(&self, before: usize) -> (usize, bool) {
        let limit = self.connection.max_concurrent_send_streams();
        (limit, limit != before)
    }
}

/// A request under way.
pub(crate) struct Asking {
    response: h2::client::ResponseFuture,
    send: h2::SendStream<Bytes>,
    recv: Option<h2::RecvStream>,
}

impl Asking {
    pub(crate) fn new(
        send: &RefCell<Option<SendRequest>>,
        request: &ConnectRequest,
    ) -> Result<Self, ConnectError> {
        let request = to_http(request)?;
        let Some(mut send) = send.borrow().clone() else {
            let closed = Reason::new(h2::Reason::NO_ERROR.into());
            return Err(ConnectError::Unprocessed(closed));
        };
        let (response, send) = send
            .send_request(request, false)
            .map_err(|e| ConnectError::Unprocessed(Reason::new(e)))?;
        Ok(Asking {
            response,
            send,
            recv: None,
        })
    }

    pub(crate) fn poll_answer(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(u16, Option<Baggage>), ConnectError>> {
        let answer = std::task::ready!(Pin::new(&mut self.response).poll(cx));
        let (head, recv) = answer.map_err(ConnectError::from_h2)?.into_parts();
        self.recv = Some(recv);
        Poll::Ready(Ok((head.status.as_u16(), read_baggage(&head.headers))))
    }

    pub(crate) fn open(self, slot: Slot) -> crate::Stream {
        let recv = self.recv.expect("it was answered");
        Stream::new(self.send, recv, slot).into()
    }
}

fn to_http(asked: &ConnectRequest) -> Result<http::Request<()>, ConnectError> {
    let mut request = http::Request::builder()
        .method(http::Method::CONNECT)
        .uri(asked.authority.to_string());
    if let Some(baggage) = &asked.baggage {
        request = request.header(headers::BAGGAGE, &**baggage);
    }
    if let Some(forwarded) = &asked.forwarded {
        request = request.header(headers::FORWARDED, forwarded.to_string());
    }
    if let Some(traceparent) = &asked.traceparent {
        request = request.header(headers::TRACEPARENT, traceparent.to_string());
    }
    if let Some(network) = &asked.network {
        request = request.header(headers::FORWARDED_NETWORK, &**network);
    }
    request
        .body(())
        .map_err(|_| ConnectError::Invalid("a header holds characters that http does not allow"))
}
