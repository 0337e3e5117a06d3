//! One direction of a relay: it reads, writes, and holds no buffer while nothing flows.

use std::io;
use std::task::{Context, Poll};

use bytes::{Buf as _, Bytes, BytesMut};

use crate::chunk::Chunk;
use crate::duplex::Duplex;
use crate::reset_grace::ResetGrace;
use crate::scratch::{MAX_READ, MIN_READ, ReadSize, Stalled, affordable_now};

/// Chunks that one direction may move before other tasks of the worker get their turn.
const TURN: u32 = 16;

/// Pieces that leave in one write, where the reader has them at hand: a tunnel's are a TLS record at most, and two where a
/// frame begins within it.
pub(crate) const PIECES: usize = 32;

/// Bytes of such a write, as soon as there are so many. The kernel makes packets of nearly 64 KiB of what it gets, and one
/// more of the rest: of more bytes fewer packets, and fewer readers that are woken for each.
const GATHERED: usize = MAX_READ;

/// One direction of a relay.
#[derive(Debug, Default)]
pub(crate) struct Direction {
    pub(crate) state: State,
    size: ReadSize,
    pub(crate) moved: u64,
    /// What was read and the writer has no room for; empty while bytes flow.
    pub(crate) pending: Bytes,
    /// Counts `pending` while the writer takes nothing.
    stalled: Stalled,
    /// `pending` may be a small part of a large buffer.
    part: bool,
    /// The reader's peer is gone. What came from it is still handed over, but an end that is read then is none: the
    /// kernel says "end" once it has told of the error.
    pub(crate) lost: Option<Box<ResetGrace>>,
}

#[derive(Debug, Default, PartialEq, Eq, Clone, Copy)]
pub(crate) enum State {
    #[default]
    Copying,
    /// The reader is at its end; the writer still has some of what came before.
    Emptying,
    /// The reader is at its end; the writer is still to be told.
    Finishing,
    /// The reader has broken; the writer still has some of what came before.
    Parting,
    Done,
}

/// Where a direction broke.
pub(crate) enum Broken {
    Reading(io::Error),
    Writing(io::Error),
}
impl Direction {
    /// Has bytes that were read before go first.
    pub(crate) fn begin_with(&mut self, bytes: Bytes) {
        self.part = !bytes.is_empty();
        self.pending = bytes;
    }

    /// Moves what there is to move. `Ready` when this direction is over. `unread` says that nobody reads from `to`.
    pub(crate) fn poll<F: Duplex, T: Duplex>(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut F,
        to: &mut T,
        unread: bool,
        count: impl Fn(u64),
    ) -> Poll<Result<(), Broken>> {
        let moved = self.copy(cx, from, to, unread, count);
        match moved {
            // An application that answers and closes before it has read all sends its answer and then a reset, in one
            // breath: both are read before anything is sent.
            Poll::Ready(Err(Broken::Reading(error)))
                if self.state != State::Parting && to.left(cx) > 0 =>
            {
                self.state = State::Parting;
                self.lost = Some(ResetGrace::new(error, T::GRACE));
                self.poll_parting(cx, to)
            }
            moved => moved,
        }
    }

    /// Waits until what was handed over has left, as long as it moves.
    fn poll_parting<T: Duplex>(
        &mut self,
        cx: &mut Context<'_>,
        to: &mut T,
    ) -> Poll<Result<(), Broken>> {
        let Some(lost) = &mut self.lost else {
            return Poll::Ready(Err(Broken::Reading(io::ErrorKind::ConnectionReset.into())));
        };
        let left = to.left(cx);
        if left > 0 && lost.poll(cx, left as u64).is_pending() {
            return Poll::Pending;
        }
        Poll::Ready(Err(Broken::Reading(lost.take())))
    }

    /// As [`Direction::poll`], to the moment when the reader has broken.
    fn copy<F: Duplex, T: Duplex>(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut F,
        to: &mut T,
        unread: bool,
        count: impl Fn(u64),
    ) -> Poll<Result<(), Broken>> {
        if self.state == State::Parting {
            return self.poll_parting(cx, to);
        }
        let mut turn = 0;
        while matches!(self.state, State::Copying | State::Emptying) {
            if !self.pending.is_empty() {
                match self.poll_pending(cx, to, &count) {
                    Poll::Ready(Ok(())) => {
                        self.stalled.set(0);
                        if !T::QUEUES {
                            // Even an empty part would keep the buffer that it came in.
                            self.pending = Bytes::new();
                        }
                    }
                    Poll::Ready(Err(e)) => return Poll::Ready(Err(Broken::Writing(e))),
                    Poll::Pending => {
                        self.detach();
                        self.stalled.set(self.pending.len());
                        return self.poll_lost(cx, from).map(|e| Err(Broken::Reading(e)));
                    }
                }
            }
            if self.state == State::Emptying {
                self.end().map_err(Broken::Reading)?;
                break;
            }
            if turn >= TURN {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            turn += 1;
            let Direction {
                size,
                pending,
                part,
                moved,
                state,
                lost,
                stalled: _,
            } = self;
            let mut size = size.capped(to.advice());
            let read = from.poll_read(cx, size.get(), T::QUEUES, |cx, chunk| match chunk {
                Chunk::End => match lost {
                    Some(lost) => Err(Broken::Reading(lost.take())),
                    None => {
                        *state = State::Finishing;
                        Ok(())
                    }
                },
                Chunk::Owned(bytes) => {
                    *pending = bytes;
                    *part = true;
                    Ok(())
                }
                Chunk::Borrowed(bytes) => {
                    let n = match to.poll_write_borrowed(cx, bytes) {
                        Poll::Ready(result) => result.map_err(Broken::Writing)?,
                        Poll::Pending => 0,
                    };
                    if n > 0 {
                        *moved += n as u64;
                        count(n as u64);
                    }
                    *pending = Bytes::copy_from_slice(&bytes[n..]);
                    *part = false;
                    Ok(())
                }
            });
            match read {
                Poll::Pending if unread => {
                    return to.poll_gone(cx).map(|e| Err(Broken::Writing(e)));
                }
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(e)) => return Poll::Ready(Err(Broken::Reading(e))),
                Poll::Ready(Ok(Err(broken))) => return Poll::Ready(Err(broken)),
                Poll::Ready(Ok(Ok(()))) => {}
            }
            if !T::QUEUES && self.part && !self.pending.is_empty() {
                let (pieces, waits) = self.gather(cx, from, to, &count)?;
                turn += pieces;
                if waits && !unread && self.pending.is_empty() {
                    return Poll::Pending;
                }
            }
        }
        if self.state == State::Finishing {
            match to.poll_finish(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(result) => {
                    self.state = State::Done;
                    return Poll::Ready(result.map_err(Broken::Writing));
                }
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Writes `pending` and what the reader has at hand behind it: one write for what came in pieces. What the writer has no
    /// room for is `pending` again. Gives the number of pieces, and whether the reader waits for more.
    fn gather<F: Duplex, T: Duplex>(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut F,
        to: &mut T,
        count: &impl Fn(u64),
    ) -> Result<(u32, bool), Broken> {
        let mut pieces = [const { Bytes::new() }; PIECES];
        let mut length = self.pending.len();
        pieces[0] = std::mem::take(&mut self.pending);
        let (mut held, mut waits, mut broken) = (1, false, None);
        // As much as the writer has shown to take at once, so that one who takes nothing has us hold one piece.
        let most = match self.moved {
            0 => MIN_READ,
            _ => GATHERED.min(self.size.bytes()).min(affordable_now()),
        };
        while held < PIECES && length < most {
            let read = from.poll_read_more(cx, &mut self.size, |_, chunk| match chunk {
                Chunk::End => None,
                Chunk::Owned(bytes) => Some(bytes),
                Chunk::Borrowed(bytes) => Some(Bytes::copy_from_slice(bytes)),
            });
            match read {
                Poll::Pending => {
                    waits = true;
                    break;
                }
                Poll::Ready(Ok(Some(bytes))) => {
                    length += bytes.len();
                    pieces[held] = bytes;
                    held += 1;
                }
                Poll::Ready(Ok(None)) => {
                    self.state = State::Emptying;
                    break;
                }
                Poll::Ready(Err(error)) => {
                    broken = Some(error);
                    break;
                }
            }
        }
        let result = match &pieces[..held] {
            // A list of one costs the kernel more than what it lists.
            [one] => to.poll_write_borrowed(cx, one),
            several => to.poll_write_gathered(cx, several),
        };
        let written = match result {
            Poll::Ready(result) => result.map_err(Broken::Writing)?,
            Poll::Pending => 0,
        };
        if written > 0 {
            self.moved += written as u64;
            count(written as u64);
        }
        if written == length {
            self.size.learn(written);
            from.used(cx);
        } else {
            // What is left of it is still the peer's: its next read shows that it is written.
            self.size = ReadSize::least();
            self.keep(&mut pieces[..held], written, length - written);
        }
        match broken {
            Some(error) if self.pending.is_empty() => return Err(Broken::Reading(error)),
            // What came before is handed over first, as long as it is taken.
            Some(error) => self.lost = Some(ResetGrace::new(error, F::GRACE)),
            None => {}
        }
        Ok((held as u32, waits))
    }

    /// Makes `pending` of what is left of the pieces behind what was written.
    fn keep(&mut self, pieces: &mut [Bytes], mut written: usize, left: usize) {
        let mut kept = BytesMut::new();
        for piece in pieces {
            let skipped = written.min(piece.len());
            written -= skipped;
            piece.advance(skipped);
            if piece.len() == left {
                self.pending = std::mem::take(piece);
                self.part = true;
                return;
            }
            if kept.is_empty() {
                // Not a power of two: what a stalled connection holds is counted by what is left.
                kept.reserve(left);
            }
            kept.extend_from_slice(piece);
        }
        self.pending = kept.freeze();
        self.part = false;
    }

    /// The reader is at its end, and nothing of it is left. It is none if the reader was lost before.
    fn end(&mut self) -> io::Result<()> {
        match &mut self.lost {
            Some(lost) => Err(lost.take()),
            None => {
                self.state = State::Finishing;
                Ok(())
            }
        }
    }

    /// Lets go of the buffer that `pending` came in, unless it is most of it anyway.
    fn detach(&mut self) {
        if self.part && self.pending.len() < MAX_READ / 2 {
            self.pending = Bytes::copy_from_slice(&self.pending);
        }
        self.part = false;
    }

    /// Called while the writer takes nothing, so that nobody reads. `Ready` when the reader's peer is gone and nobody
    /// has taken anything of what it sent for too long.
    fn poll_lost<F: Duplex>(&mut self, cx: &mut Context<'_>, from: &mut F) -> Poll<io::Error> {
        if self.lost.is_none()
            && let Poll::Ready(error) = from.hold(cx)
        {
            self.lost = Some(ResetGrace::new(error, F::GRACE));
        }
        match &mut self.lost {
            Some(lost) => lost.poll(cx, self.moved).map(|()| lost.take()),
            None => Poll::Pending,
        }
    }

    fn poll_pending<T: Duplex>(
        &mut self,
        cx: &mut Context<'_>,
        to: &mut T,
        count: &impl Fn(u64),
    ) -> Poll<io::Result<()>> {
        let before = self.pending.len();
        let result = to.poll_write(cx, &mut self.pending);
        let n = (before - self.pending.len()) as u64;
        if n > 0 {
            self.moved += n;
            count(n);
        }
        result
    }
}
