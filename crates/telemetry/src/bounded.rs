//! Bounded table of label sets with their counters. A row is found under a lock and counted without one. A label set that
//! nobody uses for long expires. Beyond the bound, connections are counted under label sets without the labels of either end.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

use crate::dropped::Dropped;
use crate::labels::{Labels, Party};

/// How many label sets there are, how long they stay, and what they show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeriesOptions {
    /// How long a label set that is not in use is kept; `None`: for ever.
    pub idle: Option<Duration>,
    /// Most label sets; what has further ones is counted as `unknown`.
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

/// What is counted under a label set. While somebody holds it, it does not expire.
pub(crate) trait Counted: Default {
    /// A number that grows whenever something is counted by a holder that is gone by the next page.
    fn activity(&self) -> u64;
}

#[derive(Debug, Default)]
struct Kept<S> {
    series: Arc<S>,
    /// The series' activity at the last page.
    activity: u64,
    /// The first page that showed it after its last use.
    quiet: Option<Instant>,
}

/// Every label set in use.
#[derive(Debug)]
pub(crate) struct Bounded<S> {
    pub(crate) options: SeriesOptions,
    kept: Mutex<HashMap<Arc<Labels>, Kept<S>>>,
    pub(crate) held: Gauge,
    pub(crate) expired: Counter,
    pub(crate) folded: Counter,
}

/// The table's own metrics: label sets held, label sets that expired, and uses that were counted with unknown ends.
pub(crate) type Meters = (Gauge, Counter, Counter);

impl<S: Counted> Bounded<S> {
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

    /// The series of these labels, whatever their flags, and the labels for whoever needs them whole.
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

    /// Forgets label sets that have not been used for as long as is allowed. It is called for each page, and what it
    /// forgets had its last values on a page before.
    pub(crate) fn expire(&self, now: Instant) {
        let Some(idle) = self.options.idle else {
            return;
        };
        let mut all = self.kept.lock();
        let before = all.len();
        all.retain(|_, kept| {
            let activity = kept.series.activity();
            // New holders come through the lock, or by a weak handle, which leaves activity behind.
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

    /// Every label set with what is counted under it. A scrape must not hold up the workers: the lock is held for the copy
    /// of the handles alone.
    pub(crate) fn all(&self) -> Vec<(Arc<Labels>, Arc<S>)> {
        self.kept
            .lock()
            .iter()
            .map(|(labels, kept)| (Arc::clone(labels), Arc::clone(&kept.series)))
            .collect()
    }
}

/// What is counted when there are too many label sets.
fn without_ends(labels: &Labels) -> Labels {
    Labels {
        source: Party::default(),
        service: None,
        destination: Party::default(),
        ..*labels
    }
}
