//! Time limits of a relay that stands still. The timer is set when the relay waits, and is looked at only when nothing moved.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

/// A time-out is looked for in as many steps: one that is due ends the relay at most a quarter too late, and bytes cost
/// no look at the clock.
const STEPS: u32 = 4;

/// When a relay that stands still is given up; by default never.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// In milliseconds, 0 for none: a relay carries its limits, so they are kept small.
    idle: u32,
    half_closed: u32,
}

impl Limits {
    /// `idle` bounds the time in which neither direction moves a byte; `half_closed` the time in which nothing moves
    /// after one direction has ended. `None` or zero is no limit; the longest are 49 days.
    pub fn new(idle: Option<Duration>, half_closed: Option<Duration>) -> Self {
        let millis = |limit: Option<Duration>| {
            let millis = limit.unwrap_or_default().as_millis();
            u32::try_from(millis).unwrap_or(u32::MAX)
        };
        Limits {
            idle: millis(idle),
            half_closed: millis(half_closed),
        }
    }

    /// The time in which nothing moves after one direction has ended; `None`: no limit.
    pub fn half_closed(self) -> Option<Duration> {
        (self.half_closed > 0).then(|| Duration::from_millis(self.half_closed.into()))
    }

    /// The limit of a relay in this state, and which one it is.
    fn applying(self, half_closed: bool) -> Option<(Stall, u32)> {
        let idle = (self.idle > 0).then_some((Stall::Idle, self.idle));
        let half =
            (half_closed && self.half_closed > 0).then_some((Stall::HalfClosed, self.half_closed));
        match (idle, half) {
            (Some(idle), Some(half)) => Some(if idle.1 < half.1 { idle } else { half }),
            (idle, half) => idle.or(half),
        }
    }
}

/// Which limit was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stall {
    Idle,
    HalfClosed,
}

/// The timer of a relay that waits under a limit.
#[derive(Debug)]
pub(crate) struct Timer {
    sleep: Pin<Box<Sleep>>,
    stall: Stall,
    limit: u32,
    /// Bytes moved when it last looked.
    seen: u64,
    /// Steps since then in which none moved.
    quiet: u32,
}

/// To be called when a relay is about to wait: `moved` bytes were moved in all so far. `Ready` when it stood still for
/// too long. A relay must stay in the task that polled it first: the timer wakes that one.
pub(crate) fn poll(
    slot: &mut Option<Box<Timer>>,
    cx: &mut Context<'_>,
    limits: Limits,
    half_closed: bool,
    moved: u64,
) -> Poll<(Stall, Duration)> {
    let Some((stall, limit)) = limits.applying(half_closed) else {
        return Poll::Pending;
    };
    match slot {
        Some(timer) if timer.stall == stall => timer.poll(cx, moved),
        // None yet, or that of a relay whose directions were both open.
        slot => slot
            .insert(Box::new(Timer::new(stall, limit, moved)))
            .start(cx),
    }
}

impl Timer {
    fn new(stall: Stall, limit: u32, moved: u64) -> Self {
        Timer {
            sleep: Box::pin(sleep(step(limit))),
            stall,
            limit,
            seen: moved,
            quiet: 0,
        }
    }

    /// Registers the task, which holds until the step is over.
    fn start(&mut self, cx: &mut Context<'_>) -> Poll<(Stall, Duration)> {
        match self.sleep.as_mut().poll(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(()) => self.poll(cx, self.seen),
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>, moved: u64) -> Poll<(Stall, Duration)> {
        // One load, and that is all while a step lasts.
        while self.sleep.is_elapsed() {
            self.quiet = if self.seen == moved {
                self.quiet + 1
            } else {
                0
            };
            self.seen = moved;
            if self.quiet == STEPS {
                return Poll::Ready((self.stall, Duration::from_millis(self.limit.into())));
            }
            self.sleep.as_mut().reset(Instant::now() + step(self.limit));
            if self.sleep.as_mut().poll(cx).is_pending() {
                break;
            }
        }
        Poll::Pending
    }
}

fn step(limit: u32) -> Duration {
    (Duration::from_millis(limit.into()) / STEPS).max(Duration::from_millis(1))
}
