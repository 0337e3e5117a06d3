//! One flush a turn: what all streams of a tunnel have to say leaves in one write.
//!
//! The HTTP/2 layer flushes after every larger frame. Below it lies a buffer (the TLS connection's), so
//! those flushes can wait until the tunnel's task has gathered everything; nothing waits longer than that.

use std::cell::{Cell, RefCell};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

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
}

impl<IO> Batch<IO> {
    pub(crate) fn new(io: IO) -> Self {
        Batch(Rc::new(Shared {
            io: RefCell::new(io),
            eager: Cell::new(true),
            dirty: Cell::new(false),
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
}

impl<IO: AsyncWrite + Unpin> Batch<IO> {
    /// Pays the flush that is owed, as far as the stream takes it.
    pub(crate) fn poll_owed(&self, cx: &mut Context<'_>) -> io::Result<()> {
        if !self.0.dirty.get() {
            return Ok(());
        }
        match Pin::new(&mut *self.0.io.borrow_mut()).poll_flush(cx) {
            // The waker is registered: the next turn tries again.
            Poll::Pending => Ok(()),
            Poll::Ready(result) => {
                self.0.dirty.set(false);
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
        Pin::new(&mut *self.0.io.borrow_mut()).poll_read(cx, buf)
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for Batch<IO> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0.io.borrow_mut()).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0.io.borrow_mut()).poll_write_vectored(cx, bufs)
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
