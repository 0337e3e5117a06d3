//! When to ask again: pure functions of time and chance.

use std::time::{Duration, SystemTime};

/// Least time between two certificates of one identity, so that a clock that is wrong makes no storm.
pub const MIN_INTERVAL: Duration = Duration::from_secs(1);
/// Wait after the first failure, at most.
pub const FIRST_BACKOFF: Duration = Duration::from_millis(100);
/// Wait after many failures, at most.
pub const MAX_BACKOFF: Duration = Duration::from_secs(15);

/// How long after `now` a certificate is to be renewed: at half of its life, for the
/// other half is the time in which renewal may fail.
pub fn renew_in(not_before: SystemTime, not_after: SystemTime, now: SystemTime) -> Duration {
    let life = not_after.duration_since(not_before).unwrap_or_default();
    let at = not_before + life / 2;
    at.duration_since(now).unwrap_or_default().max(MIN_INTERVAL)
}

/// How long to wait after the `failures`-th failure in a row (from 1). `chance`, from 0 to 1, spreads
/// proxies that failed together over the second half of the wait.
pub fn backoff(failures: u32, chance: f64) -> Duration {
    let doublings = failures.saturating_sub(1).min(16);
    let longest = (FIRST_BACKOFF * 2u32.pow(doublings)).min(MAX_BACKOFF);
    longest.mul_f64(0.5 + 0.5 * chance.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DAY: Duration = Duration::from_secs(86_400);

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn renews_at_half_life() {
        let (from, to) = (at(1_000), at(1_000) + DAY);
        assert_eq!(renew_in(from, to, from), DAY / 2);
        assert_eq!(renew_in(from, to, from + DAY / 4), DAY / 4);
        assert_eq!(renew_in(from, to, from + DAY), MIN_INTERVAL);
        // A certificate that ends before it begins is renewed, but not in a loop.
        assert_eq!(renew_in(to, from, to), MIN_INTERVAL);
    }

    #[test]
    fn backs_off_by_doubling_to_a_limit() {
        assert_eq!(backoff(1, 1.0), FIRST_BACKOFF);
        assert_eq!(backoff(2, 1.0), FIRST_BACKOFF * 2);
        assert_eq!(backoff(2, 0.0), FIRST_BACKOFF);
        assert_eq!(backoff(100, 1.0), MAX_BACKOFF);
    }

    proptest! {
        #[test]
        fn is_bounded(failures: u32, chance: f64, from in 0u64..1 << 40, life in 0u64..1 << 32, now in 0u64..1 << 40) {
            let wait = backoff(failures, if chance.is_nan() { 0.0 } else { chance });
            prop_assert!(wait >= FIRST_BACKOFF / 2 && wait <= MAX_BACKOFF);
            let renew = renew_in(at(from), at(from + life), at(now));
            prop_assert!(renew >= MIN_INTERVAL);
            prop_assert!(renew == MIN_INTERVAL || at(now) + renew <= at(from + life));
        }
    }
}
