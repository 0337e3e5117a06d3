//! The relay: one future for both directions, and its end. [`crate::direction`] moves the bytes of one direction.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;

use crate::direction::{Broken, Direction, State};
use crate::duplex::Duplex;
use crate::limits::{self, Limits, Stall, Timer};
use crate::meter::Meter;
use crate::reset_grace::ResetGrace;

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

/// What an idle connection holds of this crate.
const _: () = assert!(size_of::<Relay<crate::Socket, crate::Socket, std::rc::Rc<()>>>() <= 240);

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

    /// The same relay behind bytes that were read from each stream before. They go first, and count as all others do.
    pub fn behind(mut self, from_a: Bytes, from_b: Bytes) -> Self {
        self.forth.begin_with(from_a);
        self.back.begin_with(from_b);
        self
    }

    /// What counts its bytes.
    pub fn meter(&self) -> &M {
        &self.meter
    }

    /// The same, when the relay is over: both streams are dropped.
    pub fn into_meter(self) -> M {
        self.meter
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
                        .get_or_insert_with(|| ResetGrace::new(e.kind().into(), grace));
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
