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

use crate::error::to_io;
use crate::held::Held;
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
    /// Requests that were reset before we answered, since somebody asked.
    unanswered: Cell<u64>,
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
            unanswered: Cell::new(0),
            number: Cell::new(0),
            outbox: Rc::clone(outbox),
        })
    }

    /// Names the tunnel for its owner.
    pub(crate) fn set_number(&self, number: u64) {
        self.number.set(number);
    }

    /// Takes note of a request that was reset before we answered.
    pub(crate) fn was_abandoned(&self) {
        self.unanswered.set(self.unanswered.get() + 1);
    }

    /// How many were, since this was asked last.
    pub(crate) fn take_unanswered(&self) -> u64 {
        self.unanswered.take()
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

    pub(crate) fn was_read(&self, bytes: u64) {
        self.read.set(self.read.get() + bytes);
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

/// An open stream. Its two directions end independently; dropped before both did, it is cancelled.
///
/// What the peer sends waits here up to the stream window; credit goes back to the peer when the
/// next read shows that the bytes of the previous one were used.
#[derive(Debug)]
pub struct Stream {
    send: h2::SendStream<Bytes>,
    recv: h2::RecvStream,
    /// Bytes handed out by the last read, whose credit the peer has not got back yet.
    owed: usize,
    /// What an `AsyncRead` caller had no room for.
    unread: Bytes,
    /// What came while the reader was busy; most streams never need it.
    held: Option<Box<Held>>,
    /// Bytes that our relay could not hand over yet.
    waiting: u32,
    slot: Slot,
}

impl Stream {
    pub(crate) fn new(send: h2::SendStream<Bytes>, recv: h2::RecvStream, slot: Slot) -> Self {
        slot.0.accept();
        slot.0.outbox.open(send.stream_id().as_u32());
        Stream {
            send,
            recv,
            owed: 0,
            unread: Bytes::new(),
            held: None,
            waiting: 0,
            slot,
        }
    }

    /// The number of the tunnel that carries it, see [`Pool::number_with`](crate::Pool::number_with); 0 if it has none.
    pub fn tunnel(&self) -> u64 {
        self.slot.load().number.get()
    }

    fn id(&self) -> u32 {
        self.send.stream_id().as_u32()
    }

    /// Takes note of what our relay still has to hand over.
    fn leave_waiting(&mut self, bytes: usize) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        if bytes != self.waiting {
            let outbox = &self.slot.0.outbox;
            outbox.hold(self.waiting as usize, bytes as usize);
            self.waiting = bytes;
        }
    }

    /// Hands bytes to the tunnel, for which there must be room.
    fn hand_over(&mut self, part: Bytes) -> Result<(), h2::Error> {
        let length = part.len();
        self.send.send_data(part, false)?;
        self.slot.0.outbox.queue(self.id(), length);
        Ok(())
    }

    /// The next bytes of the peer; `None` at the end.
    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        if self.owed > 0 {
            // Fails only when more is released than was received.
            let _ = self.recv.flow_control().release_capacity(self.owed);
            self.slot.0.was_read(self.owed as u64);
            self.owed = 0;
        }
        if let Some(held) = &mut self.held {
            if let Some(bytes) = held.pop() {
                self.owed = bytes.len();
                return Poll::Ready(Ok(Some(bytes)));
            }
            self.held = None;
        }
        loop {
            return Poll::Ready(match std::task::ready!(self.recv.poll_data(cx)) {
                None => Ok(None),
                Some(Ok(bytes)) if bytes.is_empty() => continue,
                Some(Ok(bytes)) => {
                    self.owed = bytes.len();
                    Ok(Some(bytes))
                }
                Some(Err(e)) if is_orderly(&e) => Ok(None),
                Some(Err(e)) => Err(to_io(e)),
            });
        }
    }

    /// Takes what has come out of the tunnel's read buffers; the peer gets no credit for it yet. `Ready` when it will
    /// send no more because the stream broke, and not because it ended.
    fn gather(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        // Both are said again when the reader comes for them.
        loop {
            match std::task::ready!(self.recv.poll_data(cx)) {
                Some(Ok(bytes)) => self.held.get_or_insert_default().push(bytes),
                Some(Err(e)) if !is_orderly(&e) => return Poll::Ready(to_io(e)),
                // Whatever comes for the stream now concerns its other direction.
                Some(Err(_)) | None => return Poll::Pending,
            }
        }
    }

    /// Room for bytes of the application, at most `wanted`; at least one when ready.
    ///
    /// What the tunnel's outbox has no room for is not asked of the peer's windows, where others could use it.
    fn poll_room(&mut self, cx: &mut Context<'_>, wanted: usize) -> Poll<io::Result<usize>> {
        let outbox = &self.slot.0.outbox;
        let wanted = std::task::ready!(outbox.poll_room(cx, self.id(), wanted));
        self.send.reserve_capacity(wanted);
        loop {
            // Room that was assigned before is not announced again.
            let room = self.send.capacity();
            if room > 0 {
                return Poll::Ready(Ok(room.min(wanted)));
            }
            match self.send.poll_capacity(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Ok(0))) => {}
                Poll::Ready(Some(Ok(n))) => return Poll::Ready(Ok(n.min(wanted))),
                Poll::Ready(Some(Err(_)) | None) => return Poll::Ready(Err(self.why_closed(cx))),
            }
        }
    }

    /// What ended the sending direction.
    fn why_closed(&mut self, cx: &mut Context<'_>) -> io::Error {
        match self.poll_gone(cx) {
            Poll::Ready(error) => error,
            Poll::Pending => unread(),
        }
    }
}

/// The peer wants no more of a stream.
fn unread() -> io::Error {
    io::Error::new(
        io::ErrorKind::BrokenPipe,
        "peer stopped reading this stream",
    )
}

/// Resets that mean "nothing more" and not "something broke": other proxies end streams with them.
fn is_orderly(error: &h2::Error) -> bool {
    error.is_reset() && error.reason().is_some_and(is_orderly_reason)
}

fn is_orderly_reason(reason: h2::Reason) -> bool {
    matches!(reason, h2::Reason::NO_ERROR | h2::Reason::CANCEL)
}

impl Drop for Stream {
    fn drop(&mut self) {
        // The HTTP/2 layer gives the connection back what nobody will read any more.
        let unread = self.recv.flow_control().used_capacity();
        self.slot.0.was_read(unread as u64);
        self.leave_waiting(0);
        self.slot.0.outbox.forget(self.id());
        self.slot.0.leave();
    }
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
        let chunk = match std::task::ready!(self.poll_data(cx))? {
            Some(bytes) => Chunk::Owned(bytes),
            None => Chunk::End,
        };
        Poll::Ready(Ok(take(cx, chunk)))
    }

    fn hold(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        self.gather(cx)
    }

    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        Poll::Ready(match std::task::ready!(self.send.poll_reset(cx)) {
            // RFC 9113 §8.1: it has given its whole answer and wants no more of the request. As with a socket that was
            // closed, that is a failure only of what is still sent.
            Ok(reason) if reason == h2::Reason::NO_ERROR => return Poll::Pending,
            Ok(reason) if is_orderly_reason(reason) => unread(),
            Ok(reason) => to_io(reason.into()),
            Err(e) if is_orderly(&e) => unread(),
            Err(e) => to_io(e),
        })
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &mut Bytes) -> Poll<io::Result<()>> {
        while !bytes.is_empty() {
            let Poll::Ready(room) = self.poll_room(cx, bytes.len()) else {
                self.leave_waiting(bytes.len());
                return Poll::Pending;
            };
            let part = bytes.split_to(room?);
            if self.hand_over(part).is_err() {
                return Poll::Ready(Err(self.why_closed(cx)));
            }
        }
        self.leave_waiting(0);
        Poll::Ready(Ok(()))
    }

    fn poll_write_borrowed(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let room = std::task::ready!(self.poll_room(cx, bytes.len()))?;
        let part = Bytes::copy_from_slice(&bytes[..room]);
        if self.hand_over(part).is_err() {
            return Poll::Ready(Err(self.why_closed(cx)));
        }
        Poll::Ready(Ok(room))
    }

    fn advice(&self) -> usize {
        self.slot.0.outbox.advice()
    }

    fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.send.send_data(Bytes::new(), true).is_ok() {
            return Poll::Ready(Ok(()));
        }
        let error = self.why_closed(cx);
        // A peer that no longer listens need not hear that we are done.
        Poll::Ready(match error.kind() {
            io::ErrorKind::BrokenPipe => Ok(()),
            _ => Err(error),
        })
    }

    fn abort(&mut self) {
        // RFC 9113 §8.5: a TCP error of the tunnelled connection is a CONNECT_ERROR.
        self.send.send_reset(h2::Reason::CONNECT_ERROR);
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
            match std::task::ready!(this.poll_data(cx))? {
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
        self.get_mut().poll_write_borrowed(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The tunnel's driver writes what is queued as soon as it can.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll_finish(cx)
    }
}
