//! Time of the caller's clock.

use std::time::Duration;

/// A point in time: microseconds since an origin that the caller chose once for all connections. This crate reads no clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Moment(u64);

impl Moment {
    /// So many microseconds after the origin.
    pub const fn from_micros(micros: u64) -> Self {
        Moment(micros)
    }

    /// Microseconds after the origin.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// The time since an earlier moment; zero if it is none.
    pub const fn since(self, earlier: Moment) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }

    /// The moment so much later.
    pub fn after(self, time: Duration) -> Moment {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        Moment(self.0.saturating_add(micros))
    }

    /// Milliseconds after the origin, around every 49 days.
    pub(crate) const fn millis(self) -> u32 {
        (self.0 / 1000) as u32
    }
}
