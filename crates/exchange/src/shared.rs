//! State that a connection's driver and its streams share, and the wakes between them.
//!
//! Nobody is woken, and no waker dropped, while the state is borrowed: either may end a task, which drops its streams.

use std::cell::{RefCell, RefMut};
use std::rc::Rc;
use std::task::{Context, Waker};

/// The state of one connection, on one thread. Clones share it.
#[derive(Debug)]
pub struct Shared<C>(Rc<RefCell<C>>);

/// State of a connection that a driver moves.
pub trait Driven {
    /// The driver's place in it.
    fn driver(&mut self) -> &mut DriverWaker;
}

/// The waker of a driver, and the reasons for which it needs none.
#[derive(Debug, Default)]
pub struct DriverWaker {
    /// Taken when it is used.
    waker: Option<Waker>,
    /// The driver waits for the transport to take more, so new output needs no wake.
    stuck: bool,
    /// The driver runs, and will see new output.
    turning: bool,
    /// The driver's task does something else between two turns, and asks afterwards whether there is a reason for the next one.
    attended: bool,
    /// There is one.
    due: bool,
}

impl DriverWaker {
    /// Takes note of a transport that takes nothing, or something again.
    #[inline]
    pub fn set_stuck(&mut self, stuck: bool) {
        self.stuck = stuck;
    }

    /// True while the transport takes nothing.
    pub(crate) fn is_stuck(&self) -> bool {
        self.stuck
    }

    /// The waker that new output needs.
    #[inline]
    fn take(&mut self) -> Option<Waker> {
        match self.stuck || self.turning {
            true => None,
            false => self.take_always(),
        }
    }

    /// The waker, also of a driver that waits for the transport.
    #[inline]
    fn take_always(&mut self) -> Option<Waker> {
        match self.attended {
            true => {
                self.due = true;
                None
            }
            false => self.waker.take(),
        }
    }
}

impl<C> Clone for Shared<C> {
    #[inline]
    fn clone(&self) -> Self {
        Shared(Rc::clone(&self.0))
    }
}

impl<C> Shared<C> {
    /// Shares a state.
    pub fn of(state: C) -> Self {
        Shared(Rc::new(RefCell::new(state)))
    }

    /// The state, for a moment in which nobody is woken.
    #[inline]
    pub fn borrow(&self) -> RefMut<'_, C> {
        self.0.borrow_mut()
    }

    /// True if both are the state of the same connection.
    pub fn is(&self, other: &Shared<C>) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }

    /// Puts the task's waker where the next event finds it. The one before is dropped outside of the borrow.
    pub fn register(
        &self,
        cx: &Context<'_>,
        place: impl FnOnce(&mut C) -> Option<&mut Option<Waker>>,
    ) {
        let before = {
            let mut state = self.borrow();
            match place(&mut state) {
                None => None,
                Some(Some(waker)) if waker.will_wake(cx.waker()) => None,
                Some(place) => place.replace(cx.waker().clone()),
            }
        };
        drop(before);
    }

    /// Wakes up to so many tasks, one at a time. `next` gives the next one, which may have no waker.
    pub fn wake_each(&self, most: usize, mut next: impl FnMut(&mut C) -> Option<Option<Waker>>) {
        for _ in 0..most {
            let next = next(&mut self.borrow());
            match next {
                None => return,
                Some(None) => {}
                Some(Some(waker)) => waker.wake(),
            }
        }
    }
}

impl<C: Driven> Shared<C> {
    /// Changes the state and wakes the driver if it must write.
    #[inline]
    pub fn act<R>(&self, act: impl FnOnce(&mut C) -> R) -> R {
        let (result, driver) = {
            let mut state = self.borrow();
            let result = act(&mut state);
            (result, state.driver().take())
        };
        if let Some(driver) = driver {
            driver.wake();
        }
        result
    }

    /// Wakes the driver, also if it waits for the transport.
    pub fn wake(&self) {
        let driver = self.borrow().driver().take_always();
        if let Some(driver) = driver {
            driver.wake();
        }
    }

    /// Does `work` in the driver's own task, between two turns. New output then wakes nobody: the second result is true if the
    /// driver needs a turn, which the caller gives it at once.
    #[inline]
    pub fn attend<R>(&self, work: impl FnOnce() -> R) -> (R, bool) {
        self.borrow().driver().attended = true;
        let result = work();
        let mut state = self.borrow();
        let driver = state.driver();
        driver.attended = false;
        (result, std::mem::take(&mut driver.due))
    }

    /// Begins a turn of the driver: new output need not wake it before [`Shared::turned`].
    pub fn driven_by(&self, cx: &Context<'_>) {
        self.register(cx, |state| {
            let driver = state.driver();
            driver.turning = true;
            Some(&mut driver.waker)
        });
    }

    /// Ends a turn of the driver.
    pub fn turned(&self) {
        self.borrow().driver().turning = false;
    }

    /// Ends the connection. `end` gives the wakers of all its streams, which are woken with the driver, or none if the
    /// connection had ended before.
    pub fn end_with(&self, end: impl FnOnce(&mut C) -> Option<Vec<Waker>>) {
        let (wakers, driver) = {
            let mut state = self.borrow();
            let Some(wakers) = end(&mut state) else {
                return;
            };
            (wakers, state.driver().waker.take())
        };
        wakers.into_iter().chain(driver).for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Debug, Default)]
    struct State {
        driver: DriverWaker,
        streams: Vec<Option<Waker>>,
        ended: bool,
    }

    impl Driven for State {
        fn driver(&mut self) -> &mut DriverWaker {
            &mut self.driver
        }
    }

    thread_local! {
        /// The state of the running test.
        static STATE: Shared<State> = Shared::of(State::default());
    }

    fn state() -> Shared<State> {
        STATE.with(Shared::clone)
    }

    fn fresh() -> Shared<State> {
        *state().borrow() = State::default();
        state()
    }

    /// Counts its wakes, and borrows the state at each as an ending task does.
    struct Task(AtomicUsize);

    impl Wake for Task {
        fn wake(self: Arc<Self>) {
            drop(state().borrow());
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn task() -> (Arc<Task>, Waker) {
        let task = Arc::new(Task(AtomicUsize::new(0)));
        (Arc::clone(&task), task.into())
    }

    fn wakes(task: &Task) -> usize {
        task.0.load(Ordering::Relaxed)
    }

    #[test]
    fn new_output_wakes_a_driver_that_is_at_rest_and_no_other() {
        let shared = fresh();
        let (task, waker) = task();
        let cx = Context::from_waker(&waker);
        shared.driven_by(&cx);
        shared.act(|_| ());
        assert_eq!(wakes(&task), 0, "it is at its turn");
        shared.borrow().driver.set_stuck(true);
        shared.turned();
        shared.act(|_| ());
        assert_eq!(wakes(&task), 0, "the transport will wake it");
        shared.borrow().driver.set_stuck(false);
        shared.act(|_| ());
        shared.act(|_| ());
        assert_eq!(wakes(&task), 1, "once before its next turn");
        shared.driven_by(&cx);
        shared.borrow().driver.set_stuck(true);
        shared.turned();
        shared.wake();
        assert_eq!(wakes(&task), 2);
    }

    #[test]
    fn work_of_the_drivers_own_task_asks_for_a_turn_and_wakes_nobody() {
        let shared = fresh();
        let (task, waker) = task();
        let cx = Context::from_waker(&waker);
        shared.driven_by(&cx);
        shared.turned();
        assert_eq!(shared.attend(|| 7), (7, false));
        assert_eq!(shared.attend(|| shared.act(|_| 8)), (8, true));
        assert_eq!(shared.attend(|| shared.wake()), ((), true));
        shared.borrow().driver.set_stuck(true);
        let ((), is_due) = shared.attend(|| shared.act(|_| ()));
        assert!(!is_due, "the transport will wake it");
        assert_eq!(shared.attend(|| shared.wake()), ((), true));
        assert_eq!(wakes(&task), 0);
        shared.wake();
        assert_eq!(wakes(&task), 1, "the waker is still there");
    }

    #[test]
    fn end_wakes_every_task_once() {
        let shared = fresh();
        let (driver, of_driver) = task();
        let (stream, of_stream) = task();
        shared.driven_by(&Context::from_waker(&of_driver));
        shared.borrow().streams = vec![None, None];
        for _ in 0..2 {
            let cx = Context::from_waker(&of_stream);
            shared.register(&cx, |state| state.streams.first_mut());
        }
        let end = |state: &mut State| {
            let first = !std::mem::replace(&mut state.ended, true);
            first.then(|| state.streams.iter_mut().filter_map(Option::take).collect())
        };
        shared.end_with(end);
        shared.end_with(end);
        assert_eq!((wakes(&driver), wakes(&stream)), (1, 1));
    }

    #[test]
    fn no_more_tasks_are_woken_than_asked_for() {
        let shared = fresh();
        let (stream, waker) = task();
        let mut waiting = vec![Some(waker.clone()), None, Some(waker.clone()), Some(waker)];
        shared.wake_each(3, |_| waiting.pop());
        assert_eq!(wakes(&stream), 2);
        shared.wake_each(3, |_| waiting.pop());
        assert_eq!(wakes(&stream), 3);
    }
}
