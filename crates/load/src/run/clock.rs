//! Clock of a run, and the timer of its loop, which compensates for late wake-ups. A sleeping core takes tens of microseconds to wake, and more in a
//! virtual machine. All of that would count as the service's latency.
//!
//! So the timer learns how late it fires, fires that much earlier, and lets the loop poll for the rest.

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

/// The longest lead that is learned, in nanoseconds.
const LONGEST_LEAD: u64 = 100_000;

/// Polling may take this part of the time between two requests, so that it never costs more than a
/// tenth of a core.
const SHARE: f64 = 0.1;

/// An alarm that rings early by what it is usually late.
#[derive(Debug)]
pub struct Alarm {
    lead: u64,
    most: u64,
}

impl Alarm {
    /// An alarm for `rate` requests per second; without a rate it never polls.
    pub fn new(rate: f64) -> Alarm {
        let most = if rate > 0.0 {
            (SHARE * 1e9 / rate) as u64
        } else {
            0
        };
        Alarm {
            lead: 0,
            most: most.min(LONGEST_LEAD),
        }
    }

    /// The time to sleep at `now` in order to act at `due`; nanoseconds on one clock.
    pub fn sleep(&self, now: u64, due: u64) -> Duration {
        Duration::from_nanos(due.saturating_sub(now).saturating_sub(self.lead))
    }

    /// A sleep of `asked` that began at `now` ended, undisturbed, at `then`.
    pub fn woke(&mut self, now: u64, asked: Duration, then: u64) {
        if asked.is_zero() {
            return;
        }
        let asked = u64::try_from(asked.as_nanos()).unwrap_or(u64::MAX);
        // One long delay, as under load, must not make all later rings early by as much.
        let late = then
            .saturating_sub(now.saturating_add(asked))
            .min(2 * self.lead + 20_000);
        self.lead = ((7 * self.lead + late) / 8).min(self.most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn it_learns_how_late_it_rings() {
        let mut alarm = Alarm::new(1000.0);
        let mut late = Vec::new();
        for request in 1..200u64 {
            let (now, due) = ((request - 1) * 1_000_000, request * 1_000_000);
            let asked = alarm.sleep(now, due);
            let then = now + asked.as_nanos() as u64 + 50_000;
            late.push(then.abs_diff(due));
            alarm.woke(now, asked, then);
        }
        assert_eq!(late[0], 50_000);
        assert!(late[150..].iter().all(|late| *late < 1_000), "{late:?}");
    }

    #[test]
    fn it_polls_for_no_more_than_a_tenth_of_the_time() {
        let mut alarm = Alarm::new(10_000.0);
        for _ in 0..100 {
            alarm.woke(0, Duration::from_nanos(1), 1_000_000);
        }
        assert_eq!(alarm.sleep(0, 100_000), Duration::from_micros(90));
        assert_eq!(Alarm::new(0.0).sleep(0, 50), Duration::from_nanos(50));
    }

    proptest! {
        #[test]
        fn it_never_sleeps_past_the_due_instant(
            rate in 0.0f64..1e6,
            sleeps in prop::collection::vec((0u64..u64::MAX, 0u64..u64::MAX, 0u64..u64::MAX), 0..20),
        ) {
            let mut alarm = Alarm::new(rate);
            for (now, due, then) in sleeps {
                let asked = alarm.sleep(now, due);
                prop_assert!(asked <= Duration::from_nanos(due.saturating_sub(now)));
                alarm.woke(now, asked, then);
            }
        }
    }
}
