use std::sync::Arc;
use std::time::{Duration, Instant};

use super::*;
use crate::bounded::SeriesOptions;
use crate::dropped::Dropped;
use crate::labels::{Labels, Party, Reporter, ResponseFlags, Security};
use crate::metrics::{BuildInfo, Metrics};

const HOUR: Duration = Duration::from_secs(3600);

fn metrics(options: SeriesOptions) -> Metrics {
    let build = BuildInfo {
        component: "waypoint",
        tag: "0",
    };
    Metrics::with(&build, options, Vec::new)
}

fn from(workload: &str) -> Labels {
    Labels {
        reporter: Reporter::Waypoint,
        source: Party {
            workload: Some(workload.into()),
            ..Party::default()
        },
        service: None,
        destination: Party::default(),
        flags: ResponseFlags::None,
        security: Security::MutualTls,
    }
}

fn key(source: u32) -> Key {
    Key {
        route: 1,
        destination: 2,
        source,
    }
}

fn served() -> Finished {
    Finished {
        protocol: Protocol::Http,
        code: 200,
        grpc_status: None,
        flags: RequestFlags::None,
        duration: Duration::from_millis(3),
        request_bytes: 100,
        response_bytes: 200,
        request_messages: 0,
        response_messages: 0,
    }
}

/// The series of a metric on a page.
fn series(metrics: &Metrics, metric: &str) -> Vec<String> {
    let page = metrics.render();
    let lines = page.lines();
    lines
        .filter(|line| line.starts_with(metric))
        .map(str::to_owned)
        .collect()
}

#[test]
fn a_proxy_without_requests_declares_none() {
    let metrics = metrics(SeriesOptions::default());
    assert!(!metrics.render().contains("istio_request"));
    metrics.requests();
    assert!(metrics.render().contains("# TYPE istio_requests counter"));
}

#[test]
fn labels_are_asked_for_once_a_key() {
    let metrics = metrics(SeriesOptions::default());
    let mut cells = Cells::new(Arc::clone(metrics.requests()));
    cells.cell(key(1), || from("a")).finish(&served());
    cells
        .cell(key(1), || panic!("it is at hand"))
        .finish(&served());
    cells.cell(key(2), || from("b")).finish(&served());
    let found = series(&metrics, "istio_requests_total");
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found.iter().any(|line| line.ends_with(" 2")));
}

#[test]
fn label_sets_beyond_the_bound_are_counted_without_their_ends() {
    let metrics = metrics(SeriesOptions {
        most: 2,
        ..SeriesOptions::default()
    });
    for workload in ["a", "b", "c", "d"] {
        metrics.requests().cell(from(workload)).finish(&served());
    }
    let found = series(&metrics, "istio_requests_total");
    assert_eq!(found.len(), 3, "{found:?}");
    let folded = found.iter().find(|line| line.ends_with(" 2"));
    assert!(folded.is_some_and(|line| line.contains("source_workload=\"unknown\"")));
    let counted = series(&metrics, "lateen_request_metric_series_folded_total");
    assert_eq!(counted, ["lateen_request_metric_series_folded_total 2"]);
}

#[test]
fn a_cell_expires_when_it_has_counted_nothing_for_long() {
    let metrics = metrics(SeriesOptions {
        idle: Some(HOUR),
        ..SeriesOptions::default()
    });
    let requests = metrics.requests();
    let mut cells = Cells::new(Arc::clone(requests));
    let start = Instant::now();
    cells.cell(key(1), || from("a")).finish(&served());
    for hour in 0..5 {
        // No request is under way when a page is read, and yet the cell is in use.
        cells
            .cell(key(1), || panic!("it did not expire"))
            .finish(&served());
        requests.expire(start + HOUR * hour);
    }
    requests.expire(start + HOUR * 5);
    assert_eq!(series(&metrics, "istio_requests_total").len(), 1);
    requests.expire(start + HOUR * 7);
    assert!(series(&metrics, "istio_requests_total").is_empty());
    cells.cell(key(1), || from("a")).finish(&served());
    assert_eq!(series(&metrics, "istio_requests_total").len(), 1);
}

#[test]
fn outcomes_that_differ_in_dropped_labels_are_one_series() {
    let metrics = metrics(SeriesOptions {
        dropped: Dropped::parse("response_flags,request_protocol").expect("labels"),
        ..SeriesOptions::default()
    });
    let cell = metrics.requests().cell(from("a"));
    for flags in [RequestFlags::None, RequestFlags::NoRoute] {
        for protocol in [Protocol::Http, Protocol::Grpc] {
            cell.finish(&Finished {
                flags,
                protocol,
                ..served()
            });
        }
    }
    let found = series(&metrics, "istio_requests_total");
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].ends_with(" 4"));
    let count = series(&metrics, "istio_request_bytes_sum");
    assert!(count[0].ends_with(" 400.0"), "{count:?}");
}
