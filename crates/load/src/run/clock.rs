//! Clock of a run.

use std::time::{Duration, Instant};

/// The time since a run began.
#[derive(Debug, Clone, Copy)]
pub struct Clock(Instant);

impl Clock {
    /// A clock that begins now.
    pub fn start() -> Clock {
        Clock(Instant::now())
    }

    /// The time since it began.
    pub fn elapsed(self) -> Duration {
        self.0.elapsed()
    }

    /// The same in nanoseconds.
    pub fn now(self) -> u64 {
        u64::try_from(self.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}
