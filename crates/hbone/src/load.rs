//! Stream counts of a tunnel.

use std::cell::Cell;
use std::rc::Rc;

use lateen_exchange::StalledWindow;
use tokio::time::Instant;

use crate::send_buffer::SendBuffer;

/// The credit below which a peer counts as having none: it may wait for room for a whole frame.
const LEAST_CREDIT: u32 = 4096;

/// How many streams a tunnel carries, and since when it carries none.
#[derive(Debug)]
pub(crate) struct Load {
    active: Cell<usize>,
    /// Those of them that were answered with 200.
    accepted: Cell<usize>,
    /// Bytes whose credit went back to the peer.
    read: Cell<u64>,
    idle_since: Cell<Instant>,
    /// The tunnel's number with its owner, 0 until it has one.
    number: Cell<u64>,
    /// The window that we give the peer, which unread streams may keep.
    window: StalledWindow,
    send_buffer: Rc<SendBuffer>,
}

impl Load {
    pub(crate) fn new(send_buffer: &Rc<SendBuffer>) -> Rc<Self> {
        Rc::new(Load {
            active: Cell::new(0),
            accepted: Cell::new(0),
            read: Cell::new(0),
            idle_since: Cell::new(Instant::now()),
            number: Cell::new(0),
            window: StalledWindow::default(),
            send_buffer: Rc::clone(send_buffer),
        })
    }

    /// The tunnel's number with its owner, 0 if it has none.
    pub(crate) fn number(&self) -> u64 {
        self.number.get()
    }

    /// Names the tunnel for its owner.
    pub(crate) fn set_number(&self, number: u64) {
        self.number.set(number);
    }

    pub(crate) fn active(&self) -> usize {
        self.active.get()
    }

    /// Streams that were accepted.
    pub(crate) fn accepted(&self) -> usize {
        self.accepted.get()
    }

    /// A request was granted.
    pub(crate) fn accept(&self) {
        self.accepted.set(self.accepted.get() + 1);
    }

    /// A stream that was granted is over.
    pub(crate) fn leave(&self) {
        self.accepted.set(self.accepted.get() - 1);
    }

    /// Bytes whose credit went back to the peer, on all streams so far.
    pub(crate) fn read(&self) -> u64 {
        self.read.get()
    }

    pub(crate) fn set_read(&self, bytes: u64) {
        self.read.set(bytes);
    }

    /// Takes note of the bytes that the peer may still send on the connection.
    pub(crate) fn set_credit(&self, credit: u32) {
        self.window.set(credit >= LEAST_CREDIT);
    }

    /// True if the peer may send nothing on any stream, since our readers keep the whole window.
    pub(crate) fn is_unread(&self) -> bool {
        self.window.withheld()
    }

    /// The tunnel's account of what waits to be written.
    pub(crate) fn send_buffer(&self) -> &Rc<SendBuffer> {
        &self.send_buffer
    }

    /// Since when the tunnel has had no stream; `None` while it has one.
    pub(crate) fn idle_since(&self) -> Option<Instant> {
        (self.active.get() == 0).then(|| self.idle_since.get())
    }

    /// Counts one stream until the slot is dropped.
    pub(crate) fn occupy(self: &Rc<Self>) -> Slot {
        self.active.set(self.active.get() + 1);
        Slot(Rc::clone(self))
    }
}

/// One stream's share of the [`Load`].
#[derive(Debug)]
pub(crate) struct Slot(Rc<Load>);

impl Slot {
    pub(crate) fn load(&self) -> &Load {
        &self.0
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let load = &self.0;
        let left = load.active.get() - 1;
        load.active.set(left);
        if left == 0 {
            load.idle_since.set(Instant::now());
        }
    }
}
