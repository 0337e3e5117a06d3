//! One CONNECT stream: the bytes of one application connection.

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes};
use lateen_relay::{Chunk, Duplex, ReadSize};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use crate::driver;
use crate::outbox::Outbox;

/// How many streams a tunnel carries, and since when it carries none.
#[derive(Debug)]
pub(crate) struct Load {
    active: Cell<usize>,
    /// Those of them that were answered with 200.
    accepted: Cell<usize>,
    /// Bytes whose credit went back to the peer.
    read: Cell<u64>,
    idle_since: Cell<Instant>,
    /// The tunnel's number with its owner, 0 until it has one.
    number: Cell<u64>,
    outbox: Rc<Outbox>,
}

impl Load {
    pub(crate) fn new(outbox: &Rc<Outbox>) -> Rc<Self> {
        Rc::new(Load {
            active: Cell::new(0),
            accepted: Cell::new(0),
            read: Cell::new(0),
            idle_since: Cell::new(Instant::now()),
            number: Cell::new(0),
            outbox: Rc::clone(outbox),
        })
    }

    /// Names the tunnel for its owner.
    pub(crate) fn set_number(&self, number: u64) {
        self.number.set(number);
    }

    pub(crate) fn active(&self) -> usize {
        self.active.get()
    }

    /// Streams that were accepted.
    pub(crate) fn accepted(&self) -> usize {
        self.accepted.get()
    }

    /// A request was granted.
    pub(crate) fn accept(&self) {
        self.accepted.set(self.accepted.get() + 1);
    }

    /// A stream that was granted is over.
    pub(crate) fn leave(&self) {
        self.accepted.set(self.accepted.get() - 1);
    }

    /// Bytes whose credit went back to the peer, on all streams so far.
    pub(crate) fn read(&self) -> u64 {
        self.read.get()
    }

    pub(crate) fn set_read(&self, bytes: u64) {
        self.read.set(bytes);
    }

    /// The tunnel's account of what waits to be written.
    pub(crate) fn outbox(&self) -> &Rc<Outbox> {
        &self.outbox
    }

    /// Since when the tunnel has had no stream; `None` while it has one.
    pub(crate) fn idle_since(&self) -> Option<Instant> {
        (self.active.get() == 0).then(|| self.idle_since.get())
    }

    /// Counts one stream until the slot is dropped.
    pub(crate) fn occupy(self: &Rc<Self>) -> Slot {
        self.active.set(self.active.get() + 1);
        Slot(Rc::clone(self))
    }
}

/// One stream's share of the [`Load`].
#[derive(Debug)]
pub(crate) struct Slot(Rc<Load>);

impl Slot {
    pub(crate) fn load(&self) -> &Load {
        &self.0
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let load = &self.0;
        let left = load.active.get() - 1;
        load.active.set(left);
        if left == 0 {
            load.idle_since.set(Instant::now());
        }
    }
}

/// An open stream. Its two directions end independently; dropped before both did, it is cancelled, which its peer takes
/// for a reset unless our direction had ended.
///
/// What the peer sends waits here up to the stream window; credit goes back to the peer when its reader says that the bytes
/// were used, or the next read shows it.
#[derive(Debug)]
pub struct Stream {
    /// What an `AsyncRead` caller had no room for.
    unread: Bytes,
    carried: driver::stream::Stream,
}

/// What an idle stream holds besides its part of the tunnel's.
const _: () = assert!(size_of::<Stream>() <= 64);

impl From<driver::stream::Stream> for Stream {
    fn from(carried: driver::stream::Stream) -> Self {
        Stream {
            unread: Bytes::new(),
            carried,
        }
    }
}

impl Stream {
    /// The number of the tunnel that carries it, see [`Pool::number_with`](crate::Pool::number_with); 0 if it has none.
    pub fn tunnel(&self) -> u64 {
        self.carried.slot().load().number.get()
    }

    fn poll_chunk<T>(
        &mut self,
        cx: &mut Context<'_>,
        take: impl FnOnce(&mut Context<'_>, Chunk<'_>) -> T,
    ) -> Poll<io::Result<T>> {
        let data = self.carried.poll_data(cx);
        let chunk = match std::task::ready!(data)? {
            Some(bytes) => Chunk::Owned(bytes),
            None => Chunk::End,
        };
        Poll::Ready(Ok(take(cx, chunk)))
    }
}

/// The peer wants no more of a stream.
pub(crate) fn unread() -> io::Error {
    io::Error::new(
        io::ErrorKind::BrokenPipe,
        "peer stopped reading this stream",
    )
}

impl Duplex for Stream {
    const QUEUES: bool = true;

    // What waits is a part of the tunnel's window, which all its streams share.
    const GRACE: Duration = Duration::from_secs(1);

    fn poll_read<T>(
        &mut self,
        cx: &mut Context<'_>,
        _size: &mut ReadSize,
        _owned: bool,
        take: impl FnOnce(&mut Context<'_>, Chunk<'_>) -> T,
    ) -> Poll<io::Result<T>> {
        self.carried.settle();
        self.poll_chunk(cx, take)
    }

    fn poll_read_more<T>(
        &mut self,
        cx: &mut Context<'_>,
        _size: &mut ReadSize,
        take: impl FnOnce(&mut Context<'_>, Chunk<'_>) -> T,
    ) -> Poll<io::Result<T>> {
        self.poll_chunk(cx, take)
    }

    fn used(&mut self, _: &mut Context<'_>) {
        self.carried.settle();
    }

    fn hold(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        self.carried.hold(cx)
    }

    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        self.carried.poll_gone(cx)
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &mut Bytes) -> Poll<io::Result<()>> {
        self.carried.poll_write(cx, bytes)
    }

    fn poll_write_borrowed(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.carried.poll_write_borrowed(cx, bytes)
    }

    fn advice(&self) -> usize {
        self.carried.slot().load().outbox.advice()
    }

    fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.carried.poll_finish(cx)
    }

    fn left(&mut self, cx: &mut Context<'_>) -> usize {
        self.carried.left(cx)
    }

    fn abort(&mut self) {
        self.carried.abort();
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.unread.is_empty() {
            this.carried.settle();
            match std::task::ready!(this.carried.poll_data(cx))? {
                Some(bytes) => this.unread = bytes,
                None => return Poll::Ready(Ok(())),
            }
        }
        let n = this.unread.len().min(buf.remaining());
        buf.put_slice(&this.unread[..n]);
        this.unread.advance(n);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().carried.poll_write_borrowed(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The tunnel's driver writes what is queued as soon as it can.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().carried.poll_finish(cx)
    }
}
