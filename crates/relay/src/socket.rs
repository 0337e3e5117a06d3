//! A TCP connection in a relay, which learns of its peer's reset even while nobody reads from it.

use std::fmt;
use std::future::Future;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

use crate::chunk::Chunk;
use crate::direction::PIECES;
use crate::duplex::Duplex;
use crate::quickack::{QuickAck, clock};
use crate::scratch::{ReadSize, read_some};

/// A TCP connection to be relayed.
pub struct Socket {
    stream: Rc<TcpStream>,
    /// Waits for an error of the socket. Bytes that come do not wake it: a reader that waits for its writer sleeps on.
    /// Made when that first happens, and kept.
    watch: Option<Pin<Box<dyn Future<Output = ()>>>>,
    quickack: QuickAck,
}

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Socket").field(&self.stream).finish()
    }
}

impl From<TcpStream> for Socket {
    fn from(stream: TcpStream) -> Self {
        Socket {
            stream: Rc::new(stream),
            watch: None,
            quickack: QuickAck::default(),
        }
    }
}

/// Has the close of `stream` tell its peer of a reset and not of an orderly end.
pub fn reset_on_close(stream: &TcpStream) {
    // RFC 9293 §3.10.5: a close with linger zero sends RST. It fails only on a dead socket.
    let _ = socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO));
}

impl Socket {
    /// Its own address and its peer's, as the socket's family spells them.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn addresses(&self) -> io::Result<(SocketAddr, SocketAddr)> {
        Ok((self.stream.local_addr()?, self.stream.peer_addr()?))
    }

    /// The socket's error, which nobody else will see then; `Pending` while there is none.
    fn poll_error(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        loop {
            let watch = self.watch.get_or_insert_with(|| {
                let stream = Rc::clone(&self.stream);
                // It fails when the runtime ends, and the relay with it.
                Box::pin(async move { drop(stream.ready(Interest::ERROR).await) })
            });
            ready!(watch.as_mut().poll(cx));
            self.watch = None;
            match self.stream.take_error() {
                Ok(Some(error)) | Err(error) => return Poll::Ready(error),
                // A read or a write met it first, and told. The readiness would be there for good.
                Ok(None) => {
                    let seen: io::Result<()> = self
                        .stream
                        .try_io(Interest::ERROR, || Err(io::ErrorKind::WouldBlock.into()));
                    debug_assert!(seen.is_err());
                }
            }
        }
    }

    /// Does `once` when the socket is ready for `interest` and gives what it moved of `length` bytes.
    ///
    /// Less than `length` shows that the kernel has no more, or no more room: the next attempt waits and asks it
    /// nothing.
    fn attempt(
        &self,
        interest: Interest,
        length: usize,
        once: impl FnOnce(&TcpStream) -> io::Result<usize>,
    ) -> Option<io::Result<usize>> {
        let mut moved = 0;
        let result = self.stream.try_io(interest, || {
            moved = once(&self.stream)?;
            match moved {
                1.. if moved < length => Err(io::ErrorKind::WouldBlock.into()),
                _ => Ok(()),
            }
        });
        match result {
            Err(e) if moved == 0 && e.kind() == io::ErrorKind::WouldBlock => None,
            Err(e) if moved == 0 => Some(Err(e)),
            _ => Some(Ok(moved)),
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.stream.poll_read_ready(cx))?;
            let length = buf.remaining();
            let read = |stream: &TcpStream| stream.try_read_buf(buf);
            let Some(result) = self.attempt(Interest::READABLE, length, read) else {
                continue;
            };
            if let Ok(1..) = result
                && buf.remaining() > 0
                && self.quickack.read(clock)
            {
                // It fails only on a dead socket, which the next read tells.
                let _ = self.stream.set_quickack(true);
            }
            return Poll::Ready(result.map(drop));
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.stream.poll_write_ready(cx))?;
            let write = |stream: &TcpStream| stream.try_write(bytes);
            if let Some(result) = self.attempt(Interest::WRITABLE, bytes.len(), write) {
                self.quickack.wrote();
                return Poll::Ready(result);
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(socket2::SockRef::from(&*self.stream).shutdown(std::net::Shutdown::Write))
    }
}

impl Duplex for Socket {
    const QUEUES: bool = false;

    // What waits is the kernel's, within the socket's bounds, and its windows open in large steps.
    const GRACE: Duration = Duration::from_secs(10);

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
        while !bytes.is_empty() {
            match ready!(AsyncWrite::poll_write(Pin::new(self), cx, bytes))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                n => bytes.advance(n),
            }
        }
        Poll::Ready(Ok(()))
    }

    fn poll_write_borrowed(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        AsyncWrite::poll_write(Pin::new(self), cx, bytes)
    }

    fn poll_write_gathered(
        &mut self,
        cx: &mut Context<'_>,
        pieces: &[Bytes],
    ) -> Poll<io::Result<usize>> {
        let mut slices = [IoSlice::new(&[]); PIECES];
        for (slice, piece) in slices.iter_mut().zip(pieces) {
            *slice = IoSlice::new(piece);
        }
        let slices = &slices[..pieces.len().min(PIECES)];
        let length = slices.iter().map(|slice| slice.len()).sum();
        loop {
            ready!(self.stream.poll_write_ready(cx))?;
            let write = |stream: &TcpStream| stream.try_write_vectored(slices);
            if let Some(result) = self.attempt(Interest::WRITABLE, length, write) {
                self.quickack.wrote();
                return Poll::Ready(result);
            }
        }
    }

    fn hold(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        match ready!(self.poll_error(cx)) {
            // What the kernel makes of a reset behind an end: all that the peer sent is here.
            error if error.kind() == io::ErrorKind::BrokenPipe => Poll::Pending,
            error => Poll::Ready(error),
        }
    }

    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        self.poll_error(cx)
    }

    fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match Pin::new(self).poll_shutdown(cx) {
            // The peer is gone already: there is nobody to tell.
            Poll::Ready(Err(e)) if e.kind() == io::ErrorKind::NotConnected => Poll::Ready(Ok(())),
            other => other,
        }
    }

    fn abort(&mut self) {
        reset_on_close(&self.stream);
    }
}
