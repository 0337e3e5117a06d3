//! `istio_tcp_*`: five counters per label set, found once per connection and counted without a lock.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use crate::labels::Labels;

/// The counters of one label set.
#[derive(Debug, Default)]
pub struct Series {
    opened: AtomicU64,
    closed: AtomicU64,
    failed: AtomicU64,
    received: AtomicU64,
    sent: AtomicU64,
}

impl Series {
    /// Counts bytes from the client to the server.
    pub fn add_received(&self, bytes: u64) {
        self.received.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts bytes from the server to the client.
    pub fn add_sent(&self, bytes: u64) {
        self.sent.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn add_opened(&self) {
        self.opened.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn add_closed(&self) {
        self.closed.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn add_failed(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }
}

/// Every series there is; they never expire, as ztunnel's do not.
#[derive(Debug, Default)]
pub struct Traffic {
    series: Mutex<HashMap<Arc<Labels>, Arc<Series>>>,
}

impl Traffic {
    /// The series of these labels, and the labels as they are kept.
    pub fn series(&self, labels: Labels) -> (Arc<Labels>, Arc<Series>) {
        let mut all = self.series.lock();
        if let Some((labels, series)) = all.get_key_value(&labels) {
            return (Arc::clone(labels), Arc::clone(series));
        }
        let (labels, series) = (Arc::new(labels), Arc::<Series>::default());
        all.insert(Arc::clone(&labels), Arc::clone(&series));
        (labels, series)
    }
}

/// Name, help, counter, and whether a series of this metric exists yet.
type Family = (
    &'static str,
    &'static str,
    fn(&Series) -> &AtomicU64,
    fn(&Series) -> bool,
);

const FAMILIES: [Family; 5] = [
    (
        "tcp_connections_opened",
        "The total number of TCP connections opened",
        |s| &s.opened,
        |s| moved(&s.opened),
    ),
    (
        "tcp_connections_closed",
        "The total number of TCP connections closed",
        |s| &s.closed,
        |s| moved(&s.closed),
    ),
    (
        "tcp_received_bytes",
        "The total number of bytes from clients to servers over TCP connections",
        |s| &s.received,
        |s| moved(&s.opened),
    ),
    (
        "tcp_sent_bytes",
        "The total number of bytes from servers to clients over TCP connections",
        |s| &s.sent,
        |s| moved(&s.opened),
    ),
    (
        "tcp_connections_failed",
        "The total number of TCP connections that were refused or broke (unstable)",
        |s| &s.failed,
        |s| moved(&s.failed),
    ),
];

fn moved(counter: &AtomicU64) -> bool {
    counter.load(Ordering::Relaxed) > 0
}

impl Collector for Traffic {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        // A scrape must not hold up the workers: the lock is held for the copy of the handles alone.
        let all: Vec<_> = self
            .series
            .lock()
            .iter()
            .map(|(labels, series)| (Arc::clone(labels), Arc::clone(series)))
            .collect();
        for (name, help, counter, exists) in FAMILIES {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (labels, series) in all.iter().filter(|(_, series)| exists(series)) {
                let value = counter(series).load(Ordering::Relaxed);
                family
                    .encode_family(labels.as_ref())?
                    .encode_counter::<NoLabelSet, _, f64>(&value, None)?;
            }
        }
        Ok(())
    }
}
