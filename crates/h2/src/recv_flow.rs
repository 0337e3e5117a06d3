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
use crate::moment::Moment;
use crate::stream::Stream;

/// After so many samples that found the windows large enough, the path is sampled that much less often.
const MAX_BACKOFF: u8 = 4;

/// The account of what comes.
#[derive(Debug)]
pub(crate) struct RecvFlow {
    /// What the peer may still send on the connection.
    credit: u32,
    /// What came and nobody has consumed.
    held: u32,
    /// What it should have as credit.
    window: u32,
    /// Most of credit and held together.
    allowance: u32,
    /// Most of both that there will be, as far as is known now.
    most: u32,
    /// What all streams may hold if they are not consumed: their credit and what they hold.
    committed: u64,
    /// What a stream's window is to be, if there is room.
    target: u32,
    stream_first: u32,
    stream_most: u32,
    connection_most: u32,
    /// Bytes that came.
    came: u64,
    sample: Sample,
}

/// The least that is granted of a window at a time. Of one that has grown the peer keeps more than a round trip needs,
/// since it grew to at least 4/3 of that.
#[inline]
fn portion(window: u32, first: u32) -> u32 {
    window / if window > first { 4 } else { 2 }
}

/// The time between two samples, doubled as often as backoff says. Within a machine a round trip takes microseconds, and
/// a PING for each would be a flood.
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
    /// Whether an answer is awaited, and when the last PING was sent.
    asking: bool,
    asked: Moment,
    backoff: u8,
    /// [`RecvFlow::came`] at the last answer, and when that was.
    mark: (u64, Moment),
    /// Bytes in a second when the windows grew last.
    best: u64,
    /// The round trip, in microseconds, that `best` and the last trial are about.
    trip: u32,
    /// Boxed, since there seldom is one.
    trial: Option<Box<Trial>>,
}

/// Larger windows for a path that became slower, and what is again if they do not help.
#[derive(Debug)]
struct Trial {
    target: u32,
    window: u32,
    best: u64,
    /// Samples that may yet show that it helps: the first one is partly of the time before the peer knew of it.
    left: u8,
}

/// Whether one is more than half as much again as the other.
fn exceeds(one: u64, other: u64) -> bool {
    one > other.saturating_add(other / 2)
}

/// What a connection's windows are, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Credit {
    /// What the peer may send before it must wait for us.
    pub credit: u32,
    /// What came and was not consumed.
    pub held: u32,
    /// What the peer could make use of in all: an allowance of this much would not slow it down.
    pub wanted: u32,
    /// Most of both together, as it was set.
    pub allowance: u32,
    /// Bytes of DATA that came so far, with padding.
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

    /// A stream was opened with a first window.
    pub(crate) fn opened(&mut self) {
        self.committed += u64::from(self.stream_first);
    }

    /// A stream is no longer here: its caller consumes nothing more.
    pub(crate) fn removed(&mut self, stream: &mut Stream) {
        self.ended(stream);
        self.let_go(stream);
    }

    /// What came on a stream is nobody's.
    pub(crate) fn let_go(&mut self, stream: &mut Stream) {
        let held = std::mem::take(&mut stream.held);
        self.held -= held;
        self.committed -= u64::from(held);
    }

    /// So many bytes of DATA come on the connection; `false` if it may not send them. What is not passed on is
    /// [`RecvFlow::dropped`] next.
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

    /// Of what came nobody will see so many bytes, and no stream was charged for them.
    #[inline]
    pub(crate) fn dropped(&mut self, bytes: u32) {
        self.held -= bytes;
    }

    /// A stream's caller is done with so many bytes: what the peer gets on that stream for it, if it is time and it may
    /// still send. So many more streams may yet be opened.
    #[inline]
    pub(crate) fn consumed(
        &mut self,
        stream: &mut Stream,
        bytes: u32,
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
        let missing = aim.saturating_sub(has);
        if missing < portion(aim, self.stream_first) {
            return None;
        }
        stream.credit += missing;
        self.committed += u64::from(missing);
        Some(missing)
    }

    /// What there is for a stream that has so much, when all others hold what they may, those included that may yet be
    /// opened, and a working window is left. Of little, a half is for those to come, and a quarter is the working window.
    fn room(&self, has: u32, more_streams: u32) -> u32 {
        let others = self.committed - u64::from(has);
        let new = u64::from(self.stream_first) * u64::from(more_streams);
        let new = new.min(u64::from(self.most / 2));
        let working = self.window.min(self.stream_most).min(self.most / 4);
        let room = u64::from(self.most).saturating_sub(others + new + u64::from(working));
        u32::try_from(room).unwrap_or(u32::MAX)
    }

    /// Nothing more comes on this stream: what it had as credit is committed no longer.
    pub(crate) fn ended(&mut self, stream: &mut Stream) {
        self.committed -= u64::from(std::mem::take(&mut stream.credit));
    }

    /// What the peer gets on the connection, if it is time.
    #[inline]
    pub(crate) fn grant(&mut self) -> Option<u32> {
        let aim = self.window.min(self.allowance.saturating_sub(self.held));
        let missing = aim.saturating_sub(self.credit);
        let window = self.window.min(self.allowance);
        // Where little is left, crumbs would cost more than they carry: then it waits until nothing is left.
        if missing < portion(window, FLOOR) && (missing == 0 || self.credit > 0) {
            return None;
        }
        self.credit += missing;
        Some(missing)
    }

    /// True if the path should be sampled now: a PING whose answer is [`RecvFlow::sampled`].
    #[inline]
    pub(crate) fn wants_sample(&mut self, now: Moment) -> bool {
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

    /// A round trip is over; `false` if none was being measured.
    pub(crate) fn sampled(&mut self, now: Moment) -> bool {
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
            // Whatever comes faster now, it is not the trial's doing.
            if self.undo() {
                return true;
            }
        }
        let full = product >= u64::from(self.window / 3);
        self.adapt(rate, trip, full);
        true
    }

    /// Adapts the windows after a round trip. It was `full` if the peer sent as much as the windows allowed.
    fn adapt(&mut self, rate: u64, trip: u32, full: bool) {
        let sample = &mut self.sample;
        let longer = exceeds(trip.into(), sample.trip.into());
        // What comes faster over a queue that became longer, a trial's windows did not bring.
        let helps = exceeds(rate, sample.best) && !(longer && sample.trial.is_some());
        if full && helps {
            sample.trial = None;
            sample.best = rate;
        } else if let Some(trial) = &mut sample.trial {
            sample.backoff = (sample.backoff + 1).min(MAX_BACKOFF);
            trial.left -= 1;
            if trial.left == 0 {
                // A queue that the trial made longer is no longer path.
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
            // More than a window in a round trip came in part while the path was shorter.
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

    /// The windows are what they were before the trial; `false` if there is none.
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
