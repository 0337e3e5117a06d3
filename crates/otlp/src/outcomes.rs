//! Counters of sent and lost reports.

use prometheus_client::metrics::counter::Counter;

/// Counters of what becomes of reports.
#[derive(Clone, Debug, Default)]
pub struct Outcomes {
    /// Taken by a collector.
    pub sent: Counter,
    /// Lost: the queue was full, or a collector did not take them.
    pub dropped: Counter,
}
