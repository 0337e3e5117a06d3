//! What tests of several roles share: the captured log, loopback addresses of a test's own, and waits that end.

pub mod journal;
pub mod net;
mod waits;

pub use waits::{LONG, soon, until};
