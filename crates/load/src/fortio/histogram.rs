//! Histograms in Fortio's form: counts in buckets whose limits are fixed multiples of a resolution.
//!
//! Fortio computes percentiles from the buckets. Here they come from the finer histogram that the buckets are made of.

use hdrhistogram::Histogram;
use serde_json::{Value, json};

/// The limits of the buckets, as multiples of the resolution: Fortio's. The first bucket ends at 0 and the
/// last has no end.
const LIMITS: [u32; 56] = [
    0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 16, 18, 20, 25, 30, 35, 40, 45, 50, 60, 70, 80,
    90, 100, 120, 140, 160, 180, 200, 250, 300, 350, 400, 450, 500, 600, 700, 800, 900, 1000, 2000,
    3000, 4000, 5000, 7500, 10_000, 20_000, 30_000, 40_000, 50_000, 75_000, 100_000,
];

/// A histogram of nanoseconds in Fortio's form, in seconds: `resolution` in seconds, `percentiles` from
/// 0 to 100.
pub fn export(times: &Histogram<u64>, resolution: f64, percentiles: &[f64]) -> Value {
    if times.is_empty() {
        return json!({
            "Count": 0, "Min": 0.0, "Max": 0.0, "Sum": 0.0, "Avg": 0.0, "StdDev": 0.0, "Data": null,
        });
    }
    let seconds = |nanoseconds: f64| nanoseconds / 1e9;
    let count = times.len();
    let (least, most) = (seconds(times.min() as f64), seconds(times.max() as f64));
    let average = seconds(times.mean());
    let percentiles = percentiles.iter().map(|percentile| {
        let value = seconds(times.value_at_quantile(percentile / 100.0) as f64);
        json!({"Percentile": percentile, "Value": value.clamp(least, most)})
    });
    json!({
        "Count": count,
        "Min": least,
        "Max": most,
        "Sum": average * count as f64,
        "Avg": average,
        "StdDev": seconds(times.stdev()),
        "Data": buckets(times, resolution, (least, most)),
        "Percentiles": percentiles.collect::<Vec<Value>>(),
    })
}

/// The buckets that hold anything. The first begins at the least value, the last ends at the largest.
fn buckets(times: &Histogram<u64>, resolution: f64, (least, most): (f64, f64)) -> Vec<Value> {
    let ends = LIMITS.map(|limit| f64::from(limit) * resolution);
    let mut counts = [0u64; LIMITS.len() + 1];
    for cell in times.iter_recorded() {
        let middle = times.median_equivalent(cell.value_iterated_to()) as f64 / 1e9;
        // A value on a limit belongs to the bucket that ends there.
        let at = ends.partition_point(|end| *end < middle - 1e-15);
        counts[at] += cell.count_since_last_iteration();
    }
    let filled: Vec<usize> = (0..counts.len()).filter(|at| counts[*at] > 0).collect();
    let mut total = 0;
    let mut data = Vec::new();
    for (nth, &at) in filled.iter().enumerate() {
        total += counts[at];
        let (first, last) = (nth == 0, nth + 1 == filled.len());
        let start = if first { least } else { ends[at - 1] };
        let end = if last { most } else { ends[at] };
        data.push(json!({
            "Start": start,
            "End": end.max(start),
            "Percent": 100.0 * total as f64 / times.len() as f64,
            "Count": counts[at],
        }));
    }
    data
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::times_of;
    use proptest::prelude::*;

    fn histogram(nanoseconds: &[u64]) -> Histogram<u64> {
        times_of(nanoseconds.iter().copied())
    }

    #[test]
    fn times_fall_into_buckets_that_begin_and_end_with_the_extremes() {
        let times = histogram(&[500_000, 1_500_000, 1_600_000, 25_000_000]);
        let value = export(&times, 0.001, &[50.0, 100.0]);
        let data = value["Data"].as_array().unwrap();
        let near = |value: &Value, expected: f64| {
            let value = value.as_f64().unwrap();
            let difference = (value - expected).abs();
            assert!(difference <= expected * 0.002, "{value} {expected}");
        };
        let table = [
            (0.0005, 0.001, 25.0, 1),
            (0.001, 0.002, 75.0, 2),
            (0.020, 0.025, 100.0, 1),
        ];
        assert_eq!(data.len(), table.len(), "{value}");
        for (bucket, (start, end, percent, count)) in data.iter().zip(table) {
            near(&bucket["Start"], start);
            near(&bucket["End"], end);
            near(&bucket["Percent"], percent);
            assert_eq!(bucket["Count"], count);
        }
        near(&value["Min"], 0.0005);
        near(&value["Max"], 0.025);
        near(&value["Sum"], 0.0286);
        near(&value["Percentiles"][0]["Value"], 0.0015);
        near(&value["Percentiles"][1]["Value"], 0.025);
    }

    #[test]
    fn nothing_measured_is_no_data() {
        let value = export(&histogram(&[]), 0.001, &[50.0]);
        assert!(value["Data"].is_null() && value.get("Percentiles").is_none());
        assert_eq!(value["Count"], 0);
    }

    proptest! {
        #[test]
        fn every_time_is_in_one_bucket_and_buckets_do_not_overlap(
            times in prop::collection::vec(1u64..200_000_000_000, 1..200),
            resolution in prop::sample::select(vec![1e-6, 1e-4, 1e-3, 0.5]),
        ) {
            let value = export(&histogram(&times), resolution, &[50.0]);
            let data = value["Data"].as_array().unwrap();
            let total: u64 = data.iter().map(|bucket| bucket["Count"].as_u64().unwrap()).sum();
            prop_assert_eq!(total, times.len() as u64);
            let at = |bucket: &Value, key: &str| bucket[key].as_f64().unwrap();
            for pair in data.windows(2) {
                prop_assert!(at(&pair[0], "End") <= at(&pair[1], "Start") + 1e-12);
                prop_assert!(at(&pair[0], "Percent") < at(&pair[1], "Percent"));
            }
            prop_assert!(data.iter().all(|bucket| at(bucket, "Start") <= at(bucket, "End")));
            prop_assert!((at(data.last().unwrap(), "Percent") - 100.0).abs() < 1e-9);
        }
    }
}
