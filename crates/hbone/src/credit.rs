//! What a peer lets us send on all streams of a tunnel together, read off the wire: the HTTP/2 layer does not tell.

use std::cell::Cell;
use std::time::Duration;

use tokio::time::Instant;

/// The window of every connection at its start (RFC 9113 §6.9.2).
const INITIAL: i64 = 65_535;

/// A peer that reads gives some of the window back within a round trip. One whose applications keep all of it for longer
/// has nothing for others.
const PATIENCE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Credit {
    left: Cell<i64>,
    /// Since when nothing is left.
    spent: Cell<Option<Instant>>,
}

impl Credit {
    pub(crate) fn new() -> Self {
        Credit {
            left: Cell::new(INITIAL),
            spent: Cell::new(None),
        }
    }

    /// So many bytes of DATA went out.
    pub(crate) fn sent(&self, bytes: u32) {
        let left = self.left.get() - i64::from(bytes);
        self.left.set(left);
        if left <= 0 && self.spent.get().is_none() {
            self.spent.set(Some(Instant::now()));
        }
    }

    /// Something is left, or nothing, as is known without an account.
    pub(crate) fn set(&self, left: bool) {
        if left {
            self.spent.set(None);
        } else if self.spent.get().is_none() {
            self.spent.set(Some(Instant::now()));
        }
    }

    /// The peer grants so many more.
    pub(crate) fn granted(&self, bytes: u32) {
        let left = self.left.get() + i64::from(bytes);
        self.left.set(left);
        if left > 0 {
            self.spent.set(None);
        }
    }

    /// True if the peer has let nothing through for so long that more streams would only wait with the others.
    pub(crate) fn withheld(&self) -> bool {
        self.spent
            .get()
            .is_some_and(|since| since.elapsed() >= PATIENCE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn is_withheld_when_nothing_is_granted_for_a_while() {
        let credit = Credit::new();
        let wait = || tokio::time::sleep(2 * PATIENCE);
        credit.granted(1);
        credit.sent(65_535);
        wait().await;
        assert!(!credit.withheld());
        credit.sent(1);
        assert!(!credit.withheld());
        wait().await;
        assert!(credit.withheld());
        credit.granted(1);
        assert!(!credit.withheld());
        // Granted and used at once, again and again: it moves.
        for _ in 0..10 {
            credit.sent(1);
            tokio::time::sleep(PATIENCE / 2).await;
            assert!(!credit.withheld());
            credit.granted(1);
        }
    }
}
