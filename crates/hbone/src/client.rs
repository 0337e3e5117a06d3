//! Client role of a tunnel.

mod driver;
mod link;
mod request;
mod state;

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::task::Poll;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use crate::error::{ConnectError, Reason, TunnelError};
use crate::keepalive::KeepAlive;
use crate::recv_window::RecvWindow;
use crate::settings::Settings;
use crate::stream::Stream;
pub use driver::Driver;
use link::{ASSUMED_LIMIT, Handle, Link};
pub use request::{ConnectRequest, ResponseInfo};
use state::State;

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
        keep_probing: Cell::new(false),
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
        recv_window: RecvWindow::new(
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
    /// See [`crate::Pool::keep_probing`].
    pub(crate) fn keep_probing(&self) {
        if let Some(state) = self.0.upgrade() {
            state.tell(&state.keep_probing);
        }
    }

    pub(crate) fn is(&self, other: &Token) -> bool {
        self.0.ptr_eq(&other.0)
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
        self.state.load.send_buffer().queued()
    }

    /// True if more waits than a peer that reads leaves waiting.
    pub(crate) fn congested(&self) -> bool {
        self.state.load.send_buffer().congested()
    }

    /// True if streams that nobody reads keep the window that all share, in either direction: what streams write stays here, or the
    /// peer may send nothing.
    ///
    /// The latter counts only where `replaces_unread`.
    pub(crate) fn withheld(&self, replaces_unread: bool) -> bool {
        let load = &self.state.load;
        load.send_buffer().withheld() || replaces_unread && load.is_unread()
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

    /// See [`crate::Pool::keep_probing`].
    pub fn keep_probing(&self) {
        self.state.tell(&self.state.keep_probing);
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
