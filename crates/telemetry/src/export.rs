//! Reports of connections to a collector, and the interface of their exporter. No protocol is known here.

use std::fmt;
use std::time::SystemTime;

use crate::labels::Reporter;

/// How bad the end of a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// It was served.
    Info,
    /// It was refused before both of its ends were known.
    Warn,
    /// It failed.
    Error,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReportValue {
    /// A text.
    Text(String),
    /// A number.
    Number(u64),
}

/// A connection's place in a trace (W3C Trace Context). No id is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trace {
    /// The trace.
    pub trace: u128,
    /// This side's span.
    pub span: u64,
    /// The other side's span, where it came first.
    pub parent: Option<u64>,
    /// Whether its spans are sent to a collector.
    pub sampled: bool,
}

/// One connection that has ended: what the access log says, by name.
#[derive(Clone, Debug)]
pub struct Report {
    /// When it began.
    pub start: SystemTime,
    /// When it ended.
    pub end: SystemTime,
    /// How bad that is.
    pub severity: Severity,
    /// The access log's message.
    pub message: &'static str,
    /// The access log's fields, in its order.
    pub attributes: Vec<(&'static str, ReportValue)>,
    /// Why it failed.
    pub error: Option<String>,
    /// Which side tells.
    pub reporter: Reporter,
    /// Its place in a trace, if it has one.
    pub trace: Option<Trace>,
}

/// Takes reports.
pub trait Export: fmt::Debug + Send + Sync {
    /// Takes one; workers call this, so it must not wait.
    fn report(&self, report: Report);
}
