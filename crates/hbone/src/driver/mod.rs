//! Tunnels on our own HTTP/2 core (`lateen_h2`), which is driven here: bytes are read and written, streams are woken. What
//! peers may do is the core's to judge; what windows are lent is [`crate::windows`]'s.

pub(crate) mod client;
mod core;
mod inbox;
mod patience;
#[cfg(test)]
mod rest_tests;
pub(crate) mod server;
pub(crate) mod stream;
#[cfg(test)]
mod tests;
mod wire;

pub(crate) use core::Shared;
pub use wire::Below;
