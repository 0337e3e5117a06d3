//! A tunnel's byte stream, as the HTTP/2 layer sees it: one flush a turn, and a [`Guard`] that sees every byte first.
//!
//! The HTTP/2 layer flushes after every larger frame. Below it lies a buffer (the TLS connection's), so
//! those flushes can wait until the tunnel's task has gathered everything; nothing waits longer than that.

use std::cell::{Cell, RefCell};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use lateen_h2::Abuse;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use crate::error::TunnelError;
use crate::guard::{Guard, Passing};
use crate::outbox::Outbox;
use crate::settings::Settings;
use crate::windows::Inflow;

/// The byte stream of a tunnel, shared by the HTTP/2 layer and the task that flushes.
#[derive(Debug)]
pub(crate) struct Batch<IO>(Rc<Shared<IO>>);

#[derive(Debug)]
struct Shared<IO> {
    io: RefCell<IO>,
    /// Flushes pass through: there is no task yet that would flush.
    eager: Cell<bool>,
    /// A flush is owed.
    dirty: Cell<bool>,
    guard: RefCell<Guard>,
    outbox: Rc<Outbox>,
    /// Ends of streams that the peer has sent and the HTTP/2 layer may not have looked at: it stops between two frames of
    /// a read while it cannot write, and streams go on meanwhile. It asks for more only when it has seen all.
    unheard: RefCell<Vec<Passing>>,
    /// Bytes that came.
    received: Cell<u64>,
    /// Writes that were begun and may have taken something with them.
    writes: Rc<Cell<u64>>,
    /// Since when the stream takes nothing.
    stuck: Cell<Option<Instant>>,
}

impl<IO> Batch<IO> {
    pub(crate) fn new(io: IO, server: bool, settings: &Settings) -> Self {
        Batch(Rc::new(Shared {
            io: RefCell::new(io),
            eager: Cell::new(true),
            dirty: Cell::new(false),
            guard: RefCell::new(Guard::new(server, settings.max_header_list, Instant::now())),
            outbox: Rc::new(Outbox::new(
                &settings.send_budget,
                settings.tunnel_send_buffer,
            )),
            unheard: RefCell::default(),
            received: Cell::new(0),
            writes: Rc::default(),
            stuck: Cell::new(None),
        }))
    }

    /// The handle of the task that calls [`Batch::poll_owed`] after every turn from now on.
    pub(crate) fn handle(&self) -> Self {
        Batch(Rc::clone(&self.0))
    }

    /// Flushes wait from now on.
    pub(crate) fn gather(&self) {
        self.0.eager.set(false);
        // What was written without a flush, such as the client's preface, is owed too.
        self.0.dirty.set(true);
    }

    /// The account of what waits to be written.
    pub(crate) fn outbox(&self) -> &Rc<Outbox> {
        &self.0.outbox
    }

    /// Bytes that came so far.
    pub(crate) fn received(&self) -> u64 {
        self.0.received.get()
    }

    /// Counts every write that took anything, and every one that failed, for a part of it may have left before. While
    /// it stands still nothing has gone to the peer.
    pub(crate) fn writes(&self) -> &Rc<Cell<u64>> {
        &self.0.writes
    }

    /// The connection's flow control so far.
    pub(crate) fn inflow(&self) -> Inflow {
        self.0.guard.borrow().inflow()
    }

    /// What the peer is guilty of, if anything; from then on nothing is read from it.
    pub(crate) fn abuse(&self) -> Option<Abuse> {
        self.0.guard.borrow().verdict()
    }

    /// What the HTTP/2 layer ended with, by the name of the abuse if that is why.
    pub(crate) fn explain(&self, error: TunnelError) -> TunnelError {
        match (error, self.0.guard.borrow().found_below()) {
            (TunnelError::Protocol(_), Some(abuse)) => TunnelError::Abusive(abuse),
            (error, _) => error,
        }
    }

    /// Requests were reset before they were answered.
    pub(crate) fn unanswered(&self, count: u64) {
        for _ in 0..count {
            self.0.guard.borrow_mut().unanswered(Instant::now);
        }
    }

    /// For how long the stream has taken nothing of what there is to write.
    pub(crate) fn stuck_for(&self) -> Duration {
        self.0
            .stuck
            .get()
            .map_or(Duration::ZERO, |since| since.elapsed())
    }

    fn wrote(&self, result: &Poll<io::Result<usize>>, parts: &[IoSlice<'_>]) {
        if result.is_ready() {
            self.0.writes.set(self.0.writes.get() + 1);
        }
        match result {
            Poll::Pending if self.0.stuck.get().is_none() => {
                self.0.stuck.set(Some(Instant::now()));
            }
            Poll::Ready(Ok(written)) => {
                self.0.stuck.set(None);
                let mut left = *written;
                let mut guard = self.0.guard.borrow_mut();
                for part in parts {
                    let n = left.min(part.len());
                    guard.sent(&part[..n], Instant::now, |passing| {
                        self.0.outbox.passed(passing)
                    });
                    left -= n;
                    if left == 0 {
                        break;
                    }
                }
            }
            _ => {}
        }
    }
}

impl<IO: AsyncWrite + Unpin> Batch<IO> {
    /// Pays the flush that is owed, as far as the stream takes it.
    pub(crate) fn poll_owed(&self, cx: &mut Context<'_>) -> io::Result<()> {
        if !self.0.dirty.get() {
            return Ok(());
        }
        match Pin::new(&mut *self.0.io.borrow_mut()).poll_flush(cx) {
            // The waker is registered: the next turn tries again.
            Poll::Pending => {
                if self.0.stuck.get().is_none() {
                    self.0.stuck.set(Some(Instant::now()));
                }
                Ok(())
            }
            Poll::Ready(result) => {
                self.0.dirty.set(false);
                self.0.stuck.set(None);
                result
            }
        }
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for Batch<IO> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.abuse().is_some() {
            return Poll::Pending;
        }
        if !self.0.unheard.borrow().is_empty() {
            for passing in self.0.unheard.take() {
                self.0.outbox.passed(passing);
            }
        }
        let before = buf.filled().len();
        let read = Pin::new(&mut *self.0.io.borrow_mut()).poll_read(cx, buf);
        if matches!(read, Poll::Ready(Ok(()))) {
            let bytes = &buf.filled()[before..];
            self.0
                .received
                .set(self.0.received.get() + bytes.len() as u64);
            let mut guard = self.0.guard.borrow_mut();
            guard.received(bytes, Instant::now, |passing| match passing {
                Passing::Closed(_) | Passing::Away(_) => self.0.unheard.borrow_mut().push(passing),
                Passing::Granted(_) | Passing::Sent(..) => self.0.outbox.passed(passing),
            });
            if guard.verdict().is_some() {
                // The tunnel's task finds the verdict at the end of this turn.
                buf.set_filled(before);
                return Poll::Pending;
            }
        }
        read
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for Batch<IO> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut *self.0.io.borrow_mut()).poll_write(cx, buf);
        self.wrote(&result, &[IoSlice::new(buf)]);
        result
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut *self.0.io.borrow_mut()).poll_write_vectored(cx, bufs);
        self.wrote(&result, bufs);
        result
    }

    fn is_write_vectored(&self) -> bool {
        self.0.io.borrow().is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.0.eager.get() {
            return Pin::new(&mut *self.0.io.borrow_mut()).poll_flush(cx);
        }
        self.0.dirty.set(true);
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0.io.borrow_mut()).poll_shutdown(cx)
    }
}
