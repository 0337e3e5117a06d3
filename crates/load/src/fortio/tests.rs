//! Tests of the result's shape against that of Fortio's own results: its keys, and the type of each.

use super::*;
use crate::record::times_of;

/// Keys and types of a result of `fortio load` 1.75.2 against a server with errors, as `path type`; made
/// by walking the JSON.
const KEYS: &str = include_str!("keys.txt");

/// The form of results unless another is asked for.
fn form() -> Form {
    Form {
        resolution: 1e-4,
        percentiles: vec![50.0, 75.0, 90.0, 99.0, 99.9],
    }
}

fn report(url: &str) -> Report {
    let of = |count: u64, step: u64| Summary::of(&times_of((1..=count).map(|time| time * step)));
    let mut report = Report::default();
    let config = &mut report.config;
    (config.url, config.address) = (url.to_owned(), "127.0.0.1:8080".to_owned());
    (config.qps, config.connections, config.keepalive) = (50.0, 4, true);
    (config.duration_s, config.timeout_s) = (2.0, 3.0);
    config.arrivals = "uniform";
    report.started_unix_ms = 1_795_247_796_754;
    (report.measured_s, report.ended_s) = (2.0, 2.0);
    report.counts.connections_opened = 5;
    report.status = BTreeMap::from([("200".to_owned(), 90), ("503".to_owned(), 8)]);
    report.errors = BTreeMap::from([("status_503".to_owned(), 8), ("reset".to_owned(), 2)]);
    for kind in [Kind::Response, Kind::Connect, Kind::WarmupConnect] {
        report.times[kind] = of(90, 10_000);
    }
    report.times[Kind::Failed] = of(10, 1_000_000);
    report
}

/// The paths of a value with the types of what is there. Keys of maps (by status, by address) are one.
fn walk(value: &Value, path: &str, found: &mut BTreeMap<String, &'static str>) {
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(items) => {
            for item in items {
                walk(item, &format!("{path}[]"), found);
            }
            "array"
        }
        Value::Object(fields) => {
            let by_key = ["RetCodes", "IPCountMap", "Metadata"].contains(&path);
            for (name, field) in fields {
                let name = if by_key { "*" } else { name };
                let path = format!("{path}.{name}");
                walk(field, path.trim_start_matches('.'), found);
            }
            "object"
        }
    };
    if !path.is_empty() {
        found.insert(path.to_owned(), kind);
    }
}

#[test]
fn keys_and_types_are_those_of_fortios_own_results() {
    let mut ours = BTreeMap::new();
    let report = report("http://127.0.0.1:8080/?size=1");
    walk(&value(&report, &form()), "", &mut ours);
    let theirs = KEYS.lines().map(|line| line.split_once(' ').unwrap());
    let theirs: BTreeMap<&str, &str> = theirs.collect();
    assert!(theirs.len() > 80, "the list is Fortio's whole result");
    let unmeasured = |path: &str| path.contains("Sizes.") || path.starts_with("Sockets[");
    for (path, kind) in &theirs {
        match ours.get(*path) {
            Some(own) => assert!(
                own == kind || (*own == "null" && unmeasured(path)),
                "{path}: {own}, not {kind}"
            ),
            None => assert!(unmeasured(path), "{path} is missing"),
        }
    }
    ours.retain(|path, _| !theirs.contains_key(path.as_str()));
    let more: Vec<_> = ours.keys().collect();
    assert_eq!(more, ["ResponseLabel"], "keys that Fortio does not have");
}

#[test]
fn failed_requests_are_among_all_and_by_themselves() {
    let value = value(&report("http://a/"), &form());
    for (pointer, expected) in [
        ("/DurationHistogram/Count", json!(100)),
        ("/ErrorsDurationHistogram/Count", json!(10)),
        ("/RetCodes", json!({"200": 90, "503": 8, "-1": 2})),
        ("/ActualQPS", json!(50.0)),
        ("/ActualDuration", json!(2_000_000_000)),
        ("/StartTime", json!("2026-11-21T07:56:36.754Z")),
        ("/RequestedQPS", json!("50")),
        ("/RequestedDuration", json!("2s")),
    ] {
        assert_eq!(value.pointer(pointer), Some(&expected), "{pointer}");
    }
}

#[test]
fn answers_after_the_measured_time_count_with_the_time_that_they_took() {
    let mut report = report("http://a/");
    report.ended_s = 10.0;
    let late = value(&report, &form());
    assert_eq!(late["ActualQPS"], 10.0);
    assert_eq!(late["ActualDuration"], 10_000_000_000u64);
    report.ended_s = 0.0;
    let old = value(&report, &form());
    assert_eq!(old["ActualQPS"], 50.0, "a result that does not say");
}

#[test]
fn a_run_without_a_single_answer_is_a_result_too() {
    let mut report = report("http://a/");
    report.times = Default::default();
    report.measured_s = 0.0;
    let value = value(&report, &form());
    assert_eq!(value["DurationHistogram"]["Count"], 0);
    assert_eq!(value["ActualQPS"], 0.0);
}

#[test]
fn other_protocols_have_a_destination() {
    let grpc = ("grpc://a:1", "GRPC Ping", "SERVING");
    for (url, kind, answered) in [grpc, ("tcp://a:1", "TCP", "OK")] {
        let value = value(&report(url), &form());
        assert_eq!(value["RunType"], kind);
        assert_eq!(value["Destination"], url);
        assert!(value.get("URL").is_none());
        assert_eq!(
            value["RetCodes"],
            json!({answered: 90, "503": 8, "ERROR": 2})
        );
    }
}

#[test]
fn a_result_names_itself_after_time_and_labels() {
    let mut report = report("http://127.0.0.1:8080/?size=1");
    assert_eq!(id(&report), "2026-11-21-075636_127_0_0_1_8080_size_1");
    report.name = "no mesh, ☃".to_owned();
    assert_eq!(id(&report), "2026-11-21-075636_no_mesh");
    report.name = "x".repeat(500);
    assert_eq!(id(&report).len(), 96);
}

#[test]
fn durations_are_written_as_go_does() {
    let seconds = [0.0, 0.25, 1.5, 10.0, 90.0, 3600.0].map(go_duration);
    assert_eq!(seconds.join(" "), "0s 250ms 1.5s 10s 1m30s 1h0m0s");
}
