//! Windows on paths that change, with time as the test has it.

use super::*;

/// A path on which as much is under way as the windows allow.
struct Path {
    recv_flow: RecvFlow,
    now: Timestamp,
    /// Bytes in a second at most.
    carries: u64,
}

impl Path {
    fn new(carries: u64) -> Self {
        Path {
            recv_flow: RecvFlow::new(&Config::tunnel()),
            now: Timestamp::from_micros(1),
            carries,
        }
    }

    /// So many round trips that take at least so long, and longer if more is under way than the path carries.
    fn trips(&mut self, micros: u64, count: u32) {
        for _ in 0..count {
            let recv_flow = &mut self.recv_flow;
            let bytes = u64::from(recv_flow.window.min(recv_flow.target));
            let queued = bytes * 1_000_000 / self.carries;
            recv_flow.wants_sample(self.now);
            self.now = self.now.after(Duration::from_micros(micros.max(queued)));
            recv_flow.came += bytes;
            // An answer comes a round trip after its PING; none was asked for in most of them.
            recv_flow.sampled(self.now);
        }
    }
}

const FAST: u64 = 100_000_000;
/// Six doublings of the first window, all that a stream may have.
const FULL: u32 = 64 * FLOOR;

#[test]
fn a_path_that_becomes_longer_gets_the_windows_of_a_long_path() {
    for short in [300, 2_000] {
        let mut path = Path::new(FAST);
        path.trips(short, 500);
        assert!(path.recv_flow.target <= FULL / 4);
        path.trips(50_000, 500);
        assert!(path.recv_flow.target >= FULL, "{short}");
    }
}

#[test]
fn a_path_that_swings_gets_the_windows_of_a_long_path() {
    let mut path = Path::new(FAST);
    for _ in 0..20 {
        path.trips(8_000, 40);
        path.trips(60_000, 40);
    }
    assert!(path.recv_flow.target >= FULL);
}

#[test]
fn a_path_with_a_queue_gets_no_more_than_it_carries() {
    // 20 ms of 10 MB/s: 200 KB. The windows end between that and four times as much.
    let mut path = Path::new(10_000_000);
    path.trips(20_000, 1_000);
    let grown = path.recv_flow.target;
    assert!((200_000..800_000).contains(&grown), "{grown}");
    // Others fill it and leave again: slower, and slower by far, and as it was.
    for _ in 0..50 {
        for carries in [5_000_000, 1_000_000, 10_000_000] {
            path.carries = carries;
            path.trips(20_000, 100);
        }
    }
    assert_eq!(path.recv_flow.target, grown);
}

#[test]
fn a_queue_that_goes_while_larger_windows_are_tried_does_not_speak_for_them() {
    for slow in 1..60 {
        let mut path = Path::new(10_000_000);
        path.trips(20_000, 1_000);
        let grown = path.recv_flow.target;
        // Others leave it at any moment of a trial.
        path.carries = 1_000_000;
        path.trips(20_000, slow);
        path.carries = 10_000_000;
        path.trips(20_000, 100);
        assert_eq!(path.recv_flow.target, grown, "after {slow} trips");
    }
}
