//! Copies bytes between two streams in both directions, with half-close and live counters. The crate neither opens streams nor
//! decides who may talk. It takes two open streams and returns when both directions have ended.
#![forbid(unsafe_code)]

mod chunk;
mod direction;
mod duplex;
mod limits;
mod meter;
mod quickack;
mod reset_grace;
mod run;
mod scratch;
mod socket;

pub use chunk::Chunk;
pub use duplex::Duplex;
pub use limits::Limits;
pub use meter::{Counters, Meter};
pub use run::{Outcome, Relay, RelayError, Side, run};
pub use scratch::{MAX_READ, MIN_READ, ReadSize, read_some};
pub use socket::{Socket, reset_on_close};
