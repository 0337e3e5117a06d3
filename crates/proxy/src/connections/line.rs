//! One connection as a line of JSON.

use std::net::SocketAddr;

use lateen_telemetry::ResponseFlags;
use lateen_types::Strng;
use serde::Serialize;

use crate::connection_table::Denial;

/// One end of a connection, as far as it is known.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct End {
    pub(super) address: Option<SocketAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) workload: Option<Strng>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) namespace: Option<Strng>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) identity: Option<String>,
}

/// Bytes that have passed in each direction. The names are those of the ends, so that both proxies use them alike.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Passed {
    pub(super) client_to_server: u64,
    pub(super) server_to_client: u64,
}

/// A connection, or an event of it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Line {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) event: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<String>,
    /// The same at both ends: the parent-id of the W3C traceparent that the client's proxy sends with its request. A number
    /// of eight random bytes, which only these two proxies give to this connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) pair: Option<String>,
    pub(super) direction: &'static str,
    pub(super) source: End,
    pub(super) destination: End,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) service: Option<Strng>,
    /// The protocol that the client speaks, where this proxy reads it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) protocol: Option<&'static str>,
    /// Requests under way, where this proxy reads them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) requests: Option<usize>,
    /// Where the client wanted to go, if that is not the destination's address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) wanted: Option<SocketAddr>,
    /// True if the connection goes through a tunnel, whose two ends have proven who they are.
    pub(super) tunnelled: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tunnel: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) allowed_by: Option<String>,
    /// The policies of this proxy that refused it or ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) denied: Option<Denial>,
    /// True if the server's proxy refused it by a policy. This proxy does not learn which.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) denied_by_peer: bool,
    /// True of an attempt that failed, after which the proxy tried another endpoint.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) retried: bool,
    /// The policies in dry run that would refuse it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) would_deny: Option<Denial>,
    pub(super) state: &'static str,
    pub(super) seconds: f64,
    pub(super) bytes: Passed,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) flags: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<Box<str>>,
}

impl Line {
    pub(super) fn denied(&self) -> bool {
        self.denied_by_peer || self.flags == Some(ResponseFlags::Denied.as_str())
    }
}
