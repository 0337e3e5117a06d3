//! Connections to endpoints: pooled by endpoint and protocol, opened when there is none, each carrying many requests.

mod error;
mod idle;
mod lease;
mod pool;
mod resets;
mod shared;
mod tunnel_owner;
mod wire;

pub(super) use error::UpstreamError;
pub(super) use lease::Lease;
pub(super) use pool::{Upstream, Upstreams};
pub(super) use tunnel_owner::{Assigned, Owner};
pub(super) use wire::{Ends, FarEnd, Wire};
