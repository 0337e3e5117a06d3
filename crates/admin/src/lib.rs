//! The HTTP pages of a proxy: metrics, readiness, configuration dump, log level.
#![forbid(unsafe_code)]
