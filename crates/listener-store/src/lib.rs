//! Client of the node agent's listener store. A process gives a pod's listeners to the agent, and the next process takes them, so
//! that a hand-over refuses no connection. The store shares the ledgers of open connections too.
//!
//! Without an agent that has a store, every answer is as if the store were empty.

mod client;
mod ledger;
mod message;

pub use client::{Event, ListenerStore};
pub use ledger::{Ledger, RECORD, Record, Shared};
pub use message::{Answer, Malformed};
