//! The client's side of a tunnel.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use lateen_types::Strng;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use crate::driver::Below;
use crate::driver::client::{Handle, Link};
use crate::error::{ConnectError, Reason, TunnelError};
use crate::headers::{Authority, Baggage, Forwarded, TraceParent};
use crate::keepalive::{Beat, KeepAlive, Watch};
use crate::settings::Settings;
use crate::stream::{Load, Stream};
use crate::windows::Windows;

/// Streams that a peer is assumed to allow until its SETTINGS arrive: one less than what RFC 9113 §6.5.2 recommends as the
/// least, for only a limit that changes is known to be the peer's, and 100 is what many announce. Requests that turn out
/// to be too many are not lost, see [`ConnectError::Unprocessed`].
pub(crate) const ASSUMED_LIMIT: usize = 99;

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
    let (handle, link, load) = Link::new(io, &settings).await?;
    let handle = Rc::new(handle);
    let state = Rc::new(State {
        load,
        probe: Cell::new(false),
        doubt: Cell::new(false),
        ask: Cell::new(false),
        answers: Cell::new(Instant::now()),
        driver: RefCell::new(None),
        probe_after: settings.probe_after,
        probe_timeout: settings.probe_timeout,
        limit: Cell::new(ASSUMED_LIMIT),
        limit_known: Cell::new(false),
        news: Notify::new(),
        silent: Cell::new(false),
        awaited: Cell::new(0),
        answered: Cell::new(false),
        writes: Rc::clone(link.writes()),
        rejection: RefCell::new(None),
    });
    let driver = Driver {
        keepalive: KeepAlive::new(link.shared(), &settings),
        link,
        unwritten: None,
        barren: false,
        heard: (0, Instant::now()),
        windows: Windows::new(
            &settings.budget,
            settings.stream_window,
            settings.connection_window,
        ),
        handle: Rc::downgrade(&handle),
        state: Rc::clone(&state),
        settings,
    };
    Ok((Tunnel { handle, state }, driver))
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
    /// The connection ends when there is none that is open, and no stream.
    handle: Rc<Handle>,
    state: Rc<State>,
}

/// A tunnel's name.
#[derive(Debug, Clone)]
pub(crate) struct Token(Weak<State>);

impl Token {
    /// See [`crate::Pool::doubt`].
    pub(crate) fn doubt(&self) {
        if let Some(state) = self.0.upgrade() {
            state.tell(&state.doubt);
        }
    }

    pub(crate) fn is(&self, other: &Token) -> bool {
        self.0.ptr_eq(&other.0)
    }
}

#[derive(Debug)]
struct State {
    load: Rc<Load>,
    /// The driver is to ask the peer whether it is there.
    probe: Cell<bool>,
    /// The driver is to ask so again and again.
    doubt: Cell<bool>,
    /// The driver is to send a PING whose answer may take the usual time.
    ask: Cell<bool>,
    /// When a PING was answered last; the beginning, if none was.
    answers: Cell<Instant>,
    /// Wakes the driver.
    driver: RefCell<Option<Waker>>,
    probe_after: Duration,
    probe_timeout: Duration,
    /// Streams that the peer allows at once.
    limit: Cell<usize>,
    /// The limit is the peer's word and not an assumption.
    limit_known: Cell<bool>,
    /// The limit was lowered, the peer fell silent or answered a PING, or the tunnel ended.
    news: Notify,
    /// The peer did not answer a probe, nor say anything else: the tunnel is for what is open on it, if that is not lost.
    silent: Cell<bool>,
    /// Requests that wait for their answers.
    awaited: Cell<usize>,
    /// The peer has answered a request.
    answered: Cell<bool>,
    /// Counts what went out: while it stands still nothing has gone to the peer.
    writes: Rc<Cell<u64>>,
    /// Why the connection ended, if one side does not accept the other.
    rejection: RefCell<Option<Rc<TunnelError>>>,
}

impl State {
    /// Has the driver do what the flag stands for.
    fn tell(&self, flag: &Cell<bool>) {
        flag.set(true);
        if let Some(driver) = self.driver.take() {
            driver.wake();
        }
    }
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
        self.state.load.outbox().queued()
    }

    /// True if more waits than a peer that reads leaves waiting.
    pub(crate) fn congested(&self) -> bool {
        self.state.load.outbox().congested()
    }

    /// True if what streams write stays here, because those that nobody reads keep the window that all share.
    pub(crate) fn withheld(&self) -> bool {
        self.state.load.outbox().withheld()
    }

    /// True if a new request has a chance: the connection is alive, the peer sent no GOAWAY and has room.
    pub fn usable(&self) -> bool {
        self.active() < self.limit() && self.alive()
    }

    /// True until the connection is lost, closing or told to go away.
    pub fn alive(&self) -> bool {
        self.handle.is_alive()
    }

    /// Why the tunnel is dead, if one side does not accept the other.
    pub(crate) fn rejection(&self) -> Option<Rc<TunnelError>> {
        self.state.rejection.borrow().clone()
    }

    /// Takes no more requests; the connection ends with its last stream.
    pub fn close(&self) {
        self.handle.close();
    }

    /// See [`crate::Pool::doubt`].
    pub fn doubt(&self) {
        self.state.tell(&self.state.doubt);
    }

    /// Whether the peer answers: a PING asks it, unless it answered one less than [`Settings::probe_after`] ago. `false` if it
    /// does not within [`Settings::probe_timeout`], or the tunnel ends.
    pub async fn answers(&self) -> bool {
        let State {
            answers,
            ask,
            news,
            probe_after,
            probe_timeout,
            ..
        } = &*self.state;
        let before = answers.get();
        if before.elapsed() < *probe_after {
            return self.alive();
        }
        self.state.tell(ask);
        let answered = async {
            loop {
                let news = news.notified();
                if answers.get() != before || !self.alive() {
                    return self.alive();
                }
                news.await;
            }
        };
        timeout(*probe_timeout, answered).await.unwrap_or(false)
    }

    /// Names the tunnel without keeping it open.
    pub(crate) fn token(&self) -> Token {
        Token(Rc::downgrade(&self.state))
    }

    pub(crate) fn is(&self, token: &Token) -> bool {
        std::ptr::eq(token.0.as_ptr(), Rc::as_ptr(&self.state))
    }

    #[cfg(test)]
    pub(crate) fn shared(&self) -> crate::driver::Shared {
        self.handle.shared()
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
        let writes = self.state.writes.get();
        let mut asking = self.handle.ask(request)?;
        let (status, baggage) = {
            let _awaited = Awaited::new(&self.state);
            let mut news = pin!(self.state.news.notified());
            std::future::poll_fn(|cx| {
                if let Poll::Ready(answer) = asking.poll_answer(cx) {
                    return Poll::Ready(answer.map_err(|error| match error {
                        // It waited here while the tunnel died.
                        ConnectError::Lost(why) if self.state.writes.get() == writes => {
                            ConnectError::Unprocessed(why)
                        }
                        error => error,
                    }));
                }
                while news.as_mut().poll(cx).is_ready() {
                    if self.state.silent.get() {
                        let why = Reason::silent();
                        return Poll::Ready(Err(if self.state.writes.get() == writes {
                            ConnectError::Unprocessed(why)
                        } else {
                            ConnectError::Lost(why)
                        }));
                    }
                    // The peer's SETTINGS allow fewer streams than were assumed and this one is too many: it
                    // would be refused, or wait here for a place that might not come free for hours.
                    if rank > self.limit() {
                        return Poll::Ready(Err(ConnectError::Unprocessed(refused())));
                    }
                    news.set(self.state.news.notified());
                }
                Poll::Pending
            })
            .await?
        };
        self.state.answered.set(true);
        if status != 200 {
            return Err(ConnectError::Refused { status });
        }
        Ok((asking.open(slot), ResponseInfo { baggage }))
    }
}

/// One request that waits for its answer.
struct Awaited<'a>(&'a Cell<usize>);

impl<'a> Awaited<'a> {
    fn new(state: &'a State) -> Self {
        let awaited = &state.awaited;
        awaited.set(awaited.get() + 1);
        Awaited(awaited)
    }
}

impl Drop for Awaited<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

fn refused() -> Reason {
    Reason::told(lateen_h2::Code::REFUSED_STREAM)
}

/// Moves a tunnel's bytes; spawn it on the worker that uses the tunnel.
#[must_use = "a tunnel does nothing unless its driver is polled"]
pub struct Driver<IO: AsyncRead + AsyncWrite + Unpin> {
    link: Link<IO>,
    /// Why nothing can be sent any more.
    unwritten: Option<io::Error>,
    /// It is closing because the peer allows no streams.
    barren: bool,
    keepalive: KeepAlive,
    /// What had come from the peer, and when it was there.
    heard: (u64, Instant),
    windows: Windows,
    handle: Weak<Handle>,
    state: Rc<State>,
    settings: Settings,
}

impl<IO: AsyncRead + AsyncWrite + Unpin> Driver<IO> {
    /// Has `below` asked how far `IO` is with what it took, and told by how many bytes its reader is to be woken. Without it a
    /// peer is held to read nothing where what was gathered for one write takes longer than [`Settings::ping_interval`] and
    /// [`Settings::ping_timeout`] to leave.
    pub fn ask(&mut self, below: Below<IO>) {
        self.link.ask(below);
    }

    fn close_if_idle(&self) {
        let Some(since) = self.state.load.idle_since() else {
            return;
        };
        let idle = since.elapsed();
        if (self.settings.idle_timeout.is_some_and(|most| idle >= most)
            || self.windows.in_the_way(idle, &self.settings))
            && let Some(handle) = self.handle.upgrade()
        {
            handle.close();
        }
    }

    fn poll_tunnel(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), TunnelError>> {
        if self.state.probe.take() {
            let patience = self.settings.probe_timeout;
            self.keepalive.probe(self.link.received(), patience);
        }
        if self.state.doubt.take() {
            let patience = self.settings.probe_timeout;
            self.keepalive.doubt(self.link.received(), patience);
        }
        if self.state.ask.take() {
            self.keepalive.ask();
        }
        match &mut *self.state.driver.borrow_mut() {
            // The same task as before, nearly always: nothing is cloned.
            Some(driver) => driver.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        let watch = (self.state.awaited.get() > 0).then(|| Watch {
            from: self.heard.1 + self.settings.probe_after,
            patience: self.settings.probe_timeout,
        });
        let (mut silent, before) = (false, self.link.received());
        while let Poll::Ready(beat) = self
            .keepalive
            .poll_beat(cx, before, self.link.moved(), watch)
        {
            if beat? == Beat::Silent {
                silent = true;
                continue;
            }
            if self.link.stuck_for() > self.settings.ping_interval + self.settings.ping_timeout {
                return Poll::Ready(Err(TunnelError::Stalled));
            }
            let (windows, load) = (&mut self.windows, &self.state.load);
            self.link.beat(windows, load);
            self.close_if_idle();
        }
        let answered = self.keepalive.answered();
        if self.state.answers.replace(answered) != answered {
            self.state.news.notify_waiters();
        }
        let stays = self.handle.upgrade().is_some_and(|handle| handle.is_open());
        let (windows, load) = (&mut self.windows, &self.state.load);
        let result = self.link.poll_turn(cx, stays, windows, load);
        let received = self.link.received();
        if self.heard.0 != received {
            self.heard = (received, Instant::now());
        } else if silent && result.is_pending() {
            // It was we who had no time if something lay there to be read.
            self.fall_silent()?;
        }
        self.learn_limit();
        self.close_if_barren();
        if result.is_pending() && self.link.was_answered() {
            // For the time of the next PING.
            cx.waker().wake_by_ref();
        }
        // A peer that refuses us says why and closes; a write may fail before that was read. A connection
        // that cannot be written to has an end to be read, and what lies below reads on until there.
        if let Err(error) = self.link.check() {
            self.unwritten.get_or_insert(error);
        }
        let result = std::task::ready!(result);
        // Whoever said that it would go, and went with the last stream, has read all that matters.
        let in_order = self.link.went_in_order();
        Poll::Ready(match self.unwritten.take().filter(|_| !in_order) {
            Some(error) if !matches!(&result, Err(read) if read.is_rejection()) => {
                Err(TunnelError::Io(error))
            }
            _ if result.is_ok() && self.barren => Err(TunnelError::NoStreams),
            _ => result,
        })
    }

    /// New requests get another tunnel, and so do those that were not answered. Streams that are open give the peer the
    /// usual time for its PING; with none the tunnel ends.
    fn fall_silent(&self) -> Result<(), TunnelError> {
        if self.state.load.accepted() == 0 {
            return Err(TunnelError::Unresponsive);
        }
        self.state.silent.set(true);
        self.state.news.notify_waiters();
        if let Some(handle) = self.handle.upgrade() {
            handle.close();
        }
        Ok(())
    }

    /// A peer that allows no streams may allow some later, but whoever needs one meanwhile dials anew: nothing would
    /// come back to this tunnel.
    fn close_if_barren(&mut self) {
        if self.state.limit.get() == 0
            && self.state.load.active() == 0
            && let Some(handle) = self.handle.upgrade()
            && handle.close()
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
        let before = self.state.limit.get();
        let (limit, known) = self.link.limit();
        self.state.limit.set(limit);
        if known {
            self.state.limit_known.set(true);
        }
        if limit < before {
            self.state.news.notify_waiters();
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
        this.link.end(&result);
        if let Some(handle) = this.handle.upgrade() {
            handle.close();
        }
        this.state.news.notify_waiters();
        Poll::Ready(result)
    }
}
