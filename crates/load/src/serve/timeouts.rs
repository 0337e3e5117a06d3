//! Time-outs of peers.

use std::time::Duration;

use crate::text;

/// The time that peers may take. Zero is for ever.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct Timeouts {
    /// Close connections on which nothing happens for so long; 0 never does
    #[arg(long = "idle-timeout", value_name = "TIME", default_value = "10m", value_parser = text::duration)]
    idle: Duration,
    /// Close connections whose request, or TLS handshake, takes longer to arrive; 0 never does
    #[arg(long = "request-timeout", value_name = "TIME", default_value = "60s", value_parser = text::duration)]
    request: Duration,
}

/// A time that never ends, and that other times can be added to.
const FOREVER: Duration = Duration::from_secs(u64::MAX / 8);

/// How long a connection that failed still reads, so that the peer can read the last answer.
const LINGER: Duration = Duration::from_secs(1);

impl Timeouts {
    /// The time for nothing to happen, for a timer.
    pub fn idle(self) -> Duration {
        limit(self.idle)
    }

    /// The time for a request, for a timer.
    pub fn request(self) -> Duration {
        limit(self.request)
    }

    /// The time-outs that a connection keeps itself. Request heads have theirs there; idle time is the service's.
    pub fn of_connection(self) -> lateen_exchange::Timeouts {
        let interval = self.idle().min(self.request()) / 8;
        lateen_exchange::Timeouts {
            check_interval: interval.clamp(Duration::from_millis(10), Duration::from_secs(1)),
            head: self.request(),
            idle: None,
            ping_after: FOREVER,
            ping_timeout: FOREVER,
            linger: LINGER,
        }
    }
}

fn limit(limit: Duration) -> Duration {
    match limit {
        Duration::ZERO => FOREVER,
        limit => limit.min(FOREVER),
    }
}
