//! Time-outs of connections, counted in rounds.

use std::time::Duration;

/// How long peers may take. Zero is for ever.
#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    /// For nothing to happen on a connection.
    pub idle: Duration,
    /// For a request, its body with it, or a TLS handshake, once it has begun.
    pub request: Duration,
}

impl Default for Timeouts {
    fn default() -> Timeouts {
        Timeouts {
            idle: Duration::from_secs(600),
            request: Duration::from_secs(60),
        }
    }
}

impl Timeouts {
    /// How long a round is: connections are looked over once in each.
    pub fn round(self) -> Duration {
        let shortest = [self.idle, self.request]
            .into_iter()
            .filter(|limit| !limit.is_zero())
            .min()
            .unwrap_or(Duration::MAX);
        (shortest / 8).clamp(Duration::from_millis(10), Duration::from_secs(1))
    }

    /// The same in rounds.
    pub fn patience(self) -> Patience {
        let rounds = |limit: Duration| match limit {
            Duration::ZERO => u32::MAX,
            limit => {
                let rounds = limit.as_nanos().div_ceil(self.round().as_nanos());
                u32::try_from(rounds).unwrap_or(u32::MAX)
            }
        };
        Patience {
            idle: rounds(self.idle),
            request: rounds(self.request),
        }
    }
}

/// How many rounds peers may take.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// For nothing to happen on a connection.
    pub idle: u32,
    /// For a request, or a TLS handshake, once it has begun.
    pub request: u32,
}
