//! [`Stream`] as a byte stream of tokio, for protocols that run within a tunnel. The connections of `lateen_exchange` do.
//!
//! | the connection within | the stream |
//! |---|---|
//! | shuts its direction down | END_STREAM behind what was written |
//! | is dropped before both directions have ended | RST_STREAM; the peer reads `ConnectionReset` unless it has read our end |
//! | stops to read | gives no credit for the bytes that it has not taken |
//! | writes without room | waits for the peer's windows and for the tunnel's share of [`crate::SendBudget`] |
//! | flushes | nothing: the tunnel's driver writes at its next turn |
//!
//! A read and a write copy their bytes once. The pieces of a vectored write become one payload, so that a head and the
//! content behind it cost one frame.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::Stream;

impl Stream {
    /// Sends a copy of the front of `bytes`, as much as there is room for.
    pub(super) fn poll_copy(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        self.poll_hand_over(cx, bytes.len(), |room| {
            Bytes::copy_from_slice(&bytes[..room])
        })
    }
}

/// The first bytes of `pieces` in one piece.
fn gather(pieces: &[IoSlice<'_>], length: usize) -> Bytes {
    let mut gathered = Vec::with_capacity(length);
    for piece in pieces {
        let left = length - gathered.len();
        gathered.extend_from_slice(&piece[..left.min(piece.len())]);
    }
    gathered.into()
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let mut bytes = std::mem::take(&mut this.unread);
        if bytes.is_empty() {
            this.settle();
            match ready!(this.poll_data(cx))? {
                Some(more) => bytes = more,
                None => return Poll::Ready(Ok(())),
            }
        }
        let n = bytes.len().min(buf.remaining());
        buf.put_slice(&bytes[..n]);
        bytes.advance(n);
        // Even an empty part would keep the buffer that it was read into.
        if !bytes.is_empty() {
            this.unread = bytes;
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().poll_copy(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let length = bufs.iter().map(|piece| piece.len()).sum();
        if length == 0 {
            return Poll::Ready(Ok(0));
        }
        self.get_mut()
            .poll_hand_over(cx, length, |room| gather(bufs, room))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The tunnel's driver writes what is queued as soon as it can.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().finish(cx)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn gathered_bytes_are_the_front_of_all_pieces(
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..50), 0..10),
            part in 0.0..=1.0f64,
        ) {
            let all = pieces.concat();
            let length = (all.len() as f64 * part) as usize;
            let slices: Vec<_> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
            prop_assert_eq!(&gather(&slices, length)[..], &all[..length]);
        }
    }
}
