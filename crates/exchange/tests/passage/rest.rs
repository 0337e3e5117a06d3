//! Polling without a runtime.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// Rounds without rest after which something spins.
const ROUNDS: usize = 100_000;

/// Says that a task can go on.
#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Polls until nothing can go on, and returns the last outcome. It ends at once with a ready one.
pub fn settle<T>(mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> Poll<T> {
    let flag = Arc::<Flag>::default();
    let waker = Waker::from(Arc::clone(&flag));
    let cx = &mut Context::from_waker(&waker);
    for _ in 0..ROUNDS {
        flag.0.store(false, Ordering::Relaxed);
        let polled = poll(cx);
        if polled.is_ready() || !flag.0.load(Ordering::Relaxed) {
            return polled;
        }
    }
    panic!("nothing comes to rest");
}

/// Polls to the end.
pub fn run<T>(poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> T {
    match settle(poll) {
        Poll::Ready(result) => result,
        Poll::Pending => panic!("a task waits for nothing"),
    }
}
