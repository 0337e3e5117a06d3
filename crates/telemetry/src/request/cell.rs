//! The counters of one label set, with a row for each outcome in a list that only grows: readers take no lock.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::histogram::{Histogram, Observed};
use super::outcome::{GrpcStatus, Outcome, Protocol, RequestFlags};
use crate::bounded::Counted;

/// Outcomes of one label set that have a row; further ones are counted by the class of their code, without flags or status.
const MOST_OUTCOMES: usize = 64;

/// A request that has ended.
#[derive(Clone, Copy, Debug)]
pub struct Finished {
    /// Its protocol.
    pub protocol: Protocol,
    /// The code that the client got; 0: none.
    pub code: u16,
    /// The status of a gRPC call that has one.
    pub grpc_status: Option<GrpcStatus>,
    /// The proxy's part in the end.
    pub flags: RequestFlags,
    /// The time from the request's first byte to the response's last one.
    pub duration: Duration,
    /// Bytes of the request: headers, body, trailers.
    pub request_bytes: u64,
    /// Bytes of the response.
    pub response_bytes: u64,
    /// Messages of a gRPC request; 0 for any other.
    pub request_messages: u64,
    /// Messages of a gRPC response; 0 for any other.
    pub response_messages: u64,
}

/// The counters of one outcome.
#[derive(Debug, Default)]
struct Counts {
    duration: Histogram,
    request_bytes: Histogram,
    response_bytes: Histogram,
    request_messages: AtomicU64,
    response_messages: AtomicU64,
}

#[derive(Debug)]
struct Row {
    outcome: Outcome,
    counts: Counts,
    next: OnceLock<Box<Row>>,
}

/// The counters of one label set. While somebody holds it, it does not expire.
#[derive(Debug, Default)]
pub struct Cell {
    first: OnceLock<Box<Row>>,
    finished: AtomicU64,
}

impl Counted for Cell {
    fn activity(&self) -> u64 {
        self.finished.load(Ordering::Relaxed)
    }
}

impl Cell {
    /// Counts a request. Only the first one with an outcome allocates.
    pub fn finish(&self, request: &Finished) {
        let outcome = Outcome::new(
            request.protocol,
            request.code,
            request.grpc_status,
            request.flags,
        );
        let counts = self.counts(outcome);
        counts
            .duration
            .observe(u64::try_from(request.duration.as_micros()).unwrap_or(u64::MAX));
        counts
            .request_bytes
            .observe(request.request_bytes.saturating_mul(1000));
        counts
            .response_bytes
            .observe(request.response_bytes.saturating_mul(1000));
        if request.protocol == Protocol::Grpc {
            counts
                .request_messages
                .fetch_add(request.request_messages, Ordering::Relaxed);
            counts
                .response_messages
                .fetch_add(request.response_messages, Ordering::Relaxed);
        }
        self.finished.fetch_add(1, Ordering::Relaxed);
    }

    /// The row of an outcome, made if need be. The bound leaves a few rows for folded outcomes.
    fn counts(&self, outcome: Outcome) -> &Counts {
        let mut wanted = outcome;
        let mut link = &self.first;
        let mut rows = 0;
        loop {
            if rows == MOST_OUTCOMES && wanted != outcome.folded() {
                // From the start again: a folded row may be among the first.
                (wanted, link, rows) = (outcome.folded(), &self.first, 0);
            }
            let row = link.get_or_init(|| {
                Box::new(Row {
                    outcome: wanted,
                    counts: Counts::default(),
                    next: OnceLock::new(),
                })
            });
            if row.outcome == wanted {
                return &row.counts;
            }
            link = &row.next;
            rows += 1;
        }
    }

    /// What is counted under each outcome.
    pub(super) fn read(&self) -> impl Iterator<Item = (Outcome, Totals)> {
        let mut link = &self.first;
        std::iter::from_fn(move || {
            let row = link.get()?;
            link = &row.next;
            Some((row.outcome, Totals::read(&row.counts)))
        })
    }
}

/// What is counted under one outcome or more.
#[derive(Clone, Debug)]
pub(super) struct Totals {
    pub(super) duration: Observed,
    pub(super) request_bytes: Observed,
    pub(super) response_bytes: Observed,
    pub(super) request_messages: u64,
    pub(super) response_messages: u64,
}

impl Totals {
    fn read(counts: &Counts) -> Self {
        Self {
            duration: counts.duration.read(),
            request_bytes: counts.request_bytes.read(),
            response_bytes: counts.response_bytes.read(),
            request_messages: counts.request_messages.load(Ordering::Relaxed),
            response_messages: counts.response_messages.load(Ordering::Relaxed),
        }
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.duration.merge(&other.duration);
        self.request_bytes.merge(&other.request_bytes);
        self.response_bytes.merge(&other.response_bytes);
        self.request_messages += other.request_messages;
        self.response_messages += other.response_messages;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn http(code: u16) -> Finished {
        Finished {
            protocol: Protocol::Http,
            code,
            grpc_status: None,
            flags: RequestFlags::None,
            duration: Duration::from_millis(1),
            request_bytes: 1,
            response_bytes: 1,
            request_messages: 0,
            response_messages: 0,
        }
    }

    #[test]
    fn ever_new_outcomes_are_counted_in_a_bounded_number_of_rows() {
        let cell = Cell::default();
        for code in 100..1000 {
            cell.finish(&http(code));
        }
        cell.finish(&http(101));
        let rows: Vec<_> = cell.read().collect();
        assert!(rows.len() <= MOST_OUTCOMES + 5, "{}", rows.len());
        let all: u64 = rows.iter().map(|(_, totals)| totals.duration.count()).sum();
        assert_eq!(all, 901);
        let of = |code: u32| rows.iter().find(|(outcome, _)| outcome.code() == code);
        assert_eq!(of(101).expect("an early code").1.duration.count(), 2);
        assert_eq!(
            of(500).expect("the class of late ones").1.duration.count(),
            500
        );
    }

    #[test]
    fn workers_that_meet_at_a_new_outcome_share_its_row() {
        let cell = Cell::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (200..240).for_each(|code| cell.finish(&http(code))));
            }
        });
        let rows: Vec<_> = cell.read().collect();
        assert_eq!(rows.len(), 40);
        assert!(rows.iter().all(|(_, totals)| totals.duration.count() == 4));
    }
}
