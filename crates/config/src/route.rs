//! Where a connection goes, and whether a tunnelled one may come in. Pure: the caller brings the snapshot, the addresses
//! and the randomness, and does the dialling.

mod inbound;
mod outbound;

pub use inbound::{Inbound, InboundRefusal, inbound_service, validate_inbound};
pub use outbound::{Refusal, Route, outbound};
