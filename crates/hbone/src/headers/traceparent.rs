//! `traceparent` (W3C Trace Context): the id that joins the log lines of both sides of a tunnel.

use std::fmt;
use std::str::FromStr;

/// A trace id, a span id and flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceParent {
    trace: u128,
    span: u64,
    flags: u8,
}

impl TraceParent {
    /// From parts; an id of zero is not valid (§3.2.2.3) and becomes one.
    pub fn new(trace: u128, span: u64) -> Self {
        TraceParent {
            trace: trace.max(1),
            span: span.max(1),
            flags: 0,
        }
    }

    /// A fresh one, not sampled.
    pub fn random() -> Self {
        TraceParent::new(rand::random(), rand::random())
    }

    /// The same, with the flag that says whether its spans are collected (§3.2.2.5.1).
    #[must_use]
    pub fn sampled(self, sampled: bool) -> Self {
        let flags = (self.flags & !1) | u8::from(sampled);
        TraceParent { flags, ..self }
    }

    /// Whether the sender's spans are collected.
    pub fn is_sampled(&self) -> bool {
        self.flags & 1 == 1
    }

    /// The trace that the connection belongs to.
    pub fn trace(&self) -> u128 {
        self.trace
    }

    /// The span of the sender.
    pub fn span(&self) -> u64 {
        self.span
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "00-{:032x}-{:016x}-{:02x}",
            self.trace, self.span, self.flags
        )
    }
}

/// A header that is no trace context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("traceparent is not VERSION-TRACE-SPAN-FLAGS in lower-case hexadecimal")]
pub struct TraceParentError;

impl FromStr for TraceParent {
    type Err = TraceParentError;

    fn from_str(text: &str) -> Result<Self, TraceParentError> {
        parse(text).ok_or(TraceParentError)
    }
}

fn parse(text: &str) -> Option<TraceParent> {
    let mut parts = text.split('-');
    let version = hex(parts.next()?, 2)?;
    let trace = hex(parts.next()?, 32)?;
    let span = hex(parts.next()?, 16)? as u64;
    let flags = hex(parts.next()?, 2)? as u8;
    // Later versions may append fields (§4.3); version 0 may not, and 255 is not a version.
    if version == 0xff || (version == 0 && parts.next().is_some()) || trace == 0 || span == 0 {
        return None;
    }
    Some(TraceParent { trace, span, flags })
}

fn hex(text: &str, digits: usize) -> Option<u128> {
    let plain = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    (text.len() == digits && text.bytes().all(plain))
        .then(|| u128::from_str_radix(text, 16).ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn refuses_what_the_standard_refuses() {
        for text in [
            "",
            "00",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-x",
            "00-+af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        ] {
            assert!(
                text.parse::<TraceParent>().is_err(),
                "{text:?} was accepted"
            );
        }
    }

    #[test]
    fn fresh_ones_differ() {
        assert_ne!(TraceParent::random(), TraceParent::random());
    }

    proptest! {
        #[test]
        fn round_trips(trace: u128, span: u64) {
            let context = TraceParent::new(trace, span);
            prop_assert_eq!(context.to_string().parse(), Ok(context));
        }

        #[test]
        fn says_whether_it_is_sampled(trace: u128, span: u64, sampled: bool) {
            let context = TraceParent::new(trace, span).sampled(sampled);
            prop_assert_eq!(context.to_string().parse::<TraceParent>().unwrap().is_sampled(), sampled);
            prop_assert!(context.sampled(false) == TraceParent::new(trace, span));
        }

        #[test]
        fn never_panics(text in "\\PC{0,60}|[0-9a-f-]{50,60}") {
            let _ = text.parse::<TraceParent>();
        }
    }
}
