//! Driver of a tunnel's HTTP/2 core (`lateen_h2`): it reads and writes bytes and wakes streams. The core validates what peers
//! send, and [`crate::recv_window`] sizes the windows that they are granted. The byte stream below and the shared state with
//! its wakes are parts of `lateen_exchange`.

mod core;
mod rcvlowat;
#[cfg(test)]
mod rest_tests;
#[cfg(test)]
mod tests;
mod tunnel;
mod wire;

pub(crate) use core::{Broken, News, Shared, is_visible};
pub(crate) use tunnel::{EndOnDrop, begin, set_allowance};
pub use wire::Below;
pub(crate) use wire::{Wire, farewell};
