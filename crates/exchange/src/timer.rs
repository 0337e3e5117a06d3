//! Periodic checks of a connection: PING keepalive, slow request heads, idle time, and memory at rest.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

use crate::config::Timeouts;
use crate::core::{Codec, Shared};
use crate::error::ConnectionError;

#[derive(Debug)]
pub(crate) struct Timer {
    sleep: Pin<Box<Sleep>>,
    times: Timeouts,
    /// Bytes that had come at the last check.
    received: u64,
    /// The time without input.
    quiet: Duration,
    /// A PING was sent in this time.
    asked: bool,
    /// The time for which a request head has been incomplete.
    head: Duration,
    /// The time without an exchange.
    idle: Duration,
}

impl Timer {
    pub(crate) fn new(times: Timeouts) -> Self {
        Timer {
            sleep: Box::pin(sleep(times.check_interval)),
            times,
            received: 0,
            quiet: Duration::ZERO,
            asked: false,
            head: Duration::ZERO,
            idle: Duration::ZERO,
        }
    }

    /// Does the checks that are due; `received` bytes have come so far.
    ///
    /// # Errors
    /// The peer took too long.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        shared: &Shared,
        received: u64,
    ) -> Result<(), ConnectionError> {
        while self.sleep.as_mut().poll(cx).is_ready() {
            self.sleep
                .as_mut()
                .reset(Instant::now() + self.times.check_interval);
            self.check(shared, received)?;
        }
        Ok(())
    }

    fn check(&mut self, shared: &Shared, received: u64) -> Result<(), ConnectionError> {
        let core = &mut *shared.borrow();
        let now = core.now();
        let interval = self.times.check_interval;
        let is_idle = core.is_idle();
        let is_in_head = core.is_in_head();
        let grow = |time: &mut Duration, grows: bool| {
            *time = if grows {
                *time + interval
            } else {
                Duration::ZERO
            };
            *time
        };
        let is_quiet = std::mem::replace(&mut self.received, received) == received;
        let quiet = grow(&mut self.quiet, is_quiet);
        if let Codec::Http2(http2) = &mut core.codec {
            http2.tick(now)?;
            self.asked &= is_quiet;
            if quiet >= self.times.ping_after && !self.asked {
                self.asked = true;
                core.pings = core.pings.wrapping_add(1);
                http2.ping(core.pings);
            }
            // A peer whose input nobody reads cannot answer.
            if quiet >= self.times.ping_after + self.times.ping_timeout && !core.is_paused {
                return Err(ConnectionError::PingTimeout);
            }
        }
        if grow(&mut self.head, is_in_head) >= self.times.head {
            return Err(ConnectionError::HeadTimeout);
        }
        if is_idle {
            core.rest();
        }
        let idle = grow(&mut self.idle, is_idle);
        if self.times.idle.is_some_and(|most| idle >= most) {
            core.drain();
        }
        Ok(())
    }

    /// Begins the time for which a failed connection still reads.
    pub(crate) fn linger(&mut self) {
        let end = Instant::now() + self.times.linger;
        self.sleep.as_mut().reset(end);
    }

    /// Ready when that time is over.
    pub(crate) fn poll_lingered(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.sleep.as_mut().poll(cx)
    }
}
