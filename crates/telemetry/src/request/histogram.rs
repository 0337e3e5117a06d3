//! A histogram with Envoy's default buckets, counted without a lock.

use std::sync::atomic::{AtomicU64, Ordering};

/// The upper bounds of Envoy's default buckets, in the unit of the metric. Istio uses them for milliseconds and for bytes.
const BOUNDS: [f64; 19] = [
    0.5, 1., 5., 10., 25., 50., 100., 250., 500., 1000., 2500., 5000., 10_000., 30_000., 60_000.,
    300_000., 600_000., 1_800_000., 3_600_000.,
];

/// The buckets with the one that has no bound.
const BUCKETS: usize = BOUNDS.len() + 1;

/// Observations by bucket. The sum is kept in thousandths of the unit, so that it is exact without a lock.
#[derive(Debug, Default)]
pub(super) struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    thousandths: AtomicU64,
}

impl Histogram {
    /// Counts a value of so many thousandths of the metric's unit.
    pub(super) fn observe(&self, thousandths: u64) {
        let value = thousandths as f64 / 1000.;
        let bucket = BOUNDS.partition_point(|bound| *bound < value);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.thousandths.fetch_add(thousandths, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> Observed {
        Observed {
            buckets: std::array::from_fn(|i| self.buckets[i].load(Ordering::Relaxed)),
            thousandths: self.thousandths.load(Ordering::Relaxed),
        }
    }
}

/// The values of one or more histograms.
#[derive(Clone, Debug)]
pub(super) struct Observed {
    buckets: [u64; BUCKETS],
    thousandths: u64,
}

impl Observed {
    pub(super) fn merge(&mut self, other: &Self) {
        for (sum, bucket) in self.buckets.iter_mut().zip(&other.buckets) {
            *sum += bucket;
        }
        self.thousandths += other.thousandths;
    }

    pub(super) fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    pub(super) fn sum(&self) -> f64 {
        self.thousandths as f64 / 1000.
    }

    /// Each bucket's bound and the values in it alone.
    pub(super) fn buckets(&self) -> [(f64, u64); BUCKETS] {
        std::array::from_fn(|i| {
            let bound = BOUNDS.get(i).copied().unwrap_or(f64::INFINITY);
            (bound, self.buckets[i])
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_at_a_bound_is_in_its_bucket() {
        let histogram = Histogram::default();
        for thousandths in [0, 500, 501, 1000, 3_600_000_000, 3_600_000_001] {
            histogram.observe(thousandths);
        }
        let read = histogram.read();
        let counts = read.buckets().map(|(_, count)| count);
        assert_eq!((counts[0], counts[1], counts[18], counts[19]), (2, 2, 1, 1));
        assert_eq!(read.count(), 6);
        assert_eq!(read.sum(), 7_200_002.002);
    }
}
