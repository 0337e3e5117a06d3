//! The waypoint role: requests for services that are bound to a Gateway, from the tunnel of a source's proxy to the tunnel of
//! an endpoint's.
//!
//! `role` hands each accepted connection to `tunnel`, which proves its peer and takes streams. `stream` selects a stream's
//! destination and finds its protocol. `http` serves an HTTP connection inside the stream; `request` takes one request from its
//! head to its end, by one `attempt` or several. `failure` says what becomes of a request that no endpoint answers. `tcp` relays
//! what is no HTTP. `state` is what all of them share on one worker, and `view` is the configuration in force.

mod access_log;
mod accounts;
mod attempt;
mod choose;
mod connection_log;
mod date;
mod destination;
mod dial;
mod endpoint;
mod failure;
mod forward;
mod grpc;
mod head;
mod hop;
mod http;
mod leaving;
mod listing;
mod local_reply;
#[cfg(feature = "measured")]
pub mod measured;
#[cfg(feature = "measured")]
mod memory;
mod mesh;
mod metadata;
mod names;
mod numbers;
mod own;
mod policy;
mod record;
mod relays;
mod request;
mod retry;
mod reviews;
mod rewound;
mod role;
mod service_view;
mod session;
mod slots;
mod sniff;
mod sockets;
mod state;
mod stream;
mod strict;
mod switched;
mod tcp;
#[cfg(test)]
mod tests;
mod tunnel;
mod tunnel_quotas;
mod turns;
mod upstream;
mod view;

pub use accounts::Accounts;
#[cfg(test)]
pub use listing::About;
pub use listing::{Destination, Listed, Page};
pub use own::Own;
pub use role::{Entrance, Request, WaypointHandle};
pub use sockets::Sockets;
pub use state::{Timeouts, Waypoint, WaypointConfig};
pub use tunnel_quotas::TunnelQuotas;
