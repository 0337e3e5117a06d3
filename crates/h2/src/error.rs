//! Errors, as types that say whether the connection or one stream is lost, with which code, and why.

use std::fmt;

use crate::abuse::Abuse;
use crate::code::Code;

/// A stream's number on the wire, 1 to 2^31-1 (RFC 9113 §5.1.1). It is never used again on its connection, so a late one
/// names a stream that is over and no other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub(crate) u32);

impl StreamId {
    /// The number.
    pub fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The connection is lost (RFC 9113 §5.4.1). What there is to write then ends with a GOAWAY that says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("http/2 connection error {code}: {cause}")]
pub struct ConnectionError {
    /// What the GOAWAY says.
    pub code: Code,
    /// What the peer did.
    pub cause: Cause,
}

/// One stream is lost and was reset (RFC 9113 §5.4.2); the others go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("http/2 stream {stream} error {code}: {cause}")]
pub struct StreamError {
    /// Which one.
    pub stream: StreamId,
    /// What the RST_STREAM says.
    pub code: Code,
    /// What the peer did.
    pub cause: Cause,
}

/// Why a connection or a stream was given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Cause {
    /// Not the first bytes of HTTP/2 (RFC 9113 §3.4).
    #[error("peer does not begin as http/2 does; it may speak another protocol on this port")]
    Preface,
    /// A frame is larger than we said to accept.
    #[error("peer sent a frame larger than SETTINGS_MAX_FRAME_SIZE")]
    FrameTooLarge,
    /// A frame has a length that its kind cannot have.
    #[error("peer sent a frame of a length that its kind cannot have")]
    FrameLength,
    /// Padding is longer than its frame.
    #[error("peer sent a frame with more padding than frame")]
    Padding,
    /// A frame of a connection came on a stream, or one of a stream on the connection.
    #[error("peer sent a frame on stream 0 that needs a stream, or the reverse")]
    Misplaced,
    /// A frame on a stream that was never opened, or that the peer may not open.
    #[error("peer sent a frame on a stream that it had not opened")]
    IdleStream,
    /// A frame on a stream that the peer had ended.
    #[error("peer sent a frame on a stream that it had ended")]
    ClosedStream,
    /// A header block was interrupted, or continued without a beginning.
    #[error("peer mixed other frames into a header block")]
    Interleaved,
    /// HPACK that cannot be read (RFC 7541).
    #[error("peer sent a header block that cannot be read: {0}")]
    Compression(&'static str),
    /// A setting has a value that it cannot have.
    #[error("peer sent a setting with a value that it cannot have")]
    Setting,
    /// SETTINGS that we did not send were acknowledged.
    #[error("peer acknowledged settings that we had not sent")]
    Acknowledgement,
    /// Our SETTINGS were not acknowledged in time.
    #[error("peer did not acknowledge our settings in time")]
    SettingsTimeout,
    /// PUSH_PROMISE, which we did not allow or which comes from a client.
    #[error("peer pushed a stream that nobody asked for")]
    Push,
    /// A window of more than 2^31-1 bytes, or an increment of none.
    #[error("peer sent a window update of nothing or beyond the largest window")]
    WindowUpdate,
    /// More data than the window allows.
    #[error("peer sent more data than its window allows")]
    WindowExceeded,
    /// A message that is not well-formed (RFC 9113 §8.1.1).
    #[error("peer sent a malformed message: {0}")]
    Malformed(&'static str),
    /// A header list larger than we said to accept.
    #[error("peer sent a header list larger than SETTINGS_MAX_HEADER_LIST_SIZE")]
    HeaderList,
    /// More field lines than [`Config::max_fields`](crate::Config::max_fields).
    #[error("peer sent more header fields than we accept")]
    TooManyFields,
    /// More streams than we said to accept.
    #[error("peer opened more streams than SETTINGS_MAX_CONCURRENT_STREAMS")]
    TooManyStreams,
    /// The peer costs us more than it costs itself.
    #[error("peer floods us: {0}")]
    Abuse(Abuse),
    /// The caller ended the connection.
    #[error("we ended the connection")]
    Ended,
}

/// A request that was not made; nothing of it has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The connection takes no more requests: it is closing, or the peer sent a GOAWAY.
    #[error("connection takes no more requests")]
    Closing,
    /// As many streams are open as the peer allows.
    #[error("peer allows no more streams at once")]
    TooMany,
    /// Stream numbers have run out.
    #[error("connection has no stream numbers left")]
    Exhausted,
    /// The header list is larger than the peer said to accept.
    #[error("header list is larger than the peer accepts")]
    HeaderList,
    /// An extended CONNECT, which the peer's SETTINGS do not allow (RFC 8441 §3).
    #[error("peer does not accept extended connect")]
    ExtendedConnect,
}

/// An informational answer that was not sent; it may be left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InformError {
    /// The stream is over, was answered, or is our own request.
    #[error("stream takes no informational answer any more")]
    Gone,
    /// The status is not 100 or 102 to 199.
    #[error("status is not that of an informational answer of http/2")]
    Status,
    /// More than half of [`Config::unread_replies`](crate::Config::unread_replies) waits for the peer.
    #[error("peer does not read its answers")]
    Unread,
}

/// A verb on a stream that is over, in this direction at least.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("stream is over")]
pub struct Gone;

impl ConnectionError {
    pub(crate) const fn new(code: Code, cause: Cause) -> Self {
        ConnectionError { code, cause }
    }

    pub(crate) const fn protocol(cause: Cause) -> Self {
        ConnectionError::new(Code::PROTOCOL_ERROR, cause)
    }

    pub(crate) const fn abuse(abuse: Abuse) -> Self {
        ConnectionError::new(Code::ENHANCE_YOUR_CALM, Cause::Abuse(abuse))
    }
}
