//! State that a tunnel's handles share with its driver.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::Waker;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::error::TunnelError;
use crate::load::Load;

/// State of one tunnel.
#[derive(Debug)]
pub(super) struct State {
    pub(super) load: Rc<Load>,
    /// The driver is to ask the peer whether it is there.
    pub(super) probe: Cell<bool>,
    /// The driver is to ask so again and again.
    pub(super) keep_probing: Cell<bool>,
    /// The driver is to send a PING whose answer may take the usual time.
    pub(super) ask: Cell<bool>,
    /// When a PING was answered last; the beginning, if none was.
    pub(super) answers: Cell<Instant>,
    /// Wakes the driver.
    pub(super) driver: RefCell<Option<Waker>>,
    pub(super) probe_after: Duration,
    pub(super) probe_timeout: Duration,
    /// Streams that the peer allows at once.
    pub(super) limit: Cell<usize>,
    /// The limit is the peer's word and not an assumption.
    pub(super) limit_known: Cell<bool>,
    /// The limit was lowered, the peer fell silent or answered a PING, or the tunnel ended.
    pub(super) news: Notify,
    /// The peer did not answer a probe, nor say anything else: the tunnel is for what is open on it, if that is not lost.
    pub(super) silent: Cell<bool>,
    /// Requests that wait for their answers.
    pub(super) awaited: Cell<usize>,
    /// The peer has answered a request.
    pub(super) answered: Cell<bool>,
    /// Counts what went out: while it stands still nothing has gone to the peer.
    pub(super) writes: Rc<Cell<u64>>,
    /// Why the connection ended, if one side does not accept the other.
    pub(super) rejection: RefCell<Option<Rc<TunnelError>>>,
}

impl State {
    /// Has the driver do what the flag stands for.
    pub(super) fn tell(&self, flag: &Cell<bool>) {
        flag.set(true);
        if let Some(driver) = self.driver.take() {
            driver.wake();
        }
    }
}
