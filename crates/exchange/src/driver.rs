//! Driver of a connection, the same for clients and servers: turns of reading and writing, failures, and the orderly end.

use std::rc::Rc;
use std::task::{Context, Poll, ready};

use lateen_h2::Code;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::config::Config;
use crate::core::{Codec, Shared};
use crate::error::ConnectionError;
use crate::receive::News;
use crate::timer::Timer;
use crate::transport::Transport;
use crate::wire;

#[derive(Debug)]
pub(crate) struct Driver<IO> {
    pub(crate) shared: Shared,
    transport: Transport<IO>,
    timer: Option<Timer>,
    /// A server reads on for a while behind its last bytes: a reset would take them from the peer.
    lingers: bool,
    /// That time has begun.
    is_lingering: bool,
    failed: Option<ConnectionError>,
    /// The code of the peer's GOAWAY.
    farewell: Option<Code>,
}

impl<IO> Driver<IO> {
    pub(crate) fn new(io: IO, codec: Codec, config: Rc<Config>, lingers: bool) -> Self {
        let timer = config.timeouts.map(Timer::new);
        Driver {
            shared: Shared::new(codec, config),
            transport: Transport::new(io),
            lingers: lingers && timer.is_some(),
            timer,
            is_lingering: false,
            failed: None,
            farewell: None,
        }
    }

    /// The byte stream below.
    pub(crate) fn io(&self) -> &IO {
        self.transport.io()
    }

    /// Bytes of the stream so far: received, then sent.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        (self.transport.received(), self.transport.sent())
    }

    /// Notes that our direction of a tunnel is shut down, for the task that waits for it.
    fn note_shut(&self) {
        let writer = {
            let core = &mut *self.shared.borrow();
            core.is_shut = true;
            let entry = core.streams.get_mut(core.open);
            entry.and_then(|entry| entry.writer.take())
        };
        if let Some(writer) = writer {
            writer.wake();
        }
    }

    fn fail(&mut self, error: ConnectionError) {
        if let Codec::Http2(http2) = &mut self.shared.borrow().codec {
            // It has said why already if the peer broke a rule.
            http2.close(Code::NO_ERROR);
        }
        self.shared.end(error.clone());
        self.failed.get_or_insert(error);
    }
}

impl<IO: AsyncRead + AsyncWrite + Unpin> Driver<IO> {
    /// Reads, hands out and writes; `hear` gets what concerns more than its exchange.
    pub(crate) fn turn(&mut self, cx: &mut Context<'_>, mut hear: impl FnMut(&Shared, News)) {
        self.shared.driven_by(cx);
        if self.failed.is_none() {
            let (farewell, shared) = (&mut self.farewell, &self.shared);
            let read = wire::receive(&mut self.transport, cx, shared, |news| match news {
                News::GoAway(code) => *farewell = Some(code),
                news => hear(shared, news),
            });
            if let Err(error) = read {
                self.fail(error);
            }
        }
        if self.failed.is_none()
            && let Some(timer) = &mut self.timer
        {
            let checked = timer.poll(cx, &self.shared, &self.transport);
            if let Err(error) = checked {
                self.fail(error);
            }
        }
        let (is_abandoned, is_finished) = {
            let core = self.shared.borrow();
            (core.is_abandoned, core.is_finished)
        };
        if !is_abandoned && !self.transport.is_shut() {
            wire::send(&mut self.transport, cx, &self.shared);
            if is_finished && self.is_flushed() {
                // The tunnel's other direction goes on.
                let shut = self.transport.poll_shutdown(cx);
                if shut.is_ready() && self.transport.failure().is_none() {
                    self.note_shut();
                }
            }
        }
        if self.shared.settle() {
            cx.waker().wake_by_ref();
        }
        self.shared.turned();
    }

    fn is_flushed(&self) -> bool {
        !self.transport.is_dirty() && !self.shared.borrow().has_output()
    }

    /// Ready when the connection is over. Call it behind [`Driver::turn`].
    pub(crate) fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ConnectionError>> {
        let (is_abandoned, is_done, is_paused, is_idle) = {
            let core = self.shared.borrow();
            (
                core.is_abandoned,
                core.is_done(),
                // The answer may wait for its reader, although the peer takes no more of the request.
                core.is_paused && !core.awaits_answer(),
                core.is_http2() && core.is_idle(),
            )
        };
        if is_abandoned {
            return self.over(ConnectionError::Abandoned);
        }
        let is_over = self.transport.is_over();
        if self.transport.failure().is_some() && (is_over || is_paused || self.failed.is_some()) {
            let error = match (is_done, self.transport.take_failure()) {
                (false, Some(error)) => error.into(),
                _ => ConnectionError::ClosedByPeer,
            };
            return match is_done || is_idle {
                true => Poll::Ready(Ok(())),
                false => self.over(error),
            };
        }
        if self.failed.is_none() && !is_done && !(is_over && is_idle) {
            return Poll::Pending;
        }
        if let (Some(timer), Some(_), false) = (&mut self.timer, &self.failed, self.is_lingering) {
            timer.linger();
            self.is_lingering = true;
        }
        let ended = self.poll_farewell(cx);
        if ended.is_pending()
            && self.is_lingering
            && let Some(timer) = &mut self.timer
        {
            ready!(timer.poll_lingered(cx));
        } else {
            ready!(ended);
        }
        match (self.failed.take(), self.farewell) {
            (Some(error), _) => self.over(error),
            (None, None | Some(Code::NO_ERROR)) => Poll::Ready(Ok(())),
            (None, Some(code)) => self.over(ConnectionError::GoAway(code)),
        }
    }

    /// Writes the last bytes, shuts our direction down, and reads until the peer has done the same.
    fn poll_farewell(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.is_flushed() {
            return Poll::Pending;
        }
        ready!(self.transport.poll_shutdown(cx));
        if !self.lingers || self.transport.is_over() {
            return Poll::Ready(());
        }
        if let (Some(timer), false) = (&mut self.timer, self.is_lingering) {
            timer.linger();
            self.is_lingering = true;
        }
        wire::discard(&mut self.transport, cx)
    }

    fn over(&mut self, error: ConnectionError) -> Poll<Result<(), ConnectionError>> {
        let error = self.failed.take().unwrap_or(error);
        self.shared.end(error.clone());
        Poll::Ready(Err(error))
    }
}

impl<IO> Drop for Driver<IO> {
    fn drop(&mut self) {
        self.shared.end(ConnectionError::Closed);
        self.shared.drop_output();
    }
}
