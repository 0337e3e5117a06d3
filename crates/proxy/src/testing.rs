//! What tests of several roles share: the captured log, a resolver, loopback addresses of a test's own, and waits that end.

pub mod dns;
pub mod journal;
pub mod net;
mod waits;

pub use waits::{LONG, soon, until};
