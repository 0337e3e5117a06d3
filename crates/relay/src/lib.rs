//! Copies bytes between two streams in both directions, with half-close and live counters.
#![forbid(unsafe_code)]
