//! Connections to endpoints: pooled by endpoint and protocol, opened when there is none, each carrying many requests.

mod error;
mod idle;
mod lease;
mod owner;
mod pool;
mod resets;
mod shared;
mod wire;

pub(super) use error::UpstreamError;
pub(super) use lease::Lease;
pub(super) use owner::{Assigned, Owner};
pub(super) use pool::{Upstream, Upstreams};
pub(super) use wire::{Ends, FarEnd, Wire};
