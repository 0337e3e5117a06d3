use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Wake;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::oneshot;

use super::*;

fn run<T>(body: impl AsyncFnOnce(&Executor) -> T) -> T {
    run_timed(Clocks::default(), body)
}

fn run_timed<T>(clocks: Clocks, body: impl AsyncFnOnce(&Executor) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let executor = Executor::timed_by(clocks);
    runtime.block_on(executor.run_until(body(&executor)))
}

/// Counts the thread's own time: on a busy machine that of the clock on the wall says nothing.
fn own_time() -> Clocks {
    let thread = Clocks::default().thread;
    Clocks {
        wall: thread,
        thread,
    }
}

/// Works for about so long, without waiting for anything.
fn work(time: Duration) {
    let clock = Clocks::default().thread;
    let start = clock();
    while clock() - start < time {
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
    let (noisy, quiet) = run_timed(own_time(), async |executor| {
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
        while noisy.used() + quiet.used() < Duration::from_millis(200) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
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
fn tasks_of_a_shared_group_take_turns_of_no_other() {
    let shared = SharedGroup::default();
    let (first, second) = run_timed(own_time(), async |executor| {
        let (first, second) = (executor.group(), executor.group());
        for group in [&first, &second] {
            let (done, ended) = oneshot::channel();
            let shared = shared.clone();
            group.spawn(async move {
                shared.spawn(async move {
                    work(Duration::from_millis(5));
                    // The test waits for it.
                    let _ = done.send(());
                });
            });
            ended.await.expect("the inner task ends");
        }
        (first.used(), second.used())
    });
    let used = shared.0.get().expect("a task was spawned").used();
    assert!(used >= Duration::from_millis(10), "{used:?}");
    let most = Duration::from_millis(5);
    assert!(first < most && second < most, "{first:?} {second:?}");
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

/// A waker that counts.
#[derive(Default)]
struct Woken(AtomicU32);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// The moment between the last look at the queue and the end of the poll, in which another thread cannot see that nobody
/// will look again.
#[test]
fn what_is_queued_at_the_end_of_a_poll_wakes_whoever_polls() {
    let executor = Executor::default();
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    drop(Polled::begin(&executor.shared, &waker));
    assert_eq!(woken.0.load(Ordering::Relaxed), 0, "nothing waits");
    let polled = Polled::begin(&executor.shared, &waker);
    executor.slice();
    executor.group().spawn(async {});
    assert_eq!(woken.0.load(Ordering::Relaxed), 0, "it is being polled");
    drop(polled);
    assert_eq!(woken.0.load(Ordering::Relaxed), 1);
    // Not polled, a wake-up goes through at once.
    executor.group().spawn(async {});
    let polled = Polled::begin(&executor.shared, &waker);
    executor.slice();
    drop(polled);
    executor.group().spawn(async {});
    assert_eq!(woken.0.load(Ordering::Relaxed), 2);
}

/// As above, for what the executor runs until it ends.
#[test]
fn main_woken_at_the_end_of_a_poll_wakes_whoever_polls() {
    let executor = Executor::default();
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let main = Waker::from(Arc::clone(&executor.shared));
    let polled = Polled::begin(&executor.shared, &waker);
    main.wake_by_ref();
    assert_eq!(woken.0.load(Ordering::Relaxed), 0, "it is being polled");
    drop(polled);
    assert_eq!(woken.0.load(Ordering::Relaxed), 1);
    assert!(executor.shared.main_was_woken());
    drop(Polled::begin(&executor.shared, &waker));
    assert_eq!(woken.0.load(Ordering::Relaxed), 1, "it was not woken again");
    // Not polled, a wake-up goes through at once.
    main.wake();
    assert_eq!(woken.0.load(Ordering::Relaxed), 2);
}

#[test]
fn main_is_polled_when_it_is_woken_and_not_with_every_task() {
    let polls = run(async |executor| {
        let (done, mut ended) = oneshot::channel();
        executor.group().spawn(async move {
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            // The test waits for it.
            let _ = done.send(());
        });
        let mut polls = 0;
        poll_fn(|cx| {
            polls += 1;
            Pin::new(&mut ended).poll(cx)
        })
        .await
        .expect("the task ends");
        polls
    });
    assert_eq!(polls, 2);
}

/// A clock by which every run of a task takes 20 µs, whatever machine this is: a slice is 25 runs, a quantum ten.
fn counted() -> Clocks {
    thread_local! {
        static RUNS: Cell<u32> = const { Cell::new(0) };
    }
    fn time() -> Duration {
        Duration::from_micros(20) * RUNS.get()
    }
    Clocks {
        wall: || {
            RUNS.set(RUNS.get() + 1);
            time()
        },
        thread: time,
    }
}

/// Answers byte for byte.
async fn echo(mut stream: UnixStream, runs: Rc<Cell<u32>>) {
    let mut byte = [0; 1];
    while stream.read_exact(&mut byte).await.is_ok() {
        runs.set(runs.get() + 1);
        stream.write_all(&byte).await.expect("the other end reads");
    }
}

/// One connection asks 20 times while each of `others` others asks again as soon as it is answered. Says how many answers
/// the others had, at most, between one of its questions and the answer.
fn longest_wait(others: usize, one_group: bool) -> u32 {
    run_timed(counted(), async |executor| {
        let noisy = executor.group();
        let quiet = if one_group {
            noisy.clone()
        } else {
            executor.group()
        };
        let (noise, own) = (Rc::<Cell<u32>>::default(), Rc::<Cell<u32>>::default());
        for _ in 0..others {
            let (mut near, far) = UnixStream::pair().expect("a pair of sockets");
            noisy.spawn(echo(far, Rc::clone(&noise)));
            noisy.spawn(async move {
                while near.write_all(&[0]).await.is_ok() {
                    near.read_u8().await.expect("an answer");
                }
            });
        }
        let (mut near, far) = UnixStream::pair().expect("a pair of sockets");
        quiet.spawn(echo(far, own));
        // Until every one of them is at work.
        while (noise.get() as usize) < 3 * others {
            tokio::task::yield_now().await;
        }
        let mut longest = 0;
        for _ in 0..20 {
            let before = noise.get();
            near.write_all(&[0]).await.expect("the echo reads");
            near.read_u8().await.expect("an answer");
            longest = longest.max(noise.get() - before);
        }
        longest
    })
}

#[test]
fn a_connection_waits_for_as_many_turns_of_another_group_whether_that_has_ten_connections_or_a_thousand()
 {
    for others in [10, 100, 1000] {
        let longest = longest_wait(others, false);
        // The slice in which it asks, one for the sockets to be looked at and one to be answered in.
        assert!(longest <= 75, "{longest} turns of {others} connections");
    }
}

#[test]
fn in_their_group_it_would_wait_for_all_of_them() {
    let longest = longest_wait(1000, true);
    assert!(longest >= 500, "{longest}: the test above proves nothing");
}

#[test]
fn tasks_have_their_turns_though_main_never_rests() {
    let answers = run(async |executor| {
        let (mut near, far) = UnixStream::pair().expect("a pair of sockets");
        let answers = Rc::<Cell<u32>>::default();
        let group = executor.group();
        group.spawn(echo(far, Rc::clone(&answers)));
        group.spawn(async move {
            loop {
                near.write_all(&[0]).await.expect("the echo reads");
                near.read_u8().await.expect("an answer");
            }
        });
        // Each of these uses up the whole budget of a poll.
        for _ in 0..128 * 1000 {
            tokio::task::consume_budget().await;
        }
        answers.get()
    });
    assert!(answers >= 100, "{answers} answers in 1000 polls of main");
}

#[test]
fn a_task_has_room_for_its_future_once() {
    let large = [7_u8; 1024];
    let future = async move {
        again().await;
        assert_eq!(large.len(), 1024);
    };
    let size = size_of_val(&future);
    run(async |executor| {
        let mut state = executor.shared.0.lock();
        let registered = Registered {
            index: state.tasks.insert(None),
            shared: Arc::clone(&executor.shared),
        };
        drop(state);
        let task = listed(future, registered);
        assert!(size_of_val(&task) <= size + 32);
    });
}
