//! Requests of a tunnel's client, and the connection below.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use lateen_h2::{Code, Connection, Field, Prebuilt, RequestError, StreamId};
use tokio::io::{AsyncRead, AsyncWrite};

use super::request::ConnectRequest;
use crate::driver::{
    Below, Broken, EndOnDrop, News, Shared, Wire, begin, farewell, is_visible, set_allowance,
};
use crate::ended::Ended;
use crate::error::{ConnectError, Reason, TunnelError};
use crate::headers::{self, Baggage};
use crate::load::{Load, Slot};
use crate::recv_window::RecvWindow;
use crate::settings::Settings;
use crate::stream::Stream;

/// Streams that a peer is assumed to allow until its SETTINGS arrive: one less than what RFC 9113 §6.5.2 recommends as the
/// least, for only a limit that changes is known to be the peer's, and 100 is what many announce. Requests that turn out
/// to be too many are not lost, see [`ConnectError::Unprocessed`].
pub(super) const ASSUMED_LIMIT: usize = 99;

thread_local! {
    /// What every request begins with, encoded once.
    static CONNECT: Prebuilt = Prebuilt::new([Field::new(":method", "CONNECT")]);
}

/// The way to make requests. When it is closed or dropped the driver ends the connection with its last stream.
#[derive(Debug)]
pub(crate) struct Handle {
    shared: Shared,
}

impl Handle {
    pub(crate) fn is_open(&self) -> bool {
        !self.shared.borrow().is_closed()
    }

    #[cfg(test)]
    pub(crate) fn shared(&self) -> Shared {
        self.shared.clone()
    }

    /// True if a request has a chance.
    pub(crate) fn is_alive(&self) -> bool {
        !self.shared.borrow().is_leaving()
    }

    /// Makes no more requests; `true` if it could before.
    pub(crate) fn close(&self) -> bool {
        let was_open = self.shared.borrow().close();
        if was_open {
            self.shared.wake();
        }
        was_open
    }

    /// Makes a request.
    pub(crate) fn ask(&self, request: &ConnectRequest) -> Result<Asking, ConnectError> {
        let closed = || ConnectError::Unprocessed(Reason::told(Code::NO_ERROR));
        if !self.is_open() {
            return Err(closed());
        }
        let authority = request.authority.to_string();
        let forwarded = request.forwarded.as_ref().map(ToString::to_string);
        let traceparent = request.traceparent.as_ref().map(ToString::to_string);
        let mut fields = [Field::new(":authority", &authority); 5];
        let mut count = 1;
        for (name, value, keep) in [
            (headers::BAGGAGE, request.baggage.as_deref(), true),
            (headers::FORWARDED, forwarded.as_deref(), false),
            (headers::TRACEPARENT, traceparent.as_deref(), false),
            (headers::FORWARDED_NETWORK, request.network.as_deref(), true),
        ] {
            let Some(value) = value else { continue };
            if !is_visible(value) {
                let why = "a header holds characters that http does not allow";
                return Err(ConnectError::Invalid(why));
            }
            let field = Field::new(name, value.trim_matches([' ', '\t']));
            fields[count] = if keep { field.kept() } else { field };
            count += 1;
        }
        let id = CONNECT.with(|connect| {
            self.shared.act(|core| {
                if let Some(ended) = core.ended() {
                    let how = Reason::lost(ended.clone());
                    return Err(ConnectError::Unprocessed(how));
                }
                let asked = core.http2.request(Some(connect), &fields[..count], false);
                let id = asked.map_err(|error| match error {
                    RequestError::TooMany => {
                        ConnectError::Unprocessed(Reason::told(Code::REFUSED_STREAM))
                    }
                    RequestError::HeaderList => {
                        ConnectError::Invalid("its headers are more than the peer accepts")
                    }
                    RequestError::ExtendedConnect => {
                        ConnectError::Invalid("its peer takes no extended connect")
                    }
                    RequestError::Closing | RequestError::Exhausted => closed(),
                })?;
                core.open(id);
                Ok(id)
            })
        })?;
        Ok(Asking {
            shared: self.shared.clone(),
            id,
            ours: true,
        })
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.wake();
    }
}

/// A request under way. Dropped before it is a stream, it is reset.
#[derive(Debug)]
pub(crate) struct Asking {
    shared: Shared,
    id: StreamId,
    /// It is let go here, and by nobody else.
    ours: bool,
}

impl Asking {
    pub(crate) fn poll_answer(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(u16, Option<Baggage>), ConnectError>> {
        let result = {
            let mut core = self.shared.borrow();
            let ended = core.ended().cloned();
            let entry = core.entry(self.id);
            let (answer, broken) = entry.map_or((None, None), |e| (e.answer.take(), e.broken));
            match (answer, broken) {
                (Some(answer), _) => Some(Ok((answer.status, answer.baggage))),
                (None, Some(Broken::Reset(Code::REFUSED_STREAM))) => Some(Err(
                    ConnectError::Unprocessed(Reason::told(Code::REFUSED_STREAM)),
                )),
                (None, Some(Broken::Reset(code))) => {
                    Some(Err(ConnectError::Reset(Reason::told(code))))
                }
                (None, Some(Broken::LeftOut)) => {
                    Some(Err(ConnectError::Unprocessed(Reason::told(Code::NO_ERROR))))
                }
                (None, None) => ended.map(|how| Err(ConnectError::Lost(Reason::lost(how)))),
            }
        };
        match result {
            Some(result) => Poll::Ready(result),
            None => {
                self.shared.wait(self.id, cx, |entry| &mut entry.reader);
                Poll::Pending
            }
        }
    }

    pub(crate) fn open(mut self, slot: Slot) -> Stream {
        self.ours = false;
        Stream::new(self.shared.clone(), self.id, slot)
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        if self.ours {
            self.shared.let_go(self.id);
        }
    }
}

/// The connection below a tunnel.
pub(crate) struct Link<IO: AsyncRead + AsyncWrite + Unpin> {
    shared: Shared,
    wire: Wire<IO>,
    farewell: Option<Code>,
    /// A PING was answered.
    pong: bool,
    _end: EndOnDrop,
}

impl<IO: AsyncRead + AsyncWrite + Unpin> Link<IO> {
    /// Begins to write, to see whether anybody is there.
    pub(crate) async fn new(
        io: IO,
        settings: &Settings,
    ) -> Result<(Handle, Self, Rc<Load>), TunnelError> {
        let (shared, load) = begin(settings, u32::MAX, Connection::client);
        let handle = Handle {
            shared: shared.clone(),
        };
        let mut link = Link {
            _end: EndOnDrop(shared.clone()),
            shared,
            wire: Wire::new(io),
            farewell: None,
            pong: false,
        };
        let written = poll_fn(|cx| {
            link.wire.poll_send(cx, &link.shared);
            Poll::Ready(link.wire.check())
        });
        written.await.map_err(TunnelError::Io)?;
        Ok((handle, link, load))
    }

    pub(crate) fn shared(&self) -> Shared {
        self.shared.clone()
    }

    pub(crate) fn ask(&mut self, below: Below<IO>) {
        self.wire.ask(below);
    }

    pub(crate) fn writes(&self) -> &Rc<Cell<u64>> {
        self.wire.writes()
    }

    pub(crate) fn received(&self) -> u64 {
        self.wire.received()
    }

    pub(crate) fn moved(&self) -> u32 {
        self.wire.moved()
    }

    pub(crate) fn stuck_for(&self) -> Duration {
        self.wire.stuck_for()
    }

    pub(crate) fn tick(&mut self, recv_window: &mut RecvWindow, load: &Load) {
        let mut core = self.shared.borrow();
        set_allowance(&mut core, recv_window, load, true);
        core.rest();
    }

    /// Reads and writes; ends with the last stream unless it `stays`.
    pub(crate) fn poll_turn(
        &mut self,
        cx: &mut Context<'_>,
        stays: bool,
        recv_window: &mut RecvWindow,
        load: &Load,
    ) -> Poll<Result<(), TunnelError>> {
        self.shared.driven_by(cx);
        let Link {
            shared,
            wire,
            farewell: told,
            pong,
            ..
        } = self;
        let read = wire.poll_receive(cx, shared, |news| match news {
            News::Pong => *pong = true,
            News::GoAway(code) => *told = Some(code),
            _ => {}
        });
        {
            let mut core = shared.borrow();
            set_allowance(&mut core, recv_window, load, false);
            if !stays && load.active() == 0 {
                core.http2.drain();
            }
        }
        // What was asked of a peer that has left never leaves us.
        if !wire.is_over() {
            wire.poll_send(cx, shared);
        }
        shared.turned();
        read?;
        if wire.is_over() {
            return Poll::Ready(farewell(*told));
        }
        if shared.borrow().http2.is_done() && !wire.is_dirty() {
            // It is over whether or not the peer hears of it.
            std::task::ready!(wire.poll_shutdown(cx));
            return Poll::Ready(farewell(*told));
        }
        Poll::Pending
    }

    /// True if a PING was answered since this was asked last.
    pub(crate) fn was_answered(&mut self) -> bool {
        std::mem::take(&mut self.pong)
    }

    /// What could not be written.
    pub(crate) fn check(&self) -> io::Result<()> {
        self.wire.check()
    }

    /// Streams that the peer allows at once, and whether that is its word.
    pub(crate) fn limit(&self) -> (usize, bool) {
        let core = self.shared.borrow();
        match core.http2.is_acquainted() {
            true => (core.http2.limit(), true),
            false => (ASSUMED_LIMIT, false),
        }
    }

    /// True if the peer said that it was done, and no stream is left.
    pub(crate) fn went_in_order(&self) -> bool {
        self.farewell == Some(Code::NO_ERROR) && self.shared.borrow().http2.active() == 0
    }

    /// Tells those who are on the tunnel how it ended.
    pub(crate) fn end(&self, result: &Result<(), TunnelError>) {
        self.shared.end(match result {
            Ok(()) => Ended::closed(),
            Err(error) => error.ended(),
        });
    }
}
