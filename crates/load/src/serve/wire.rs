//! Byte stream of one connection, with TLS or without, and the facts that its owner needs of it.

use std::cell::Cell;
use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;

/// Bytes that one read takes before the protocol is known.
const FIRST: usize = 1024;

/// Facts of a byte stream, which its owner reads and sets while a protocol holds the stream.
#[derive(Debug, Default)]
pub struct Facts {
    /// The peer has sent its last byte, or the connection broke.
    pub ended: Cell<bool>,
    /// Nothing that is written arrives any more.
    pub broken: Cell<bool>,
    /// A byte has moved in either direction since the owner looked.
    pub moved: Cell<bool>,
    /// The next write goes without TCP_NODELAY.
    pub delays: Cell<bool>,
    /// Each answer that waits for its delay holds a reference.
    pub delayed: Rc<()>,
}

/// A stream over TCP: clear text, or TLS behind its handshake.
pub type Stream = Either<TcpStream, Box<TlsStream<TcpStream>>>;

/// A byte stream that takes notes in its [`Facts`].
#[derive(Debug)]
pub struct Wire {
    stream: Stream,
    /// Bytes that [`Wire::fill`] read, for the next reader.
    begin: BytesMut,
    facts: Rc<Facts>,
    /// TCP_NODELAY as it is set.
    nodelay: bool,
}

impl Wire {
    /// The stream of a socket whose listener sets TCP_NODELAY.
    pub fn new(stream: Stream, facts: Rc<Facts>) -> Wire {
        Wire {
            stream,
            begin: BytesMut::new(),
            facts,
            nodelay: true,
        }
    }

    /// The bytes that were read ahead. The next reader gets them first.
    pub fn begin(&self) -> &[u8] {
        &self.begin
    }

    /// Reads more bytes ahead. False at the end of the stream.
    ///
    /// # Errors
    /// The stream failed.
    pub async fn fill(&mut self) -> io::Result<bool> {
        let mut begin = std::mem::take(&mut self.begin);
        begin.reserve(FIRST);
        let count = self.read_buf(&mut begin).await;
        self.begin = begin;
        Ok(count? > 0)
    }

    fn prepare_write(&mut self) {
        let nodelay = !self.facts.delays.get();
        if nodelay == self.nodelay {
            return;
        }
        let socket = match &self.stream {
            Stream::Left(tcp) => tcp,
            Stream::Right(tls) => tls.get_ref().0,
        };
        if socket.set_nodelay(nodelay).is_ok() {
            self.nodelay = nodelay;
        }
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let wire = &mut *self;
        if !wire.begin.is_empty() {
            let count = wire.begin.len().min(into.remaining());
            into.put_slice(&wire.begin[..count]);
            wire.begin.advance(count);
            return Poll::Ready(Ok(()));
        }
        let before = into.filled().len();
        match ready!(Pin::new(&mut wire.stream).poll_read(cx, into)) {
            Ok(()) if into.filled().len() > before => wire.facts.moved.set(true),
            Ok(()) => wire.facts.ended.set(true),
            // A peer that omits close_notify has ended: the framing of HTTP shows a message that was cut.
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => wire.facts.ended.set(true),
            Err(error) => {
                wire.facts.broken.set(true);
                return Poll::Ready(Err(error));
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.prepare_write();
        let written = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, pieces));
        match &written {
            Ok(_) => self.facts.moved.set(true),
            Err(_) => self.facts.broken.set(true),
        }
        Poll::Ready(written)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
