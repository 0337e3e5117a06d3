//! The headers of a CONNECT request as types. Parsing is tolerant where a header only informs
//! (baggage, forwarded, traceparent) and strict where it decides (the authority).

mod authority;
mod baggage;
mod forwarded;
mod traceparent;

pub use authority::{Authority, AuthorityError};
pub use baggage::{Baggage, WorkloadKind};
pub use forwarded::Forwarded;
pub use traceparent::TraceParent;

pub(crate) const BAGGAGE: &str = "baggage";
pub(crate) const FORWARDED: &str = "forwarded";
pub(crate) const TRACEPARENT: &str = "traceparent";
/// The origin network, set on the inner request of a tunnel in a tunnel.
pub(crate) const FORWARDED_NETWORK: &str = "x-forwarded-network";
