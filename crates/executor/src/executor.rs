//! Runs the tasks of one thread by [`DeficitRoundRobin`].

use std::cell::{Cell, OnceCell, RefCell};
use std::future::{Future, poll_fn};
use std::marker::PhantomData;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use async_task::Runnable;
use futures_util::FutureExt as _;
use parking_lot::Mutex;
use slab::Slab;
use tokio::task::coop;

use crate::clocks::{Clocks, Slice};
use crate::deficit_round_robin::{DeficitRoundRobin, Key};

/// How long a group may run while others wait.
pub const QUANTUM: Duration = Duration::from_micros(200);
/// How long tasks run before the runtime looks at its sockets and timers again.
pub const SLICE: Duration = Duration::from_micros(500);

/// The executor of one thread. It is polled by [`Executor::run_until`]; when it is dropped, so are its tasks.
#[derive(Debug)]
pub struct Executor {
    shared: Arc<Shared>,
    clocks: Clocks,
    /// The last slice left work for the next one.
    busy: Cell<bool>,
    /// Groups do not leave their thread, and neither does this.
    _local: PhantomData<*const ()>,
}

/// Adds groups to an [`Executor`].
#[derive(Clone, Debug)]
pub struct Groups {
    shared: Arc<Shared>,
    _local: PhantomData<*const ()>,
}

/// Tasks that share one part of the thread's time. Clones name the same group; it is forgotten with the last clone and
/// the last task.
#[derive(Clone, Debug)]
pub struct Group {
    inner: Arc<Inner>,
    _local: PhantomData<*const ()>,
}

/// A group for tasks that serve several other groups, such as the driver of a connection that many clients share. Its tasks take
/// the turns of none of them. Clones name the same group, which the first task makes.
#[derive(Clone, Debug, Default)]
pub struct SharedGroup(Rc<OnceCell<Group>>);

#[derive(Debug)]
struct Inner {
    key: Key,
    shared: Arc<Shared>,
}

/// What wakers reach, from whichever thread. Nothing of a task is dropped while it is locked: that may wake others.
#[derive(Debug)]
struct Shared(Mutex<State>);

#[derive(Debug)]
struct State {
    rounds: DeficitRoundRobin<Ready>,
    /// One for each task that has not ended, to end them all with the executor.
    tasks: Slab<Option<Waker>>,
    /// Wakes whoever polls the executor; taken when it has been used.
    root: Option<Waker>,
    /// What [`Executor::run_until`] was given has been woken since it was polled last.
    main: bool,
    /// The executor is being polled, and will find what is queued by itself.
    polled: bool,
    /// The executor is gone: nothing runs any more.
    closed: bool,
}

/// A task that waits for its turn.
#[derive(Debug)]
struct Ready {
    runnable: Runnable,
    group: Arc<Inner>,
}

thread_local! {
    /// The group of the task that is running.
    static CURRENT: RefCell<Option<Arc<Inner>>> = const { RefCell::new(None) };
}

/// Spawns a task into the group of the task that is running; outside of an [`Executor`] it is tokio's `spawn_local`.
///
/// # Panics
/// Outside of an [`Executor`], if there is no `LocalSet` either.
pub fn spawn_local(future: impl Future<Output = ()> + 'static) {
    let current = CURRENT.with_borrow(Clone::clone);
    match current {
        Some(group) => spawn(&group, future),
        None => {
            tokio::task::spawn_local(future);
        }
    }
}

impl Default for Executor {
    fn default() -> Self {
        Self::timed_by(Clocks::default())
    }
}

impl Executor {
    fn timed_by(clocks: Clocks) -> Self {
        Self {
            shared: Arc::new(Shared(Mutex::new(State {
                rounds: DeficitRoundRobin::new(QUANTUM),
                tasks: Slab::new(),
                root: None,
                main: false,
                polled: false,
                closed: false,
            }))),
            clocks,
            busy: Cell::new(false),
            _local: PhantomData,
        }
    }

    /// A new group.
    pub fn group(&self) -> Group {
        self.groups().add()
    }

    /// The way to add groups from within tasks; it does not keep the executor.
    pub fn groups(&self) -> Groups {
        Groups {
            shared: Arc::clone(&self.shared),
            _local: PhantomData,
        }
    }

    /// Runs tasks until `main` ends. `main` itself belongs to no group: when it was woken, it is polled before the tasks of
    /// the slice, or, if it uses up what the runtime grants at once, before those of every other slice.
    pub async fn run_until<F: Future>(&self, main: F) -> F::Output {
        let mut main = pin!(main);
        let mut mains_turn = true;
        // Tasks are woken far more often than it is, and do not have it look at all that it waits for.
        let mains_waker = Waker::from(Arc::clone(&self.shared));
        self.shared.0.lock().main = true;
        poll_fn(|cx| {
            let _polled = Polled::begin(&self.shared, cx.waker());
            if std::mem::replace(&mut mains_turn, true) {
                if self.shared.main_was_woken()
                    && let Poll::Ready(output) =
                        main.as_mut().poll(&mut Context::from_waker(&mains_waker))
                {
                    return Poll::Ready(output);
                }
                if !coop::has_budget_remaining() {
                    // Sockets would answer "not ready" to every task now: they get a budget that is whole.
                    mains_turn = false;
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
            } else {
                cx.waker().wake_by_ref();
            }
            self.slice();
            Poll::Pending
        })
        .await
    }

    /// Runs what is ready, for a slice at most. What is left, [`Polled`] sees at its end.
    fn slice(&self) {
        let mut slice = Slice::begin(self.clocks, QUANTUM, self.busy.replace(false));
        loop {
            let now = slice.now();
            let next = self.shared.0.lock().rounds.next(now);
            let Some((key, Ready { runnable, group })) = next else {
                return;
            };
            {
                let _current = Current::enter(group);
                runnable.run();
            }
            let spent = slice.spent();
            let more = {
                let mut state = self.shared.0.lock();
                state.rounds.charge(key, spent);
                !state.rounds.is_empty()
            };
            // Without budget left tokio's sockets answer "not ready" to everybody until the runtime has been seen again.
            if slice.length() >= SLICE || !coop::has_budget_remaining() {
                self.busy.set(more);
                return;
            }
        }
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        let wakers: Vec<Waker> = {
            let mut state = self.shared.0.lock();
            state.closed = true;
            state.root = None;
            state
                .tasks
                .iter_mut()
                .filter_map(|(_, waker)| waker.take())
                .collect()
        };
        // A task that is woken is queued, and one that is dropped from the queue is dropped for good.
        for waker in wakers {
            waker.wake();
        }
        loop {
            let (ready, left) = {
                let mut state = self.shared.0.lock();
                (state.rounds.drain(), state.tasks.len())
            };
            if ready.is_empty() && left == 0 {
                return;
            }
            if ready.is_empty() {
                // Another thread is about to queue the one that it has just woken.
                std::thread::yield_now();
            }
        }
    }
}

impl Groups {
    /// A new group.
    pub fn add(&self) -> Group {
        let key = self.shared.0.lock().rounds.add();
        Group {
            inner: Arc::new(Inner {
                key,
                shared: Arc::clone(&self.shared),
            }),
            _local: PhantomData,
        }
    }
}

impl Group {
    /// Spawns a task into this group; it first runs when its turn comes. What tasks spawn by [`spawn_local`] belongs to
    /// the group as well.
    pub fn spawn(&self, future: impl Future<Output = ()> + 'static) {
        spawn(&self.inner, future);
    }

    /// How long its tasks have run.
    pub fn used(&self) -> Duration {
        self.inner.shared.0.lock().rounds.used(self.inner.key)
    }
}

impl SharedGroup {
    /// Spawns a task into this group. Outside of an [`Executor`] it is tokio's `spawn_local`.
    ///
    /// # Panics
    /// Outside of an [`Executor`], if there is no `LocalSet` either.
    pub fn spawn(&self, future: impl Future<Output = ()> + 'static) {
        let current = CURRENT.with_borrow(Clone::clone);
        match current {
            Some(running) => {
                let groups = Groups {
                    shared: Arc::clone(&running.shared),
                    _local: PhantomData,
                };
                self.0.get_or_init(|| groups.add()).spawn(future);
            }
            None => {
                tokio::task::spawn_local(future);
            }
        }
    }
}

fn spawn(group: &Arc<Inner>, future: impl Future<Output = ()> + 'static) {
    let registered = {
        let mut state = group.shared.0.lock();
        if state.closed {
            return;
        }
        Registered {
            index: state.tasks.insert(None),
            shared: Arc::clone(&group.shared),
        }
    };
    let index = registered.index;
    let home = Arc::clone(group);
    let (runnable, task) = async_task::spawn_local(listed(future, registered), move |runnable| {
        let group = Arc::clone(&home);
        home.shared.queue(Ready { runnable, group });
    });
    task.detach();
    group.shared.0.lock().tasks[index] = Some(runnable.waker());
    runnable.schedule();
}

/// Keeps a task's place in the list until it has ended. An async block that awaits what it was given would have room for it
/// twice, before and while it is polled, and most of the memory of a connection is its task.
fn listed(future: impl Future<Output = ()>, registered: Registered) -> impl Future<Output = ()> {
    future.map(move |()| drop(registered))
}

impl Shared {
    fn main_was_woken(&self) -> bool {
        std::mem::take(&mut self.0.lock().main)
    }

    fn queue(&self, ready: Ready) {
        let (refused, root) = {
            let mut state = self.0.lock();
            let refused = state.rounds.push(ready.group.key, ready);
            let root = if state.polled {
                None
            } else {
                state.root.take()
            };
            (refused, root)
        };
        debug_assert!(refused.is_none(), "a queued task holds its group");
        drop(refused);
        if let Some(root) = root {
            root.wake();
        }
    }
}

/// The waker of what [`Executor::run_until`] was given.
impl Wake for Shared {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let root = {
            let mut state = self.0.lock();
            state.main = true;
            if state.polled {
                None
            } else {
                state.root.take()
            }
        };
        if let Some(root) = root {
            root.wake();
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let left = self.shared.0.lock().rounds.remove(self.key);
        debug_assert!(left.is_empty(), "a queued task holds its group");
    }
}

/// A task's place in the list of those that have not ended.
struct Registered {
    index: usize,
    shared: Arc<Shared>,
}

impl Drop for Registered {
    fn drop(&mut self) {
        // The waker may be the last to hold the task: it goes after the lock.
        let _waker = self.shared.0.lock().tasks.try_remove(self.index);
    }
}

/// Marks the executor as polled, until dropped. Whoever queues a task or wakes `main` meanwhile wakes nobody, so that what waits at the
/// end must be looked for here, under the lock that ends it: another thread may have queued it since the last look.
struct Polled<'a>(&'a Shared);

impl<'a> Polled<'a> {
    fn begin(shared: &'a Shared, waker: &Waker) -> Self {
        let mut state = shared.0.lock();
        let known = state
            .root
            .as_ref()
            .is_some_and(|root| root.will_wake(waker));
        if !known {
            state.root = Some(waker.clone());
        }
        state.polled = true;
        Self(shared)
    }
}

impl Drop for Polled<'_> {
    fn drop(&mut self) {
        let root = {
            let mut state = self.0.0.lock();
            state.polled = false;
            if state.rounds.is_empty() && !state.main {
                None
            } else {
                state.root.take()
            }
        };
        if let Some(root) = root {
            root.wake();
        }
    }
}

/// Says which group runs, until dropped.
struct Current(Option<Arc<Inner>>);

impl Current {
    fn enter(group: Arc<Inner>) -> Self {
        Self(CURRENT.replace(Some(group)))
    }
}

impl Drop for Current {
    fn drop(&mut self) {
        // Outside of the cell: the last holder of a group tidies up.
        let _left = CURRENT.replace(self.0.take());
    }
}

#[cfg(test)]
mod tests;
