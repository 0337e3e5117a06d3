//! Timestamps of the caller's clock.

use std::time::Duration;

/// A timestamp: microseconds since an origin that the caller chose once for all connections. This crate reads no clock.
///
/// A coarse clock is enough. One reading may stand for all frames of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The timestamp so many microseconds after the origin.
    pub const fn from_micros(micros: u64) -> Self {
        Timestamp(micros)
    }

    /// The number of microseconds after the origin.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// The time since an earlier timestamp; zero if `earlier` is the later one.
    pub const fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }

    /// The timestamp so much later.
    pub fn after(self, time: Duration) -> Timestamp {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        Timestamp(self.0.saturating_add(micros))
    }

    /// The number of milliseconds after the origin. It starts again at zero every 49 days.
    pub(crate) const fn millis(self) -> u32 {
        (self.0 / 1000) as u32
    }
}
