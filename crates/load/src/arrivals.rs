//! Times at which requests are due: a sequence of instants that depends on the wanted rate and on nothing that happens during a
//! run. This makes the load an open loop.

use clap::ValueEnum;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// Spread of starts in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Arrivals {
    /// Evenly.
    Uniform,
    /// Independently of each other, as from many users: exponential gaps.
    Poisson,
    /// Evenly, each moved by up to a tenth of the gap, so that nothing stays in step.
    Jitter,
}

/// The intended starts of a run, in nanoseconds since it began, in ascending order.
#[derive(Debug)]
pub struct Schedule {
    arrivals: Arrivals,
    gap: f64,
    end: u64,
    index: u64,
    poisson: f64,
    random: SmallRng,
}

impl Schedule {
    /// A schedule of `rate` starts per second (more than zero) until `end` nanoseconds.
    pub fn new(arrivals: Arrivals, rate: f64, end: u64, seed: u64) -> Schedule {
        Schedule {
            arrivals,
            gap: 1e9 / rate,
            end,
            index: 0,
            poisson: 0.0,
            random: SmallRng::seed_from_u64(seed),
        }
    }
}

impl Iterator for Schedule {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        // From the index, not by adding up: a sum of rounded gaps drifts.
        let even = self.index as f64 * self.gap;
        self.index += 1;
        let start = match self.arrivals {
            Arrivals::Uniform => even,
            Arrivals::Jitter => even + self.random.random_range(0.0..0.2) * self.gap,
            Arrivals::Poisson => {
                // 1 - u is never zero, so the logarithm is finite.
                self.poisson += -(1.0 - self.random.random::<f64>()).ln() * self.gap;
                self.poisson
            }
        };
        let start = start as u64;
        (start < self.end).then_some(start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn uniform_starts_are_exact_even_far_out() {
        let starts: Vec<_> = Schedule::new(Arrivals::Uniform, 3.0, 3600 * SECOND, 0).collect();
        assert_eq!(starts.len(), 3 * 3600);
        assert_eq!(starts[3 * 3599], 3599 * SECOND);
    }

    #[test]
    fn the_same_seed_gives_the_same_starts() {
        for arrivals in [Arrivals::Poisson, Arrivals::Jitter] {
            let starts = |seed| Schedule::new(arrivals, 100.0, SECOND, seed).collect::<Vec<_>>();
            assert_eq!(starts(7), starts(7));
            assert_ne!(starts(7), starts(8));
        }
    }

    #[test]
    fn poisson_gaps_vary_as_an_exponential_does() {
        let starts: Vec<_> = Schedule::new(Arrivals::Poisson, 1000.0, 100 * SECOND, 1).collect();
        let gaps = starts.windows(2).map(|pair| (pair[1] - pair[0]) as f64);
        let gaps: Vec<f64> = gaps.collect();
        let mean_of = |value: &dyn Fn(f64) -> f64| {
            gaps.iter().map(|gap| value(*gap)).sum::<f64>() / gaps.len() as f64
        };
        let mean = mean_of(&|gap| gap);
        assert!((0.97..1.03).contains(&(mean / 1e6)), "mean gap {mean} ns");
        // An exponential's deviation is its mean.
        let deviation = mean_of(&|gap| (gap - mean).powi(2)).sqrt();
        assert!((0.95..1.05).contains(&(deviation / mean)), "{deviation}");
    }

    proptest! {
        #[test]
        fn starts_ascend_and_keep_the_rate(
            rate in 1.0f64..20_000.0,
            kind in prop::sample::select(vec![Arrivals::Uniform, Arrivals::Jitter]),
            seed in any::<u64>(),
        ) {
            let starts: Vec<_> = Schedule::new(kind, rate, SECOND, seed).collect();
            prop_assert!(starts.windows(2).all(|pair| pair[0] <= pair[1]));
            prop_assert!((starts.len() as f64 - rate).abs() <= 1.0);
        }
    }
}
