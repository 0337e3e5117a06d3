//! Detection of a connection window that stays used up, because readers at its receiving end take nothing. All streams of a connection
//! share the window.

use std::cell::Cell;
use std::time::Duration;

use tokio::time::Instant;

/// A receiver whose applications read gives some of the window back within a round trip. One whose applications keep all of it for
/// longer has nothing for others.
const STALL: Duration = Duration::from_secs(1);

/// The time for which a connection's window has been used up.
#[derive(Debug, Default)]
pub struct StalledWindow {
    /// Since when nothing is left.
    spent: Cell<Option<Instant>>,
}

impl StalledWindow {
    /// Something is left of the connection's window, or nothing.
    pub fn set(&self, left: bool) {
        if left {
            self.spent.set(None);
        } else if self.spent.get().is_none() {
            self.spent.set(Some(Instant::now()));
        }
    }

    /// True if the receiver has let nothing through for so long that more streams would only wait with the others.
    pub fn withheld(&self) -> bool {
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
        let window = StalledWindow::default();
        let wait = || tokio::time::sleep(2 * STALL);
        wait().await;
        assert!(!window.withheld());
        window.set(false);
        assert!(!window.withheld());
        wait().await;
        assert!(window.withheld());
        window.set(true);
        assert!(!window.withheld());
        // Granted and used at once, again and again: it moves.
        for _ in 0..10 {
            window.set(false);
            tokio::time::sleep(STALL / 2).await;
            assert!(!window.withheld());
            window.set(true);
        }
    }
}
