//! Cost of one run of a task: the time that passed or, if the kernel took the thread away meanwhile, the time that the thread
//! really ran. A group does not pay for the machine's other work.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Where the time is read. Both clocks count from a moment of their own and never go back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clocks {
    /// The time that passes: some 20 ns to read.
    pub(crate) wall: fn() -> Duration,
    /// The time for which this thread ran: a system call, some 200 ns.
    pub(crate) thread: fn() -> Duration,
}

impl Default for Clocks {
    fn default() -> Self {
        Self {
            wall: || read(ClockId::Monotonic),
            thread: || read(ClockId::ThreadCPUTime),
        }
    }
}

fn read(clock: ClockId) -> Duration {
    Duration::try_from(clock_gettime(clock)).unwrap_or_default()
}

/// The time of one slice, run by run.
#[derive(Debug)]
pub(crate) struct Slice {
    clocks: Clocks,
    /// A run that takes longer is checked against the thread's own clock.
    long: Duration,
    began: Duration,
    now: Duration,
    /// What the thread's clock said when it was last read; `None` if it was not.
    thread: Option<Duration>,
    /// What was charged since then.
    charged: Duration,
}

impl Slice {
    /// A slice that begins now. Only where groups compete, on a thread that is `busy`, do runs longer than `long` have
    /// to be looked at twice: one reading of the thread's clock for the whole slice, and one for each such run.
    pub(crate) fn begin(clocks: Clocks, long: Duration, busy: bool) -> Self {
        let began = (clocks.wall)();
        Self {
            clocks,
            long,
            began,
            now: began,
            thread: busy.then(clocks.thread),
            charged: Duration::ZERO,
        }
    }

    /// The end of the last run.
    pub(crate) fn now(&self) -> Duration {
        self.now
    }

    /// The time since the beginning.
    pub(crate) fn length(&self) -> Duration {
        self.now.saturating_sub(self.began)
    }

    /// What the run that has just ended cost.
    pub(crate) fn spent(&mut self) -> Duration {
        let then = (self.clocks.wall)();
        let mut spent = then.saturating_sub(self.now);
        self.now = then;
        if spent > self.long
            && let Some(before) = self.thread
        {
            let thread = (self.clocks.thread)();
            let ran = thread.saturating_sub(before);
            spent = spent.min(ran.saturating_sub(self.charged));
            self.thread = Some(thread);
            self.charged = Duration::ZERO;
        } else {
            self.charged += spent;
        }
        spent
    }
}

#[cfg(test)]
mod tests {
    use std::thread::sleep;

    use super::*;

    const LONG: Duration = Duration::from_micros(200);
    const AWAY: Duration = Duration::from_millis(20);

    #[test]
    fn a_thread_that_was_away_is_not_charged_for_it() {
        let mut slice = Slice::begin(Clocks::default(), LONG, true);
        slice.spent();
        sleep(AWAY);
        let spent = slice.spent();
        assert!(spent < AWAY / 2, "{spent:?}");
        assert!(slice.length() >= AWAY, "{:?}", slice.length());
    }

    #[test]
    fn work_is_charged_as_long_as_it_takes() {
        let clock = Clocks::default().thread;
        let mut since = clock();
        let mut slice = Slice::begin(Clocks::default(), LONG, true);
        for _ in 0..3 {
            let before = clock();
            while clock() - before < AWAY {}
            let until = clock();
            let spent = slice.spent();
            // A machine that is a guest itself may count more than the loop waited for.
            let most = clock() - since;
            assert!((AWAY..=most).contains(&spent), "{spent:?} of {most:?}");
            since = until;
        }
    }

    #[test]
    fn who_has_no_rival_costs_no_look_at_the_threads_clock() {
        let clocks = Clocks {
            thread: || panic!("it was read"),
            ..Clocks::default()
        };
        let mut slice = Slice::begin(clocks, LONG, false);
        sleep(AWAY);
        assert!(slice.spent() >= AWAY);
    }
}
