//! The metrics of requests as a page shows them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use super::cell::{Cell, Totals};
use super::histogram::Observed;
use super::outcome::{Outcome, Protocol};
use crate::bounded::{Bounded, Meters, SeriesOptions};
use crate::exposition::Shown;
use crate::labels::Labels;

/// The counters of all requests.
#[derive(Debug)]
pub struct Requests(Bounded<Cell>);

impl Requests {
    pub(crate) fn register(options: SeriesOptions, registry: &mut Registry) -> Arc<Self> {
        let meters = Meters::default();
        registry.register(
            "lateen_request_metric_series",
            "Label sets that requests are counted under, without the labels of their responses",
            meters.0.clone(),
        );
        registry.register(
            "lateen_request_metric_series_expired",
            "Label sets of requests that were forgotten since they had no request for so long",
            meters.1.clone(),
        );
        registry.register(
            "lateen_request_metric_series_folded",
            "Look-ups of label sets of requests that were answered with unknown ends since there were too many",
            meters.2.clone(),
        );
        let requests = Arc::new(Self(Bounded::new(options, &meters)));
        registry
            .sub_registry_with_prefix("istio")
            .register_collector(Box::new(Arc::clone(&requests)));
        requests
    }

    /// The cell of these labels; their flags do not matter. It hashes every label: see [`Cells`](super::Cells).
    pub fn cell(&self, labels: Labels) -> Arc<Cell> {
        self.0.series(labels).1
    }

    pub(crate) fn expire(&self, now: Instant) {
        self.0.expire(now);
    }

    fn rows(&self) -> Vec<Row> {
        let dropped = self.0.options.dropped;
        let (protocol, flags) = (dropped.shows_protocol(), dropped.shows_flags());
        let mut rows = Vec::new();
        for (labels, cell) in self.0.all() {
            // Outcomes that differ in labels that are not shown are one row.
            let mut shown = BTreeMap::<Outcome, Totals>::new();
            for (outcome, totals) in cell.read() {
                shown
                    .entry(outcome.shown(protocol, flags))
                    .and_modify(|sum| sum.merge(&totals))
                    .or_insert(totals);
            }
            rows.extend(shown.into_iter().map(|(outcome, totals)| Row {
                labels: Arc::clone(&labels),
                protocol: outcome.protocol(),
                flags: outcome.flags().as_str(),
                code: outcome.code().to_string(),
                status: outcome.status().map(|status| status.to_string()),
                totals,
            }));
        }
        rows
    }
}

/// One series of each metric.
struct Row {
    labels: Arc<Labels>,
    protocol: Protocol,
    flags: &'static str,
    code: String,
    status: Option<String>,
    totals: Totals,
}

type CounterFamily = (
    &'static str,
    &'static str,
    fn(&Totals) -> u64,
    fn(&Row) -> bool,
);

const COUNTERS: [CounterFamily; 3] = [
    (
        "requests",
        "The total number of requests",
        |totals| totals.duration.count(),
        |_| true,
    ),
    (
        "request_messages",
        "The total number of gRPC messages from clients to servers",
        |totals| totals.request_messages,
        |row| row.totals.request_messages > 0,
    ),
    (
        "response_messages",
        "The total number of gRPC messages from servers to clients",
        |totals| totals.response_messages,
        |row| row.totals.response_messages > 0,
    ),
];

type HistogramFamily = (&'static str, &'static str, fn(&Totals) -> &Observed);

const HISTOGRAMS: [HistogramFamily; 3] = [
    (
        "request_duration_milliseconds",
        "How long requests took, from their first byte to the last one of their response",
        |totals| &totals.duration,
    ),
    (
        "request_bytes",
        "The bytes of requests, with their headers",
        |totals| &totals.request_bytes,
    ),
    (
        "response_bytes",
        "The bytes of responses, with their headers",
        |totals| &totals.response_bytes,
    ),
];

impl Collector for Requests {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let rows = self.rows();
        let shown = |row: &Row, with: &mut dyn FnMut(&Shown<'_>) -> fmt::Result| {
            with(&Shown {
                labels: &row.labels,
                flags: row.flags,
                request: Some((
                    row.protocol.as_str(),
                    &row.code,
                    row.status.as_deref().unwrap_or_default(),
                )),
                dropped: self.0.options.dropped,
            })
        };
        for (name, help, counter, exists) in COUNTERS {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for row in rows.iter().filter(|row| exists(row)) {
                shown(row, &mut |labels| {
                    family
                        .encode_family(labels)?
                        .encode_counter::<NoLabelSet, _, f64>(&counter(&row.totals), None)
                })?;
            }
        }
        for (name, help, histogram) in HISTOGRAMS {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
            for row in &rows {
                let observed = histogram(&row.totals);
                shown(row, &mut |labels| {
                    family
                        .encode_family(labels)?
                        .encode_histogram::<NoLabelSet>(
                            observed.sum(),
                            observed.count(),
                            &observed.buckets(),
                            None,
                        )
                })?;
            }
        }
        Ok(())
    }
}
