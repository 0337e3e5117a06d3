//! Timer of delayed answers. A timerfd knows the time to the nanosecond, where the runtime's timers round to milliseconds.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use lateen_os::Readiness;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

/// The sleeping tasks of the service, and the timer that wakes them.
#[derive(Debug)]
pub struct Alarms {
    timer: OwnedFd,
    readiness: Readiness,
    /// The instant for which the timer is set.
    armed: Cell<Option<Instant>>,
    sleepers: RefCell<BTreeMap<(Instant, u64), Waker>>,
    next: Cell<u64>,
}

impl Alarms {
    /// A timer without sleepers. It needs a runtime of tokio.
    ///
    /// # Errors
    /// The kernel gives no timer.
    pub fn new() -> io::Result<Alarms> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        Ok(Alarms {
            readiness: Readiness::new(timer.try_clone()?)?,
            timer,
            armed: Cell::default(),
            sleepers: RefCell::default(),
            next: Cell::default(),
        })
    }

    /// Ends when so much time has passed, while [`Alarms::run`] runs.
    pub async fn sleep(&self, delay: Duration) {
        if delay.is_zero() {
            return;
        }
        let key = (Instant::now() + delay, self.next.get());
        self.next.set(key.1 + 1);
        let _entry = Entry { alarms: self, key };
        poll_fn(|context| {
            if Instant::now() >= key.0 {
                return Poll::Ready(());
            }
            let waker = context.waker().clone();
            self.sleepers.borrow_mut().insert(key, waker);
            self.arm();
            Poll::Pending
        })
        .await;
    }

    /// Wakes sleepers for as long as it is polled.
    ///
    /// # Errors
    /// The timer failed.
    pub async fn run(&self) -> io::Result<()> {
        loop {
            let mut ready = self.readiness.readable().await?;
            // The count of expiries says nothing; reading it clears the timer.
            let _ = rustix::io::read(&self.timer, &mut [0; 8]);
            ready.clear_ready();
            self.armed.set(None);
            self.ring(Instant::now());
            self.arm();
        }
    }

    /// The instant at which the first sleeper wakes.
    fn first(&self) -> Option<Instant> {
        let sleepers = self.sleepers.borrow();
        sleepers.first_key_value().map(|((due, _), _)| *due)
    }

    fn ring(&self, now: Instant) {
        while let Some(first) = self.sleepers.borrow_mut().first_entry()
            && first.key().0 <= now
        {
            first.remove().wake();
        }
    }

    /// Sets the timer for the first sleeper, unless it rings before that anyway.
    fn arm(&self) {
        let Some(due) = self.first() else { return };
        if self.armed.get().is_some_and(|armed| armed <= due) {
            return;
        }
        // Zero would disarm the timer.
        let left = due.saturating_duration_since(Instant::now());
        let left = left.max(Duration::from_nanos(1));
        let setting = Itimerspec {
            it_interval: Timespec::default(),
            it_value: left.try_into().unwrap_or_default(),
        };
        let flags = TimerfdTimerFlags::empty();
        if timerfd_settime(&self.timer, flags, &setting).is_ok() {
            self.armed.set(Some(due));
        }
    }
}

/// The place of a sleeper in the list, which it leaves with its future.
struct Entry<'a> {
    alarms: &'a Alarms,
    key: (Instant, u64),
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        self.alarms.sleepers.borrow_mut().remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::task::Context;

    #[tokio::test]
    async fn the_first_to_wake_is_known_and_who_left_is_not_waited_for() {
        let alarms = Alarms::new().unwrap();
        let mut context = Context::from_waker(Waker::noop());
        {
            let mut long = pin!(alarms.sleep(Duration::from_secs(600)));
            assert!(long.as_mut().poll(&mut context).is_pending());
            let late = alarms.first().unwrap();
            let mut short = Box::pin(alarms.sleep(Duration::from_millis(1)));
            assert!(short.as_mut().poll(&mut context).is_pending());
            let early = alarms.first().unwrap();
            assert!(early < late);
            std::thread::sleep(early.saturating_duration_since(Instant::now()));
            alarms.ring(Instant::now());
            assert_eq!(alarms.first(), Some(late));
            assert!(short.as_mut().poll(&mut context).is_ready());
            assert!(long.as_mut().poll(&mut context).is_pending());
        }
        assert_eq!(alarms.first(), None);
    }

    #[tokio::test]
    async fn sleeps_are_shorter_than_a_millisecond() {
        let alarms = Alarms::new().unwrap();
        let mut fastest = Duration::MAX;
        for _ in 0..50 {
            let begin = Instant::now();
            tokio::select! {
                biased;
                () = alarms.sleep(Duration::from_micros(100)) => {}
                _ = alarms.run() => {}
            }
            fastest = fastest.min(begin.elapsed());
        }
        let expected = Duration::from_micros(100)..Duration::from_micros(900);
        assert!(expected.contains(&fastest), "{fastest:?}");
    }
}
