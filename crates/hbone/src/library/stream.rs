//! A CONNECT stream on the `h2` crate.

use std::io;
use std::task::{Context, Poll};

use bytes::Bytes;

use crate::error::to_io;
use crate::held::Held;
use crate::stream::{Slot, unread};

/// An open stream; see [`crate::Stream`].
#[derive(Debug)]
pub(crate) struct Stream {
    send: h2::SendStream<Bytes>,
    recv: h2::RecvStream,
    /// Bytes handed out by the last read, whose credit the peer has not got back yet.
    owed: usize,
    /// What came while the reader was busy; most streams never need it.
    held: Option<Box<Held>>,
    /// Bytes that our relay could not hand over yet.
    waiting: u32,
    slot: Slot,
}

impl Stream {
    pub(crate) fn new(send: h2::SendStream<Bytes>, recv: h2::RecvStream, slot: Slot) -> Self {
        slot.load().accept();
        slot.load().outbox().open(send.stream_id().as_u32());
        Stream {
            send,
            recv,
            owed: 0,
            held: None,
            waiting: 0,
            slot,
        }
    }

    pub(crate) fn slot(&self) -> &Slot {
        &self.slot
    }

    fn id(&self) -> u32 {
        self.send.stream_id().as_u32()
    }

    /// Takes note of what our relay still has to hand over.
    fn leave_waiting(&mut self, bytes: usize) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        if bytes != self.waiting {
            let outbox = self.slot.load().outbox();
            outbox.hold(self.waiting as usize, bytes as usize);
            self.waiting = bytes;
        }
    }

    /// Hands bytes to the tunnel, for which there must be room.
    fn hand_over(&mut self, part: Bytes) -> Result<(), h2::Error> {
        let length = part.len();
        self.send.send_data(part, false)?;
        self.slot.load().outbox().queue(self.id(), length);
        Ok(())
    }

    /// The next bytes of the peer; `None` at the end.
    pub(crate) fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        if self.owed > 0 {
            // Fails only when more is released than was received.
            let _ = self.recv.flow_control().release_capacity(self.owed);
            self.slot.load().was_read(self.owed as u64);
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
                // Behind END_STREAM there is none. A reset without it is no end, whatever its code: the application sees a
                // reset, as it would without us, and never takes a part for all.
                Some(Err(e)) => Err(to_io(e)),
            });
        }
    }

    /// Takes what has come out of the tunnel's read buffers; the peer gets no credit for it yet. `Ready` when it will
    /// send no more because the stream broke, and not because it ended.
    pub(crate) fn hold(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        // Both are said again when the reader comes for them.
        loop {
            match std::task::ready!(self.recv.poll_data(cx)) {
                Some(Ok(bytes)) => self.held.get_or_insert_default().push(bytes),
                Some(Err(e)) => return Poll::Ready(to_io(e)),
                // Whatever comes for the stream now concerns its other direction.
                None => return Poll::Pending,
            }
        }
    }

    /// Room for bytes of the application, at most `wanted`; at least one when ready.
    ///
    /// What the tunnel's outbox has no room for is not asked of the peer's windows, where others could use it.
    fn poll_room(&mut self, cx: &mut Context<'_>, wanted: usize) -> Poll<io::Result<usize>> {
        let outbox = self.slot.load().outbox();
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

    pub(crate) fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        Poll::Ready(match std::task::ready!(self.send.poll_reset(cx)) {
            // RFC 9113 §8.1: it has given its whole answer and wants no more of the request. As with a socket that was
            // closed, that is a failure only of what is still sent.
            Ok(reason) if reason == h2::Reason::NO_ERROR && self.recv.is_end_stream() => {
                return Poll::Pending;
            }
            Ok(reason) if is_orderly(reason) => unread(),
            Ok(reason) => to_io(reason.into()),
            Err(e) if e.is_reset() && e.reason().is_some_and(is_orderly) => unread(),
            Err(e) => to_io(e),
        })
    }

    pub(crate) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &mut Bytes,
    ) -> Poll<io::Result<()>> {
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

    pub(crate) fn poll_write_borrowed(
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

    pub(crate) fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
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

    pub(crate) fn left(&mut self, cx: &mut Context<'_>) -> usize {
        self.slot.load().outbox().left(cx, self.id())
    }

    pub(crate) fn abort(&mut self) {
        // RFC 9113 §8.5: a TCP error of the tunnelled connection is a CONNECT_ERROR. The HTTP/2 layer drops what it has
        // queued, as a kernel does on such an end (RFC 9293 §3.10.5); a relay waits for `left` before, a cut does not.
        self.send.send_reset(h2::Reason::CONNECT_ERROR);
    }

    /// What ended the sending direction.
    fn why_closed(&mut self, cx: &mut Context<'_>) -> io::Error {
        match self.poll_gone(cx) {
            Poll::Ready(error) => error,
            Poll::Pending => unread(),
        }
    }
}

/// Resets of those who want no more of a stream, which says nothing of what they send: that has its own end, or none.
fn is_orderly(reason: h2::Reason) -> bool {
    matches!(reason, h2::Reason::NO_ERROR | h2::Reason::CANCEL)
}

impl Drop for Stream {
    fn drop(&mut self) {
        // The HTTP/2 layer gives the connection back what nobody will read any more.
        let unread = self.recv.flow_control().used_capacity();
        self.slot.load().was_read(unread as u64);
        self.leave_waiting(0);
        self.slot.load().outbox().forget(self.id());
        self.slot.load().leave();
    }
}
