//! A TLS connection's bytes, in as few system calls as its buffers allow.

use std::cell::RefCell;
use std::fmt;
use std::future::Future as _;
use std::io::{self, IoSlice, Write as _};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};

use crate::error::TlsError;

/// Bytes taken from the socket at a time: four full TLS records.
const READ_AHEAD: usize = 64 * 1024;

/// Encrypted bytes that wait for a flush at most: who gathers a write of 256 KiB flushes before.
const UNFLUSHED: usize = 320 * 1024;

thread_local! {
    /// Shared by the connections of a thread, so that an idle one holds no buffer.
    static SCRATCH: RefCell<BytesMut> = RefCell::new(BytesMut::new());
}

/// Reads more than rustls asks for: it asks for 4 KiB, a fourth of a full record.
pub(crate) struct ReadAhead<IO> {
    io: IO,
    /// Read and not yet asked for; empty between bursts.
    stash: Bytes,
    /// Bytes that `io` took.
    sent: u64,
}

impl<IO> ReadAhead<IO> {
    pub(crate) fn new(io: IO) -> Self {
        ReadAhead {
            io,
            stash: Bytes::new(),
            sent: 0,
        }
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for ReadAhead<IO> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.stash.is_empty() {
            // Taken out for the time of the read: `io` may be a TLS connection itself.
            let mut scratch = SCRATCH.take();
            let read = this.poll_fill(cx, buf, &mut scratch);
            SCRATCH.replace(scratch);
            return read;
        }
        let n = this.stash.len().min(buf.remaining());
        buf.put_slice(&this.stash[..n]);
        this.stash.advance(n);
        if this.stash.is_empty() {
            this.stash = Bytes::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl<IO: AsyncRead + Unpin> ReadAhead<IO> {
    fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
        scratch: &mut BytesMut,
    ) -> Poll<io::Result<()>> {
        scratch.clear();
        scratch.reserve(READ_AHEAD);
        let n = {
            let mut target = (&mut *scratch).limit(READ_AHEAD);
            ready!(pin!(self.io.read_buf(&mut target)).poll(cx))?
        };
        let now = n.min(buf.remaining());
        buf.put_slice(&scratch[..now]);
        if now < n {
            scratch.advance(now);
            self.stash = scratch.split().freeze();
        }
        Poll::Ready(Ok(()))
    }
}

impl<IO> ReadAhead<IO> {
    fn count(&mut self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = written {
            self.sent += bytes as u64;
        }
        written
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for ReadAhead<IO> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.io).poll_write(cx, buf);
        this.count(written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        // A list of one costs the kernel more than what it lists.
        if let [one] = bufs {
            return self.poll_write(cx, one);
        }
        let this = self.get_mut();
        let written = Pin::new(&mut this.io).poll_write_vectored(cx, bufs);
        this.count(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_shutdown(cx)
    }
}

/// An established connection.
///
/// Writes are encrypted at once and leave with the next flush, or when 320 KiB have gathered: call
/// [`AsyncWrite::poll_flush`] when there is nothing more to write, and before if that is more than may wait here.
pub struct TlsStream<IO>(tokio_rustls::TlsStream<ReadAhead<IO>>);

impl<IO> fmt::Debug for TlsStream<IO> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsStream(..)")
    }
}

impl<IO> TlsStream<IO> {
    pub(crate) fn new(mut stream: tokio_rustls::TlsStream<ReadAhead<IO>>) -> Self {
        match &mut stream {
            tokio_rustls::TlsStream::Client(s) => s.get_mut().1.set_buffer_limit(Some(UNFLUSHED)),
            tokio_rustls::TlsStream::Server(s) => s.get_mut().1.set_buffer_limit(Some(UNFLUSHED)),
        }
        TlsStream(stream)
    }

    /// The connection below.
    pub fn get_ref(&self) -> &IO {
        &self.0.get_ref().0.io
    }

    /// Encrypted bytes that the connection below took so far: they move when a part of what waits leaves, which
    /// [`AsyncWrite::poll_flush`] does not tell.
    pub fn sent(&self) -> u64 {
        self.0.get_ref().0.sent
    }
}

impl<IO: AsyncRead + AsyncWrite + Unpin> AsyncRead for TlsStream<IO> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.get_mut().0).poll_read(cx, buf);
        read.map_err(explain)
    }
}

/// Puts an alert of the peer into words.
fn explain(error: io::Error) -> io::Error {
    let kind = error.kind();
    match error
        .get_ref()
        .and_then(|e| e.downcast_ref::<rustls::Error>())
    {
        Some(source) => io::Error::new(kind, TlsError::from_rustls(source)),
        None => error,
    }
}

impl<IO: AsyncRead + AsyncWrite + Unpin> TlsStream<IO> {
    /// Encrypts as much as there is room for, by way of `encrypt`; writes to the socket only to make room.
    fn poll_encrypt(
        &mut self,
        cx: &mut Context<'_>,
        encrypt: impl Fn(&mut rustls::Writer<'_>) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            let n = match &mut self.0 {
                tokio_rustls::TlsStream::Client(s) => encrypt(&mut s.get_mut().1.writer()),
                tokio_rustls::TlsStream::Server(s) => encrypt(&mut s.get_mut().1.writer()),
            }?;
            if n > 0 {
                return Poll::Ready(Ok(n));
            }
            ready!(Pin::new(&mut self.0).poll_flush(cx))?;
        }
    }
}

impl<IO: AsyncRead + AsyncWrite + Unpin> AsyncWrite for TlsStream<IO> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        if buf.is_empty() {
            return Poll::Ready(Ok(0));
        }
        self.get_mut().poll_encrypt(cx, |writer| writer.write(buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if bufs.iter().all(|buf| buf.is_empty()) {
            return Poll::Ready(Ok(0));
        }
        self.get_mut()
            .poll_encrypt(cx, |writer| writer.write_vectored(bufs))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_shutdown(cx)
    }
}
