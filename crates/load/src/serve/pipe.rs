//! What stands between a socket that the service's loop drives and a library that wants a stream of
//! its own: bytes in memory, in both directions.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// How many bytes may wait to be sent before the library has to wait, too.
const ROOM: usize = 128 * 1024;

/// Bytes on their way.
#[derive(Debug, Default)]
pub struct Bytes {
    /// Arrived and not read.
    pub inbound: BytesMut,
    /// Nothing arrives after `inbound`.
    pub ended: bool,
    /// To be sent.
    pub outbound: BytesMut,
}

/// The library's end. Whoever changes the bytes polls the library again; nobody is woken.
#[derive(Debug, Clone, Default)]
pub struct Pipe(pub Rc<RefCell<Bytes>>);

impl AsyncRead for Pipe {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let bytes = &mut *self.0.borrow_mut();
        if bytes.inbound.is_empty() && !bytes.ended {
            return Poll::Pending;
        }
        let count = bytes.inbound.len().min(into.remaining());
        into.put_slice(&bytes.inbound[..count]);
        bytes.inbound.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        from: &[u8],
    ) -> Poll<io::Result<usize>> {
        let bytes = &mut *self.0.borrow_mut();
        if bytes.outbound.len() >= ROOM {
            return Poll::Pending;
        }
        bytes.outbound.extend_from_slice(from);
        Poll::Ready(Ok(from.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
