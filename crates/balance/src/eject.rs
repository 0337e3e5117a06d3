//! Ejection of endpoints for a while because connections to them keep failing. Time is an argument.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

/// Failures in a row after which an endpoint is left out.
const FAILURES: u32 = 3;
/// How long the first time; twice as long each further time.
const FIRST: Duration = Duration::from_secs(10);
/// The longest time.
const LONGEST: Duration = Duration::from_secs(300);
/// What failed once and was not tried since is forgotten after this time.
const MEMORY: Duration = Duration::from_secs(900);
/// Endpoints that are remembered at once, for one who dials.
const CAPACITY: usize = 1024;

/// The endpoints that failed of late. Times are those since any fixed moment, and never go back.
///
/// Failures say how far an endpoint is reached by whoever dialled: each has an ejector of its own, or one could have an
/// endpoint left out for all the others.
///
/// An endpoint whose time is over is tried again, and one failure more leaves it out for twice as long; one success
/// clears it. Whether a service can do without an endpoint is the caller's to say.
#[derive(Debug)]
pub struct Ejector<K> {
    entries: HashMap<K, Entry>,
    /// No endpoint is out from here on: the common case costs one comparison.
    latest: Duration,
}

#[derive(Debug, Clone, Copy, Default)]
struct Entry {
    failures: u32,
    /// How often it was left out since its last success.
    times: u32,
    until: Duration,
    failed: Duration,
}

impl<K> Default for Ejector<K> {
    fn default() -> Self {
        Self {
            entries: HashMap::new(),
            latest: Duration::ZERO,
        }
    }
}

impl<K: Eq + Hash + Clone> Ejector<K> {
    /// Takes note of a failure that is the endpoint's. If it is now left out, answers for how long. `spare` is asked, at
    /// most once, whether its service can do without it: if not, the failure does not count, now or later.
    pub fn failed(
        &mut self,
        key: K,
        now: Duration,
        spare: impl FnOnce() -> bool,
    ) -> Option<Duration> {
        // Requests that were under way when it was left out say nothing new.
        if self.is_out(&key, now) || !spare() {
            return None;
        }
        if !self.entries.contains_key(&key) {
            self.make_room(now);
        }
        let entry = self.entries.entry(key).or_default();
        if now.saturating_sub(entry.failed.max(entry.until)) >= MEMORY {
            *entry = Entry::default();
        }
        entry.failures = entry.failures.saturating_add(1);
        entry.failed = now;
        if entry.failures < FAILURES {
            return None;
        }
        let time = FIRST.saturating_mul(1 << entry.times.min(16)).min(LONGEST);
        entry.times = entry.times.saturating_add(1);
        entry.until = now + time;
        self.latest = self.latest.max(entry.until);
        Some(time)
    }

    /// Takes note of a success; `true` if the endpoint was left out until now.
    pub fn succeeded(&mut self, key: &K, now: Duration) -> bool {
        if self.entries.is_empty() {
            return false;
        }
        self.entries
            .remove(key)
            .is_some_and(|entry| entry.until > now)
    }

    /// Whether any endpoint may be left out.
    pub fn any(&self, now: Duration) -> bool {
        self.latest > now
    }

    /// Whether this one is.
    pub fn is_out(&self, key: &K, now: Duration) -> bool {
        self.any(now) && self.entries.get(key).is_some_and(|entry| entry.until > now)
    }

    /// Those that are left out, each with the time that is left, in no order.
    pub fn out(&self, now: Duration) -> impl Iterator<Item = (&K, Duration)> {
        self.entries
            .iter()
            .filter(move |(_, entry)| entry.until > now)
            .map(move |(key, entry)| (key, entry.until - now))
    }

    /// Forgets what is old; if that is not enough, what failed longest ago, and of that what is not left out first.
    fn make_room(&mut self, now: Duration) {
        if self.entries.len() < CAPACITY {
            return;
        }
        self.entries
            .retain(|_, entry| entry.until > now || now.saturating_sub(entry.failed) < MEMORY);
        if self.entries.len() < CAPACITY {
            return;
        }
        let oldest = self
            .entries
            .iter()
            .min_by_key(|(_, entry)| (entry.until > now, entry.failed))
            .map(|(key, _)| key.clone());
        if let Some(key) = oldest {
            self.entries.remove(&key);
        }
    }
}

/// Whether one more of `total` endpoints can be left out when `out` are: never more than half of them.
pub fn can_spare(total: usize, out: usize) -> bool {
    (out + 1) * 2 <= total
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn fail(ejector: &mut Ejector<u8>, now: u64) -> Option<u64> {
        ejector
            .failed(1, at(now), || true)
            .map(|time| time.as_secs())
    }

    #[test]
    fn three_failures_in_a_row_leave_an_endpoint_out_for_longer_each_time() {
        let mut ejector = Ejector::default();
        assert_eq!([fail(&mut ejector, 0), fail(&mut ejector, 1)], [None, None]);
        assert!(!ejector.is_out(&1, at(1)));
        assert_eq!(fail(&mut ejector, 2), Some(10));
        assert!(ejector.is_out(&1, at(11)) && !ejector.is_out(&1, at(12)));
        // What was under way changes nothing.
        assert_eq!(fail(&mut ejector, 3), None);
        assert!(!ejector.is_out(&1, at(12)));
        // Tried again and failed at once.
        let mut now = 12;
        for time in [20, 40, 80, 160, 300, 300] {
            assert_eq!(fail(&mut ejector, now), Some(time));
            now += time;
        }
        assert!(!ejector.any(at(now)));
    }

    #[test]
    fn a_success_clears_what_was() {
        let mut ejector = Ejector::default();
        for now in 0..6 {
            assert_eq!(
                [fail(&mut ejector, now), fail(&mut ejector, now)],
                [None, None]
            );
            assert!(!ejector.succeeded(&1, at(now)));
        }
        for _ in 0..2 {
            assert_eq!(fail(&mut ejector, 5), None);
        }
        assert_eq!(fail(&mut ejector, 5), Some(10));
        assert!(ejector.succeeded(&1, at(6)));
        assert!(!ejector.is_out(&1, at(6)));
        assert_eq!(ejector.out(at(6)).count(), 0);
    }

    #[test]
    fn an_endpoint_that_cannot_be_spared_stays() {
        let mut ejector = Ejector::default();
        for _ in 0..10 {
            assert_eq!(ejector.failed(1, at(0), || false), None);
        }
        assert!(!ejector.any(at(0)));
        // What did not count then does not count when it can be spared.
        assert_eq!([fail(&mut ejector, 1), fail(&mut ejector, 1)], [None, None]);
        assert_eq!(fail(&mut ejector, 1), Some(10));
    }

    #[test]
    fn what_failed_long_ago_is_forgotten() {
        let mut ejector = Ejector::default();
        for _ in 0..2 {
            assert_eq!(fail(&mut ejector, 0), None);
        }
        let later = MEMORY.as_secs();
        for now in [later, later + 1] {
            assert_eq!(fail(&mut ejector, now), None);
        }
        assert_eq!(fail(&mut ejector, later + 2), Some(10));
        assert_eq!(fail(&mut ejector, later + 12), Some(20));
        assert_eq!(
            fail(&mut ejector, 3 * later),
            None,
            "the second time is no longer held against it"
        );
    }

    #[test]
    fn never_more_than_half_can_be_spared() {
        let cases = [
            (0, 0, false),
            (1, 0, false),
            (2, 0, true),
            (2, 1, false),
            (3, 1, false),
            (4, 1, true),
            (4, 2, false),
        ];
        for (total, out, spare) in cases {
            assert_eq!(can_spare(total, out), spare, "{total} {out}");
        }
    }

    proptest! {
        /// Whatever happens, the table is bounded, never more than half of the endpoints are out, and nobody is out for
        /// longer than the longest time after the last failure.
        #[test]
        fn bounds_hold(steps in prop::collection::vec((0u16..20, 0u64..60, prop::bool::weighted(0.2)), 0..400), total in 1usize..20) {
            let mut ejector = Ejector::default();
            let mut now = Duration::ZERO;
            for (key, pause, success) in steps {
                now += at(pause);
                if success {
                    ejector.succeeded(&key, now);
                    prop_assert!(!ejector.is_out(&key, now));
                } else {
                    let out = ejector.out(now).count();
                    ejector.failed(key, now, || can_spare(total, out));
                }
                let out: Vec<_> = ejector.out(now).map(|(key, left)| (*key, left)).collect();
                prop_assert!(out.len() * 2 <= total);
                for (key, left) in out {
                    prop_assert!(ejector.is_out(&key, now) && left <= LONGEST);
                }
            }
            prop_assert!(!ejector.any(now + LONGEST));
        }
    }

    #[test]
    fn the_table_is_bounded_and_keeps_who_is_left_out() {
        let mut ejector = Ejector::default();
        for _ in 0..3 {
            ejector.failed(0, at(0), || true);
        }
        for key in 1..CAPACITY as u32 + 50 {
            ejector.failed(key, at(1), || true);
        }
        assert_eq!(ejector.entries.len(), CAPACITY);
        assert!(ejector.is_out(&0, at(1)));
    }
}
