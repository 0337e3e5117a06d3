//! Runs the tasks of one thread by [`Rounds`].

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::marker::PhantomData;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use async_task::Runnable;
use parking_lot::Mutex;
use slab::Slab;
use tokio::task::coop;

use crate::rounds::{Key, Rounds};

/// How long a group may run while others wait.
pub const QUANTUM: Duration = Duration::from_micros(200);
/// How long tasks run before the runtime looks at its sockets and timers again.
pub const SLICE: Duration = Duration::from_micros(500);

/// The executor of one thread. It is polled by [`Executor::run_until`]; when it is dropped, so are its tasks.
#[derive(Debug)]
pub struct Executor {
    shared: Arc<Shared>,
    start: Instant,
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
    rounds: Rounds<Ready>,
    /// One for each task that has not ended, to end them all with the executor.
    tasks: Slab<Option<Waker>>,
    /// Wakes whoever polls the executor; taken when it has been used.
    root: Option<Waker>,
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
        Self {
            shared: Arc::new(Shared(Mutex::new(State {
                rounds: Rounds::new(QUANTUM),
                tasks: Slab::new(),
                root: None,
                polled: false,
                closed: false,
            }))),
            start: Instant::now(),
            _local: PhantomData,
        }
    }
}

impl Executor {
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

    /// Runs tasks until `main` ends. `main` itself belongs to no group: it is polled before the tasks of each slice.
    pub async fn run_until<F: Future>(&self, main: F) -> F::Output {
        let mut main = pin!(main);
        poll_fn(|cx| {
            let _polled = Polled::begin(&self.shared, cx.waker());
            if let Poll::Ready(output) = main.as_mut().poll(cx) {
                return Poll::Ready(output);
            }
            self.slice(cx);
            Poll::Pending
        })
        .await
    }

    /// Runs what is ready, for a slice at most.
    fn slice(&self, cx: &Context<'_>) {
        let began = self.start.elapsed();
        let mut now = began;
        loop {
            let next = self.shared.0.lock().rounds.next(now);
            let Some((key, Ready { runnable, group })) = next else {
                return;
            };
            {
                let _current = Current::enter(group);
                runnable.run();
            }
            let then = self.start.elapsed();
            let more = {
                let mut state = self.shared.0.lock();
                state.rounds.charge(key, then.saturating_sub(now));
                !state.rounds.is_empty()
            };
            now = then;
            // Without budget left tokio's sockets answer "not ready" to everybody until the runtime has been seen again.
            if now.saturating_sub(began) >= SLICE || !coop::has_budget_remaining() {
                if more {
                    cx.waker().wake_by_ref();
                }
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
    let (runnable, task) = async_task::spawn_local(
        async move {
            let _registered = registered;
            future.await;
        },
        move |runnable| {
            let group = Arc::clone(&home);
            home.shared.queue(Ready { runnable, group });
        },
    );
    task.detach();
    group.shared.0.lock().tasks[index] = Some(runnable.waker());
    runnable.schedule();
}

impl Shared {
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

/// Marks the executor as polled, until dropped.
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
        self.0.0.lock().polled = false;
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
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::sync::oneshot;

    use super::*;

    fn run<T>(body: impl AsyncFnOnce(&Executor) -> T) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let executor = Executor::default();
        runtime.block_on(executor.run_until(body(&executor)))
    }

    /// Works for about so long, without waiting for anything.
    fn work(time: Duration) {
        let start = Instant::now();
        while start.elapsed() < time {
            std::hint::spin_loop();
        }
    }

    /// Gives way to others, but is ready at once; tokio's `yield_now` waits for the runtime as well.
    async fn again() {
        let mut first = true;
        poll_fn(|cx| {
            if std::mem::take(&mut first) {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            Poll::Ready(())
        })
        .await;
    }

    #[test]
    fn two_thousand_busy_tasks_leave_half_of_the_thread_to_one() {
        let (noisy, quiet) = run(async |executor| {
            let (noisy, quiet) = (executor.group(), executor.group());
            for _ in 0..2000 {
                noisy.spawn(async {
                    loop {
                        work(Duration::from_micros(20));
                        again().await;
                    }
                });
            }
            quiet.spawn(async {
                loop {
                    work(Duration::from_micros(20));
                    again().await;
                }
            });
            tokio::time::sleep(Duration::from_millis(200)).await;
            (noisy.used(), quiet.used())
        });
        assert!(quiet * 2 > noisy, "noisy {noisy:?}, quiet {quiet:?}");
        assert!(noisy * 2 > quiet, "noisy {noisy:?}, quiet {quiet:?}");
    }

    #[test]
    fn sockets_and_timers_go_on_while_tasks_never_stop() {
        let echoed = run(async |executor| {
            let (busy, other) = (executor.group(), executor.group());
            busy.spawn(async {
                loop {
                    again().await;
                }
            });
            let (done, echoed) = oneshot::channel();
            other.spawn(async move {
                let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
                    .await
                    .expect("loopback");
                let address = listener.local_addr().expect("bound");
                spawn_local(async move {
                    let (mut stream, _) = listener.accept().await.expect("a client");
                    let mut byte = [0; 1];
                    while stream.read_exact(&mut byte).await.is_ok() {
                        stream.write_all(&byte).await.expect("the client reads");
                    }
                });
                let mut stream = tokio::net::TcpStream::connect(address)
                    .await
                    .expect("connect");
                let mut sum = 0;
                for n in 0..100u8 {
                    stream.write_all(&[n]).await.expect("the server reads");
                    sum += u32::from(stream.read_u8().await.expect("an echo"));
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
                // The test waits for it.
                let _ = done.send(sum);
            });
            echoed.await.expect("the task ends")
        });
        assert_eq!(echoed, 4950);
    }

    #[test]
    fn what_a_task_spawns_is_of_its_group() {
        let (used, other) = run(async |executor| {
            let (group, other) = (executor.group(), executor.group());
            let (done, ended) = oneshot::channel();
            group.spawn(async move {
                spawn_local(async move {
                    work(Duration::from_millis(5));
                    // The test waits for it.
                    let _ = done.send(());
                });
            });
            ended.await.expect("the inner task ends");
            (group.used(), other.used())
        });
        assert!(
            used >= Duration::from_millis(5) && other.is_zero(),
            "{used:?} {other:?}"
        );
    }

    #[test]
    fn tasks_end_with_the_executor_and_leave_nothing() {
        struct Dropped(Rc<Cell<u32>>);
        impl Drop for Dropped {
            fn drop(&mut self) {
                self.0.set(self.0.get() + 1);
            }
        }
        let count = Rc::new(Cell::new(0));
        let weak = run(async |executor| {
            let group = executor.group();
            let (wake, woken) = oneshot::channel::<()>();
            let first = Dropped(Rc::clone(&count));
            // Its end wakes the other one, in the middle of the executor's own end.
            group.spawn(async move {
                let _held = (first, wake);
                std::future::pending::<()>().await;
            });
            let second = Dropped(Rc::clone(&count));
            group.spawn(async move {
                let _held = second;
                // The sender is dropped, never used.
                let _ = woken.await;
                std::future::pending::<()>().await;
            });
            tokio::task::yield_now().await;
            Arc::downgrade(&executor.shared)
        });
        assert_eq!(count.get(), 2);
        assert!(weak.upgrade().is_none(), "tasks or groups are left");
    }

    #[test]
    fn no_wake_up_from_another_thread_is_lost() {
        let rounds = run(async |executor| {
            let group = executor.group();
            let (there, mut here) = tokio::sync::mpsc::unbounded_channel::<oneshot::Sender<()>>();
            let helper = std::thread::spawn(move || {
                while let Some(answer) = here.blocking_recv() {
                    // The task waits for it.
                    let _ = answer.send(());
                }
            });
            let (done, ended) = oneshot::channel();
            group.spawn(async move {
                let mut rounds = 0;
                for _ in 0..2000 {
                    let (ask, answer) = oneshot::channel();
                    there.send(ask).expect("the helper listens");
                    answer.await.expect("the helper answers");
                    rounds += 1;
                }
                // The test waits for it.
                let _ = done.send(rounds);
            });
            let rounds = ended.await.expect("the task ends");
            helper.join().expect("the helper ends");
            rounds
        });
        assert_eq!(rounds, 2000);
    }
}
