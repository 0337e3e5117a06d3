//! One CONNECT stream: the bytes of one application connection.

mod io_traits;

use std::io;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use lateen_h2::{Code, StreamId};
use lateen_relay::{Chunk, Duplex, ReadSize};

use crate::driver::{Broken, Shared};
use crate::ended::Ended;
use crate::load::Slot;

/// An open stream. Its two directions end independently; dropped before both did, it is cancelled, which its peer takes
/// for a reset unless our direction had ended.
///
/// What the peer sends waits here up to the stream window; credit goes back to the peer when its reader says that the bytes
/// were used, or the next read shows it.
#[derive(Debug)]
pub struct Stream {
    /// The bytes that an `AsyncRead` caller had no room for. The next read gives them, also that of a relay.
    unread: Bytes,
    shared: Shared,
    id: StreamId,
    /// Bytes that were handed out and whose credit the peer has not got back yet.
    owed: usize,
    /// Bytes that our relay could not hand over yet.
    waiting: u32,
    slot: Slot,
}

/// The tunnel of a [`Stream`] that we asked for. It does not keep the tunnel open.
#[derive(Debug, Clone)]
pub struct Carrier(Shared);

impl Carrier {
    /// True if the tunnel takes no more requests: its peer sent GOAWAY, its owner has taken it out of use, or it has ended. The peer
    /// ends it once its streams are over, or after a time. So a stream should not be used for anything new.
    pub fn is_leaving(&self) -> bool {
        self.0.borrow().is_leaving()
    }
}

/// What an idle stream holds besides its part of the tunnel's.
const _: () = assert!(size_of::<Stream>() <= 64);

impl Stream {
    pub(crate) fn new(shared: Shared, id: StreamId, slot: Slot) -> Self {
        slot.load().accept();
        Stream {
            unread: Bytes::new(),
            shared,
            id,
            owed: 0,
            waiting: 0,
            slot,
        }
    }

    /// The number of the tunnel that carries it, see [`Pool::number_with`](crate::Pool::number_with); 0 if it has none.
    pub fn tunnel(&self) -> u64 {
        self.slot.load().number()
    }

    /// True if the peer may send nothing on its tunnel, because streams that nobody reads keep the window that all share.
    pub fn is_held_up(&self) -> bool {
        self.slot.load().is_unread()
    }

    /// The tunnel that carries it, for a stream that we asked for.
    pub fn carrier(&self) -> Carrier {
        Carrier(self.shared.clone())
    }

    /// See [`Carrier::is_leaving`].
    pub fn is_leaving(&self) -> bool {
        self.shared.borrow().is_leaving()
    }

    /// Takes note of what our relay still has to hand over.
    fn leave_waiting(&mut self, bytes: usize) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        if bytes != self.waiting {
            let send_buffer = self.slot.load().send_buffer();
            send_buffer.hold(self.waiting as usize, bytes as usize);
            self.waiting = bytes;
        }
    }

    /// Gives the peer its credit back for what was handed out.
    fn settle(&mut self) {
        let owed = std::mem::take(&mut self.owed);
        if owed > 0 {
            let grants = {
                let mut core = self.shared.borrow();
                core.http2.consumed(self.id, owed);
                core.http2.has_framed()
            };
            if grants {
                self.shared.act(|_| ());
            }
        }
    }

    /// The next bytes of the peer; `None` at the end.
    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        let result = {
            let mut core = self.shared.borrow();
            let ended = core.ended().map(Ended::to_io);
            match core.entry(self.id) {
                Some(entry) => match (entry.inbox.pop(), entry.broken) {
                    (Some(bytes), _) => Some(Ok(Some(bytes))),
                    (None, _) if entry.heard => Some(Ok(None)),
                    // A reset without an end is none, whatever its code: the application sees a reset, as it would without
                    // us, and never takes a part for all.
                    (None, Some(broken)) => Some(Err(broken.to_io())),
                    (None, None) => ended.map(Err),
                },
                None => Some(Err(ended.unwrap_or_else(unread))),
            }
        };
        let Some(result) = result else {
            self.shared.wait(self.id, cx, |entry| &mut entry.reader);
            return Poll::Pending;
        };
        if let Ok(Some(bytes)) = &result {
            self.owed += bytes.len();
        }
        Poll::Ready(result)
    }

    /// Hands over from the front of what `take` gives, as far as there is room; `Pending` registers for more.
    fn poll_hand_over(
        &mut self,
        cx: &mut Context<'_>,
        wanted: usize,
        take: impl FnOnce(usize) -> Bytes,
    ) -> Poll<io::Result<usize>> {
        let id = self.id;
        enum Came {
            Sent(usize),
            Full,
            Gone,
        }
        let came = {
            let mut core = self.shared.borrow();
            if core.ended().is_some() || core.entry(id).is_none_or(|e| e.broken.is_some()) {
                Came::Gone
            } else {
                let room = core.http2.room(id).min(wanted);
                match core.send_buffer.paid(room) {
                    0 => {
                        core.http2.await_room(id);
                        Came::Full
                    }
                    room => match core.http2.send(id, take(room)) {
                        Ok(()) => Came::Sent(room),
                        Err(_) => Came::Gone,
                    },
                }
            }
        };
        match came {
            Came::Sent(bytes) => {
                self.shared.act(|_| ());
                Poll::Ready(Ok(bytes))
            }
            Came::Full => {
                self.shared.wait(id, cx, |entry| &mut entry.writer);
                Poll::Pending
            }
            Came::Gone => Poll::Ready(Err(self.why_closed(cx))),
        }
    }

    fn gone(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        let gone = {
            let mut core = self.shared.borrow();
            let ended = core.ended().map(Ended::to_io);
            match core.entry(self.id) {
                Some(entry) => match entry.broken {
                    // RFC 9113 §8.1: it has given its whole answer and wants no more of the request. As with a socket
                    // that was closed, that is a failure only of what is still sent.
                    Some(Broken::Reset(Code::NO_ERROR)) if entry.heard => None,
                    Some(Broken::Reset(Code::NO_ERROR | Code::CANCEL)) => Some(unread()),
                    Some(broken) => Some(broken.to_io()),
                    None => ended,
                },
                None => Some(ended.unwrap_or_else(unread)),
            }
        };
        match gone {
            Some(error) => Poll::Ready(error),
            None => {
                self.shared.wait(self.id, cx, |entry| &mut entry.writer);
                Poll::Pending
            }
        }
    }

    /// What ended the sending direction.
    fn why_closed(&mut self, cx: &mut Context<'_>) -> io::Error {
        match self.gone(cx) {
            Poll::Ready(error) => error,
            Poll::Pending => unread(),
        }
    }

    fn finish(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let ended = self.shared.borrow().ended().is_some();
        if !ended && self.shared.act(|core| core.http2.finish(self.id)).is_ok() {
            return Poll::Ready(Ok(()));
        }
        let error = self.why_closed(cx);
        // A peer that no longer listens need not hear that we are done.
        Poll::Ready(match error.kind() {
            io::ErrorKind::BrokenPipe => Ok(()),
            _ => Err(error),
        })
    }

    fn poll_chunk<T>(
        &mut self,
        cx: &mut Context<'_>,
        take: impl FnOnce(&mut Context<'_>, Chunk<'_>) -> T,
    ) -> Poll<io::Result<T>> {
        if !self.unread.is_empty() {
            let unread = std::mem::take(&mut self.unread);
            return Poll::Ready(Ok(take(cx, Chunk::Owned(unread))));
        }
        let data = self.poll_data(cx);
        let chunk = match std::task::ready!(data)? {
            Some(bytes) => Chunk::Owned(bytes),
            None => Chunk::End,
        };
        Poll::Ready(Ok(take(cx, chunk)))
    }
}

/// The peer wants no more of a stream.
fn unread() -> io::Error {
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
        // A part that is unread was not used.
        if self.unread.is_empty() {
            self.settle();
        }
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
        self.settle();
    }

    fn hold(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        // What came is kept in as little as it needs.
        let broken = {
            let mut core = self.shared.borrow();
            let ended = core.ended().map(Ended::to_io);
            core.entry(self.id).and_then(|entry| {
                entry.inbox.settle();
                match entry.heard {
                    true => None,
                    false => entry.broken.map(Broken::to_io).or(ended),
                }
            })
        };
        match broken {
            Some(error) => Poll::Ready(error),
            None => {
                self.shared.wait(self.id, cx, |entry| &mut entry.reader);
                Poll::Pending
            }
        }
    }

    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        self.gone(cx)
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &mut Bytes) -> Poll<io::Result<()>> {
        while !bytes.is_empty() {
            let wanted = bytes.len();
            match self.poll_hand_over(cx, wanted, |room| bytes.split_to(room)) {
                Poll::Pending => {
                    self.leave_waiting(wanted);
                    return Poll::Pending;
                }
                Poll::Ready(handed) => drop(handed?),
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
        self.poll_copy(cx, bytes)
    }

    fn advice(&self) -> usize {
        self.slot.load().send_buffer().advice()
    }

    fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.finish(cx)
    }

    fn left(&mut self, cx: &mut Context<'_>) -> usize {
        // What is framed goes out all the same.
        let left = {
            let mut core = self.shared.borrow();
            match core.ended().is_some() || core.entry(self.id).is_none() {
                true => 0,
                false => core.http2.queued_of(self.id),
            }
        };
        if left > 0 {
            self.shared.borrow().part(self.id);
            self.shared.wait(self.id, cx, |entry| &mut entry.writer);
        }
        left
    }

    fn abort(&mut self) {
        // RFC 9113 §8.5: a TCP error of the tunnelled connection is a CONNECT_ERROR.
        self.shared
            .act(|core| core.http2.reset(self.id, Code::CONNECT_ERROR));
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.leave_waiting(0);
        self.shared.let_go(self.id);
        self.slot.load().leave();
    }
}

impl Broken {
    fn to_io(self) -> io::Error {
        match self {
            Broken::Reset(code) => io::Error::new(
                io::ErrorKind::ConnectionReset,
                format!("peer reset the stream: {code}"),
            ),
            Broken::LeftOut => io::Error::new(
                io::ErrorKind::ConnectionAborted,
                "peer went away before it took the stream",
            ),
        }
    }
}
