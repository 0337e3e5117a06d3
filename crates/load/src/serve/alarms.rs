//! Delays of the requests that share one connection, for the loop to wait for: it knows the time to the
//! nanosecond, where an ordinary runtime's timers round to milliseconds.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

/// Who sleeps, and until when.
#[derive(Debug, Default)]
pub struct Alarms {
    sleepers: RefCell<BTreeMap<(Instant, u64), Waker>>,
    next: Cell<u64>,
}

impl Alarms {
    /// Ends once so much time has passed and [`Alarms::ring`] was called thereafter.
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
            Poll::Pending
        })
        .await;
    }

    /// When the first sleeper wants to be woken.
    pub fn first(&self) -> Option<Instant> {
        let sleepers = self.sleepers.borrow();
        sleepers.first_key_value().map(|((due, _), _)| *due)
    }

    /// Wakes those whose time has come.
    pub fn ring(&self, now: Instant) {
        while let Some(first) = self.sleepers.borrow_mut().first_entry()
            && first.key().0 <= now
        {
            first.remove().wake();
        }
    }
}

/// Takes a sleeper off the list who sleeps no more, for whatever reason.
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

    #[test]
    fn the_first_to_wake_is_known_and_who_left_is_not_waited_for() {
        let alarms = Alarms::default();
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
}
