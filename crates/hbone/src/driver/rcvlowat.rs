//! The low-water mark of a tunnel's socket (SO_RCVLOWAT): how many bytes must arrive before its reader wakes.
//!
//! A wake-up costs as much as reading tens of kilobytes. Within a frame the reader knows that more comes, and that nothing else
//! comes before it. On a quick path the reader sleeps until a good part of the frame is there.

use std::time::Duration;

use lateen_h2::Timestamp;

/// Bytes that are waited for, at most.
const MOST: usize = 64 * 1024;

/// What may have been read of the frame's rest and was not handed out, since it is a part of a TLS record (RFC 8446 §5.1).
const RECORD: usize = 16 * 1024;

/// A path is quick on which [`MOST`] bytes come in this time: for so long a part of a frame lies about while the path stays so,
/// and if it does not until the next PING.
const QUICK: Duration = Duration::from_millis(2);

#[derive(Debug, Default)]
pub(super) struct RcvLowat {
    /// When the last bytes came.
    now: Timestamp,
    /// When there was last nothing more to be read, and what had come by then.
    drained: (Timestamp, u64),
    quick: bool,
    /// What the stream below was told, if it was told anything.
    told: usize,
}

impl RcvLowat {
    /// Something comes.
    pub(super) fn now(&mut self, now: Timestamp) {
        self.now = now;
    }

    /// All was read that is there: `received` bytes so far, and `due` bytes of a frame still to come. Gives how many to wait
    /// for, where that is not what it was.
    pub(super) fn wait(&mut self, received: u64, due: u32) -> Option<usize> {
        let came = received - self.drained.1;
        if came > 0 {
            let took = self.now.since(self.drained.0).as_micros();
            self.quick = u128::from(came) * QUICK.as_micros() >= took * MOST as u128;
            self.drained = (self.now, received);
        }
        let bytes = match self.quick {
            true => (due as usize).saturating_sub(RECORD).clamp(1, MOST),
            false => 1,
        };
        let before = std::mem::replace(&mut self.told, bytes);
        (before.max(1) != bytes).then_some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A reader that finds so many bytes each so many microseconds, and then that `due` are to come; what it is told last.
    fn told(bytes: u64, micros: u64, due: u32) -> usize {
        let mut rcvlowat = RcvLowat::default();
        let mut told = 1;
        for turn in 1..=3 {
            rcvlowat.now(Timestamp::from_micros(turn * micros));
            told = rcvlowat.wait(turn * bytes, due).unwrap_or(told);
        }
        told
    }

    #[test]
    fn on_a_quick_path_a_reader_waits_for_what_must_come_but_a_record() {
        assert_eq!(told(65_536, 1000, 50_000), 50_000 - RECORD);
        assert_eq!(told(65_536, 1000, 250_000), MOST);
        assert_eq!(told(65_536, 1000, RECORD as u32), 1);
        assert_eq!(told(65_536, 1000, 0), 1);
    }

    #[test]
    fn on_a_slow_path_it_is_woken_by_each_byte() {
        assert_eq!(told(65_536, 3000, 250_000), 1);
        assert_eq!(told(1448, 100, 250_000), 1);
    }

    proptest! {
        /// It is never told to wait for more than comes, whatever of it lies below as a part of a record.
        #[test]
        fn what_is_waited_for_comes(
            steps in prop::collection::vec((0u64..300_000, 0u64..5000, 0u32..300_000), 0..50),
        ) {
            let mut rcvlowat = RcvLowat::default();
            let (mut received, mut now, mut told) = (0, 0, 1);
            for (bytes, micros, due) in steps {
                (received, now) = (received + bytes, now + micros);
                if bytes > 0 {
                    rcvlowat.now(Timestamp::from_micros(now));
                }
                let word = rcvlowat.wait(received, due);
                prop_assert!(word != Some(told), "told twice");
                told = word.unwrap_or(told);
                prop_assert!(told == 1 || told + RECORD <= due as usize && told <= MOST);
            }
        }
    }
}
