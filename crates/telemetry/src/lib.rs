//! Metrics and access logs of connections, each name declared once.
#![forbid(unsafe_code)]
