//! Times of the next request for a certificate: pure functions of time and chance.

use std::time::{Duration, SystemTime};

/// Least time between two certificates of one identity, so that a clock that is wrong makes no storm.
pub const MIN_INTERVAL: Duration = Duration::from_secs(1);
/// Wait after the first failure, at most.
pub const FIRST_BACKOFF: Duration = Duration::from_millis(100);
/// Wait after many failures, at most.
pub const MAX_BACKOFF: Duration = Duration::from_secs(15);

/// Wait between two looks at the wall clock, at most: it may be stepped, and timers do not notice.
pub const LOOK: Duration = Duration::from_secs(60);
/// The part of a certificate's life over which renewals are spread, before its half.
const SPREAD: f64 = 0.05;

/// When a certificate that was got at `got` is to be renewed: at half of what it had left to live then, for the other
/// half is the time in which renewal may fail. Authorities backdate certificates for clocks that differ, so that
/// those that live seconds would be past half of their nominal life from the start. `chance`, from 0 to 1, moves it
/// forward by up to a twentieth of its life, so that certificates that were issued together are not renewed together.
pub fn renew_at(
    not_before: SystemTime,
    not_after: SystemTime,
    got: SystemTime,
    chance: f64,
) -> SystemTime {
    let start = got.max(not_before);
    let life = not_after.duration_since(start).unwrap_or_default();
    let wait = life.mul_f64(0.5 - SPREAD * chance.clamp(0.0, 1.0));
    start + wait.max(MIN_INTERVAL)
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
        assert_eq!(renew_at(from, to, from, 0.0), from + DAY / 2);
        assert_eq!(renew_at(from, to, from, 1.0), from + DAY.mul_f64(0.45));
        // Backdated by two minutes, and of five seconds.
        let got = at(1_120);
        let soon = got + Duration::from_secs(5);
        assert_eq!(
            renew_at(from, soon, got, 0.0),
            got + Duration::from_millis(2_500)
        );
        assert_eq!(renew_at(from, to, to, 0.5), to + MIN_INTERVAL);
        // A certificate that ends before it begins is renewed, but not in a loop.
        assert_eq!(renew_at(to, from, from, 0.5), to + MIN_INTERVAL);
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
            let chance = if chance.is_nan() { 0.0 } else { chance };
            let (from, to, now) = (at(from), at(from + life), at(now));
            let renew = renew_at(from, to, now, chance);
            prop_assert!(renew >= now + MIN_INTERVAL);
            prop_assert!(renew <= to.max(now.max(from) + MIN_INTERVAL));
        }
    }
}
