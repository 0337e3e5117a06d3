//! `istio_tcp_*`: five counters per label set and response flag, found once per connection and counted without a lock.
//!
//! The counters of a label set come and go together, whatever the flag: what was opened less what was closed is what is
//! open, at all times and in every label set.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::dropped::Dropped;
use crate::exposition::Shown;
use crate::labels::{Labels, Party, ResponseFlags};

/// How many series of connections there are, how long they stay, and what they show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeriesOptions {
    /// How long a label set without a connection is kept; `None`: for ever.
    pub idle: Option<Duration>,
    /// Most label sets; connections with further ones are counted as `unknown`.
    pub most: usize,
    /// Labels that are left out.
    pub dropped: Dropped,
}

impl Default for SeriesOptions {
    fn default() -> Self {
        Self {
            // What runs every day keeps its counters: one that starts again loses its first steps to rate().
            idle: Some(Duration::from_secs(24 * 60 * 60)),
            most: 10_000,
            dropped: Dropped::default(),
        }
    }
}

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

#[derive(Debug, Default)]
struct Kept {
    series: Arc<Series>,
    /// The first page that showed it after its last connection had ended.
    quiet: Option<Instant>,
}

/// Every series there is.
#[derive(Debug)]
pub struct Traffic {
    options: SeriesOptions,
    kept: Mutex<HashMap<Arc<Labels>, Kept>>,
    held: Gauge,
    expired: Counter,
    folded: Counter,
}

impl Traffic {
    pub(crate) fn register(options: SeriesOptions, registry: &mut Registry) -> Arc<Self> {
        let (held, expired, folded) = (Gauge::default(), Counter::default(), Counter::default());
        registry.register(
            "lateen_metric_series",
            "Label sets that connections are counted under, without response_flags",
            held.clone(),
        );
        registry.register(
            "lateen_metric_series_expired",
            "Label sets that were forgotten since they had no connection for so long",
            expired.clone(),
        );
        registry.register(
            "lateen_metric_series_folded",
            "Connections that were counted with unknown ends since there were too many label sets",
            folded.clone(),
        );
        Arc::new(Self {
            options,
            kept: Mutex::default(),
            held,
            expired,
            folded,
        })
    }

    /// The series of these labels, whatever their flags, and the labels for whoever needs them whole.
    pub fn series(&self, labels: Labels) -> (Arc<Labels>, Arc<Series>) {
        let dropped = self.options.dropped;
        let whole = (!dropped.is_empty()).then(|| Arc::new(labels.clone()));
        let shown = dropped.apply(labels);
        let mut all = self.kept.lock();
        if let Some((labels, _)) = all.get_key_value(&shown) {
            let labels = Arc::clone(labels);
            let kept = all.get_mut(&labels).expect("found a moment ago");
            kept.quiet = None;
            return (whole.unwrap_or(labels), Arc::clone(&kept.series));
        }
        let labels = Arc::new(shown);
        let key = if all.len() < self.options.most {
            Arc::clone(&labels)
        } else {
            // A few label sets at most, beside those that are allowed.
            self.folded.inc();
            Arc::new(without_ends(&labels))
        };
        let kept = all.entry(key).or_default();
        kept.quiet = None;
        let series = Arc::clone(&kept.series);
        self.held.set(all.len() as i64);
        (whole.unwrap_or(labels), series)
    }

    /// Forgets label sets that have had no connection for as long as is allowed. It is called for each page, and what it
    /// forgets had its last values on a page before.
    pub(crate) fn expire(&self, now: Instant) {
        let Some(idle) = self.options.idle else {
            return;
        };
        let mut all = self.kept.lock();
        let before = all.len();
        all.retain(|_, kept| {
            // New holders come through the lock alone.
            if Arc::strong_count(&kept.series) > 1 {
                kept.quiet = None;
                return true;
            }
            let since = *kept.quiet.get_or_insert(now);
            now.saturating_duration_since(since) < idle
        });
        let expired = before - all.len();
        if expired > 0 {
            all.shrink_to_fit();
            self.expired.inc_by(expired as u64);
            self.held.set(all.len() as i64);
        }
    }

    /// Every label set and flag with what is counted under it.
    fn rows(&self) -> Vec<Row> {
        // A scrape must not hold up the workers: the lock is held for the copy of the handles alone.
        let all: Vec<_> = self
            .kept
            .lock()
            .iter()
            .map(|(labels, kept)| (Arc::clone(labels), Arc::clone(&kept.series)))
            .collect();
        let by_flags = self.options.dropped.shows_flags();
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

/// What connections are counted under when there are too many label sets.
fn without_ends(labels: &Labels) -> Labels {
    Labels {
        source: Party::default(),
        service: None,
        destination: Party::default(),
        ..*labels
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
                    flags: row.flags,
                    dropped: self.options.dropped,
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
