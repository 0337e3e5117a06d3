//! Immediate acknowledgement (TCP_QUICKACK) for peers that write in pieces and wait for the acknowledgement of each.
//!
//! Without TCP_NODELAY a kernel keeps a small piece back while an earlier one is unacknowledged (RFC 9293 §3.7.4). On a
//! connection of requests and answers, the other kernel delays its acknowledgements by 40 ms (Linux, tcp_input.c: "pingpong"
//! mode). Collecting pieces here does not help, since the second piece does not come. An immediate acknowledgement does.
//!
//! It costs a call and a packet, so only connections that have stalled pay for it. Only those whose peers write in pieces pay
//! for reading the clock.

use std::sync::LazyLock;
use std::time::Instant;

/// What only a delayed acknowledgement explains on a connection to a pod of this node, in milliseconds; the kernel's least
/// is 40.
const STALL: u32 = 30;

/// Milliseconds since this was first asked. They wrap around after 49 days, and nothing is compared that long. A relay
/// keeps four bytes of it for each stream, where an instant has sixteen.
pub(crate) fn clock() -> u32 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    START.elapsed().as_millis() as u32
}

/// What is known of a peer's habit.
#[derive(Debug, Default)]
pub(crate) struct QuickAck {
    /// When the first piece of an answer came, while the second is waited for.
    first: u32,
    waiting: bool,
    /// Something was read, and nothing written since.
    again: bool,
    habit: Habit,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum Habit {
    /// Each answer came in one piece.
    #[default]
    Whole,
    /// Answers come in pieces.
    Pieces,
    /// A second piece waited for our acknowledgement.
    Waits,
}

impl QuickAck {
    /// Something was written to the peer.
    pub(crate) fn wrote(&mut self) {
        self.again = false;
    }

    /// A read took all that was there; `true` when it had better be acknowledged at once. `now` is [`clock`].
    pub(crate) fn read(&mut self, now: impl FnOnce() -> u32) -> bool {
        let again = std::mem::replace(&mut self.again, true);
        let waited = std::mem::take(&mut self.waiting);
        if self.habit == Habit::Whole && again {
            self.habit = Habit::Pieces;
        } else if self.habit == Habit::Pieces && !again {
            self.first = now();
            self.waiting = true;
        } else if waited && now().wrapping_sub(self.first) >= STALL {
            self.habit = Habit::Waits;
        }
        self.habit == Habit::Waits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays a script: `w` is a write, a number a read that many milliseconds after the last thing. Gives the verdicts of
    /// the reads and how often the clock was looked at.
    fn play(script: &str) -> (Vec<bool>, usize) {
        let (mut peer, mut looks, mut verdicts) = (QuickAck::default(), 0, Vec::new());
        let mut at = u32::MAX - 50; // it wraps around meanwhile
        for step in script.split_whitespace() {
            match step.parse() {
                Ok(ms) => {
                    at = at.wrapping_add(ms);
                    verdicts.push(peer.read(|| {
                        looks += 1;
                        at
                    }));
                }
                Err(_) => peer.wrote(),
            }
        }
        (verdicts, looks)
    }

    #[test]
    fn whole_answers_cost_nothing() {
        assert_eq!(play("w 1 w 90 w 1 w 40"), (vec![false; 4], 0));
    }

    #[test]
    fn pieces_that_wait_are_acknowledged_at_once_from_then_on() {
        // The first stall shows that there are pieces, the second how long they wait.
        let (verdicts, looks) = play("w 1 40 w 1 40 w 1 1 w 1");
        assert_eq!(verdicts, [false, false, false, true, true, true, true]);
        assert_eq!(looks, 2);
    }

    #[test]
    fn pieces_that_come_at_once_are_not() {
        let (verdicts, _) = play("w 1 1 w 1 2 w 1 29 w 1 1");
        assert_eq!(verdicts, [false; 8]);
    }

    #[test]
    fn a_stream_without_answers_looks_at_no_clock() {
        assert_eq!(play("1 50 50 50 50"), (vec![false; 5], 0));
    }
}
