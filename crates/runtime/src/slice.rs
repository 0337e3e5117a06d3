//! The scheduler's slice of a worker thread, chosen by the connections that its turns serve.
//!
//! A worker with a short slice preempts what runs when bytes arrive over a network, and answers sooner. Between two processes of one
//! node it would preempt the process that has just written, sleep again before the answer is there, and be woken twice for a request.

use std::cell::Cell;
use std::time::Duration;

use lateen_os::{reset_slice, set_slice};

/// The kind of connection that a turn of a worker serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// A connection both of whose ends are processes of this node.
    WithinNode,
    /// Every other connection.
    Other,
}

/// Turns after which the slice is chosen anew.
const PERIOD: u32 = 256;

/// The counts by which the slice is chosen.
#[derive(Clone, Copy, Debug, Default)]
struct Choice {
    /// Turns since the last choice.
    turns: u32,
    /// Those of them that served connections within the node.
    within: u32,
    /// True if the thread has the system's slice.
    system: bool,
}

impl Choice {
    /// Counts a turn. The answer is whether the thread is to have the system's slice, if that changes: it is from three quarters of
    /// the turns within the node on, and until they are fewer than half.
    fn count(&mut self, turn: Turn) -> Option<bool> {
        self.turns += 1;
        self.within += u32::from(turn == Turn::WithinNode);
        if self.turns < PERIOD {
            return None;
        }
        let least = if self.system {
            PERIOD / 2
        } else {
            PERIOD / 4 * 3
        };
        let system = self.within >= least;
        let changes = system != self.system;
        *self = Self {
            system,
            ..Self::default()
        };
        changes.then_some(system)
    }
}

thread_local! {
    /// The slice that a worker was started with, and what it has counted. A thread that has no slice of its own has none here.
    static WORKER: Cell<Option<(Duration, Choice)>> = const { Cell::new(None) };
}

/// Gives the calling thread, a worker, its slice; `None` leaves it with the system's for ever.
pub(crate) fn begin(slice: Option<Duration>) {
    let own = slice.filter(|_| set_slice(slice));
    WORKER.set(own.map(|slice| (slice, Choice::default())));
}

/// Counts a turn of the calling worker. Its slice changes with the kind of most turns.
pub fn count_turn(turn: Turn) {
    let Some((slice, mut choice)) = WORKER.get() else {
        return;
    };
    let system = choice.count(turn);
    WORKER.set(Some((slice, choice)));
    match system {
        None => {}
        Some(true) => reset_slice(),
        Some(false) => {
            set_slice(Some(slice));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts a period, of which so many turns are within the node.
    fn period(choice: &mut Choice, within: u32) -> Option<bool> {
        let turns = (0..PERIOD).map(|turn| {
            let near = turn < within;
            choice.count(if near { Turn::WithinNode } else { Turn::Other })
        });
        let said: Vec<_> = turns.flatten().collect();
        assert!(said.len() <= 1, "it chooses once in a period");
        said.first().copied()
    }

    #[test]
    fn the_system_s_slice_is_for_workers_that_serve_within_the_node() {
        let mut choice = Choice::default();
        assert_eq!(period(&mut choice, 0), None, "the short slice is there");
        assert_eq!(period(&mut choice, 191), None, "too few");
        assert_eq!(period(&mut choice, 192), Some(true));
        assert_eq!(period(&mut choice, 256), None, "it stays");
        assert_eq!(period(&mut choice, 128), None, "half is enough to stay");
        assert_eq!(period(&mut choice, 127), Some(false));
        assert_eq!(period(&mut choice, 128), None, "and not enough to change");
    }

    #[test]
    fn a_thread_that_was_left_to_the_system_counts_nothing() {
        std::thread::spawn(|| {
            begin(None);
            count_turn(Turn::WithinNode);
            assert!(WORKER.get().is_none());
            begin(Some(Duration::from_micros(100)));
            count_turn(Turn::WithinNode);
            let (_, choice) = WORKER.get().unwrap();
            assert_eq!((choice.turns, choice.within), (1, 1));
        })
        .join()
        .unwrap();
    }
}
