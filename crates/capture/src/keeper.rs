//! The listener keeper's client: a pod's listeners are given to the node agent and taken from it again by the next
//! process, so that a hand-over refuses nobody. What the sockets are for, and when a process ends, is decided elsewhere.
//!
//! Without an agent that keeps, everything answers as if it held nothing.

mod client;
mod ledger;
mod message;

pub use client::{Event, Keeper};
pub use ledger::{Ledger, RECORD, Record, Shared};
pub use message::{Answer, Malformed, Named};
