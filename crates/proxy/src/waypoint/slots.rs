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

/// Places that stay when all futures have finished. A connection with one request after the other uses the same place.
const KEPT: usize = 1;

/// Places that stay in any case while there are futures.
const FEW: usize = 32;

/// Futures of one type. An idle set keeps [`KEPT`] places. Another one keeps [`FEW`], or four for each future.
#[derive(Debug)]
pub(super) struct Slots<F> {
    slots: Vec<Slot<F>>,
    free: Vec<usize>,
    shared: Arc<Shared>,
    /// The numbers that are polled now; kept for its memory.
    batch: Vec<usize>,
}

/// The place of a future, and of others when that has finished.
#[derive(Debug)]
struct Slot<F> {
    future: Option<Pin<Box<F>>>,
    waker: Waker,
    flag: Arc<Flag>,
}

/// What wakers reach, from whichever thread.
#[derive(Debug, Default)]
struct Shared {
    woken: Mutex<Vec<usize>>,
    task: AtomicWaker,
    /// The task attends to the set, and will see what is woken by itself.
    is_attended: AtomicBool,
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
        if !self.shared.is_attended.load(Ordering::Acquire) {
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
        let number = self.free.pop().unwrap_or_else(|| self.add());
        let slot = &mut self.slots[number];
        slot.future = Some(Box::pin(future));
        // A waker of the future before may have woken the place already.
        slot.flag.wake_by_ref();
    }

    fn add(&mut self) -> usize {
        let number = self.slots.len();
        if number == 0 {
            // Most connections have one request after the other.
            self.slots.reserve_exact(1);
        }
        let flag = Arc::new(Flag {
            number,
            is_woken: AtomicBool::new(false),
            shared: Arc::clone(&self.shared),
        });
        self.slots.push(Slot {
            future: None,
            waker: Waker::from(Arc::clone(&flag)),
            flag,
        });
        number
    }

    /// Begins a turn of the task: a wake within it does not wake the task, which goes by [`Slots::is_woken`].
    pub(super) fn attend(&self, cx: &Context<'_>) {
        self.shared.task.register(cx.waker());
        self.shared.is_attended.store(true, Ordering::Release);
    }

    /// Ends a turn of the task. The task is woken if futures are still to be polled.
    pub(super) fn rest(&self, cx: &Context<'_>) {
        self.shared.is_attended.store(false, Ordering::Release);
        if self.is_woken() {
            cx.waker().wake_by_ref();
        }
    }

    /// True if a future was woken that has not been polled since.
    pub(super) fn is_woken(&self) -> bool {
        !self.shared.woken.lock().is_empty()
    }

    /// Polls the futures that were woken.
    pub(super) fn poll(&mut self) {
        for _ in 0..ROUNDS {
            mem::swap(&mut *self.shared.woken.lock(), &mut self.batch);
            if self.batch.is_empty() {
                break;
            }
            let mut batch = mem::take(&mut self.batch);
            for number in batch.drain(..) {
                self.poll_one(number);
            }
            self.batch = batch;
        }
        let least = if self.is_empty() { KEPT } else { FEW };
        if self.slots.len() > least.max(4 * self.len()) {
            self.shrink();
        }
    }

    /// Gives the places back that many more futures took than there are now. Each that is left gets another place, and is polled again to
    /// leave its new waker.
    fn shrink(&mut self) {
        let slots = mem::take(&mut self.slots);
        self.free = Vec::new();
        self.batch.shrink_to(FEW);
        self.shared.woken.lock().shrink_to(FEW);
        for future in slots.into_iter().filter_map(|slot| slot.future) {
            let number = self.add();
            let slot = &mut self.slots[number];
            slot.future = Some(future);
            slot.flag.wake_by_ref();
        }
    }

    fn poll_one(&mut self, number: usize) {
        // A future that has ended may be woken once more; its place may be another's by now, which loses nothing.
        let Some(slot) = self.slots.get_mut(number) else {
            return;
        };
        slot.flag.is_woken.store(false, Ordering::Release);
        let Some(future) = &mut slot.future else {
            return;
        };
        let mut cx = Context::from_waker(&slot.waker);
        if let Poll::Ready(()) = future.as_mut().poll(&mut cx) {
            slot.future = None;
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

    /// One turn of the task that has the set. True if there was a future to poll.
    async fn settle<F: Future<Output = ()>>(slots: &mut Slots<F>) -> bool {
        poll_fn(|cx| {
            slots.attend(cx);
            let any = slots.is_woken();
            slots.poll();
            slots.rest(cx);
            Poll::Ready(any)
        })
        .await
    }

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
        assert!(settle(&mut slots).await);
        assert!(!settle(&mut slots).await);
        bells[1].notify_one();
        assert!(settle(&mut slots).await);
        let counts: Vec<_> = polls.iter().map(|count| count.get()).collect();
        assert_eq!(counts, [1, 2, 1]);
        bells[0].notify_one();
        bells[2].notify_one();
        assert!(settle(&mut slots).await);
        assert!(slots.is_empty() && slots.slots.capacity() == 0);
    }

    #[tokio::test]
    async fn a_future_that_waits_does_not_keep_the_places_of_many() {
        let bell = Rc::new(Notify::new());
        let mut slots = Slots::default();
        for number in 0..1000 {
            let bell = Rc::clone(&bell);
            slots.push(async move {
                if number == 999 {
                    bell.notified().await;
                }
            });
        }
        assert!(settle(&mut slots).await);
        assert!(slots.slots.capacity() <= FEW && slots.free.capacity() <= FEW);
        assert!(settle(&mut slots).await, "it is polled in its new place");
        assert!(!settle(&mut slots).await);
        bell.notify_one();
        assert!(settle(&mut slots).await);
        assert!(slots.is_empty());
    }

    #[tokio::test]
    async fn a_place_serves_one_future_after_the_other_also_when_the_one_before_is_woken_late() {
        let polls = Rc::new(Cell::new(0));
        let mut slots = Slots::default();
        let mut late = None;
        for n in 1..=3 {
            let (count, waker) = (Rc::clone(&polls), Rc::new(Cell::new(None)));
            let kept = Rc::clone(&waker);
            slots.push(poll_fn(move |cx| {
                count.set(count.get() + 1);
                kept.set(Some(cx.waker().clone()));
                Poll::Ready(())
            }));
            assert!(settle(&mut slots).await);
            assert_eq!((polls.get(), slots.slots.len()), (n, 1));
            assert!(slots.is_empty());
            late = waker.take().or(late);
            if let Some(waker) = &late {
                waker.wake_by_ref();
            }
        }
        assert!(settle(&mut slots).await);
        assert!(!settle(&mut slots).await);
        assert_eq!(polls.get(), 3);
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
        assert!(settle(&mut slots).await);
        assert_eq!(counted.get(), 2 * ROUNDS);
        // The task was woken for the rest.
        poll_fn(|cx| {
            slots.attend(cx);
            slots.poll();
            slots.rest(cx);
            match slots.is_empty() {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
        assert_eq!(counted.get(), 0);
    }
}
