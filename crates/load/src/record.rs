//! What a run remembers: histograms of the times of its requests and counts of their ends. The
//! warm-up has histograms and counts of its own, so that cold caches and connections do not colour
//! the percentiles.

use std::collections::BTreeMap;
use std::fmt;

use hdrhistogram::Histogram;

/// The longest time that is told apart from longer ones, in nanoseconds: one hour.
const LONGEST: u64 = 3_600_000_000_000;

/// A histogram of times in nanoseconds, three significant digits.
#[derive(Debug, Clone)]
pub struct Times(Histogram<u64>);

impl Times {
    /// An empty histogram.
    pub fn new() -> Times {
        Times(
            Histogram::new_with_bounds(1, LONGEST, 3)
                .expect("one nanosecond to one hour in three digits is valid"),
        )
    }

    /// Adds one time.
    pub fn add(&mut self, nanoseconds: u64) {
        self.0.saturating_record(nanoseconds);
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.0.reset();
    }

    /// The histogram itself.
    pub fn histogram(&self) -> &Histogram<u64> {
        &self.0
    }
}

/// How a request failed.
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
    /// What came back was not HTTP.
    Malformed,
    /// The response's status was 400 or more.
    Status(u16),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Refused => f.write_str("refused"),
            Failure::Connect => f.write_str("connect"),
            Failure::Reset => f.write_str("reset"),
            Failure::Closed => f.write_str("closed"),
            Failure::Timeout => f.write_str("timeout"),
            Failure::Malformed => f.write_str("malformed"),
            Failure::Status(status) => write!(f, "status_{status}"),
        }
    }
}

/// The instants of one request, in nanoseconds since the run began.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// When it was meant to start.
    pub intended: u64,
    /// When its connection had become free for it, if that was after `intended`.
    pub possible: u64,
    /// When it was sent or, on a new connection, when connecting began.
    pub begun: u64,
    /// When its response was complete, or it failed.
    pub done: u64,
}

/// Everything that a run remembers.
#[derive(Debug)]
pub struct Record {
    warmup_end: u64,
    end: u64,
    /// Intended start to end of the response: what a user of the service would see.
    pub response: Times,
    /// Actual start to end of the response: what the service did once it was asked.
    pub service: Times,
    /// From when a request could have been sent to when it was: the generator's own fault.
    pub lateness: Times,
    /// Time to set up a connection.
    pub connect: Times,
    /// Intended start to failure.
    pub failed: Times,
    /// Like `response`, for the requests of the warm-up.
    pub warmup: Times,
    /// Like `response`, since the last time it was cleared.
    pub recent: Times,
    /// Answers whose status was below 400.
    pub ok: u64,
    /// Answers below 400 that came within the measured time, also to requests of the warm-up.
    pub ok_in_time: u64,
    /// Failures by kind.
    pub failures: BTreeMap<Failure, u64>,
    /// Failures during the warm-up.
    pub warmup_failures: BTreeMap<Failure, u64>,
    /// Answers by status.
    pub statuses: BTreeMap<u16, u64>,
    /// Content received, in bytes.
    pub content: u64,
    /// Connections opened, those before the start among them.
    pub connections: u64,
}

impl Record {
    /// An empty record of a run that warms up until `warmup_end` and measures until `end`.
    pub fn new(warmup_end: u64, end: u64) -> Record {
        Record {
            warmup_end,
            end,
            response: Times::new(),
            service: Times::new(),
            lateness: Times::new(),
            connect: Times::new(),
            failed: Times::new(),
            warmup: Times::new(),
            recent: Times::new(),
            ok: 0,
            ok_in_time: 0,
            failures: BTreeMap::new(),
            warmup_failures: BTreeMap::new(),
            statuses: BTreeMap::new(),
            content: 0,
            connections: 0,
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
        self.recent.add(response);
        self.ok_in_time += u64::from((self.warmup_end..self.end).contains(&timing.done));
        if timing.intended < self.warmup_end {
            return self.warmup.add(response);
        }
        self.response.add(response);
        self.service.add(timing.done - timing.begun);
        self.lateness.add(timing.begun - timing.possible);
        self.ok += 1;
        self.content += content;
        *self.statuses.entry(status).or_default() += 1;
    }

    /// A request failed.
    pub fn failed(&mut self, timing: Timing, failure: Failure) {
        if timing.intended < self.warmup_end {
            *self.warmup_failures.entry(failure).or_default() += 1;
        } else {
            self.failed.add(timing.done - timing.intended);
            *self.failures.entry(failure).or_default() += 1;
        }
    }

    /// How many measured requests failed.
    pub fn failed_count(&self) -> u64 {
        self.failures.values().sum()
    }

    /// How many requests failed, those of the warm-up among them.
    pub fn all_failed_count(&self) -> u64 {
        self.failed_count() + self.warmup_failures.values().sum::<u64>()
    }

    /// How many requests were answered, those of the warm-up among them.
    pub fn all_ok_count(&self) -> u64 {
        self.ok + self.warmup.histogram().len()
    }

    /// Ends the measured time early.
    pub fn cut(&mut self, now: u64) {
        self.end = self.end.min(now);
    }

    /// How long was measured, in nanoseconds.
    pub fn measured(&self) -> u64 {
        self.end.saturating_sub(self.warmup_end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn waiting_for_a_busy_connection_counts_as_response_time_and_not_as_lateness() {
        let mut record = Record::new(0, 100 * MS);
        record.answered(
            Timing {
                intended: 10 * MS,
                possible: 50 * MS,
                begun: 51 * MS,
                done: 56 * MS,
            },
            200,
            0,
        );
        let close = |times: &Times, expected: u64| {
            times.histogram().max().abs_diff(expected * MS) < MS / 10
        };
        assert!(close(&record.response, 46));
        assert!(close(&record.service, 5));
        assert!(close(&record.lateness, 1));
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
        record.answered(at(9), 200, 1);
        record.failed(at(9), Failure::Timeout);
        record.answered(at(10), 200, 1);
        record.answered(at(90), 200, 1);
        record.answered(at(11), 503, 1);
        assert_eq!(record.warmup.histogram().len(), 1);
        assert_eq!((record.ok, record.ok_in_time, record.content), (2, 2, 2));
        assert_eq!(record.failures, BTreeMap::from([(Failure::Status(503), 1)]));
        assert_eq!(
            record.warmup_failures,
            BTreeMap::from([(Failure::Timeout, 1)])
        );
        assert_eq!(record.statuses, BTreeMap::from([(200, 2), (503, 1)]));
        assert_eq!(record.measured(), 90 * MS);
    }
}
