//! One connection's telemetry from opening to end: counted when it opens, while bytes flow, and when it closes.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Instant, SystemTime};

use lateen_types::Strng;

use crate::access::Entry;
use crate::export::Trace;
use crate::labels::{Labels, ResponseFlags};
use crate::metrics::Metrics;
use crate::traffic::Series;

/// What is known of a connection when it opens.
#[derive(Debug)]
pub struct Opening {
    /// When its first packet reached us.
    pub start: Instant,
    /// Where it came from.
    pub source: SocketAddr,
    /// The name of the source's pod.
    pub source_name: Option<Strng>,
    /// Where it goes: the tunnel's address where there is one.
    pub destination: SocketAddr,
    /// What the tunnel is asked for.
    pub hbone: Option<Box<str>>,
    /// The name of the destination's pod.
    pub destination_name: Option<Strng>,
    /// The two ends.
    pub labels: Labels,
    /// Its place in a trace; read by exporters alone.
    pub trace: Option<Trace>,
}

/// Why a connection was refused or broke.
#[derive(Debug)]
pub struct Failure {
    /// The kind of failure.
    pub flags: ResponseFlags,
    /// The sentence for the access log.
    pub reason: String,
}

/// A connection under way. Dropped without [`Connection::finish`], it is reported as cut by a drain.
#[derive(Debug)]
pub struct Connection {
    metrics: Arc<Metrics>,
    labels: Arc<Labels>,
    series: Arc<Series>,
    start: Instant,
    source: SocketAddr,
    destination: SocketAddr,
    source_name: Option<Strng>,
    destination_name: Option<Strng>,
    hbone: Option<Box<str>>,
    received: AtomicU64,
    sent: AtomicU64,
    dry_run: OnceLock<Box<str>>,
    trace: Option<Box<Trace>>,
    finished: bool,
}

/// There is one for each connection, for as long as it lives.
const _: () = assert!(size_of::<Connection>() <= 208);

impl Connection {
    /// Counts the opening.
    pub fn open(metrics: &Arc<Metrics>, opening: Opening) -> Self {
        let Opening {
            start,
            source,
            source_name,
            destination,
            hbone,
            destination_name,
            labels,
            trace,
        } = opening;
        // The canonical service stands in for a pod that is not known.
        let source_name = source_name.or_else(|| labels.source.canonical_service.clone());
        let destination_name =
            destination_name.or_else(|| labels.destination.canonical_service.clone());
        let (labels, series) = metrics.traffic().series(labels);
        series.add_opened();
        Self {
            metrics: Arc::clone(metrics),
            labels,
            series,
            start,
            source,
            destination,
            source_name,
            destination_name,
            hbone,
            received: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            dry_run: OnceLock::new(),
            trace: trace.filter(|_| metrics.exporter().is_some()).map(Box::new),
            finished: false,
        }
    }

    /// Notes what policies in dry run would have done; the first note stays.
    pub fn note_dry_run(&self, note: String) {
        // Decided once; a second note would be the same.
        let _ = self.dry_run.set(note.into());
    }

    /// Counts bytes from the client to the server.
    pub fn add_received(&self, bytes: u64) {
        self.received.fetch_add(bytes, Ordering::Relaxed);
        self.series.add_received(bytes);
    }

    /// Counts bytes from the server to the client.
    pub fn add_sent(&self, bytes: u64) {
        self.sent.fetch_add(bytes, Ordering::Relaxed);
        self.series.add_sent(bytes);
    }

    /// Counts the end and writes the access log.
    pub fn finish(mut self, outcome: Result<(), Failure>) {
        self.close(outcome, |entry| entry.log());
    }

    /// Counts the end. `log` writes the access log in this crate's place.
    pub fn finish_with(mut self, outcome: Result<(), Failure>, log: impl FnOnce(&Entry<'_>)) {
        self.close(outcome, log);
    }

    fn close(&mut self, outcome: Result<(), Failure>, log: impl FnOnce(&Entry<'_>)) {
        self.finished = true;
        let (flags, reason) = match outcome {
            Ok(()) => (ResponseFlags::None, None),
            Err(failure) => (failure.flags, Some(failure.reason)),
        };
        self.series.add_closed(flags);
        if flags != ResponseFlags::None {
            self.series.add_failed(flags);
        }
        let entry = Entry {
            source: self.source,
            source_name: self.source_name.as_deref(),
            destination: self.destination,
            hbone: self.hbone.as_deref(),
            destination_name: self.destination_name.as_deref(),
            labels: &self.labels,
            received: self.received.load(Ordering::Relaxed),
            sent: self.sent.load(Ordering::Relaxed),
            duration: self.start.elapsed(),
            dry_run: self.dry_run.get().map(AsRef::as_ref),
            error: reason.as_deref(),
        };
        log(&entry);
        if let Some(exporter) = self.metrics.exporter() {
            exporter.report(entry.report(SystemTime::now(), self.trace.as_deref().copied()));
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if !self.finished {
            let failure = Failure {
                flags: ResponseFlags::ConnectionFailure,
                reason: "connection closed due to connection drain".to_owned(),
            };
            self.close(Err(failure), |entry| entry.log());
        }
    }
}
