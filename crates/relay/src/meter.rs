//! Counters of the bytes while they flow.

use std::cell::Cell;

/// Receives the bytes of a relay as they are handed to the other side, not when the relay ends.
///
/// Called once a write, so an implementation that holds resolved metric handles costs two additions.
pub trait Meter {
    /// `bytes` went from the relay's first stream to its second.
    fn sent(&self, bytes: u64);
    /// `bytes` went from the relay's second stream to its first.
    fn received(&self, bytes: u64);
    /// Bytes that went between the two without the relay, in all so far: while they come, it does not stand still. Asked
    /// before each time that the relay waits, which is when they may be counted.
    fn beside(&self) -> u64 {
        0
    }
}

/// The plain meter: two numbers that others on this thread can read while the relay runs.
#[derive(Debug, Default)]
pub struct Counters {
    sent: Cell<u64>,
    received: Cell<u64>,
}

impl Counters {
    /// Bytes from the first stream to the second so far.
    pub fn sent(&self) -> u64 {
        self.sent.get()
    }

    /// Bytes from the second stream to the first so far.
    pub fn received(&self) -> u64 {
        self.received.get()
    }
}

impl Meter for Counters {
    fn sent(&self, bytes: u64) {
        self.sent.set(self.sent.get() + bytes);
    }

    fn received(&self, bytes: u64) {
        self.received.set(self.received.get() + bytes);
    }
}

impl<M: Meter + ?Sized> Meter for &M {
    fn sent(&self, bytes: u64) {
        (**self).sent(bytes);
    }

    fn received(&self, bytes: u64) {
        (**self).received(bytes);
    }

    fn beside(&self) -> u64 {
        (**self).beside()
    }
}

impl<M: Meter + ?Sized> Meter for std::rc::Rc<M> {
    fn sent(&self, bytes: u64) {
        (**self).sent(bytes);
    }

    fn received(&self, bytes: u64) {
        (**self).received(bytes);
    }

    fn beside(&self) -> u64 {
        (**self).beside()
    }
}
