//! HTTP/1.1 messages as state machines: bytes in, messages out, no socket and no clock.
//! Only what a load generator and its target need is here: no cookies, no upgrades, no caching.

mod body;
mod head;
mod response;

pub use head::is_token;
pub use response::{Response, ResponseParser};

/// Bytes from a peer that are not HTTP/1.1, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("malformed message: {0}")]
pub struct Malformed(pub &'static str);
