//! Read buffer of a thread. Connections borrow it for the length of one read, so an idle connection holds none.

use std::cell::{Cell, RefCell};
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use bytes::{BufMut, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::chunk::Chunk;

/// Smallest read, in bytes.
pub const MIN_READ: usize = 4 * 1024;
/// Largest read, in bytes.
pub const MAX_READ: usize = 256 * 1024;

/// From this many bytes on, a chunk takes the buffer with it; below, it is copied out so that
/// a small chunk that waits somewhere does not keep a large buffer alive.
const DETACH: usize = 32 * 1024;

/// Bytes that stalled directions of one thread may hold before its reads become small: a peer that reads nothing costs
/// one chunk, and many of them must not cost many large ones.
const STALLED_SOFT: usize = 16 << 20;
/// From here on reads are as small as they can be.
const STALLED_HARD: usize = 64 << 20;

thread_local! {
    static SCRATCH: RefCell<BytesMut> = RefCell::new(BytesMut::new());
    static STALLED: Cell<usize> = const { Cell::new(0) };
}

/// What one direction holds because its writer takes nothing, counted for the whole thread.
#[derive(Debug, Default)]
pub(crate) struct Stalled(u32);

impl Stalled {
    /// The direction now holds this many bytes.
    pub(crate) fn set(&mut self, bytes: usize) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        if bytes != self.0 {
            STALLED.set(STALLED.get() - self.0 as usize + bytes as usize);
            self.0 = bytes;
        }
    }
}

impl Drop for Stalled {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// The largest read that this thread can afford.
fn affordable(stalled: usize) -> usize {
    match stalled {
        0..STALLED_SOFT => MAX_READ,
        STALLED_SOFT..STALLED_HARD => 4 * MIN_READ,
        _ => MIN_READ,
    }
}

/// The largest read that this thread can afford now.
pub(crate) fn affordable_now() -> usize {
    affordable(STALLED.get())
}

/// How much one direction reads at a time: doubles when a read filled it, halves when a read
/// left three quarters empty. It is all the state that a direction keeps between reads.
#[derive(Debug, Clone, Copy)]
pub struct ReadSize(u32);

impl Default for ReadSize {
    fn default() -> Self {
        // Four times the minimum: a request of common size fits, and one full read is no reason to come back.
        ReadSize(4 * MIN_READ as u32)
    }
}

impl ReadSize {
    /// The smallest.
    pub(crate) fn least() -> Self {
        ReadSize(MIN_READ as u32)
    }

    /// The size of the next read, from [`MIN_READ`] to [`MAX_READ`].
    pub fn bytes(self) -> usize {
        self.0 as usize
    }

    /// The size of one read of at most `most` bytes, but at least [`MIN_READ`]. What such a read teaches is forgotten
    /// when the cap made it smaller.
    pub(crate) fn capped(&mut self, most: usize) -> Capped<'_> {
        let own = if most < self.bytes() {
            Some(ReadSize((most as u32).max(MIN_READ as u32)))
        } else {
            None
        };
        Capped { own, size: self }
    }

    /// Learns from a read that returned `filled` bytes.
    pub fn learn(&mut self, filled: usize) {
        let size = self.bytes();
        if filled >= size {
            self.0 = (size * 2).min(MAX_READ) as u32;
        } else if filled < size / 4 {
            self.0 = (size / 2).max(MIN_READ) as u32;
        }
    }
}

/// See [`ReadSize::capped`].
pub(crate) struct Capped<'a> {
    own: Option<ReadSize>,
    size: &'a mut ReadSize,
}

impl Capped<'_> {
    pub(crate) fn get(&mut self) -> &mut ReadSize {
        self.own.as_mut().unwrap_or(self.size)
    }
}

/// Reads once from `io` by way of the thread's buffer and hands the bytes to `take`.
///
/// `owned` asks for bytes that outlive the call, for a writer that queues them; otherwise the
/// chunk borrows the buffer and nothing is allocated. An empty chunk is the end of the stream.
pub fn read_some<IO, T>(
    io: Pin<&mut IO>,
    cx: &mut Context<'_>,
    size: &mut ReadSize,
    owned: bool,
    take: impl FnOnce(&mut Context<'_>, Chunk<'_>) -> T,
) -> Poll<io::Result<T>>
where
    IO: AsyncRead + ?Sized,
{
    // Taken out for the time of the read: what `io` or `take` do may come here again.
    let mut scratch = SCRATCH.take();
    let read = read_into(&mut scratch, io, cx, size, owned, take);
    SCRATCH.replace(scratch);
    read
}

fn read_into<IO, T>(
    scratch: &mut BytesMut,
    mut io: Pin<&mut IO>,
    cx: &mut Context<'_>,
    size: &mut ReadSize,
    owned: bool,
    take: impl FnOnce(&mut Context<'_>, Chunk<'_>) -> T,
) -> Poll<io::Result<T>>
where
    IO: AsyncRead + ?Sized,
{
    let limit = size.bytes().min(affordable(STALLED.get()));
    scratch.clear();
    // Allocates once a thread, and again after a large chunk took the buffer with it.
    scratch.reserve(limit);
    let n = {
        let mut target = (&mut *scratch).limit(limit);
        match pin!(io.read_buf(&mut target)).poll(cx) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(result) => result?,
        }
    };
    if n == 0 {
        return Poll::Ready(Ok(take(cx, Chunk::End)));
    }
    size.learn(n);
    Poll::Ready(Ok(if !owned {
        take(cx, Chunk::Borrowed(&scratch[..n]))
    } else if n < DETACH {
        take(cx, Chunk::Owned(Bytes::copy_from_slice(&scratch[..n])))
    } else {
        take(cx, Chunk::Owned(scratch.split().freeze()))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_grow_with_full_buffers_and_shrink_with_empty_ones() {
        let mut size = ReadSize::default();
        for _ in 0..10 {
            size.learn(size.bytes());
        }
        assert_eq!(size.bytes(), MAX_READ);
        size.learn(MAX_READ / 2);
        assert_eq!(size.bytes(), MAX_READ);
        for _ in 0..10 {
            size.learn(1);
        }
        assert_eq!(size.bytes(), MIN_READ);
    }

    #[test]
    fn what_stalls_makes_reads_small_and_no_longer_than_it_stalls() {
        let read = || {
            let (mut size, mut source) = (ReadSize(MAX_READ as u32), &[0; MAX_READ][..]);
            let mut cx = Context::from_waker(std::task::Waker::noop());
            let read = read_some(
                Pin::new(&mut source),
                &mut cx,
                &mut size,
                false,
                |_, chunk| match chunk {
                    Chunk::Borrowed(bytes) => bytes.len(),
                    other => panic!("{other:?}"),
                },
            );
            match read {
                Poll::Ready(Ok(bytes)) => bytes,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(read(), MAX_READ);
        let mut many: Vec<Stalled> = (0..64).map(|_| Stalled::default()).collect();
        many.iter_mut().for_each(|stalled| stalled.set(MAX_READ));
        assert_eq!(read(), 4 * MIN_READ);
        let mut more = Stalled::default();
        more.set(STALLED_HARD);
        assert_eq!(read(), MIN_READ);
        more.set(1);
        assert_eq!(read(), 4 * MIN_READ);
        drop(many);
        assert_eq!(read(), MAX_READ);
    }

    proptest! {
        #[test]
        fn stay_in_bounds(fills in prop::collection::vec(0usize..MAX_READ * 2, 0..50)) {
            let mut size = ReadSize::default();
            for filled in fills {
                size.learn(filled);
                prop_assert!((MIN_READ..=MAX_READ).contains(&size.bytes()));
                prop_assert!(size.bytes().is_power_of_two());
            }
        }

        #[test]
        fn whatever_is_read_arrives_whole(data in prop::collection::vec(any::<u8>(), 1..100_000), owned: bool) {
            let mut size = ReadSize::default();
            let mut cx = Context::from_waker(std::task::Waker::noop());
            let mut source = &data[..];
            let mut got = Vec::new();
            let mut ended = false;
            while !ended {
                let read = read_some(Pin::new(&mut source), &mut cx, &mut size, owned, |_, chunk| match chunk {
                    Chunk::End => ended = true,
                    Chunk::Owned(bytes) => {
                        assert!(owned);
                        got.extend_from_slice(&bytes);
                    }
                    Chunk::Borrowed(bytes) => {
                        assert!(!owned);
                        got.extend_from_slice(bytes);
                    }
                });
                prop_assert!(matches!(read, Poll::Ready(Ok(()))));
            }
            prop_assert_eq!(got, data);
        }
    }
}
