//! `istio_tcp_*`: five counters per label set and response flag, found once per connection and counted without a lock.
//!
//! The counters of a label set appear and expire together, whatever the flag. In every label set, at all times, opened less
//! closed is the number of open connections.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use crate::bounded::{Bounded, Counted, Meters, SeriesOptions};
use crate::exposition::Shown;
use crate::labels::{Labels, ResponseFlags};

/// The counters of one label set and one response flag.
#[derive(Debug, Default)]
struct Counts {
    opened: AtomicU64,
    closed: AtomicU64,
    failed: AtomicU64,
    received: AtomicU64,
    sent: AtomicU64,
}

/// The counters of one label set. While somebody holds it, it does not expire.
#[derive(Debug, Default)]
pub struct Series([Counts; ResponseFlags::ALL.len()]);

impl Series {
    /// Counts bytes from the client to the server.
    pub fn add_received(&self, bytes: u64) {
        self.served().received.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts bytes from the server to the client.
    pub fn add_sent(&self, bytes: u64) {
        self.served().sent.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn add_opened(&self) {
        self.served().opened.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn add_closed(&self, flags: ResponseFlags) {
        self.0[flags as usize]
            .closed
            .fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn add_failed(&self, flags: ResponseFlags) {
        self.0[flags as usize]
            .failed
            .fetch_add(1, Ordering::Relaxed);
    }

    fn served(&self) -> &Counts {
        &self.0[ResponseFlags::None as usize]
    }
}

impl Counted for Series {
    /// A connection holds its series until its end: what it counts needs no other trace.
    fn activity(&self) -> u64 {
        0
    }
}

/// The series of all connections.
#[derive(Debug)]
pub struct Traffic(Bounded<Series>);

impl Traffic {
    pub(crate) fn register(options: SeriesOptions, registry: &mut Registry) -> Arc<Self> {
        let meters = Meters::default();
        registry.register(
            "lateen_metric_series",
            "Label sets that connections are counted under, without response_flags",
            meters.0.clone(),
        );
        registry.register(
            "lateen_metric_series_expired",
            "Label sets that were forgotten since they had no connection for so long",
            meters.1.clone(),
        );
        registry.register(
            "lateen_metric_series_folded",
            "Connections that were counted with unknown ends since there were too many label sets",
            meters.2.clone(),
        );
        Arc::new(Self(Bounded::new(options, &meters)))
    }

    /// The series of these labels, whatever their flags, and the labels for whoever needs them whole.
    pub fn series(&self, labels: Labels) -> (Arc<Labels>, Arc<Series>) {
        self.0.series(labels)
    }

    pub(crate) fn expire(&self, now: Instant) {
        self.0.expire(now);
    }

    /// Every label set and flag with what is counted under it.
    fn rows(&self) -> Vec<Row> {
        let all = self.0.all();
        let by_flags = self.0.options.dropped.shows_flags();
        let mut rows = Vec::with_capacity(all.len());
        for (labels, series) in all {
            let mut sum = Row::of(&labels, ResponseFlags::None);
            for flags in ResponseFlags::ALL {
                let row = Row::read(&labels, flags, &series.0[flags as usize]);
                if by_flags {
                    rows.extend(Some(row).filter(Row::counts));
                } else {
                    sum.add(&row);
                }
            }
            if !by_flags {
                rows.push(sum);
            }
        }
        rows
    }
}

/// One series of each metric.
struct Row {
    labels: Arc<Labels>,
    flags: ResponseFlags,
    opened: u64,
    closed: u64,
    failed: u64,
    received: u64,
    sent: u64,
}

impl Row {
    fn of(labels: &Arc<Labels>, flags: ResponseFlags) -> Self {
        Self {
            labels: Arc::clone(labels),
            flags,
            opened: 0,
            closed: 0,
            failed: 0,
            received: 0,
            sent: 0,
        }
    }

    fn read(labels: &Arc<Labels>, flags: ResponseFlags, counts: &Counts) -> Self {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Self {
            opened: read(&counts.opened),
            closed: read(&counts.closed),
            failed: read(&counts.failed),
            received: read(&counts.received),
            sent: read(&counts.sent),
            ..Self::of(labels, flags)
        }
    }

    /// Whether anything was counted at all; bytes are of connections that opened.
    fn counts(&self) -> bool {
        self.opened > 0 || self.closed > 0 || self.failed > 0
    }

    fn add(&mut self, other: &Self) {
        self.opened += other.opened;
        self.closed += other.closed;
        self.failed += other.failed;
        self.received += other.received;
        self.sent += other.sent;
    }
}

/// Name, help, counter, and whether a series of this metric exists yet.
type Family = (
    &'static str,
    &'static str,
    fn(&Row) -> u64,
    fn(&Row) -> bool,
);

const FAMILIES: [Family; 5] = [
    (
        "tcp_connections_opened",
        "The total number of TCP connections opened",
        |row| row.opened,
        |row| row.opened > 0,
    ),
    (
        "tcp_connections_closed",
        "The total number of TCP connections closed",
        |row| row.closed,
        |row| row.closed > 0,
    ),
    (
        "tcp_received_bytes",
        "The total number of bytes from clients to servers over TCP connections",
        |row| row.received,
        |row| row.opened > 0,
    ),
    (
        "tcp_sent_bytes",
        "The total number of bytes from servers to clients over TCP connections",
        |row| row.sent,
        |row| row.opened > 0,
    ),
    (
        "tcp_connections_failed",
        "The total number of TCP connections that were refused or broke (unstable)",
        |row| row.failed,
        |row| row.failed > 0,
    ),
];

impl Collector for Traffic {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let rows = self.rows();
        for (name, help, counter, exists) in FAMILIES {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for row in rows.iter().filter(|row| exists(row)) {
                let shown = Shown {
                    labels: &row.labels,
                    flags: row.flags.as_str(),
                    request: None,
                    dropped: self.0.options.dropped,
                };
                family
                    .encode_family(&shown)?
                    .encode_counter::<NoLabelSet, _, f64>(&counter(row), None)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "traffic_tests.rs"]
mod tests;
