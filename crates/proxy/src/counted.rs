//! Counts of opened and closed tunnels. Each tunnel that counts as opened comes to count as closed, however it ends.

use std::sync::Arc;

use lateen_hbone::CloseReason;
use lateen_telemetry::{Metrics, Reporter};

/// A tunnel that counts as opened, and as closed when this is dropped.
pub(crate) struct Counted {
    metrics: Arc<Metrics>,
    reporter: Reporter,
    reason: CloseReason,
}

impl Counted {
    /// TLS has proven the peer of a tunnel. What ends it before anybody says how is that time ran out for HTTP/2.
    pub(crate) fn opened(metrics: &Arc<Metrics>, reporter: Reporter) -> Self {
        metrics.tunnel_opened(reporter);
        Self::already_opened(metrics, reporter)
    }

    /// A tunnel that counts as opened already.
    pub(crate) fn already_opened(metrics: &Arc<Metrics>, reporter: Reporter) -> Self {
        Self {
            metrics: Arc::clone(metrics),
            reporter,
            reason: CloseReason::Unresponsive,
        }
    }

    /// The tunnel ended.
    pub(crate) fn ended(mut self, reason: CloseReason) {
        self.reason = reason;
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.metrics
            .tunnel_closed(self.reporter, self.reason.as_str());
    }
}
