//! Trace context of a connection: made where the connection begins, carried by CONNECT, continued where it arrives.

use lateen_hbone::TraceParent;
use lateen_telemetry::Trace;

/// Which traces are collected: a share of those that begin here; those that began elsewhere as their beginner decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sampler(u64);

/// As many numbers as a double tells apart below one.
const ALL: u64 = 1 << 53;

impl Sampler {
    /// Collects this share, from 0 to 1.
    pub fn new(share: f64) -> Self {
        Self((share.clamp(0.0, 1.0) * ALL as f64) as u64)
    }

    /// By the trace's id, so that every proxy would decide alike.
    fn takes(self, trace: u128) -> bool {
        trace as u64 % ALL < self.0
    }

    /// What an outbound connection tells the other side, and its own span.
    pub fn begin(self) -> (TraceParent, Trace) {
        let fresh = TraceParent::random();
        let sampled = self.takes(fresh.trace());
        let context = fresh.sampled(sampled);
        let trace = Trace {
            trace: context.trace(),
            span: context.span(),
            parent: None,
            sampled,
        };
        (context, trace)
    }

    /// The span of an inbound connection. Without a word of the other side the trace begins here.
    pub fn follow(self, other: Option<&TraceParent>) -> Trace {
        match other {
            Some(other) => Trace {
                trace: other.trace(),
                span: TraceParent::random().span(),
                parent: Some(other.span()),
                sampled: other.is_sampled(),
            },
            None => self.begin().1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_sampled_and_the_other_side_follows() {
        for (share, least, most) in [(0.0, 0, 0), (0.25, 2000, 3000), (1.0, 10_000, 10_000)] {
            let sampler = Sampler::new(share);
            let taken = (0..10_000).filter(|_| sampler.begin().1.sampled).count();
            assert!((least..=most).contains(&taken), "{share}: {taken}");
        }
        let (context, begun) = Sampler::new(1.0).begin();
        let followed = Sampler::default().follow(Some(&context));
        assert!(followed.sampled && followed.trace == begun.trace);
        assert_eq!(followed.parent, Some(begun.span));
        assert_ne!(followed.span, begun.span);
    }
}
