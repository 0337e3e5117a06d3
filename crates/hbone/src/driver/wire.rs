//! A tunnel's byte stream: reads and hands events out, and writes what there is, many frames at a time.

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use lateen_exchange::{Transport, Written};
use lateen_h2::{Cause, Code, Connection, ConnectionError};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;

use super::core::{News, Shared};
use super::rcvlowat::RcvLowat;
use crate::error::{Reason, TunnelError};

/// Reads in one turn; then others have theirs. From TLS each is a record at most: 256 KiB in all.
const READS: usize = 16;

/// Writes in one turn.
const WRITES: usize = 16;

/// Bytes that leave together, through TLS in one system call.
const GATHERED: usize = 64 * 1024;

/// The same where the stream below took so many at once. The kernel makes packets of nearly 64 KiB of what it gets, and one
/// more of the rest: of more bytes fewer packets, each of which is routed, filtered and acknowledged.
const GATHERED_MOST: usize = 256 * 1024;

/// Answers that the peer may leave unread before we read no more of it.
const UNREAD: usize = 32 * 1024;

/// What the stream below a tunnel can be asked besides bytes.
#[derive(Debug)]
pub struct Below<IO> {
    /// Tells how many bytes the stream has let go so far, in the form in which they leave it: that the number moves is what
    /// counts.
    pub sent: fn(&IO) -> u64,
    /// Has a reader woken by no fewer than so many bytes, or by the stream's end; one byte is how it begins.
    pub wake_at: Option<fn(&IO, usize)>,
}

impl<IO> Clone for Below<IO> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<IO> Copy for Below<IO> {}

#[derive(Debug)]
pub(crate) struct Wire<IO> {
    transport: Transport<IO>,
    /// Writes that were begun and may have taken something with them.
    writes: Rc<Cell<u64>>,
    /// Since when the stream takes nothing, and lets nothing go.
    stuck: Option<Instant>,
    /// How often it took or let go something after it had had no room.
    moved: u32,
    /// Without it a part that leaves is not seen, only all of it.
    below: Option<Below<IO>>,
    /// What it told last of what has left.
    gone: u64,
    rcvlowat: RcvLowat,
    /// Bytes written since the last flush.
    unflushed: usize,
    /// Answers to the peer among them.
    answers: usize,
    /// Bytes that may be, before they are flushed.
    gathers: usize,
    /// Nothing is read, because the peer does not take our answers.
    paused: bool,
}

impl<IO> Wire<IO> {
    pub(crate) fn new(io: IO) -> Self {
        Wire {
            transport: Transport::new(io),
            writes: Rc::default(),
            stuck: None,
            moved: 0,
            below: None,
            gone: 0,
            rcvlowat: RcvLowat::default(),
            unflushed: 0,
            answers: 0,
            gathers: GATHERED,
            paused: false,
        }
    }

    /// Bytes that came so far.
    pub(crate) fn received(&self) -> u64 {
        self.transport.received()
    }

    /// Counts every write that took anything, and every one that failed, for a part of it may have left before. While
    /// it stands still nothing has gone to the peer.
    pub(crate) fn writes(&self) -> &Rc<Cell<u64>> {
        &self.writes
    }

    /// Has `below` asked.
    pub(crate) fn ask(&mut self, below: Below<IO>) {
        self.below = Some(below);
    }

    /// Nothing more is there to be read: says how much is worth a wake-up.
    fn wait(&mut self, shared: &Shared) {
        let Some(wake_at) = self.below.and_then(|below| below.wake_at) else {
            return;
        };
        let core = shared.borrow();
        // Whoever may be gone is heard at its first byte.
        let due = match core.was_answered() {
            true => core.http2.due(),
            false => 0,
        };
        drop(core);
        if let Some(bytes) = self.rcvlowat.wait(self.transport.received(), due) {
            wake_at(self.transport.io(), bytes);
        }
    }

    /// The stream has no room for now. It is stuck unless a part of what it took has left since this was seen last.
    fn hold_up(&mut self) {
        let gone = self
            .below
            .map_or(0, |below| (below.sent)(self.transport.io()));
        if std::mem::replace(&mut self.gone, gone) != gone {
            self.unstick();
        }
        self.stuck.get_or_insert_with(Instant::now);
    }

    fn unstick(&mut self) {
        if self.stuck.take().is_some() {
            self.moved = self.moved.wrapping_add(1);
        }
    }

    /// Counts what showed that the path takes what is sent: while it stands still, nobody may be there.
    pub(crate) fn moved(&self) -> u32 {
        self.moved
    }

    /// Answers that the peer has not taken yet, as far as is known here.
    fn unread(&self, http2: &Connection) -> usize {
        http2.unread() + self.answers
    }

    /// For how long the stream has taken nothing of what there is to write, and let nothing go.
    pub(crate) fn stuck_for(&self) -> Duration {
        self.stuck.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// True when the peer has closed the stream.
    pub(crate) fn is_over(&self) -> bool {
        self.transport.is_over()
    }

    /// Whether it can be written; the error is told again each time, in words.
    pub(crate) fn check(&self) -> io::Result<()> {
        match self.transport.failure() {
            Some(error) => Err(io::Error::new(error.kind(), error.to_string())),
            None => Ok(()),
        }
    }
}

impl<IO: AsyncRead + Unpin> Wire<IO> {
    /// Reads what there is, up to a turn's share, and gives it to the streams; `hear` is told the rest.
    ///
    /// # Errors
    /// The stream broke, or the peer broke the rules. What there is to write then ends with a GOAWAY.
    pub(crate) fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        shared: &Shared,
        mut hear: impl FnMut(News),
    ) -> Result<(), TunnelError> {
        for _ in 0..READS {
            if self.transport.is_over() {
                return Ok(());
            }
            if self.unread(&shared.borrow().http2) > UNREAD {
                self.paused = true;
                return Ok(());
            }
            let buffer = match self.transport.poll_read(cx) {
                Poll::Pending => {
                    self.wait(shared);
                    return Ok(());
                }
                Poll::Ready(buffer) => buffer.map_err(TunnelError::Io)?,
            };
            if buffer.is_empty() {
                return Ok(());
            }
            let now = shared.borrow().now();
            self.rcvlowat.now(now);
            let mut input = &buffer[..];
            loop {
                let (news, wakes) = {
                    let mut core = shared.borrow();
                    match core.http2.receive(&mut input, now).map_err(blame)? {
                        None => break,
                        Some(event) => core.take(event, &buffer),
                    }
                };
                wakes.into_iter().flatten().for_each(Waker::wake);
                hear(news);
            }
        }
        // There may be more.
        cx.waker().wake_by_ref();
        Ok(())
    }
}

/// The peer's fault as a tunnel's error.
fn blame(error: ConnectionError) -> TunnelError {
    match error.cause {
        Cause::Abuse(abuse) => TunnelError::Abusive(abuse),
        _ => TunnelError::Protocol(Reason::own(error)),
    }
}

/// A peer that goes away with an error holds something against us.
pub(crate) fn farewell(code: Option<Code>) -> Result<(), TunnelError> {
    match code {
        None | Some(Code::NO_ERROR) => Ok(()),
        Some(code) => Err(TunnelError::Protocol(Reason::told(code))),
    }
}

impl<IO: AsyncWrite + Unpin> Wire<IO> {
    /// Writes what there is, as far as the stream takes it, and flushes once. An error waits in
    /// [`Wire::check`]: what the peer said before may tell why.
    pub(crate) fn poll_send(&mut self, cx: &mut Context<'_>, shared: &Shared) {
        if self.transport.failure().is_some() {
            // Nobody takes it any more.
            return shared.borrow().http2.advance(usize::MAX);
        }
        let mut took = false;
        for turn in 0.. {
            if turn == WRITES {
                // There may be more.
                cx.waker().wake_by_ref();
                break;
            }
            if self.unflushed >= self.gathers && !self.poll_leave(cx) {
                shared
                    .borrow()
                    .set_stuck(self.transport.failure().is_none());
                break;
            }
            let written = {
                let core = &mut *shared.borrow();
                let written = self.transport.poll_write(cx, core.http2.output());
                core.set_stuck(written == Written::Blocked);
                if let Written::Bytes(bytes) = written {
                    let before = core.http2.unread();
                    core.http2.advance(bytes);
                    self.answers += before - core.http2.unread();
                }
                written
            };
            match written {
                Written::Nothing => break,
                Written::Blocked => {
                    self.hold_up();
                    break;
                }
                Written::Bytes(bytes) => {
                    self.writes.set(self.writes.get() + 1);
                    took = true;
                    self.unstick();
                    self.unflushed += bytes;
                }
                Written::Failed => {
                    self.writes.set(self.writes.get() + 1);
                    break;
                }
            }
        }
        if self.is_dirty() {
            self.poll_leave(cx);
        }
        let mut core = shared.borrow();
        if core.set_unflushed(self.unflushed) || took {
            core.account();
            if self.paused && self.unread(&core.http2) <= UNREAD {
                self.paused = false;
                cx.waker().wake_by_ref();
            }
        }
        drop(core);
        if shared.announce_room() {
            cx.waker().wake_by_ref();
        }
    }

    /// Flushes; `false` if not all has left, or never will.
    fn poll_leave(&mut self, cx: &mut Context<'_>) -> bool {
        if self.transport.poll_flush(cx).is_pending() {
            // The waker is registered: the next turn tries again.
            self.hold_up();
            // Where the path is the bottleneck, what waits here only delays what comes behind it.
            self.gathers = GATHERED;
            return false;
        }
        let has_left = self.transport.failure().is_none();
        if has_left {
            if self.unflushed >= self.gathers && self.stuck.is_none() {
                self.gathers = GATHERED_MOST;
            }
            self.unstick();
        }
        self.unflushed = 0;
        self.answers = 0;
        has_left
    }

    /// True while something that was written has not left.
    pub(crate) fn is_dirty(&self) -> bool {
        self.transport.is_dirty()
    }

    /// Closes our direction.
    pub(crate) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.transport.poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests;
