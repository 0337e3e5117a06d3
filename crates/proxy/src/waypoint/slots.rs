//! Futures that one task polls, each with a waker of its own: a wake polls the future that it is for, and no other.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::task::AtomicWaker;
use parking_lot::Mutex;

/// The most rounds in one call; then other tasks have their turn.
const ROUNDS: usize = 8;

/// Futures of one type. Finished ones leave nothing behind, so an idle set holds no memory.
#[derive(Debug)]
pub(super) struct Slots<F> {
    slots: Vec<Option<Slot<F>>>,
    free: Vec<usize>,
    shared: Arc<Shared>,
    /// The numbers that are polled now; kept for its memory.
    batch: Vec<usize>,
}

#[derive(Debug)]
struct Slot<F> {
    future: Pin<Box<F>>,
    waker: Waker,
    flag: Arc<Flag>,
}

/// What wakers reach, from whichever thread.
#[derive(Debug, Default)]
struct Shared {
    woken: Mutex<Vec<usize>>,
    task: AtomicWaker,
    /// The task polls the set, and will see what is woken by itself.
    is_polled: AtomicBool,
}

#[derive(Debug)]
struct Flag {
    number: usize,
    /// Among the woken.
    is_woken: AtomicBool,
    shared: Arc<Shared>,
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.is_woken.swap(true, Ordering::AcqRel) {
            return;
        }
        self.shared.woken.lock().push(self.number);
        if !self.shared.is_polled.load(Ordering::Acquire) {
            self.shared.task.wake();
        }
    }
}

impl<F> Default for Slots<F> {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            shared: Arc::default(),
            batch: Vec::new(),
        }
    }
}

impl<F: Future<Output = ()>> Slots<F> {
    /// True without a future.
    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of futures.
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Adds a future, which the next [`Slots::poll`] polls.
    pub(super) fn push(&mut self, future: F) {
        let number = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        let flag = Arc::new(Flag {
            number,
            is_woken: AtomicBool::new(true),
            shared: Arc::clone(&self.shared),
        });
        self.slots[number] = Some(Slot {
            future: Box::pin(future),
            waker: Waker::from(Arc::clone(&flag)),
            flag,
        });
        self.shared.woken.lock().push(number);
    }

    /// Polls the futures that were woken, and returns whether there were any. The task is woken when others are.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> bool {
        self.shared.task.register(cx.waker());
        self.shared.is_polled.store(true, Ordering::Release);
        let mut any = false;
        for _ in 0..ROUNDS {
            mem::swap(&mut *self.shared.woken.lock(), &mut self.batch);
            if self.batch.is_empty() {
                break;
            }
            any = true;
            let mut batch = mem::take(&mut self.batch);
            for number in batch.drain(..) {
                self.poll_one(number);
            }
            self.batch = batch;
        }
        self.shared.is_polled.store(false, Ordering::Release);
        if !self.shared.woken.lock().is_empty() {
            cx.waker().wake_by_ref();
        }
        if self.is_empty() {
            self.slots = Vec::new();
            self.free = Vec::new();
        }
        any
    }

    fn poll_one(&mut self, number: usize) {
        // A future that has ended may be woken once more; its number may be another's by now, which loses nothing.
        let Some(slot) = self.slots.get_mut(number).and_then(Option::as_mut) else {
            return;
        };
        slot.flag.is_woken.store(false, Ordering::Release);
        let mut cx = Context::from_waker(&slot.waker);
        if let Poll::Ready(()) = slot.future.as_mut().poll(&mut cx) {
            self.slots[number] = None;
            self.free.push(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::poll_fn;
    use std::rc::Rc;

    use tokio::sync::Notify;

    use super::*;

    #[tokio::test]
    async fn a_wake_polls_its_own_future_alone() {
        let polls: Vec<_> = (0..3).map(|_| Rc::new(Cell::new(0))).collect();
        let bells: Vec<_> = (0..3).map(|_| Rc::new(Notify::new())).collect();
        let mut slots = Slots::default();
        for (count, bell) in polls.iter().zip(&bells) {
            let (count, bell) = (Rc::clone(count), Rc::clone(bell));
            slots.push(async move {
                let mut rung = Box::pin(bell.notified());
                poll_fn(|cx| {
                    count.set(count.get() + 1);
                    rung.as_mut().poll(cx)
                })
                .await;
            });
        }
        let mut settle = async || poll_fn(|cx| Poll::Ready(slots.poll(cx))).await;
        assert!(settle().await);
        assert!(!settle().await);
        bells[1].notify_one();
        assert!(settle().await);
        let counts: Vec<_> = polls.iter().map(|count| count.get()).collect();
        assert_eq!(counts, [1, 2, 1]);
        bells[0].notify_one();
        bells[2].notify_one();
        assert!(settle().await);
        assert!(slots.is_empty() && slots.slots.capacity() == 0);
    }

    #[tokio::test]
    async fn a_future_that_wakes_itself_is_polled_again_and_leaves_others_their_turn() {
        let mut slots = Slots::default();
        let left = Rc::new(Cell::new(3 * ROUNDS));
        let counted = Rc::clone(&left);
        slots.push(poll_fn(move |cx| {
            left.set(left.get() - 1);
            if left.get() == 0 {
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        }));
        poll_fn(|cx| Poll::Ready(slots.poll(cx))).await;
        assert_eq!(counted.get(), 2 * ROUNDS);
        // The task was woken for the rest.
        poll_fn(|cx| {
            slots.poll(cx);
            match slots.is_empty() {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
        assert_eq!(counted.get(), 0);
    }
}
