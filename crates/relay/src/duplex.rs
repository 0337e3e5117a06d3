//! What a stream must offer to be relayed.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use tokio::io::AsyncWrite;
use tokio::net::TcpStream;

use crate::scratch::{ReadSize, read_some};

/// Bytes that were read: lent for the moment, or owned without a copy.
#[derive(Debug)]
pub enum Chunk<'a> {
    /// In the thread's read buffer; copy what must be kept.
    Borrowed(&'a [u8]),
    /// Reference-counted; keeping it costs nothing more.
    Owned(Bytes),
    /// The peer finished this direction.
    End,
}

/// A byte stream with two directions that end independently.
pub trait Duplex {
    /// True when [`Duplex::poll_write`] queues the bytes it is given, so that a reader had better
    /// make owned chunks for it.
    const QUEUES: bool;

    /// Reads once and hands the chunk to `take` before returning.
    ///
    /// `owned` is the writer's [`Duplex::QUEUES`]; a stream whose chunks are owned anyway ignores it.
    /// After [`Chunk::End`] it is not called again.
    ///
    /// # Errors
    /// The stream was reset or broke.
    fn poll_read<T>(
        &mut self,
        cx: &mut Context<'_>,
        size: &mut ReadSize,
        owned: bool,
        take: impl FnOnce(&mut Context<'_>, Chunk<'_>) -> T,
    ) -> Poll<io::Result<T>>;

    /// Writes from the front of `bytes` and advances them by what was taken; `Ready` means that all were.
    ///
    /// # Errors
    /// The stream was reset or broke.
    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &mut Bytes) -> Poll<io::Result<()>>;

    /// Writes a borrowed chunk as far as the stream takes it at once; returns how much it took.
    /// `Pending` registers for more room, as in [`Duplex::poll_write`].
    ///
    /// # Errors
    /// The stream was reset or broke.
    fn poll_write_borrowed(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>>;

    /// What a read for this stream had better not exceed, in bytes: less when much waits for its peer already.
    fn advice(&self) -> usize {
        usize::MAX
    }

    /// Called while the other stream takes no more: what came meanwhile, if it is here and not in the
    /// kernel, is to be kept in as little memory as it needs. Registers for what comes later.
    fn hold(&mut self, _cx: &mut Context<'_>) {}

    /// Ends our direction; the other one goes on.
    ///
    /// # Errors
    /// The stream was reset or broke.
    fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Ends both directions so that the peer sees a reset and not an orderly end.
    fn abort(&mut self);
}

impl Duplex for TcpStream {
    const QUEUES: bool = false;

    fn poll_read<T>(
        &mut self,
        cx: &mut Context<'_>,
        size: &mut ReadSize,
        owned: bool,
        take: impl FnOnce(&mut Context<'_>, Chunk<'_>) -> T,
    ) -> Poll<io::Result<T>> {
        read_some(Pin::new(self), cx, size, owned, take)
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &mut Bytes) -> Poll<io::Result<()>> {
        write_all(Pin::new(self), cx, bytes)
    }

    fn poll_write_borrowed(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        AsyncWrite::poll_write(Pin::new(self), cx, bytes)
    }

    fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match Pin::new(self).poll_shutdown(cx) {
            // The peer is gone already: there is nobody to tell.
            Poll::Ready(Err(e)) if e.kind() == io::ErrorKind::NotConnected => Poll::Ready(Ok(())),
            other => other,
        }
    }

    fn abort(&mut self) {
        // RFC 9293 §3.10.5: a close with linger zero sends RST. It fails only on a dead socket.
        let _ = socket2::SockRef::from(&*self).set_linger(Some(std::time::Duration::ZERO));
    }
}

/// Writes until `bytes` are empty or the stream is full.
fn write_all<IO: AsyncWrite + ?Sized>(
    mut io: Pin<&mut IO>,
    cx: &mut Context<'_>,
    bytes: &mut Bytes,
) -> Poll<io::Result<()>> {
    while !bytes.is_empty() {
        match io.as_mut().poll_write(cx, bytes) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Err(e)) => return Poll::Ready(Err(e)),
            Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            Poll::Ready(Ok(n)) => bytes.advance(n),
        }
    }
    Poll::Ready(Ok(()))
}
