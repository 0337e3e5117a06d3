//! The load generator of the lab: open loop, intended-time latency, HDR histograms; and the echo service it aims at.
#![forbid(unsafe_code)]
