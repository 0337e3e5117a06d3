//! Detection of a peer that gives back none of the connection window, which all streams of a tunnel share.

use std::cell::Cell;
use std::time::Duration;

use tokio::time::Instant;

/// A peer that reads gives some of the window back within a round trip. One whose applications keep all of it for longer
/// has nothing for others.
const STALL: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(crate) struct StalledPeer {
    /// Since when nothing is left.
    spent: Cell<Option<Instant>>,
}

impl StalledPeer {
    /// Something is left of the connection's window, or nothing.
    pub(crate) fn set(&self, left: bool) {
        if left {
            self.spent.set(None);
        } else if self.spent.get().is_none() {
            self.spent.set(Some(Instant::now()));
        }
    }

    /// True if the peer has let nothing through for so long that more streams would only wait with the others.
    pub(crate) fn withheld(&self) -> bool {
        self.spent
            .get()
            .is_some_and(|since| since.elapsed() >= STALL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn is_withheld_when_nothing_is_granted_for_a_while() {
        let peer = StalledPeer::default();
        let wait = || tokio::time::sleep(2 * STALL);
        wait().await;
        assert!(!peer.withheld());
        peer.set(false);
        assert!(!peer.withheld());
        wait().await;
        assert!(peer.withheld());
        peer.set(true);
        assert!(!peer.withheld());
        // Granted and used at once, again and again: it moves.
        for _ in 0..10 {
            peer.set(false);
            tokio::time::sleep(STALL / 2).await;
            assert!(!peer.withheld());
            peer.set(true);
        }
    }
}
