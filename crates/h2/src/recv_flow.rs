//! Receive windows: they grow with the data that is consumed and that the path carries.
//!
//! Unread data counts against the connection's window too (RFC 9113 §6.9). In a connection window of a fixed size, streams that
//! nobody reads would use up the whole window. Here the peer always has a working window *beyond* the data that is held, and
//! both together stay within the allowance.
//!
//! A stream's window grows beyond the first one only if the allowance has room for all streams' windows and a working window.
//! Streams that may still open are counted. So no set of stalled streams can stop another stream.
//!
//! Where a ledger grants little, that room is computed from what the ledger would grant. Windows then grow less, and room is
//! counted for as many first windows as fit into half of the grant.

use std::time::Duration;

use crate::config::{Config, FLOOR};
use crate::stream::Stream;
use crate::timestamp::Timestamp;

/// The highest [`Sample::backoff`]: the path is sampled at least once in 16 times the usual interval.
const MAX_BACKOFF: u8 = 4;

/// The receive windows of a connection and its streams. All numbers are bytes.
#[derive(Debug)]
pub(crate) struct RecvFlow {
    /// Bytes that the peer may still send on the connection.
    credit: u32,
    /// Bytes that came on all streams and that no caller has consumed.
    held: u32,
    /// The credit that the connection is brought up to. It grows with the path, up to `connection_most`.
    window: u32,
    /// The limit of `credit` and `held` together. A ledger sets it.
    allowance: u32,
    /// The limit that `allowance` may be raised to. A ledger sets it, and [`RecvFlow::room`] counts with it.
    most: u32,
    /// Bytes that all streams may hold if no caller consumes any: their credits and what they hold now.
    committed: u64,
    /// The window that a stream gets if there is room. It grows with the path, from `stream_first` up to `stream_most`.
    target: u32,
    /// The window of a new stream; see [`Config::stream_first`].
    stream_first: u32,
    /// The largest window of a stream; see [`Config::stream_most`].
    stream_most: u32,
    /// The largest window of the connection; see [`Config::connection_most`].
    connection_most: u32,
    /// Bytes of DATA that came since the connection began, padding included.
    came: u64,
    /// The measurement of the path.
    sample: Sample,
}

/// The smallest grant of a window: a half of a first window, or a quarter of one that has grown. A grown window is at least
/// 4/3 of what a round trip needs, so the peer does not run out of it before a grant arrives.
#[inline]
fn portion(window: u32, first: u32) -> u32 {
    window / if window > first { 4 } else { 2 }
}

/// The shortest time between two samples, before it is doubled `backoff` times. Within a machine a round trip takes
/// microseconds, and a PING for each would be a flood.
const PAUSE: Duration = Duration::from_millis(5);

/// A look at the path: a PING, the time until its answer, and what came since the last one.
///
/// What comes in a round trip is the bandwidth-delay product, unless the window is smaller: then it is the window. A larger
/// one helps for as long as the last one did, that is, while half as much again comes in a second; beyond that it would
/// only fill queues on the path.
///
/// A path that becomes longer carries less with the same windows, and so does one that others fill: what came in a second
/// before says nothing then. Which of the two it is shows a [`Trial`]: larger windows for a few samples, which stay only if
/// more came in a second while the round trip stayed as it was. There is one for each time the round trip became longer.
#[derive(Debug, Default)]
struct Sample {
    /// True while a PING of a sample has no answer.
    asking: bool,
    /// The time at which the last PING of a sample was sent.
    asked: Timestamp,
    /// The number of times that [`PAUSE`] is doubled, at most [`MAX_BACKOFF`] times. Each sample that changes nothing adds one.
    backoff: u8,
    /// [`RecvFlow::came`] at the last answer, and the time of that answer.
    mark: (u64, Timestamp),
    /// The rate, in bytes a second, at which the windows grew last.
    best: u64,
    /// The round trip, in microseconds, at which `best` was measured or the last trial began.
    trip: u32,
    /// The trial that is under way. It is boxed because most connections never have one.
    trial: Option<Box<Trial>>,
}

/// Larger windows for a path that became slower. The fields hold the values that come back if the windows do not help.
#[derive(Debug)]
struct Trial {
    /// [`RecvFlow::target`] before the trial.
    target: u32,
    /// [`RecvFlow::window`] before the trial.
    window: u32,
    /// [`Sample::best`] before the trial.
    best: u64,
    /// The number of samples after which the trial ends. The first of them began before the peer knew the larger windows.
    left: u8,
}

/// True if `one` is more than 3/2 of `other`.
fn exceeds(one: u64, other: u64) -> bool {
    one > other.saturating_add(other / 2)
}

/// The receive window of a connection, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Credit {
    /// Bytes that the peer may send before it must wait for a grant.
    pub credit: u32,
    /// Bytes that came and were not consumed.
    pub held: u32,
    /// The allowance that would not slow the peer down.
    pub wanted: u32,
    /// The limit of `credit` and `held` together, as [`Connection::set_allowance`](crate::Connection::set_allowance) set it.
    pub allowance: u32,
    /// Bytes of DATA that came so far, padding included.
    pub came: u64,
}

impl RecvFlow {
    pub(crate) fn new(config: &Config) -> Self {
        RecvFlow {
            credit: FLOOR,
            held: 0,
            window: config.connection_first,
            allowance: config.allowance,
            most: config.allowance,
            committed: 0,
            target: config.stream_first,
            stream_first: config.stream_first,
            stream_most: config.stream_most,
            connection_most: config.connection_most,
            came: 0,
            sample: Sample::default(),
        }
    }

    pub(crate) fn credit(&self) -> Credit {
        Credit {
            credit: self.credit,
            held: self.held,
            wanted: self.held.saturating_add(self.window),
            allowance: self.allowance,
            came: self.came,
        }
    }

    pub(crate) fn set_allowance(&mut self, bytes: u32) {
        self.allowance = bytes;
    }

    pub(crate) fn set_most(&mut self, bytes: u32) {
        self.most = bytes;
    }

    /// Counts a stream that was opened with a first window.
    pub(crate) fn opened(&mut self) {
        self.committed += u64::from(self.stream_first);
    }

    /// Takes a stream out of the account when it is removed. Its caller consumes nothing more.
    pub(crate) fn removed(&mut self, stream: &mut Stream) {
        self.ended(stream);
        self.let_go(stream);
    }

    /// Counts what a stream holds as consumed: its caller has let it go.
    pub(crate) fn let_go(&mut self, stream: &mut Stream) {
        let held = std::mem::take(&mut stream.held);
        self.held -= held;
        self.committed -= u64::from(held);
    }

    /// Counts a DATA frame of so many bytes; `false` if the peer had no credit for it. [`RecvFlow::dropped`] follows for bytes
    /// that no stream gets.
    #[inline]
    #[must_use]
    pub(crate) fn receive(&mut self, bytes: u32) -> bool {
        let Some(credit) = self.credit.checked_sub(bytes) else {
            return false;
        };
        self.credit = credit;
        self.held += bytes;
        self.came += u64::from(bytes);
        true
    }

    /// Counts so many bytes as consumed that no stream was charged for.
    #[inline]
    pub(crate) fn dropped(&mut self, bytes: u32) {
        self.held -= bytes;
    }

    /// Counts so many bytes of a stream as consumed. Returns the grant for the stream if one is due and the stream is `open`
    /// for the peer. `most` is the largest window that the stream may have beyond its first one. `more_streams` is the number of
    /// streams that may still be opened.
    #[inline]
    pub(crate) fn consumed(
        &mut self,
        stream: &mut Stream,
        (bytes, most): (u32, u32),
        open: bool,
        more_streams: u32,
    ) -> Option<u32> {
        let bytes = bytes.min(stream.held);
        stream.held -= bytes;
        self.held -= bytes;
        self.committed -= u64::from(bytes);
        if !open {
            return None;
        }
        let has = stream.credit + stream.held;
        let aim = match self.target > self.stream_first {
            true => {
                let room = self.room(has, more_streams);
                room.clamp(self.stream_first, self.target)
            }
            false => self.target,
        };
        let aim = aim.min(most.max(self.stream_first));
        let missing = aim.saturating_sub(has);
        if missing < portion(aim, self.stream_first) {
            return None;
        }
        stream.credit += missing;
        self.committed += u64::from(missing);
        Some(missing)
    }

    /// The room for a stream that has `has` bytes, if all other streams hold what they may and a working window is left.
    /// Streams that may still be opened count with their first windows, at most with a half of `most`. The working window is
    /// at most a quarter of `most`.
    fn room(&self, has: u32, more_streams: u32) -> u32 {
        let others = self.committed - u64::from(has);
        let new = u64::from(self.stream_first) * u64::from(more_streams);
        let new = new.min(u64::from(self.most / 2));
        let working = self.window.min(self.stream_most).min(self.most / 4);
        let room = u64::from(self.most).saturating_sub(others + new + u64::from(working));
        u32::try_from(room).unwrap_or(u32::MAX)
    }

    /// Takes back the credit of a stream that the peer has ended.
    pub(crate) fn ended(&mut self, stream: &mut Stream) {
        self.committed -= u64::from(std::mem::take(&mut stream.credit));
    }

    /// The grant for the connection, if one is due.
    #[inline]
    pub(crate) fn grant(&mut self) -> Option<u32> {
        let aim = self.window.min(self.allowance.saturating_sub(self.held));
        let missing = aim.saturating_sub(self.credit);
        let window = self.window.min(self.allowance);
        // A small grant costs more than it carries. Where little is left, the grant waits until the credit is used up.
        if missing < portion(window, FLOOR) && (missing == 0 || self.credit > 0) {
            return None;
        }
        self.credit += missing;
        Some(missing)
    }

    /// True if the path should be sampled now: a PING whose answer is [`RecvFlow::sampled`].
    #[inline]
    pub(crate) fn wants_sample(&mut self, now: Timestamp) -> bool {
        let sample = &mut self.sample;
        if sample.asking
            || self.came - sample.mark.0 < u64::from(self.window / 2) << sample.backoff
            || self.target >= self.stream_most
                && self.window >= self.connection_most
                && sample.trial.is_none()
            || sample.backoff > 0 && now.since(sample.mark.1) < PAUSE * (1 << sample.backoff)
        {
            return false;
        }
        sample.asking = true;
        sample.asked = now;
        true
    }

    /// Ends the measurement of a round trip; `false` if none was under way.
    pub(crate) fn sampled(&mut self, now: Timestamp) -> bool {
        let sample = &mut self.sample;
        if !std::mem::take(&mut sample.asking) {
            return false;
        }
        let (before, since) = std::mem::replace(&mut sample.mark, (self.came, now));
        let micros = (now.since(since).as_micros() as u64).max(1);
        let rate = (self.came - before).saturating_mul(1_000_000) / micros;
        let trip = u32::try_from(now.since(sample.asked).as_micros()).unwrap_or(u32::MAX);
        let product = rate.saturating_mul(u64::from(trip)) / 1_000_000;
        if exceeds(sample.trip.into(), trip.into()) {
            sample.trip = trip;
            // A shorter path explains a higher rate, so the trial proves nothing.
            if self.undo() {
                return true;
            }
        }
        let full = product >= u64::from(self.window / 3);
        self.adapt(rate, trip, full);
        true
    }

    /// Adapts the windows after a round trip. `full` says that the peer sent as much as the windows allowed.
    fn adapt(&mut self, rate: u64, trip: u32, full: bool) {
        let sample = &mut self.sample;
        let longer = exceeds(trip.into(), sample.trip.into());
        // A higher rate over a longer queue is no effect of a trial's windows.
        let helps = exceeds(rate, sample.best) && !(longer && sample.trial.is_some());
        if full && helps {
            sample.trial = None;
            sample.best = rate;
        } else if let Some(trial) = &mut sample.trial {
            sample.backoff = (sample.backoff + 1).min(MAX_BACKOFF);
            trial.left -= 1;
            if trial.left == 0 {
                // The trial may have made a queue longer, which the round trip then contains.
                sample.trip = sample.trip.max(trip);
                self.undo();
            }
            return;
        } else if full && longer && exceeds(sample.best, rate) {
            sample.trial = Some(Box::new(Trial {
                target: self.target,
                window: self.window,
                best: sample.best,
                left: 3,
            }));
            // A rate above one window for each round trip was partly measured while the path was shorter.
            sample.best = rate.min(u64::from(self.window) * 1_000_000 / u64::from(trip.max(1)));
        } else {
            sample.backoff = (sample.backoff + 1).min(MAX_BACKOFF);
            return;
        }
        sample.trip = trip;
        sample.backoff = 0;
        let doubled = |window: u32, most: u32| window.saturating_mul(2).min(most);
        self.target = doubled(self.target, self.stream_most);
        self.window = doubled(self.window, self.connection_most);
    }

    /// Restores the windows from before the trial; `false` if there is none.
    fn undo(&mut self) -> bool {
        let Some(trial) = self.sample.trial.take() else {
            return false;
        };
        self.target = trial.target;
        self.window = trial.window;
        self.sample.best = trial.best;
        true
    }
}

#[cfg(test)]
mod tests;
