//! Record of a run: histograms of the times of its requests, and counts of their outcomes. The warm-up has histograms and
//! counts of its own, so that cold caches and connections do not distort the percentiles.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::{Index, IndexMut};

use hdrhistogram::Histogram;
use serde::Serialize;

/// The longest time that is told apart from longer ones, in nanoseconds: one hour.
const LONGEST: u64 = 3_600_000_000_000;

/// A histogram of times in nanoseconds, three significant digits.
pub type Times = Histogram<u64>;

/// An empty histogram. All of them have the same bounds, so that they can be added.
pub fn no_times() -> Times {
    Histogram::new_with_bounds(1, LONGEST, 3).expect("these are bounds and digits of a histogram")
}

/// A histogram of these times.
#[cfg(test)]
pub fn times_of(nanoseconds: impl IntoIterator<Item = u64>) -> Times {
    let mut times = no_times();
    nanoseconds
        .into_iter()
        .for_each(|time| times.saturating_record(time));
    times
}

/// Adds all times of another histogram.
pub fn merge(mine: &mut Times, others: &Times) {
    mine.add(others)
        .expect("all histograms have the same bounds");
}

/// A kind of time that a run measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Intended start to end of the response: what a user of the service would see.
    Response,
    /// Actual start to end of the response: what the service did once it was asked.
    Service,
    /// From when a request could have been sent to when it was: the generator's own fault.
    Lateness,
    /// Time to set up a connection that was begun in the measured time, TLS among it.
    Connect,
    /// The part of `Connect` that TLS took.
    Handshake,
    /// Like `Connect`, for connections that were begun in the warm-up or before it.
    WarmupConnect,
    /// The part of `WarmupConnect` that TLS took.
    WarmupHandshake,
    /// Intended start to failure.
    Failed,
    /// Like `Response`, for the requests of the warm-up.
    Warmup,
}

impl Kind {
    /// Every kind, its name in reports for programs, and that in reports for people.
    pub const ALL: [(Kind, &str, &str); 9] = [
        (Kind::Response, "response", "response time"),
        (Kind::Service, "service", "service time"),
        (Kind::Lateness, "lateness", "generator's lateness"),
        (Kind::Connect, "connect", "connection set-up"),
        (Kind::Handshake, "handshake", "of which TLS"),
        (
            Kind::WarmupConnect,
            "warmup_connect",
            "set-up in the warm-up",
        ),
        (Kind::WarmupHandshake, "warmup_handshake", "of which TLS"),
        (Kind::Failed, "failed", "failed requests"),
        (Kind::Warmup, "warmup", "warm-up"),
    ];
}

/// Something for each kind of time.
#[derive(Debug, Clone, Default)]
pub struct ByKind<T>([T; 9]);

impl<T> ByKind<T> {
    /// Makes one for each kind.
    pub fn new(mut make: impl FnMut(Kind) -> T) -> ByKind<T> {
        ByKind(Kind::ALL.map(|(kind, ..)| make(kind)))
    }

    /// All of them, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.iter_mut()
    }
}

impl<T> Index<Kind> for ByKind<T> {
    type Output = T;

    fn index(&self, kind: Kind) -> &T {
        &self.0[kind as usize]
    }
}

impl<T> IndexMut<Kind> for ByKind<T> {
    fn index_mut(&mut self, kind: Kind) -> &mut T {
        &mut self.0[kind as usize]
    }
}

/// The kind of a request's failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Failure {
    /// Nothing listens at the target, or something refuses.
    Refused,
    /// No route to the target, or no local port or descriptor left.
    Connect,
    /// The connection was reset.
    Reset,
    /// The connection ended before the response did.
    Closed,
    /// The response took longer than the limit.
    Timeout,
    /// The answer was not what the protocol allows.
    Malformed,
    /// TLS could not be set up, or broke: a certificate, a name, a protocol that was not agreed on.
    Tls,
    /// The server gave the request up: a stream reset, or a connection that it goes away from.
    Refusal,
    /// The call ended with this status of gRPC, which is not OK.
    Grpc(u32),
    /// The response's status was 400 or more.
    Status(u16),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Grpc(status) => write!(f, "grpc_{status}"),
            Failure::Status(status) => write!(f, "status_{status}"),
            other => f.write_str(&format!("{other:?}").to_lowercase()),
        }
    }
}

/// The instants of one request, in nanoseconds since the run began.
#[derive(Debug, Default, Clone, Copy)]
pub struct Timing {
    /// The instant at which it was meant to start.
    pub intended: u64,
    /// The instant at which its connection had become free for it, if that was after `intended`.
    pub possible: u64,
    /// The instant at which it was sent or, on a new connection, connecting began.
    pub begun: u64,
    /// The instant at which its response was complete, or it failed.
    pub done: u64,
}

/// Requests of the measured time by outcome.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Counts {
    /// Meant to start.
    pub intended: u64,
    /// Answered with a status below 400.
    pub ok: u64,
    /// Failed.
    pub failed: u64,
    /// Meant to start, but the run ended before their connection was free.
    pub unsent: u64,
    /// Sent, but the run was interrupted before they were answered.
    pub unanswered: u64,
    /// Answered during the warm-up.
    pub warmup_ok: u64,
    /// Connections opened in the whole run.
    pub connections_opened: u64,
    /// Content received, in bytes.
    pub content_bytes: u64,
}

/// Everything that a run remembers.
#[derive(Debug)]
pub struct Record {
    warmup_end: u64,
    end: u64,
    /// The instant at which the last measured request ended.
    last: u64,
    /// The times of each kind.
    pub times: ByKind<Times>,
    /// Response times since the last time it was cleared.
    pub recent: Times,
    /// Requests by outcome. `intended` is their sum, which the report takes.
    pub counts: Counts,
    /// Answers below 400 that came within the measured time, also to requests of the warm-up.
    pub ok_in_time: u64,
    /// Failures by kind.
    pub failures: BTreeMap<Failure, u64>,
    /// The detail of the first failure of each kind, where there was more to say than its kind.
    pub details: BTreeMap<Failure, String>,
    /// Failures during the warm-up.
    pub warmup_failures: BTreeMap<Failure, u64>,
    /// Answers by status.
    pub statuses: BTreeMap<u16, u64>,
    /// The time in which the threads could have run and were not let, in nanoseconds.
    pub waited: u64,
}

impl Record {
    /// An empty record of a run that warms up until `warmup_end` and measures until `end`.
    pub fn new(warmup_end: u64, end: u64) -> Record {
        Record {
            warmup_end,
            end,
            last: 0,
            times: ByKind::new(|_| no_times()),
            recent: no_times(),
            counts: Counts::default(),
            ok_in_time: 0,
            failures: BTreeMap::new(),
            details: BTreeMap::new(),
            warmup_failures: BTreeMap::new(),
            statuses: BTreeMap::new(),
            waited: 0,
        }
    }

    /// A response arrived.
    pub fn answered(&mut self, timing: Timing, status: u16, content: u64) {
        if status >= 400 {
            if timing.intended >= self.warmup_end {
                *self.statuses.entry(status).or_default() += 1;
            }
            return self.failed(timing, Failure::Status(status));
        }
        let response = timing.done - timing.intended;
        self.recent.saturating_record(response);
        self.ok_in_time += u64::from((self.warmup_end..self.end).contains(&timing.done));
        if timing.intended < self.warmup_end {
            self.counts.warmup_ok += 1;
            return self.times[Kind::Warmup].saturating_record(response);
        }
        self.last = self.last.max(timing.done);
        self.times[Kind::Response].saturating_record(response);
        self.times[Kind::Service].saturating_record(timing.done - timing.begun);
        self.times[Kind::Lateness].saturating_record(timing.begun - timing.possible);
        self.counts.ok += 1;
        self.counts.content_bytes += content;
        *self.statuses.entry(status).or_default() += 1;
    }

    /// A request failed.
    pub fn failed(&mut self, timing: Timing, failure: Failure) {
        if timing.intended < self.warmup_end {
            *self.warmup_failures.entry(failure).or_default() += 1;
        } else {
            self.counts.failed += 1;
            self.last = self.last.max(timing.done);
            self.times[Kind::Failed].saturating_record(timing.done - timing.intended);
            *self.failures.entry(failure).or_default() += 1;
        }
    }

    /// A connection that was begun at an instant was set up; the part that TLS took, if it is spoken.
    pub fn connected(&mut self, begun: u64, total: u64, handshake: Option<u64>) {
        self.counts.connections_opened += 1;
        let (connect, handshakes) = if begun < self.warmup_end {
            (Kind::WarmupConnect, Kind::WarmupHandshake)
        } else {
            (Kind::Connect, Kind::Handshake)
        };
        self.times[connect].saturating_record(total);
        if let Some(handshake) = handshake {
            self.times[handshakes].saturating_record(handshake);
        }
    }

    /// Keeps the detail of a failure, if it is the first of its kind.
    pub fn explain(&mut self, failure: Failure, detail: impl FnOnce() -> String) {
        self.details.entry(failure).or_insert_with(detail);
    }

    /// Adds what another thread remembers of the same run.
    pub fn merge(&mut self, other: &Record) {
        for (mine, others) in self.times.iter_mut().zip(&other.times.0) {
            merge(mine, others);
        }
        merge(&mut self.recent, &other.recent);
        let (counts, others) = (&mut self.counts, &other.counts);
        counts.ok += others.ok;
        counts.failed += others.failed;
        counts.unsent += others.unsent;
        counts.unanswered += others.unanswered;
        counts.warmup_ok += others.warmup_ok;
        counts.connections_opened += others.connections_opened;
        counts.content_bytes += others.content_bytes;
        self.ok_in_time += other.ok_in_time;
        self.waited += other.waited;
        sum_up(&mut self.failures, &other.failures);
        sum_up(&mut self.warmup_failures, &other.warmup_failures);
        sum_up(&mut self.statuses, &other.statuses);
        for (failure, detail) in &other.details {
            self.explain(*failure, || detail.clone());
        }
        // The threads begin together. A signal or the last of a number of requests ends each at its
        // own instant, and the run with the last of them.
        self.end = self.end.max(other.end);
        self.last = self.last.max(other.last);
    }

    /// The number of requests that failed, those of the warm-up among them.
    pub fn all_failed_count(&self) -> u64 {
        self.counts.failed + self.warmup_failures.values().sum::<u64>()
    }

    /// The number of requests that were answered, those of the warm-up among them.
    pub fn all_ok_count(&self) -> u64 {
        self.counts.ok + self.counts.warmup_ok
    }

    /// Ends the measured time early.
    pub fn cut(&mut self, now: u64) {
        self.end = self.end.min(now);
    }

    /// The measured time, in nanoseconds.
    pub fn measured(&self) -> u64 {
        self.end.saturating_sub(self.warmup_end)
    }

    /// The time until every measured request had ended, in nanoseconds: the measured time and, if
    /// answers came after it, the time until the last.
    pub fn ended(&self) -> u64 {
        self.end.max(self.last).saturating_sub(self.warmup_end)
    }
}

fn sum_up<K: Ord + Copy>(mine: &mut BTreeMap<K, u64>, others: &BTreeMap<K, u64>) {
    for (key, count) in others {
        *mine.entry(*key).or_default() += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn waiting_for_a_busy_connection_counts_as_response_time_and_not_as_lateness() {
        let mut record = Record::new(0, 100 * MS);
        let timing = Timing {
            intended: 10 * MS,
            possible: 50 * MS,
            begun: 51 * MS,
            done: 56 * MS,
        };
        record.answered(timing, 200, 0);
        for (kind, expected) in [
            (Kind::Response, 46),
            (Kind::Service, 5),
            (Kind::Lateness, 1),
        ] {
            let longest = record.times[kind].max();
            assert!(longest.abs_diff(expected * MS) < MS / 10, "{kind:?}");
        }
    }

    #[test]
    fn the_warm_up_stays_out_of_the_percentiles() {
        let mut record = Record::new(10 * MS, 100 * MS);
        let at = |ms: u64| Timing {
            intended: ms * MS,
            possible: ms * MS,
            begun: ms * MS,
            done: (ms + 20) * MS,
        };
        for begun in [0, 9, 10] {
            record.connected(begun * MS, 2 * MS, Some(MS));
        }
        let counts = Kind::ALL.map(|(kind, ..)| record.times[kind].len());
        assert_eq!(counts[3..7], [1, 1, 2, 2]);
        record.answered(at(9), 200, 1);
        record.failed(at(9), Failure::Timeout);
        record.answered(at(10), 200, 1);
        record.answered(at(90), 200, 1);
        record.answered(at(11), 503, 1);
        assert_eq!(record.times[Kind::Warmup].len(), 1);
        let counts = &record.counts;
        assert_eq!((counts.ok, counts.failed, counts.warmup_ok), (2, 1, 1));
        assert_eq!((counts.connections_opened, counts.content_bytes), (3, 2));
        assert_eq!(record.ok_in_time, 2);
        assert_eq!(record.failures, BTreeMap::from([(Failure::Status(503), 1)]));
        let before = BTreeMap::from([(Failure::Timeout, 1)]);
        assert_eq!(record.warmup_failures, before);
        assert_eq!(record.statuses, BTreeMap::from([(200, 2), (503, 1)]));
        assert_eq!(record.measured(), 90 * MS);
        assert_eq!(record.ended(), 100 * MS, "an answer at 110 ms was the last");
    }
}
