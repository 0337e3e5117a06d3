//! Interface of a stream that can be relayed.

use std::io;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;

use crate::chunk::Chunk;
use crate::scratch::ReadSize;

/// A byte stream with two directions that end independently.
pub trait Duplex {
    /// True when [`Duplex::poll_write`] queues the bytes it is given, so that a reader had better
    /// make owned chunks for it.
    const QUEUES: bool;

    /// How long the other stream may take nothing of what a lost peer said before. It may be read slowly; one that is
    /// not read at all would keep both streams, and what waits in them, for nobody.
    const GRACE: Duration;

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

    /// Reads once more behind what is not written yet: where reading gives the peer credit for what came before, it gets none
    /// for that until [`Duplex::used`] or the next [`Duplex::poll_read`]. Asked only where the other stream does not queue.
    ///
    /// # Errors
    /// The stream was reset or broke.
    fn poll_read_more<T>(
        &mut self,
        cx: &mut Context<'_>,
        size: &mut ReadSize,
        take: impl FnOnce(&mut Context<'_>, Chunk<'_>) -> T,
    ) -> Poll<io::Result<T>> {
        self.poll_read(cx, size, false, take)
    }

    /// All that was read is written.
    fn used(&mut self, _: &mut Context<'_>) {}

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

    /// Writes several pieces as far as the stream takes them at once; returns how much it took. Asked only of a stream that
    /// does not queue. `Pending` registers for more room, as in [`Duplex::poll_write`].
    ///
    /// # Errors
    /// The stream was reset or broke.
    fn poll_write_gathered(
        &mut self,
        cx: &mut Context<'_>,
        pieces: &[Bytes],
    ) -> Poll<io::Result<usize>> {
        let mut taken = 0;
        for piece in pieces {
            let mut left = piece.clone();
            let written = self.poll_write(cx, &mut left)?;
            taken += piece.len() - left.len();
            if written.is_pending() {
                break;
            }
        }
        Poll::Ready(Ok(taken))
    }

    /// What a read for this stream had better not exceed, in bytes: less when much waits for its peer already.
    fn advice(&self) -> usize {
        usize::MAX
    }

    /// Called while the other stream takes no more, when nobody reads: what came meanwhile, if it is here and not in
    /// the kernel, is to be kept in as little memory as it needs.
    ///
    /// `Ready` with the reason when the peer will not send the rest: it reset the stream, or is gone. What it sent before
    /// can still be read, and an end that is read then is none. Otherwise `Pending`, registered for that, also behind an
    /// orderly end.
    fn hold(&mut self, cx: &mut Context<'_>) -> Poll<io::Error>;

    /// Called while there is nothing to write and nobody reads, because the peer has ended: `Ready` with the reason when
    /// it will take nothing more, which no reader would notice. Otherwise `Pending`, registered for that.
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<io::Error>;

    /// Ends our direction; the other one goes on.
    ///
    /// # Errors
    /// The stream was reset or broke.
    fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Bytes that were taken and that [`Duplex::abort`] would drop; registered for when there are none. Asked when the
    /// other stream has broken: what its peer said before that is to arrive.
    fn left(&mut self, _: &mut Context<'_>) -> usize {
        0
    }

    /// Ends both directions so that the peer sees a reset and not an orderly end.
    fn abort(&mut self);
}
