//! The choice of a connection's next hop, and the admission of an inbound tunnel. Pure: the caller brings the snapshot,
//! the addresses and the randomness, and does the dialling.

mod authority;
mod candidates;
mod choose;
mod gateway;
mod hop;
mod inbound;
mod outbound;
mod outside;
mod place;
mod refusal;

pub use authority::Authority;
pub use candidates::Candidates;
pub use hop::{Choice, Inner, NextHop, Resolve, Tunnel, Via};
pub use inbound::{Handover, Inbound, InboundRefusal, inbound, inbound_service};
pub use outbound::{outbound, outbound_to, outbound_to_workload};
pub use outside::{is_wildcard, own_machine};
pub use refusal::Refusal;
