//! Telemetry of a proxy: metrics with Istio's names and labels, access logs in ztunnel's format, log levels. The crate owns the
//! names, each declared once. Its callers decide when to count, and who may read.
#![forbid(unsafe_code)]

mod access;
mod bounded;
mod claims;
mod clock;
mod connection;
mod cut;
mod dns;
mod dropped;
mod export;
mod exposition;
mod fields;
mod labels;
mod line;
pub mod log;
mod metrics;
mod process;
pub mod reference;
mod request;
mod share;
mod sink;
mod traffic;

pub use access::{Entry, refused};
pub use bounded::SeriesOptions;
pub use claims::Claims;
pub use clock::{civil, rfc3339};
pub use connection::{Connection, Failure, Opening};
pub use cut::{LONGEST_TEXT, cut_text};
pub use dns::{DnsLabels, DnsMetrics, DnsShed, OnDemandDnsLabels, known};
pub use dropped::{DropError, Dropped};
pub use export::{Export, Report, ReportValue, Severity, Trace};
pub use labels::{Labels, Party, Reporter, ResponseFlags, Security, Service};
pub use line::{Line, Part};
pub use metrics::{Buffers, BuildInfo, HttpAccounts, HttpBuffers, Metrics, XdsTermination};
pub use request::{Cell, Cells, Finished, GrpcStatus, Key, Protocol, RequestFlags, Requests};
pub use share::LogShare;
pub use traffic::{Series, Traffic};
