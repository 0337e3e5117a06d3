//! Histograms in Fortio's form: counts in buckets whose limits are fixed multiples of a resolution.
//!
//! Fortio computes percentiles from the buckets. Here they come from the finer histogram that the buckets are made of.

use hdrhistogram::Histogram;
use serde_json::{Value, json};

/// The limits of the buckets, as multiples of the resolution: in steps of 1 up to 12, of 2 up to 20 and
/// so on. The first bucket ends at 0 and the last has no end.
fn limits() -> impl Iterator<Item = f64> {
    let near: [(u32, usize); 7] = [
        (12, 1),
        (20, 2),
        (50, 5),
        (100, 10),
        (200, 20),
        (500, 50),
        (1000, 100),
    ];
    let far = [1000, 2000, 3000, 4000, 5000, 7500];
    let farther = [10_000, 20_000, 30_000, 40_000, 50_000, 75_000, 100_000];
    let mut from = 0;
    let near = near.into_iter().flat_map(move |(to, step)| {
        let stretch = (from..to).step_by(step);
        from = to;
        stretch
    });
    near.chain(far).chain(farther).map(f64::from)
}

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
    let ends: Vec<f64> = limits().map(|limit| limit * resolution).collect();
    let mut counts = vec![0u64; ends.len() + 1];
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
    fn the_limits_are_fortios() {
        let limits: Vec<f64> = limits().collect();
        assert_eq!(limits.len(), 56);
        assert_eq!(limits[..3], [0.0, 1.0, 2.0]);
        assert_eq!(
            limits[11..19],
            [11.0, 12.0, 14.0, 16.0, 18.0, 20.0, 25.0, 30.0]
        );
        let hundreds = [500.0, 600.0, 700.0, 800.0, 900.0];
        let thousands = [
            1.0, 2.0, 3.0, 4.0, 5.0, 7.5, 10.0, 20.0, 30.0, 40.0, 50.0, 75.0, 100.0,
        ];
        let last = [&hundreds[..], &thousands.map(|limit| limit * 1000.0)].concat();
        assert_eq!(limits[38..], last);
        assert!(limits.windows(2).all(|pair| pair[0] < pair[1]));
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
