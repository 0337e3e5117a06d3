//! Bytes of another protocol behind an accepted upgrade or CONNECT.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::error::Error;
use crate::stream::Stream;

/// A byte stream within a connection: all of an HTTP/1 connection behind its upgrade (RFC 9110 §7.8), or a stream of
/// HTTP/2 (RFC 9113 §8.5, RFC 8441). It may carry another connection of this crate.
///
/// The connection must be driven on for as long as the tunnel lives.
#[derive(Debug)]
pub struct Tunnel {
    stream: Stream,
    /// Bytes that came and did not fit into the reader's buffer.
    rest: Bytes,
}

impl Tunnel {
    pub(crate) fn new(stream: Stream) -> Self {
        Tunnel {
            stream,
            rest: Bytes::new(),
        }
    }

    /// The next bytes without a copy; none at the end.
    pub fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Error>> {
        if self.rest.is_empty() {
            return self.stream.poll_data(cx);
        }
        Poll::Ready(Ok(Some(std::mem::take(&mut self.rest))))
    }

    /// Sends from the front of `bytes` without a copy, as there is room: ready when nothing is left.
    pub fn poll_send(&self, cx: &mut Context<'_>, bytes: &mut Bytes) -> Poll<Result<(), Error>> {
        self.stream.poll_send(cx, bytes)
    }

    /// Ready when the peer has given the tunnel up, or the connection has ended.
    pub fn poll_gone(&self, cx: &mut Context<'_>) -> Poll<Error> {
        self.stream.poll_gone(cx)
    }

    /// Ends our direction. The other one goes on.
    pub fn finish(&self) -> Result<(), Error> {
        self.stream.finish()
    }

    /// Ready when our direction, which is finished, needs the driver no more. Over HTTP/1 all of its bytes were written then, and the byte
    /// stream is shut down. Over HTTP/2 the connection goes on, and sends the rest of a stream that is dropped.
    ///
    /// # Errors
    /// The connection ended before.
    pub fn poll_sent(&self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.stream.poll_sent(cx)
    }

    /// True if both directions have ended. One that is dropped before is reset over HTTP/2.
    pub fn is_complete(&self) -> bool {
        self.stream.is_complete()
    }

    /// Bytes that were sent over HTTP/1 and wait to be written.
    pub fn unsent(&self) -> usize {
        let core = self.stream.shared.borrow();
        match core.is_http2() {
            true => 0,
            false => core.queued(),
        }
    }
}

impl AsyncRead for Tunnel {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.rest.is_empty() {
            match ready!(self.stream.poll_data(cx))? {
                Some(bytes) => self.rest = bytes,
                None => return Poll::Ready(Ok(())),
            }
        }
        let length = buffer.remaining().min(self.rest.len());
        buffer.put_slice(&self.rest[..length]);
        self.rest.advance(length);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Tunnel {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let taken = ready!(self.stream.poll_copy(cx, bytes))?;
        Poll::Ready(Ok(taken))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The connection's driver writes at its next turn.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(self.stream.finish()?))
    }
}
