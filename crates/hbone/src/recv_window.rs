//! Size of a tunnel's connection window: as much as its peer uses, and no more than the budget grants.

use std::time::Duration;

use tokio::time::Instant;

use crate::budget::{Budget, Grant};
use crate::load::Load;
use crate::settings::Settings;

/// The window that every connection has from its start (RFC 9113 §6.9.2); it is not taken from a budget.
pub(crate) const FLOOR: u32 = 65_535;

/// A peer that sends half a window within this time may be held up by the window.
const BRISK: Duration = Duration::from_secs(1);

/// A window of which less than half was used at so many ticks running is too large.
const UNUSED: u32 = 3;

/// A connection's flow control as it was on the wire so far.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RecvFlow {
    /// Bytes of the DATA frames that came, with padding and whatever nobody wanted.
    pub(crate) came: u64,
    /// What our WINDOW_UPDATEs of the connection granted.
    pub(crate) granted: u64,
    /// What the peer could make use of on its path: a working window beyond what nobody has read.
    pub(crate) wanted: u32,
}

impl RecvFlow {
    /// What the peer may still send.
    fn credit(self) -> u64 {
        (u64::from(FLOOR) + self.granted).saturating_sub(self.came)
    }
}

/// One tunnel's connection window. HTTP/2 counts unread bytes of a stream against the connection too, so
/// it may grow with the streams: those that nobody reads stall themselves and, while credit lasts, not their neighbours.
///
/// Credit cannot be called back (RFC 9113 §6.9): a peer that got it and falls silent has it for as long as the tunnel
/// stands. So it is granted only to peers that use what they have, for streams that were accepted: one stream's window at
/// first, which then doubles.
#[derive(Debug)]
pub(crate) struct RecvWindow {
    budget: Budget,
    per_stream: u32,
    most: u32,
    /// Taken from the budget: what the peer may use beyond the floor.
    granted: Grant,
    /// The bytes that the peer is to have beyond the floor. Below `granted` while it has credit that cannot be
    /// called back: it goes back to the budget as the peer uses it up.
    target: u32,
    /// [`Load::read`] when `granted` was last settled.
    settled: u64,
    /// [`RecvFlow::granted`] when the window grew last: before it is told, the peer cannot use it.
    untold: Option<u64>,
    /// [`RecvFlow::came`] at some moment not long ago, and the moment.
    mark: (u64, Instant),
    /// [`RecvFlow::came`] at the last tick, and how many ticks running the window was too large.
    tick: (u64, u32),
}

impl RecvWindow {
    pub(crate) fn new(budget: &Budget, per_stream: u32, most: u32) -> Self {
        RecvWindow {
            budget: budget.clone(),
            per_stream,
            // An HTTP/2 window is a positive 32-bit number.
            most: most.min(i32::MAX as u32 - FLOOR),
            granted: Grant::default(),
            target: 0,
            settled: 0,
            untold: None,
            mark: (0, Instant::now()),
            tick: (0, 0),
        }
    }

    fn wanted(&self, load: &Load, inflow: RecvFlow) -> u32 {
        let streams = u32::try_from(load.accepted()).unwrap_or(u32::MAX);
        let most = self.per_stream.saturating_mul(streams).min(self.most);
        most.min(inflow.wanted.saturating_sub(FLOOR))
    }

    /// The connection window, if the streams that there are and what the peer sends ask for a larger one now. Ask
    /// whenever something may have come.
    pub(crate) fn grow(&mut self, load: &Load, inflow: RecvFlow) -> Option<u32> {
        let wanted = self.wanted(load, inflow);
        if wanted <= self.target || !self.is_used(inflow) {
            return None;
        }
        let wanted = wanted.min(self.target.saturating_mul(2).max(self.per_stream));
        self.settle(load);
        if wanted > self.granted.total() {
            self.budget.claim(&mut self.granted, wanted);
        }
        let target = wanted.min(self.granted.total());
        if target <= self.target {
            return None;
        }
        self.untold = Some(inflow.granted);
        Some(self.aim(target))
    }

    /// Whether the window is too small for what the peer does with it: half of it is used up and unread, or half of it
    /// comes within a second, which a window that is renewed all the time does not show otherwise.
    fn is_used(&mut self, inflow: RecvFlow) -> bool {
        if self.untold == Some(inflow.granted) {
            return false;
        }
        let half = u64::from(FLOOR + self.target) / 2;
        if inflow.credit() <= half {
            return true;
        }
        // The clock is asked once in half a window.
        if inflow.came - self.mark.0 < half {
            return false;
        }
        let before = std::mem::replace(&mut self.mark, (inflow.came, Instant::now()));
        self.mark.1.duration_since(before.1) <= BRISK
    }

    /// The size that the connection window may become, as far as the budget can say now: what is granted, or what would be.
    pub(crate) fn reach(&self) -> u32 {
        let granted = self.granted.total().max(self.budget.reach(self.granted));
        FLOOR + granted.min(self.most)
    }

    /// The connection window for the streams that are left, if it is to be smaller; ask at every tick. Where others may
    /// need it, a window that nobody uses shrinks to a first one though its streams stay.
    pub(crate) fn shrink(&mut self, load: &Load, inflow: RecvFlow) -> Option<u32> {
        self.settle(load);
        let mut wanted = self.wanted(load, inflow);
        if self.is_unused(inflow) && self.budget.is_low() {
            wanted = wanted.min(self.budget.first_window());
        }
        if wanted >= self.target {
            return None;
        }
        // What was to be told may never be.
        self.untold = None;
        Some(self.aim(wanted))
    }

    /// Whether less than half the window came at each of the last ticks, and none of it because nobody reads.
    fn is_unused(&mut self, inflow: RecvFlow) -> bool {
        let half = u64::from(FLOOR + self.target) / 2;
        let (before, ticks) = self.tick;
        let unused = inflow.came.saturating_sub(before) < half && inflow.credit() > half;
        self.tick = (inflow.came, if unused { ticks + 1 } else { 0 });
        self.tick.1 >= UNUSED
    }

    /// True if the tunnel, which has been idle for so long, had better make room for others: its peer has credit that
    /// nothing but the tunnel's end brings back.
    pub(crate) fn in_the_way(&self, idle: Duration, settings: &Settings) -> bool {
        self.granted.total() > 0
            && idle >= settings.ping_interval
            && self.budget.is_short(self.granted)
    }

    fn aim(&mut self, target: u32) -> u32 {
        self.target = target;
        FLOOR + target
    }

    /// Returns what the peer has used up of the credit that is not renewed.
    fn settle(&mut self, load: &Load) {
        let read = load.read() - self.settled;
        self.settled = load.read();
        let excess = self.granted.total() - self.target;
        let used = u32::try_from(read).unwrap_or(u32::MAX).min(excess);
        self.budget.release(&mut self.granted, used);
    }
}

impl Drop for RecvWindow {
    fn drop(&mut self) {
        let all = self.granted.total();
        self.budget.release(&mut self.granted, all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    use crate::budget::tests::identity;
    use crate::send_buffer::{SendBudget, SendBuffer};

    const MIB: u32 = 1 << 20;

    fn load() -> std::rc::Rc<Load> {
        Load::new(&std::rc::Rc::new(SendBuffer::new(
            &SendBudget::default(),
            1 << 20,
        )))
    }

    /// A tunnel's peer, and what we are told of it.
    struct Peer {
        load: std::rc::Rc<Load>,
        recv_window: RecvWindow,
        inflow: RecvFlow,
        streams: Vec<Granted>,
    }

    impl Peer {
        fn new(budget: &Budget, streams: usize) -> Self {
            let load = load();
            Peer {
                recv_window: RecvWindow::new(budget, MIB, 16 * MIB),
                inflow: RecvFlow {
                    wanted: u32::MAX,
                    ..RecvFlow::default()
                },
                streams: (0..streams).map(|_| open(&load)).collect(),
                load,
            }
        }

        /// What it sent is read.
        fn read(&self, bytes: u64) {
            self.load.set_read(self.load.read() + bytes);
        }

        /// Nobody reads what it sends.
        fn pour(&mut self) {
            self.inflow.came += self.inflow.credit();
            while self.recv_window.grow(&self.load, self.inflow).is_some() {
                let window = u64::from(FLOOR + self.recv_window.target);
                self.inflow.granted = window - u64::from(FLOOR);
                self.inflow.came = window;
            }
        }
    }

    /// A granted request for as long as it is kept.
    struct Granted(std::rc::Rc<Load>);

    impl Drop for Granted {
        fn drop(&mut self) {
            self.0.leave();
        }
    }

    fn open(load: &std::rc::Rc<Load>) -> Granted {
        load.accept();
        Granted(std::rc::Rc::clone(load))
    }

    #[test]
    fn credit_returns_as_it_is_used_up_and_at_the_end() {
        let budget = Budget::new(64 << 20);
        let mut peer = Peer::new(&budget, 8);
        peer.pour();
        assert_eq!(peer.recv_window.target, 8 * MIB);
        peer.streams.clear();
        assert_eq!(
            peer.recv_window.shrink(&peer.load, peer.inflow),
            Some(FLOOR)
        );
        assert_eq!(budget.granted(), 8 << 20);
        peer.read(3 << 20);
        assert_eq!(peer.recv_window.shrink(&peer.load, peer.inflow), None);
        assert_eq!(budget.granted(), 5 << 20);
        drop(peer);
        assert_eq!(budget.granted(), 0);
    }

    /// Streams stay, and nothing comes on them: what the peer does not use of its credit is for others, once it sends.
    #[test]
    fn a_window_that_is_not_used_gives_way_if_the_ledger_is_low() {
        let budget = Budget::new(64 << 20);
        let mut peer = Peer::new(&budget, 8);
        peer.pour();
        let ticks = |peer: &mut Peer| {
            let told = (0..UNUSED + 1).map(|_| peer.recv_window.shrink(&peer.load, peer.inflow));
            told.flatten().last()
        };
        let mut others: Vec<_> = (0..3).map(|_| Peer::new(&budget, 16)).collect();
        others.iter_mut().for_each(Peer::pour);
        assert!(budget.is_low());
        // All of it came and nobody reads: the window is in use.
        assert_eq!(ticks(&mut peer), None);
        // All of it was read and told.
        peer.read(8 << 20);
        peer.inflow.granted += 8 << 20;
        assert_eq!(ticks(&mut peer), Some(FLOOR + (256 << 10)));
        let before = budget.granted();
        peer.inflow.came += 5 << 20;
        peer.read(5 << 20);
        assert_eq!(peer.recv_window.shrink(&peer.load, peer.inflow), None);
        assert_eq!(before - budget.granted(), 5 << 20);
        // Without need it stays.
        drop(others);
        let mut alone = Peer::new(&budget, 8);
        alone.pour();
        alone.inflow.granted += 8 << 20;
        assert_eq!(ticks(&mut alone), None);
    }

    #[test]
    fn those_who_come_late_find_something() {
        let budget = Budget::new(64 << 20);
        let mut peers: Vec<_> = (0..5).map(|_| Peer::new(&budget, 200)).collect();
        for _ in 0..10 {
            for peer in &mut peers {
                peer.pour();
            }
        }
        let mut late = Peer::new(&budget, 200);
        late.pour();
        assert!(late.recv_window.target >= 2 * MIB);
        assert!(budget.granted() <= 64 << 20);
    }

    #[test]
    fn only_what_is_accepted_and_used_grows_a_window() {
        let budget = Budget::new(64 << 20);
        let mut peer = Peer::new(&budget, 0);
        // Requests that are not answered, whatever comes.
        let _asked: Vec<_> = (0..50).map(|_| peer.load.occupy()).collect();
        peer.inflow.came = u64::from(FLOOR);
        assert_eq!(peer.recv_window.grow(&peer.load, peer.inflow), None);
        // Streams that say nothing.
        let mut peer = Peer::new(&budget, 50);
        assert_eq!(peer.recv_window.grow(&peer.load, peer.inflow), None);
        peer.inflow.came = u64::from(FLOOR) / 2 - 100;
        assert_eq!(peer.recv_window.grow(&peer.load, peer.inflow), None);
        peer.inflow.came += 101;
        assert_eq!(
            peer.recv_window.grow(&peer.load, peer.inflow),
            Some(FLOOR + MIB)
        );
        // It has not been told yet.
        assert_eq!(peer.recv_window.grow(&peer.load, peer.inflow), None);
        assert_eq!(budget.granted(), 1 << 20);
    }

    #[tokio::test(start_paused = true)]
    async fn a_window_that_is_renewed_at_once_grows_with_the_pace() {
        let half = u64::from(FLOOR) / 2;
        for (pace, grows) in [(10, true), (900, true), (1_100, false), (60_000, false)] {
            let budget = Budget::new(64 << 20);
            let mut peer = Peer::new(&budget, 1);
            let mut grown = false;
            for _ in 0..20 {
                tokio::time::sleep(Duration::from_millis(pace / 4)).await;
                peer.inflow.came += half / 4 + 1;
                peer.inflow.granted = peer.inflow.came;
                grown |= peer.recv_window.grow(&peer.load, peer.inflow).is_some();
            }
            assert_eq!(grown, grows, "half a window in {pace} ms");
        }
    }

    proptest! {
        #[test]
        fn never_lends_more_than_there_is(
            limit in 0usize..20_000_000,
            steps in prop::collection::vec((0usize..4, 0usize..40, 0u64..5_000_000, any::<bool>()), 0..80),
        ) {
            let budget = Budget::new(limit);
            let accounts = [
                budget.clone(),
                budget.between(&identity("a"), "x"),
                budget.between(&identity("b"), "x"),
                budget.between(&identity("b"), "y"),
            ];
            let mut peers = accounts.map(|account| Peer::new(&account, 0));
            for (which, streams, read, shrink) in steps {
                let peer = &mut peers[which];
                peer.streams.truncate(streams);
                while peer.streams.len() < streams {
                    peer.streams.push(open(&peer.load));
                }
                peer.read(read);
                if shrink {
                    peer.recv_window.shrink(&peer.load, peer.inflow);
                } else {
                    peer.pour();
                }
                prop_assert!(budget.granted() <= limit);
                let sum: usize = peers.iter().map(|p| p.recv_window.granted.total() as usize).sum();
                prop_assert_eq!(sum, budget.granted());
                prop_assert!(peers.iter().all(|p| p.recv_window.target <= p.recv_window.granted.total()));
            }
            drop(peers);
            prop_assert_eq!(budget.granted(), 0);
        }
    }
}
