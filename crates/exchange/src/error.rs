//! Errors of connections and exchanges, which name their cause.

use std::io;
use std::rc::Rc;

use lateen_h2::Code;

/// The end of a connection that was not orderly.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ConnectionError {
    /// The byte stream failed.
    #[error("connection failed: {0}")]
    Io(Rc<io::Error>),
    /// The peer broke a rule of HTTP/1.
    #[error(transparent)]
    Http1(#[from] lateen_h1::Error),
    /// The peer broke a rule of HTTP/2.
    #[error(transparent)]
    Http2(#[from] lateen_h2::ConnectionError),
    /// The peer ended the connection with an error (RFC 9113 §6.8).
    #[error("peer ended the connection with GOAWAY {0}")]
    GoAway(Code),
    /// The peer closed the byte stream while exchanges were open.
    #[error("peer closed the connection before the exchange was complete")]
    ClosedByPeer,
    /// The owner of this side's connection dropped it.
    #[error("connection was closed on this side")]
    Closed,
    /// A request head was not complete in time; see [`Timeouts::head`](crate::Timeouts::head).
    #[error("peer did not complete a request head in time")]
    HeadTimeout,
    /// The peer kept a connection open that had drained and had no exchange; see [`Timeouts::idle`](crate::Timeouts::idle).
    #[error("peer did not close an idle connection in time")]
    IdleTimeout,
    /// A message had no room in its account; see [`Account`](crate::Account). Over HTTP/1 an answer or a request waited too long for it.
    /// Over HTTP/2 a header block had none.
    #[error(
        "message had no room, since connections of its client hold as much as they may; answers and content should be read"
    )]
    OverLimit,
    /// A PING was not answered in time; see [`Timeouts::ping_timeout`](crate::Timeouts::ping_timeout).
    #[error("peer did not answer a PING in time")]
    PingTimeout,
    /// A server of HTTP/2 did not read in a minute what waited for it at its beginning. The clients' accounts paid for their frames of it.
    #[error("peer did not read for a minute what waited for it")]
    Unread,
    /// An exchange on HTTP/1 was dropped before it was complete, so the connection cannot go on.
    #[error("connection ended because an exchange was dropped before it was complete")]
    Abandoned,
}

impl ConnectionError {
    /// True if the peer, or the byte stream, ended the connection, and no byte of an open answer of HTTP/1 is known to have come.
    pub fn is_silent(&self) -> bool {
        matches!(
            self,
            ConnectionError::Io(_)
                | ConnectionError::ClosedByPeer
                | ConnectionError::GoAway(_)
                | ConnectionError::Http1(lateen_h1::Error::ClosedUnanswered)
        )
    }

    /// The status with which an HTTP/1 client is told of its own fault, unless an answer had begun. 0: the peer broke a rule of
    /// HTTP/2. None: the peer broke no rule.
    pub fn fault(&self) -> Option<u16> {
        match self {
            ConnectionError::Http1(lateen_h1::Error::Truncated) => None,
            ConnectionError::Http1(error) => Some(error.status()),
            ConnectionError::Http2(_) => Some(0),
            _ => None,
        }
    }
}

impl From<io::Error> for ConnectionError {
    fn from(error: io::Error) -> Self {
        ConnectionError::Io(Rc::new(error))
    }
}

/// The failure of one exchange.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The peer reset the stream (RFC 9113 §6.4).
    #[error("peer reset the stream: {0}")]
    Reset(Code),
    /// The peer broke a rule of the stream, which was reset.
    #[error(transparent)]
    Stream(#[from] lateen_h2::StreamError),
    /// The peer did not process the request, which may be sent again on another connection (RFC 9113 §8.7).
    #[error("peer did not process the request")]
    Unprocessed,
    /// The peer's answer has an invalid head.
    #[error("peer sent an invalid answer: {0}")]
    Answer(#[from] lateen_http::Refusal),
    /// The connection ended.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    /// The connection takes no request now: it is closing, or as many are open as it allows.
    #[error("connection takes no request: {0}")]
    NotTaken(&'static str),
    /// The request's head is larger than the peer accepts by its SETTINGS (RFC 9113 §6.5.2). Nothing was sent; another peer may
    /// accept it.
    #[error(
        "the request's head is larger than the peer accepts: it exceeds the peer's SETTINGS_MAX_HEADER_LIST_SIZE"
    )]
    HeadTooLarge,
    /// The head or the content does not fit the protocol or the state of the exchange.
    #[error("message cannot be written: {0}")]
    Write(#[from] lateen_h1::WriteError),
    /// The request for a WebSocket over HTTP/1 has no key.
    #[error("request for a WebSocket over HTTP/1 needs a sec-websocket-key")]
    WebSocketKey,
    /// The answer has no room: its client's connections hold as much as they may; see [`Account`](crate::Account).
    #[error("connections of the client hold as much as they may; it should read its answers")]
    OverLimit,
    /// The exchange is over in this direction.
    #[error("exchange is over")]
    Over,
}

impl Error {
    /// True if the request was not processed, so that any method may be sent again.
    pub fn is_unprocessed(&self) -> bool {
        matches!(
            self,
            Error::Unprocessed
                | Error::NotTaken(_)
                | Error::HeadTooLarge
                | Error::Reset(Code::REFUSED_STREAM)
        )
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = match &error {
            Error::Reset(_) | Error::Stream(_) => io::ErrorKind::ConnectionReset,
            Error::Connection(ConnectionError::Io(error)) => error.kind(),
            Error::Connection(ConnectionError::ClosedByPeer) => io::ErrorKind::UnexpectedEof,
            Error::Connection(_) | Error::Unprocessed => io::ErrorKind::ConnectionAborted,
            Error::Over => io::ErrorKind::BrokenPipe,
            _ => io::ErrorKind::Other,
        };
        io::Error::new(kind, error.to_string())
    }
}
