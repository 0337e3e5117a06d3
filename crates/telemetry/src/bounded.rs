//! Bounded table of label sets with their counters. A lock guards the search for a row, not its counters. A label set that
//! is unused for long expires. Beyond the bound, connections are counted under label sets without the labels of either end.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

use crate::dropped::Dropped;
use crate::labels::{Labels, Party};

/// Limits of a table of label sets, and the labels that it omits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeriesOptions {
    /// Time after its last use at which a label set expires; `None`: never.
    pub idle: Option<Duration>,
    /// Largest number of label sets. Uses of further ones are counted with the ends `unknown`.
    pub most: usize,
    /// Labels that are left out.
    pub dropped: Dropped,
}

impl Default for SeriesOptions {
    fn default() -> Self {
        Self {
            // A day, so that a daily job keeps its counters: rate() misses the first increments of a new counter.
            idle: Some(Duration::from_secs(24 * 60 * 60)),
            most: 10_000,
            dropped: Dropped::default(),
        }
    }
}

/// The counters of a label set. They do not expire while a handle to them exists.
pub(crate) trait Counted: Default {
    /// A number that grows with each use whose handle may be dropped before the next page.
    fn activity(&self) -> u64;
}

/// A row of the table.
#[derive(Debug, Default)]
struct Kept<S> {
    /// The counters.
    series: Arc<S>,
    /// [`Counted::activity`] at the last page.
    activity: u64,
    /// The time of the first page after the last use; `None` while the row is in use.
    quiet: Option<Instant>,
}

/// The table: each label set in use, with its counters of type `S`.
#[derive(Debug)]
pub(crate) struct Bounded<S> {
    /// The limits.
    pub(crate) options: SeriesOptions,
    /// The rows by their labels.
    kept: Mutex<HashMap<Arc<Labels>, Kept<S>>>,
    /// Number of rows.
    pub(crate) held: Gauge,
    /// Number of rows that expired so far.
    pub(crate) expired: Counter,
    /// Number of uses that were counted without the labels of their ends.
    pub(crate) folded: Counter,
}

/// The table's own metrics: rows, rows that expired, and uses that were counted without the labels of their ends.
pub(crate) type Meters = (Gauge, Counter, Counter);

impl<S: Counted> Bounded<S> {
    /// An empty table that reports itself through `meters`.
    pub(crate) fn new(options: SeriesOptions, meters: &Meters) -> Self {
        let (held, expired, folded) = meters.clone();
        Self {
            options,
            kept: Mutex::default(),
            held,
            expired,
            folded,
        }
    }

    /// The counters of a label set, and the labels with those that the table omits.
    pub(crate) fn series(&self, labels: Labels) -> (Arc<Labels>, Arc<S>) {
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
            // The rows without ends are few, so the limit is exceeded by few.
            self.folded.inc();
            Arc::new(without_ends(&labels))
        };
        let kept = all.entry(key).or_default();
        kept.quiet = None;
        let series = Arc::clone(&kept.series);
        self.held.set(all.len() as i64);
        (whole.unwrap_or(labels), series)
    }

    /// Removes the label sets that were unused for [`SeriesOptions::idle`]. Each page calls it, and a label set that it
    /// removes had its last values on an earlier page.
    pub(crate) fn expire(&self, now: Instant) {
        let Some(idle) = self.options.idle else {
            return;
        };
        let mut all = self.kept.lock();
        let before = all.len();
        all.retain(|_, kept| {
            let activity = kept.series.activity();
            // A new handle comes from `series`, under the lock, or from a weak handle, whose use raises the activity.
            if Arc::strong_count(&kept.series) > 1 || activity != kept.activity {
                kept.activity = activity;
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

    /// Every label set with its counters. The lock is held only while the handles are copied, so that a scrape does not
    /// delay the workers.
    pub(crate) fn all(&self) -> Vec<(Arc<Labels>, Arc<S>)> {
        self.kept
            .lock()
            .iter()
            .map(|(labels, kept)| (Arc::clone(labels), Arc::clone(&kept.series)))
            .collect()
    }
}

/// The labels without those of either end, under which uses are counted beyond the limit.
fn without_ends(labels: &Labels) -> Labels {
    Labels {
        source: Party::default(),
        service: None,
        destination: Party::default(),
        ..*labels
    }
}
