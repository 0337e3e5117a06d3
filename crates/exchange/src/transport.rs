//! The byte stream below a connection: reads into a buffer of the thread, vectored writes, and the flush that is owed.

use std::cell::RefCell;
use std::future::Future as _;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use bytes::{BufMut as _, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};

use crate::account::FREE;
use crate::inbox::BUFFER;

/// Less room than this, in bytes, is not worth a read.
const LEAST: usize = 16 * 1024;

/// Pieces of one write: a head and its payload are two.
const PIECES: usize = 64;

/// Fewer pieces than this need no large array.
const FEW: usize = 4;

thread_local! {
    /// Shared by the connections of a thread, so that an idle one holds no buffer.
    static SCRATCH: RefCell<BytesMut> = RefCell::new(BytesMut::new());
}

/// A byte stream and the state of its two directions.
#[derive(Debug)]
pub struct Transport<IO> {
    io: IO,
    /// Bytes that came.
    received: u64,
    /// Bytes that were written.
    sent: u64,
    /// A flush is owed.
    dirty: bool,
    /// The peer sends no more.
    over: bool,
    /// Our direction is shut down.
    shut: bool,
    /// The reason why nothing can be written any more.
    failure: Option<io::Error>,
}

/// The outcome of one write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// There was nothing to write.
    Nothing,
    /// The stream takes nothing now, and wakes the task when it does.
    Blocked,
    /// The stream took so many bytes, which a flush must follow.
    Bytes(usize),
    /// The stream failed; see [`Transport::failure`].
    Failed,
}

impl<IO> Transport<IO> {
    /// A stream on which nothing has moved.
    pub fn new(io: IO) -> Self {
        Transport {
            io,
            received: 0,
            sent: 0,
            dirty: false,
            over: false,
            shut: false,
            failure: None,
        }
    }

    /// The byte stream.
    pub fn io(&self) -> &IO {
        &self.io
    }

    /// The byte stream, to be changed beside reads and writes.
    pub fn io_mut(&mut self) -> &mut IO {
        &mut self.io
    }

    /// Bytes that came so far.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Bytes that were written so far.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// True once the peer has ended its direction.
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// True while written bytes have not left.
    pub fn is_dirty(&self) -> bool {
        self.dirty && self.failure.is_none()
    }

    /// True once our direction is shut down.
    pub fn is_shut(&self) -> bool {
        self.shut
    }

    /// The reason why nothing can be written any more, if that is so. It stays until it is taken.
    pub fn failure(&self) -> Option<&io::Error> {
        self.failure.as_ref()
    }

    /// Takes the reason why nothing can be written any more.
    pub fn take_failure(&mut self) -> Option<io::Error> {
        self.failure.take()
    }
}

impl<IO: AsyncRead + Unpin> Transport<IO> {
    /// The next bytes, at most [`BUFFER`]; none at the end.
    #[inline]
    pub fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
        let read = SCRATCH.with(|scratch| match scratch.try_borrow_mut() {
            Ok(mut scratch) => read_into(&mut self.io, cx, &mut scratch),
            // `io` is a stream of another connection, whose driver reads now.
            Err(_) => read_into(&mut self.io, cx, &mut BytesMut::new()),
        });
        if let Poll::Ready(Ok(bytes)) = &read {
            self.received += bytes.len() as u64;
            self.over |= bytes.is_empty();
        }
        read
    }
}

impl<IO: AsyncRead + Unpin> Transport<IO> {
    /// The next bytes, at most so many, and at most 4 KiB. They keep no buffer alive. None at the end.
    #[inline(never)]
    pub(crate) fn poll_few(
        &mut self,
        cx: &mut Context<'_>,
        most: usize,
    ) -> Poll<io::Result<Bytes>> {
        let mut few = [0; FREE];
        let mut few = ReadBuf::new(&mut few[..most.min(FREE)]);
        std::task::ready!(Pin::new(&mut self.io).poll_read(cx, &mut few))?;
        let few = Bytes::copy_from_slice(few.filled());
        self.received += few.len() as u64;
        self.over |= few.is_empty();
        Poll::Ready(Ok(few))
    }
}

#[inline]
fn read_into<IO: AsyncRead + Unpin>(
    io: &mut IO,
    cx: &mut Context<'_>,
    scratch: &mut BytesMut,
) -> Poll<io::Result<Bytes>> {
    if scratch.capacity() - scratch.len() < LEAST {
        scratch.reserve(BUFFER);
    }
    let room = scratch.capacity() - scratch.len();
    let read = pin!(io.read_buf(&mut (&mut *scratch).limit(room))).poll(cx);
    read.map_ok(|length| match length {
        0 => Bytes::new(),
        _ => scratch.split().freeze(),
    })
}

impl<IO: AsyncWrite + Unpin> Transport<IO> {
    /// Writes once, from the front of `pieces`.
    #[inline]
    pub fn poll_write<'a>(
        &mut self,
        cx: &mut Context<'_>,
        pieces: impl Iterator<Item = &'a [u8]>,
    ) -> Written {
        match write_pieces(&mut self.io, cx, pieces) {
            None => Written::Nothing,
            Some(Poll::Pending) => Written::Blocked,
            Some(Poll::Ready(Ok(0))) => {
                self.failure = Some(io::ErrorKind::WriteZero.into());
                Written::Failed
            }
            Some(Poll::Ready(Ok(bytes))) => {
                self.dirty = true;
                self.sent += bytes as u64;
                Written::Bytes(bytes)
            }
            Some(Poll::Ready(Err(error))) => {
                self.failure = Some(error);
                Written::Failed
            }
        }
    }

    /// Flushes. Ready when all that was written has left, or never will; see [`Transport::failure`].
    #[inline]
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.failure.is_none()
            && let Err(error) = std::task::ready!(Pin::new(&mut self.io).poll_flush(cx))
        {
            self.failure = Some(error);
        }
        self.dirty = false;
        Poll::Ready(())
    }

    /// Shuts our direction down. A failure changes nothing: the direction is over either way.
    pub fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.shut {
            let _ = std::task::ready!(Pin::new(&mut self.io).poll_shutdown(cx));
            self.shut = true;
        }
        Poll::Ready(())
    }
}

#[inline]
fn write_pieces<'a, IO: AsyncWrite + Unpin>(
    io: &mut IO,
    cx: &mut Context<'_>,
    pieces: impl Iterator<Item = &'a [u8]>,
) -> Option<Poll<io::Result<usize>>> {
    let mut pieces = pieces.map(IoSlice::new);
    let mut few = [IoSlice::new(&[]); FEW];
    let mut count = 0;
    for (slice, piece) in few.iter_mut().zip(&mut pieces) {
        *slice = piece;
        count += 1;
    }
    if count == 0 {
        return None;
    }
    if count == FEW {
        let mut many = [IoSlice::new(&[]); PIECES];
        for (slice, piece) in many.iter_mut().zip(few.into_iter().chain(pieces)) {
            *slice = piece;
            count += 1;
        }
        return Some(Pin::new(io).poll_write_vectored(cx, &many[..count - FEW]));
    }
    Some(Pin::new(io).poll_write_vectored(cx, &few[..count]))
}
