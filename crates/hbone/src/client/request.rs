//! CONNECT requests and what their answers say.

use lateen_types::Strng;

use crate::headers::{Authority, Baggage, Forwarded, TraceParent};

/// A CONNECT request.
#[derive(Debug, Clone)]
pub struct ConnectRequest {
    /// Where the tunnel's far end is to connect to.
    pub authority: Authority,
    /// The source workload, as [`Baggage`] spells it; a string because it is the same for all its connections.
    pub baggage: Option<Strng>,
    /// The application's address and the service that it addressed.
    pub forwarded: Option<Forwarded>,
    /// Joins the log lines of both sides.
    pub traceparent: Option<TraceParent>,
    /// The network where the connection began, on the inner request of a tunnel in a tunnel.
    pub network: Option<Strng>,
}

impl ConnectRequest {
    /// A request without any header.
    pub fn new(authority: impl Into<Authority>) -> Self {
        ConnectRequest {
            authority: authority.into(),
            baggage: None,
            forwarded: None,
            traceparent: None,
            network: None,
        }
    }
}

/// What the peer said with its 200.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResponseInfo {
    /// The destination workload's description of itself.
    pub baggage: Option<Baggage>,
}
