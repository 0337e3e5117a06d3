//! Task of a tunnel's client: its bytes, its keepalive and its end.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;

use super::link::{Handle, Link};
use super::state::State;
use crate::driver::Below;
use crate::error::TunnelError;
use crate::keepalive::{KeepAlive, Tick, Watch};
use crate::recv_window::RecvWindow;
use crate::settings::Settings;

/// Moves a tunnel's bytes; spawn it on the worker that uses the tunnel.
#[must_use = "a tunnel does nothing unless its driver is polled"]
pub struct Driver<IO: AsyncRead + AsyncWrite + Unpin> {
    pub(super) link: Link<IO>,
    /// Why nothing can be sent any more.
    pub(super) unwritten: Option<io::Error>,
    /// It is closing because the peer allows no streams.
    pub(super) barren: bool,
    pub(super) keepalive: KeepAlive,
    /// What had come from the peer, and when it was there.
    pub(super) heard: (u64, Instant),
    pub(super) recv_window: RecvWindow,
    pub(super) handle: Weak<Handle>,
    pub(super) state: Rc<State>,
    pub(super) settings: Settings,
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
            || self.recv_window.in_the_way(idle, &self.settings))
            && let Some(handle) = self.handle.upgrade()
        {
            handle.close();
        }
    }

    fn poll_tunnel(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), TunnelError>> {
        if self.state.probe.take() {
            let limit = self.settings.probe_timeout;
            self.keepalive.probe(self.link.received(), limit);
        }
        if self.state.keep_probing.take() {
            let limit = self.settings.probe_timeout;
            self.keepalive.keep_probing(self.link.received(), limit);
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
            timeout: self.settings.probe_timeout,
        });
        let (mut silent, before) = (false, self.link.received());
        while let Poll::Ready(tick) = self
            .keepalive
            .poll_tick(cx, before, self.link.moved(), watch)
        {
            if tick? == Tick::Silent {
                silent = true;
                continue;
            }
            if self.link.stuck_for() > self.settings.ping_interval + self.settings.ping_timeout {
                return Poll::Ready(Err(TunnelError::Stalled));
            }
            let (recv_window, load) = (&mut self.recv_window, &self.state.load);
            self.link.tick(recv_window, load);
            self.close_if_idle();
        }
        let answered = self.keepalive.answered();
        if self.state.answers.replace(answered) != answered {
            self.state.news.notify_waiters();
        }
        let stays = self.handle.upgrade().is_some_and(|handle| handle.is_open());
        let (recv_window, load) = (&mut self.recv_window, &self.state.load);
        let result = self.link.poll_turn(cx, stays, recv_window, load);
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
