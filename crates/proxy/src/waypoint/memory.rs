//! A connection in memory, whose peer is a benchmark.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Our end of a connection. Clones share it: one is the proxy's, the benchmark feeds the other.
#[derive(Clone, Debug, Default)]
pub struct Memory(Rc<RefCell<Buffers>>);

#[derive(Debug, Default)]
struct Buffers {
    input: Vec<u8>,
    output: Vec<u8>,
    reader: Option<Waker>,
}

impl Memory {
    /// Gives the proxy bytes to read.
    pub fn give(&self, bytes: &[u8]) {
        let reader = {
            let mut buffers = self.0.borrow_mut();
            buffers.input.extend_from_slice(bytes);
            buffers.reader.take()
        };
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    /// Takes the bytes that the proxy has written.
    pub fn take(&self) -> Vec<u8> {
        let output = &mut self.0.borrow_mut().output;
        let taken = output.clone();
        // The buffer stays, so that the proxy's next write allocates nothing.
        output.clear();
        taken
    }
}

impl AsyncRead for Memory {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let buffers = &mut *self.0.borrow_mut();
        if buffers.input.is_empty() {
            buffers.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let length = buffers.input.len().min(buffer.remaining());
        buffer.put_slice(&buffers.input[..length]);
        buffers.input.drain(..length);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Memory {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.0.borrow_mut().output.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let output = &mut self.0.borrow_mut().output;
        let before = output.len();
        for piece in pieces {
            output.extend_from_slice(piece);
        }
        Poll::Ready(Ok(output.len() - before))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
