use super::*;
use crate::record::times_of;

#[test]
fn percentiles_are_milliseconds_and_the_histogram_comes_back() {
    let times = times_of((1..=1000).map(|microseconds| microseconds * 1000));
    let summary = Summary::of(&times);
    let at = |name| summary.percentiles[name];
    for (value, expected) in [
        (at("p50"), 0.5),
        (at("p99"), 0.99),
        (summary.max, 1.0),
        (summary.avg, 0.5005),
    ] {
        let near = (value - expected).abs() <= expected * 0.002;
        assert!(near, "{expected}: {summary:?}");
    }
    assert_eq!(summary.times().len(), 1000);
    assert_eq!(summary.times(), times);
}

#[test]
fn a_percentile_needs_a_hundred_times_beyond_it() {
    let told = |count: u64| {
        let times = times_of((0..count).map(|_| 1_000_000));
        let mut report = Report {
            times: ByKind::new(|_| Summary::of(&times)),
            ..Report::default()
        };
        report.leave_out_few();
        let response = &report.times[Kind::Response];
        assert_eq!(*response, report.times[Kind::WarmupConnect]);
        let json = serde_json::to_value(&report).unwrap();
        let names = ["p50", "p75", "p90", "p99", "p99.9"];
        let keys = names.map(|name| json["response_time"].get(name).is_some());
        let text = report.to_text();
        let told = names.map(|name| response.percentiles.contains_key(name));
        assert_eq!(keys, told);
        let missing = told.iter().filter(|told| !**told).count();
        let row = text.lines().find(|line| line.starts_with("response"));
        assert_eq!(row.unwrap().matches('–').count(), missing, "{text}");
        assert_eq!(text.contains("– fewer than 100"), missing > 0, "{text}");
        let csv = crate::csv::row(&report);
        let empty = |name: &str| csv[&format!("response_{name}_ms")].is_empty();
        assert_eq!(names.map(|name| !empty(name)), told);
        missing
    };
    let counts = [199, 200, 400, 999, 1000, 9_999, 10_000, 99_999, 100_000];
    assert_eq!(counts.map(told), [5, 4, 3, 3, 2, 2, 1, 1, 0]);
}

#[test]
fn an_empty_histogram_is_all_zero() {
    assert_eq!(Summary::of(&no_times()), Summary::default());
}
