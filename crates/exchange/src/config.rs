//! Parameters of a connection: protocol, limits on memory, and time-outs.

use std::time::Duration;

use lateen_http::Limits;

use crate::account::Account;

/// The protocol of a connection. The caller knows it from ALPN, from configuration or from the first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1 and HTTP/1.0 (RFC 9112).
    Http1,
    /// HTTP/2 (RFC 9113), with prior knowledge or behind ALPN `h2`.
    Http2,
}

/// The parameters of a connection, as a client or a server.
#[derive(Debug, Clone)]
pub struct Config {
    /// The protocol.
    pub protocol: Protocol,
    /// Limits of HTTP/1.
    pub http1: lateen_h1::Config,
    /// Limits, windows and abuse allowances of HTTP/2.
    pub http2: lateen_h2::SharedConfig,
    /// Limits of heads in both protocols.
    pub limits: Limits,
    /// Content of HTTP/1, in bytes, that may wait for its reader before the socket is read no more. One read buffer of
    /// [`BUFFER`](crate::BUFFER) bytes may come on top.
    pub receive_buffer: usize,
    /// Bytes of HTTP/1 that may wait for the socket before senders wait.
    pub send_buffer: usize,
    /// HTTP/1, a server: a client that ends its direction may still wait for the answer (RFC 9112 §9.5). Otherwise it counts as
    /// gone, as with Envoy, and its exchange fails with [`ConnectionError::ClosedByPeer`](crate::ConnectionError::ClosedByPeer).
    pub half_close: bool,
    /// A server: the peer's account, which its requests and the answers that it does not read are charged to. None: neither is
    /// counted. A client charges its exchanges, see [`Exchange::charge`](crate::client::Exchange::charge).
    pub account: Option<Account>,
    /// Time-outs. None needs no timer of the runtime; tests and measurements use it.
    pub timeouts: Option<Timeouts>,
}

/// Time-outs of a connection. They are checked once in [`Timeouts::check_interval`], so each may take that much longer.
#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    /// The interval of the checks.
    pub check_interval: Duration,
    /// The time within which a request head must be complete, from its first byte. An HTTP/1 client that takes longer gets 408. In HTTP/2 it
    /// holds for every header block, and its connection ends.
    pub head: Duration,
    /// The time after which a connection without an open exchange drains, and so ends in order. A drained peer may leave the last
    /// bytes of an answer unread for as long. None keeps the connection.
    pub idle: Option<Duration>,
    /// The time without input after which HTTP/2 sends a PING.
    pub ping_after: Duration,
    /// The time without input behind such a PING after which the peer counts as gone. A connection that has drained and has
    /// nothing left to send ends after the same time, if the peer does not end it. A request of HTTP/2 whose exchange was dropped behind its
    /// answer is reset after once to twice this time, if the peer has not taken the rest of it.
    pub ping_timeout: Duration,
    /// The time for which a connection that failed still reads, so that the peer can read the last answer before a reset.
    pub linger: Duration,
}

impl Config {
    /// The defaults of a protocol: Istio's limits on heads, and the windows of [`lateen_h2::Config::requests`].
    pub fn new(protocol: Protocol) -> Self {
        Config {
            protocol,
            http1: lateen_h1::Config::default(),
            http2: lateen_h2::Config::requests().share(),
            limits: Limits::default(),
            receive_buffer: 64 * 1024,
            send_buffer: 256 * 1024,
            half_close: true,
            account: None,
            timeouts: Some(Timeouts::default()),
        }
    }
}

impl Default for Timeouts {
    fn default() -> Self {
        Timeouts {
            check_interval: Duration::from_secs(1),
            head: Duration::from_secs(60),
            idle: Some(Duration::from_secs(3600)),
            ping_after: Duration::from_secs(10),
            ping_timeout: Duration::from_secs(20),
            linger: Duration::from_secs(1),
        }
    }
}
