//! Delay before the next connection attempt.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_secs(15);

/// Doubles from 10 ms to 15 s, each wait shortened by chance so that proxies do not come back in step.
#[derive(Debug)]
pub struct Backoff {
    next: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { next: FIRST }
    }
}

impl Backoff {
    /// The next wait: between half and all of the present step. `chance` is uniform in 0..1.
    pub fn wait(&mut self, chance: f64) -> Duration {
        let step = self.next;
        self.next = (step * 2).min(LONGEST);
        step.mul_f64(0.5 + chance.clamp(0.0, 1.0) / 2.0)
    }

    /// Starts over, after a connection that worked.
    pub fn reset(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn doubles_up_to_the_longest() {
        let mut backoff = Backoff::default();
        let waits: Vec<_> = (0..13).map(|_| backoff.wait(1.0).as_millis()).collect();
        assert_eq!(
            waits,
            [
                10, 20, 40, 80, 160, 320, 640, 1280, 2560, 5120, 10240, 15000, 15000
            ]
        );
        backoff.reset();
        assert_eq!(backoff.wait(1.0), FIRST);
    }

    proptest! {
        #[test]
        fn stays_within_half_and_all_of_a_step(steps in 0usize..20, chance in 0.0f64..1.0) {
            let mut backoff = Backoff::default();
            for _ in 0..steps {
                backoff.wait(chance);
            }
            let step = FIRST.saturating_mul(1 << steps.min(12)).min(LONGEST);
            let wait = backoff.wait(chance);
            prop_assert!(step / 2 <= wait && wait <= step, "{wait:?} of {step:?}");
        }
    }
}
