//! A CONNECT stream, and a request that waits for its answer.

use std::cell::Cell;
use std::io;
use std::task::{Context, Poll};

use bytes::Bytes;
use lateen_h2::{Code, Field, Prebuilt, StreamId};

use super::core::{Broken, Shared, is_visible};
use crate::error::{Reason, StreamError};
use crate::server::Status;
use crate::stream::{Slot, unread};

thread_local! {
    /// The answers that say nothing but a status, encoded once.
    static ANSWERS: [Prebuilt; 5] = [
        Prebuilt::new([Field::new(":status", "200")]),
        Prebuilt::new([Field::new(":status", "400")]),
        Prebuilt::new([Field::new(":status", "401")]),
        Prebuilt::new([Field::new(":status", "405"), Field::new("allow", "CONNECT")]),
        Prebuilt::new([Field::new(":status", "503")]),
    ];
}

/// A peer's request that waits for its answer. Dropped without one, it is reset.
#[derive(Debug)]
pub(crate) struct Asked {
    shared: Shared,
    id: StreamId,
    /// It is let go here, and by nobody else.
    ours: Cell<bool>,
}

impl Asked {
    pub(crate) fn new(shared: Shared, id: StreamId) -> Self {
        Asked {
            shared,
            id,
            ours: Cell::new(true),
        }
    }

    pub(crate) fn is(&self, shared: &Shared, id: StreamId) -> bool {
        self.id == id && self.shared.is(shared)
    }

    /// The same to a request that nobody need look at; what it still says is judged to its end.
    pub(crate) fn turn_away(self, status: Status) {
        self.say(status);
        self.ours.set(false);
        self.shared.act(|core| core.refuse(self.id));
    }

    /// Says that there will be no stream.
    pub(crate) fn answer(self, status: Status) {
        self.say(status);
    }

    fn say(&self, status: Status) {
        let place = match status {
            Status::BadRequest => 1,
            Status::Unauthorized => 2,
            Status::MethodNotAllowed => 3,
            Status::Unavailable => 4,
        };
        // Fails when the peer has left, and then nobody need be told.
        let _ = ANSWERS.with(|answers| {
            self.shared.act(|core| {
                let answer = answers.get(place);
                core.http2.respond(self.id, answer, &[], true)
            })
        });
    }

    /// Says 200.
    pub(crate) fn accept(self, baggage: Option<&str>, slot: Slot) -> Result<Stream, StreamError> {
        let fields = baggage.filter(|text| is_visible(text.trim_matches('\0')));
        let fields = fields.map(|text| Field::new(crate::headers::BAGGAGE, text).kept());
        let answered = ANSWERS.with(|answers| {
            self.shared.act(|core| {
                if let Some(ended) = core.ended() {
                    return Err(Reason::lost(ended.clone()));
                }
                let broken = core.entry(self.id).and_then(|entry| entry.broken);
                let fields = fields.as_slice();
                let answer = core.http2.respond(self.id, answers.first(), fields, false);
                answer.map_err(|_| match broken {
                    Some(Broken::Reset(code)) => Reason::told(code),
                    _ => Reason::told(Code::CANCEL),
                })
            })
        });
        answered.map_err(StreamError)?;
        self.ours.set(false);
        Ok(Stream::new(self.shared.clone(), self.id, slot))
    }

    /// `Ready` when there is nobody left to answer.
    pub(crate) fn poll_gone(&self, cx: &mut Context<'_>) -> Poll<()> {
        let gone = {
            let mut core = self.shared.borrow();
            core.ended().is_some() || core.entry(self.id).is_none_or(|e| e.broken.is_some())
        };
        if gone {
            return Poll::Ready(());
        }
        self.shared.wait(self.id, cx, |entry| &mut entry.writer);
        Poll::Pending
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        if self.ours.get() {
            self.shared.let_go(self.id);
        }
    }
}

/// An open stream.
#[derive(Debug)]
pub(crate) struct Stream {
    shared: Shared,
    id: StreamId,
    /// Bytes that were handed out and whose credit the peer has not got back yet.
    owed: usize,
    /// Bytes that our relay could not hand over yet.
    waiting: u32,
    slot: Slot,
}

impl Stream {
    pub(crate) fn new(shared: Shared, id: StreamId, slot: Slot) -> Self {
        slot.load().accept();
        Stream {
            shared,
            id,
            owed: 0,
            waiting: 0,
            slot,
        }
    }

    pub(crate) fn slot(&self) -> &Slot {
        &self.slot
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

    /// Gives the peer its credit back for what was handed out.
    pub(crate) fn settle(&mut self) {
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
    pub(crate) fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        let result = {
            let mut core = self.shared.borrow();
            let ended = core.ended().map(crate::ended::Ended::to_io);
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

    /// What came is kept in as little as it needs. `Ready` when no more comes because the stream broke.
    pub(crate) fn hold(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        let broken = {
            let mut core = self.shared.borrow();
            let ended = core.ended().map(crate::ended::Ended::to_io);
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
                match core.outbox.paid(room) {
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

    pub(crate) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &mut Bytes,
    ) -> Poll<io::Result<()>> {
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

    pub(crate) fn poll_write_borrowed(
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

    pub(crate) fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        let gone = {
            let mut core = self.shared.borrow();
            let ended = core.ended().map(crate::ended::Ended::to_io);
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
        match self.poll_gone(cx) {
            Poll::Ready(error) => error,
            Poll::Pending => unread(),
        }
    }

    pub(crate) fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
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

    /// Bytes that [`Stream::abort`] would drop: what is framed goes out all the same.
    pub(crate) fn left(&mut self, cx: &mut Context<'_>) -> usize {
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

    pub(crate) fn abort(&mut self) {
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
