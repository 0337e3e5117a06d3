//! The client's side of a tunnel.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use lateen_types::Strng;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;

use crate::batch::Batch;
use crate::error::{ConnectError, Reason, TunnelError};
use crate::headers::{self, Authority, Baggage, Forwarded, TraceParent};
use crate::keepalive::KeepAlive;
use crate::outbox::{CloseOnDrop, Outbox};
use crate::settings::Settings;
use crate::stream::{Load, Stream};
use crate::windows::{FLOOR, Windows};

/// Streams that a peer is assumed to allow until its SETTINGS arrive: one less than what RFC 9113 §6.5.2 recommends as the
/// least, for only a limit that changes is known to be the peer's, and 100 is what many announce. Requests that turn out
/// to be too many are not lost, see [`ConnectError::Unprocessed`].
const ASSUMED_LIMIT: usize = 99;

/// What small DATA frames that nobody took yet may cost us, in the HTTP/2 layer's measure (a frame below
/// 256 bytes costs what it lacks); beyond it the connection ends. Readers take them as they come.
pub(crate) const SMALL_FRAMES: usize = 8 << 20;

type SendRequest = h2::client::SendRequest<Bytes>;

/// Sets up HTTP/2 on `io`. The tunnel does nothing unless the driver is polled, until it ends.
///
/// The driver ends when the tunnel and all its streams are dropped, when it was idle for too long or
/// when the connection is lost.
///
/// # Errors
/// The connection broke while the preface was written. What the peer thinks of it shows later.
pub async fn handshake<IO>(io: IO, settings: Settings) -> Result<(Tunnel, Driver<IO>), TunnelError>
where
    IO: AsyncRead + AsyncWrite + Unpin,
{
    let io = Batch::new(io, false, &settings);
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
    let pings = connection
        .ping_pong()
        .expect("nobody else took the connection's pings");
    flusher.gather();
    let send = Rc::new(RefCell::new(Some(send)));
    let state = Rc::new(State {
        load: Load::new(flusher.outbox()),
        outbox: Rc::clone(flusher.outbox()),
        probe: Cell::new(false),
        doubt: Cell::new(false),
        driver: RefCell::new(None),
        probe_after: settings.probe_after,
        limit: Cell::new(ASSUMED_LIMIT),
        limit_known: Cell::new(false),
        limit_lowered: Notify::new(),
        answered: Cell::new(false),
        writes: Rc::clone(flusher.writes()),
        rejection: RefCell::new(None),
    });
    let driver = Driver {
        connection,
        flusher,
        unwritten: None,
        barren: false,
        keepalive: KeepAlive::new(pings, &settings),
        windows: Windows::new(
            &settings.budget,
            settings.stream_window,
            settings.connection_window,
        ),
        send: Rc::downgrade(&send),
        state: Rc::clone(&state),
        settings,
        _close: CloseOnDrop(Rc::clone(&state.outbox)),
    };
    Ok((Tunnel { send, state }, driver))
}

/// A CONNECT request.
#[derive(Debug, Clone)]
pub struct ConnectRequest {
    /// Where the tunnel's far end is to connect to.
    pub authority: Authority,
    /// The source workload, as [`Baggage`] spells it; a string because it is the same for all its connections.
    pub baggage: Option<Strng>,
    /// The application's address and the service that it addressed.
    pub forwarded: Option<Forwarded>,
    /// Joins the log lines of both sides.
    pub traceparent: Option<TraceParent>,
    /// The network where the connection began, on the inner request of a tunnel in a tunnel.
    pub network: Option<Strng>,
}

impl ConnectRequest {
    /// A request without any header.
    pub fn new(authority: impl Into<Authority>) -> Self {
        ConnectRequest {
            authority: authority.into(),
            baggage: None,
            forwarded: None,
            traceparent: None,
            network: None,
        }
    }

    fn to_http(&self) -> Result<http::Request<()>, ConnectError> {
        let mut request = http::Request::builder()
            .method(http::Method::CONNECT)
            .uri(self.authority.to_string());
        if let Some(baggage) = &self.baggage {
            request = request.header(headers::BAGGAGE, &**baggage);
        }
        if let Some(forwarded) = &self.forwarded {
            request = request.header(headers::FORWARDED, forwarded.to_string());
        }
        if let Some(traceparent) = &self.traceparent {
            request = request.header(headers::TRACEPARENT, traceparent.to_string());
        }
        if let Some(network) = &self.network {
            request = request.header(headers::FORWARDED_NETWORK, &**network);
        }
        request.body(()).map_err(|_| {
            ConnectError::Invalid("a header holds characters that http does not allow")
        })
    }
}

/// What the peer said with its 200.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResponseInfo {
    /// The destination workload's description of itself.
    pub baggage: Option<Baggage>,
}

/// A connection to a peer that carries many streams. Clones share it.
#[derive(Debug, Clone)]
pub struct Tunnel {
    send: Rc<RefCell<Option<SendRequest>>>,
    state: Rc<State>,
}

/// A tunnel's name.
#[derive(Debug, Clone)]
pub(crate) struct Token(Weak<State>);

impl Token {
    /// See [`crate::Pool::doubt`].
    pub(crate) fn doubt(&self) {
        let Some(state) = self.0.upgrade() else {
            return;
        };
        state.doubt.set(true);
        if let Some(driver) = state.driver.take() {
            driver.wake();
        }
    }

    pub(crate) fn is(&self, other: &Token) -> bool {
        self.0.ptr_eq(&other.0)
    }
}

#[derive(Debug)]
struct State {
    load: Rc<Load>,
    outbox: Rc<Outbox>,
    /// The driver is to ask the peer whether it is there.
    probe: Cell<bool>,
    /// The driver is to ask so again and again.
    doubt: Cell<bool>,
    /// Wakes the driver.
    driver: RefCell<Option<Waker>>,
    probe_after: Duration,
    /// Streams that the peer allows at once.
    limit: Cell<usize>,
    /// The limit is the peer's word and not an assumption.
    limit_known: Cell<bool>,
    limit_lowered: Notify,
    /// The peer has answered a request.
    answered: Cell<bool>,
    /// See [`Batch::writes`].
    writes: Rc<Cell<u64>>,
    /// Why the connection ended, if one side does not accept the other.
    rejection: RefCell<Option<Rc<TunnelError>>>,
}

impl Tunnel {
    /// See [`Stream::tunnel`].
    pub(crate) fn set_number(&self, number: u64) {
        self.state.load.set_number(number);
    }

    /// Streams open or asked for.
    pub fn active(&self) -> usize {
        self.state.load.active()
    }

    /// Streams that the peer lets us have at once.
    pub fn limit(&self) -> usize {
        self.state.limit.get()
    }

    /// [`Tunnel::limit`], once the peer has said so itself.
    pub(crate) fn known_limit(&self) -> Option<usize> {
        self.state.limit_known.get().then(|| self.limit())
    }

    /// Bytes that wait for the peer to take them.
    pub fn queued(&self) -> usize {
        self.state.outbox.queued()
    }

    /// True if more waits than a peer that reads leaves waiting.
    pub(crate) fn congested(&self) -> bool {
        self.state.outbox.congested()
    }

    /// True if what streams write stays here, because those that nobody reads keep the window that all share.
    pub(crate) fn withheld(&self) -> bool {
        self.state.outbox.withheld()
    }

    /// True if a new request has a chance: the connection is alive, the peer sent no GOAWAY and has room.
    pub fn usable(&self) -> bool {
        self.active() < self.limit() && self.alive()
    }

    /// True until the connection is lost, closing or told to go away.
    pub fn alive(&self) -> bool {
        let mut send = self.send.borrow_mut();
        let Some(send) = send.as_mut() else {
            return false;
        };
        // Nothing is pending on this handle, requests are made on clones; so this only asks for errors.
        let mut cx = Context::from_waker(std::task::Waker::noop());
        matches!(send.poll_ready(&mut cx), Poll::Ready(Ok(())))
    }

    /// Why the tunnel is dead, if one side does not accept the other.
    pub(crate) fn rejection(&self) -> Option<Rc<TunnelError>> {
        self.state.rejection.borrow().clone()
    }

    /// Takes no more requests; the connection ends with its last stream.
    pub fn close(&self) {
        self.send.borrow_mut().take();
    }

    /// Names the tunnel without keeping it open.
    pub(crate) fn token(&self) -> Token {
        Token(Rc::downgrade(&self.state))
    }

    pub(crate) fn is(&self, token: &Token) -> bool {
        std::ptr::eq(token.0.as_ptr(), Rc::as_ptr(&self.state))
    }

    /// True if the peer answered a request on this tunnel before.
    pub(crate) fn answered(&self) -> bool {
        self.state.answered.get()
    }

    /// Asks for a stream and waits for the answer, which comes when the far end is connected.
    ///
    /// # Errors
    /// See [`ConnectError`]; no byte of the application was sent.
    pub async fn connect(
        &self,
        request: &ConnectRequest,
    ) -> Result<(Stream, ResponseInfo), ConnectError> {
        match self.ask(request).await {
            Err(error @ (ConnectError::Unprocessed(_) | ConnectError::Lost(_))) => {
                Err(match self.rejection() {
                    Some(rejection) => ConnectError::Rejected(rejection),
                    None => error,
                })
            }
            result => result,
        }
    }

    async fn ask(&self, request: &ConnectRequest) -> Result<(Stream, ResponseInfo), ConnectError> {
        if let Some(since) = self.state.load.idle_since()
            && since.elapsed() >= self.state.probe_after
        {
            // The request wakes the driver.
            self.state.probe.set(true);
        }
        let slot = self.state.load.occupy();
        let rank = self.active();
        let request = request.to_http()?;
        let Some(mut send) = self.send.borrow().clone() else {
            return Err(ConnectError::Unprocessed(closed()));
        };
        let writes = self.state.writes.get();
        let (mut response, stream) = send
            .send_request(request, false)
            .map_err(|e| ConnectError::Unprocessed(Reason::new(e)))?;
        let answer = {
            let mut lowered = pin!(self.state.limit_lowered.notified());
            std::future::poll_fn(|cx| {
                if let Poll::Ready(answer) = Pin::new(&mut response).poll(cx) {
                    return Poll::Ready(answer.map_err(|e| match ConnectError::from_h2(e) {
                        // It waited here while the tunnel died.
                        ConnectError::Lost(why) if self.state.writes.get() == writes => {
                            ConnectError::Unprocessed(why)
                        }
                        error => error,
                    }));
                }
                // The peer's SETTINGS allow fewer streams than were assumed and this one is too many: it
                // would be refused, or wait here for a place that might not come free for hours.
                while lowered.as_mut().poll(cx).is_ready() {
                    if rank > self.limit() {
                        return Poll::Ready(Err(ConnectError::Unprocessed(refused())));
                    }
                    lowered.set(self.state.limit_lowered.notified());
                }
                Poll::Pending
            })
            .await?
        };
        self.state.answered.set(true);
        let (head, recv) = answer.into_parts();
        if head.status != http::StatusCode::OK {
            return Err(ConnectError::Refused {
                status: head.status.as_u16(),
            });
        }
        let baggage = read_baggage(&head.headers);
        Ok((Stream::new(stream, recv, slot), ResponseInfo { baggage }))
    }
}

fn refused() -> Reason {
    Reason::new(h2::Reason::REFUSED_STREAM.into())
}

fn closed() -> Reason {
    Reason::new(h2::Reason::NO_ERROR.into())
}

pub(crate) fn read_baggage(headers: &http::HeaderMap) -> Option<Baggage> {
    let mut lines = headers
        .get_all(headers::BAGGAGE)
        .iter()
        .filter_map(|line| line.to_str().ok());
    let mut baggage = Baggage::parse(lines.next()?);
    lines.for_each(|line| baggage.read(line));
    Some(baggage)
}

/// Moves a tunnel's bytes; spawn it on the worker that uses the tunnel.
#[must_use = "a tunnel does nothing unless its driver is polled"]
pub struct Driver<IO: AsyncRead + AsyncWrite + Unpin> {
    connection: h2::client::Connection<Batch<IO>, Bytes>,
    flusher: Batch<IO>,
    /// Why nothing can be sent any more.
    unwritten: Option<io::Error>,
    /// It is closing because the peer allows no streams.
    barren: bool,
    keepalive: KeepAlive,
    windows: Windows,
    send: Weak<RefCell<Option<SendRequest>>>,
    state: Rc<State>,
    settings: Settings,
    _close: CloseOnDrop,
}

impl<IO: AsyncRead + AsyncWrite + Unpin> Driver<IO> {
    fn close_if_idle(&self) {
        let Some(since) = self.state.load.idle_since() else {
            return;
        };
        let idle = since.elapsed();
        if (self.settings.idle_timeout.is_some_and(|most| idle >= most)
            || self.windows.in_the_way(idle, &self.settings))
            && let Some(send) = self.send.upgrade()
        {
            send.borrow_mut().take();
        }
    }

    fn poll_tunnel(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), TunnelError>> {
        if self.state.probe.take() {
            let patience = self.settings.probe_timeout;
            self.keepalive.probe(self.flusher.received(), patience);
        }
        if self.state.doubt.take() {
            let patience = self.settings.probe_timeout;
            self.keepalive.doubt(self.flusher.received(), patience);
        }
        match &mut *self.state.driver.borrow_mut() {
            // The same task as before, nearly always: nothing is cloned.
            Some(driver) => driver.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        while let Poll::Ready(beat) = self.keepalive.poll_beat(cx, self.flusher.received()) {
            beat?;
            if self.flusher.stuck_for() > self.settings.ping_interval + self.settings.ping_timeout {
                return Poll::Ready(Err(TunnelError::Stalled));
            }
            if let Some(window) = self.windows.shrink(&self.state.load) {
                self.connection.set_target_window_size(window);
            }
            self.close_if_idle();
        }
        let result = Pin::new(&mut self.connection).poll(cx);
        if let Some(window) = self.windows.grow(&self.state.load, self.flusher.inflow()) {
            // It wakes us to tell the peer.
            self.connection.set_target_window_size(window);
        }
        self.learn_limit();
        self.close_if_barren();
        if let Some(abuse) = self.flusher.abuse() {
            return Poll::Ready(Err(TunnelError::Abusive(abuse)));
        }
        let Poll::Ready(result) = result else {
            // A peer that refuses us says why and closes; this may fail before that was read. A connection
            // that cannot be written to has an end to be read, and the HTTP/2 layer reads on until there.
            if let Err(error) = self.flusher.poll_owed(cx) {
                self.unwritten.get_or_insert(error);
            }
            return Poll::Pending;
        };
        let result = result.map_err(|e| self.flusher.explain(TunnelError::from_h2(e)));
        Poll::Ready(match self.unwritten.take() {
            Some(error) if !matches!(&result, Err(read) if read.is_rejection()) => {
                Err(TunnelError::Io(error))
            }
            _ if result.is_ok() && self.barren => Err(TunnelError::NoStreams),
            _ => result,
        })
    }

    /// A peer that allows no streams may allow some later, but whoever needs one meanwhile dials anew: nothing would
    /// come back to this tunnel.
    fn close_if_barren(&mut self) {
        if self.state.limit.get() == 0
            && self.state.load.active() == 0
            && let Some(send) = self.send.upgrade()
            && send.borrow_mut().take().is_some()
        {
            self.barren = true;
        }
    }

    /// Leaves word of a rejection to the requests that die of it.
    fn tell(&self, error: &TunnelError) {
        if let TunnelError::Io(e) = error
            && error.is_rejection()
        {
            let told = TunnelError::Io(io::Error::new(e.kind(), e.to_string()));
            self.state.rejection.replace(Some(Rc::new(told)));
        }
    }

    fn learn_limit(&self) {
        let limit = self.connection.max_concurrent_send_streams();
        let before = self.state.limit.replace(limit);
        if limit != before {
            self.state.limit_known.set(true);
        }
        if limit < before {
            self.state.limit_lowered.notify_waiters();
        }
    }
}

impl<IO: AsyncRead + AsyncWrite + Unpin> Future for Driver<IO> {
    type Output = Result<(), TunnelError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let result = std::task::ready!(this.poll_tunnel(cx));
        if let Err(error) = &result {
            this.tell(error);
        }
        if let Some(send) = this.send.upgrade() {
            send.borrow_mut().take();
        }
        Poll::Ready(result)
    }
}
