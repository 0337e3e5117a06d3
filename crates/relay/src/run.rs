//! The relay itself: one future, both directions, nothing held while nothing flows.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};

use crate::duplex::{Chunk, Duplex};
use crate::limits::{self, Limits, Stall, Timer};
use crate::lost::Lost;
use crate::meter::Meter;
use crate::scratch::{MAX_READ, MIN_READ, ReadSize, Stalled, affordable_now};

/// Chunks that one direction may move before other tasks of the worker get their turn.
const TURN: u32 = 16;

/// Pieces that leave in one write, where the reader has them at hand.
pub(crate) const PIECES: usize = 16;

/// Bytes of such a write, as soon as there are so many. What was read has its credit back, so that this is what a peer may
/// have us hold beyond its window if the writer stops in the middle.
const GATHERED: usize = 64 * 1024;

/// Which of the two streams of a relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The stream given first.
    First,
    /// The stream given second.
    Second,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Side::First => "downstream",
            Side::Second => "upstream",
        })
    }
}

/// Why a relay ended before both directions did.
#[derive(Debug)]
pub enum RelayError {
    /// One of the streams broke.
    Broken {
        /// The stream that broke.
        side: Side,
        /// What it said.
        source: io::Error,
    },
    /// Neither direction moved a byte for as long as [`Limits`] allow.
    Idle {
        /// The limit.
        limit: Duration,
    },
    /// One direction has ended and the other one moved nothing for as long as [`Limits`] allow.
    HalfClosed {
        /// The stream whose peer has ended.
        ended: Side,
        /// The limit.
        limit: Duration,
    },
}

impl RelayError {
    /// The same error once more, for a second one who is to be told.
    pub fn again(&self) -> Self {
        match self {
            Self::Broken { side, source } => Self::Broken {
                side: *side,
                source: io::Error::new(source.kind(), source.to_string()),
            },
            Self::Idle { limit } => Self::Idle { limit: *limit },
            Self::HalfClosed { ended, limit } => Self::HalfClosed {
                ended: *ended,
                limit: *limit,
            },
        }
    }
}

impl fmt::Display for RelayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RelayError::Broken { side, source } => write!(f, "{side}: {source}"),
            RelayError::Idle { limit } => {
                write!(
                    f,
                    "idle time-out: no byte in either direction for {limit:?}"
                )
            }
            RelayError::HalfClosed { ended, limit } => write!(
                f,
                "half-close time-out: {ended} had ended, and nothing came the other way for {limit:?}"
            ),
        }
    }
}

impl std::error::Error for RelayError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            RelayError::Broken { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// How a relay ended.
#[derive(Debug)]
pub struct Outcome {
    /// Bytes that went from the first stream to the second.
    pub sent: u64,
    /// Bytes that went from the second stream to the first.
    pub received: u64,
    /// The first thing that went wrong, if any.
    pub error: Option<RelayError>,
}

/// Relays between `a` and `b` until both directions ended, and counts on `meter` meanwhile.
///
/// An end of one direction is passed on and the other one continues. A stream that breaks makes the other one end with
/// a reset, after what its peer said before: that is read to its end and handed over, as long as the other side takes
/// it. One whose peer only stopped listening is read on; its end is an end.
///
/// It needs a runtime with a timer.
pub async fn run<A: Duplex, B: Duplex, M: Meter>(a: A, b: B, meter: M) -> Outcome {
    Relay::new(a, b, meter).await
}

/// The future of [`run`], for callers that must be able to cut it.
#[derive(Debug)]
pub struct Relay<A, B, M> {
    a: A,
    b: B,
    meter: M,
    forth: Direction,
    back: Direction,
    limits: Limits,
    timer: Option<Box<Timer>>,
    error: Option<RelayError>,
}

/// One direction of a relay.
#[derive(Debug, Default)]
struct Direction {
    state: State,
    size: ReadSize,
    moved: u64,
    /// What was read and the writer has no room for; empty while bytes flow.
    pending: Bytes,
    /// Counts `pending` while the writer takes nothing.
    stalled: Stalled,
    /// `pending` may be a small part of a large buffer.
    part: bool,
    /// The reader's peer is gone. What came from it is still handed over, but an end that is read then is none: the
    /// kernel says "end" once it has told of the error.
    lost: Option<Box<Lost>>,
}

#[derive(Debug, Default, PartialEq, Eq, Clone, Copy)]
enum State {
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
enum Broken {
    Reading(io::Error),
    Writing(io::Error),
}

impl<A: Duplex, B: Duplex, M: Meter> Relay<A, B, M> {
    /// A relay between two open streams; it moves nothing until it is polled.
    pub fn new(a: A, b: B, meter: M) -> Self {
        Relay {
            a,
            b,
            meter,
            forth: Direction::default(),
            back: Direction::default(),
            limits: Limits::default(),
            timer: None,
            error: None,
        }
    }

    /// The same relay, given up when it stands still for too long. It then belongs to the task that polls it first.
    pub fn limited(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// The two streams, if both directions are open and all that was read is written.
    pub fn clear(&self) -> Option<(&A, &B)> {
        let clear = |direction: &Direction| {
            direction.state == State::Copying
                && direction.pending.is_empty()
                && direction.lost.is_none()
        };
        (clear(&self.forth) && clear(&self.back)).then_some((&self.a, &self.b))
    }

    /// Ends both streams with a reset, for a connection that is no longer allowed.
    pub fn abort(&mut self) {
        self.a.abort();
        self.b.abort();
        self.forth.state = State::Done;
        self.back.state = State::Done;
    }

    /// Moves what goes from `a` to `b`; `Ready` when the relay is over.
    fn poll_forth(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.forth.state == State::Done {
            return Poll::Pending;
        }
        let (unread, meter) = (self.back.state == State::Done, &self.meter);
        let count = |n| meter.sent(n);
        let moved = self.forth.poll(cx, &mut self.a, &mut self.b, unread, count);
        if let Poll::Ready(Err(broken)) = moved {
            self.forth.state = State::Done;
            if self.broke(Side::First, broken) {
                return Poll::Ready(());
            }
        }
        Poll::Pending
    }

    /// Moves what goes from `b` to `a`; `Ready` when the relay is over.
    fn poll_back(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.back.state == State::Done {
            return Poll::Pending;
        }
        let (unread, meter) = (self.forth.state == State::Done, &self.meter);
        let count = |n| meter.received(n);
        let moved = self.back.poll(cx, &mut self.b, &mut self.a, unread, count);
        if let Poll::Ready(Err(broken)) = moved {
            self.back.state = State::Done;
            if self.broke(Side::Second, broken) {
                return Poll::Ready(());
            }
        }
        Poll::Pending
    }

    /// Takes note of a direction that broke; `true` when the relay is over with it.
    fn broke(&mut self, from: Side, broken: Broken) -> bool {
        let to = match from {
            Side::First => Side::Second,
            Side::Second => Side::First,
        };
        let (side, source, over) = match broken {
            Broken::Reading(e) => (from, e, true),
            Broken::Writing(e) => {
                // A broken pipe says that the peer takes no more, nothing of what it sends.
                if e.kind() != io::ErrorKind::BrokenPipe {
                    let (back, grace) = match from {
                        Side::First => (&mut self.back, B::GRACE),
                        Side::Second => (&mut self.forth, A::GRACE),
                    };
                    back.lost
                        .get_or_insert_with(|| Lost::new(e.kind().into(), grace));
                }
                (to, e, false)
            }
        };
        self.error
            .get_or_insert(RelayError::Broken { side, source });
        if over {
            match side {
                Side::First => self.b.abort(),
                Side::Second => self.a.abort(),
            }
        }
        over
    }

    /// Ends a relay that stood still for too long.
    fn give_up(&mut self, stall: Stall, limit: Duration) {
        let ended = match self.forth.state {
            State::Copying => Side::Second,
            State::Emptying | State::Finishing | State::Parting | State::Done => Side::First,
        };
        // What broke before is why the other direction is alone.
        self.error.get_or_insert(match stall {
            Stall::Idle => RelayError::Idle { limit },
            Stall::HalfClosed => RelayError::HalfClosed { ended, limit },
        });
        self.abort();
    }

    fn outcome(&mut self) -> Outcome {
        Outcome {
            sent: self.forth.moved,
            received: self.back.moved,
            error: self.error.take(),
        }
    }
}

impl Direction {
    /// Moves what there is to move. `Ready` when this direction is over. `unread` says that nobody reads from `to`.
    fn poll<F: Duplex, T: Duplex>(
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
                self.lost = Some(Lost::new(error, T::GRACE));
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
                    Poll::Ready(Ok(())) => self.stalled.set(0),
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
            let read = from.poll_read(cx, &mut self.size, T::QUEUES, |_, chunk| match chunk {
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
        let written = match to.poll_write_gathered(cx, &pieces[..held]) {
            Poll::Ready(result) => result.map_err(Broken::Writing)?,
            Poll::Pending => 0,
        };
        if written > 0 {
            self.moved += written as u64;
            count(written as u64);
        }
        if written == length {
            self.size.learn(written);
        } else {
            self.size = ReadSize::least();
            self.keep(&mut pieces[..held], written, length - written);
        }
        match broken {
            Some(error) if self.pending.is_empty() => return Err(Broken::Reading(error)),
            // What came before is handed over first, as long as it is taken.
            Some(error) => self.lost = Some(Lost::new(error, F::GRACE)),
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
            self.lost = Some(Lost::new(error, F::GRACE));
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

// The streams are reached by reference only and never pinned in place.
impl<A, B, M> Unpin for Relay<A, B, M> {}

impl<A: Duplex, B: Duplex, M: Meter> Future for Relay<A, B, M> {
    type Output = Outcome;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome> {
        let this = self.get_mut();
        let half_closed = this.back.state == State::Done;
        if this.poll_forth(cx).is_ready() || this.poll_back(cx).is_ready() {
            return Poll::Ready(this.outcome());
        }
        // The other direction waits for something else now.
        if !half_closed && this.back.state == State::Done && this.poll_forth(cx).is_ready() {
            return Poll::Ready(this.outcome());
        }
        let done = [&this.forth, &this.back].map(|direction| direction.state == State::Done);
        if done == [true, true] {
            return Poll::Ready(this.outcome());
        }
        let moved = this.forth.moved + this.back.moved + this.meter.beside();
        let half_closed = done != [false, false];
        match limits::poll(&mut this.timer, cx, this.limits, half_closed, moved) {
            Poll::Pending => Poll::Pending,
            Poll::Ready((stall, limit)) => {
                this.give_up(stall, limit);
                Poll::Ready(this.outcome())
            }
        }
    }
}
