//! Faults of a peer and misuse by the caller, as types that name the cause.

/// A fault of the peer. The connection is lost; a server may answer once, with [`Error::status`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The head or trailer section is longer than [`Config::max_head`](crate::Config::max_head).
    #[error(
        "peer sent a header section larger than the limit; raise the limit or shorten its fields"
    )]
    HeadTooLarge,
    /// The request line alone is longer than [`Config::max_head`](crate::Config::max_head).
    #[error("peer sent a request target larger than the limit")]
    TargetTooLong,
    /// More fields than [`Config::max_fields`](crate::Config::max_fields).
    #[error("peer sent more header fields than the limit")]
    TooManyFields,
    /// More empty lines before a request than [`Config::max_empty_lines`](crate::Config::max_empty_lines).
    #[error("peer sent too many empty lines before a request")]
    EmptyLines,
    /// A line ends with LF alone (RFC 9112 §2.2 allows a recipient to accept it; parsers differ, so this one refuses).
    #[error("peer ended a line with LF instead of CRLF")]
    BareLineFeed,
    /// A CR that no LF follows (RFC 9112 §2.2).
    #[error("peer sent a CR that is not followed by LF")]
    BareCarriageReturn,
    /// NUL or another control character (RFC 9110 §5.5).
    #[error("peer sent a control character in a field value or reason phrase")]
    ControlCharacter,
    /// A field line begins with white space: obs-fold, or white space before the first field (RFC 9112 §5.2, §2.2).
    #[error("peer sent a folded header line, which is obsolete")]
    FoldedLine,
    /// White space between a field name and the colon (RFC 9112 §5.1).
    #[error("peer sent white space between a field name and the colon")]
    SpaceBeforeColon,
    /// A field name is empty.
    #[error("peer sent a field without a name")]
    EmptyName,
    /// A field name is not a token, or its colon is missing (RFC 9110 §5.1).
    #[error("peer sent a field name that is not a token")]
    FieldName,
    /// The request line is not three words with single spaces (RFC 9112 §3).
    #[error("peer sent a malformed request line; it may speak another protocol on this port")]
    RequestLine,
    /// The method is not a token (RFC 9110 §9.1).
    #[error("peer sent a method that is not a token")]
    Method,
    /// The request target has a byte that no URI has, or a fragment, or no form that its method allows (RFC 9112 §3.2).
    #[error("peer sent an invalid request target")]
    Target,
    /// The status line is malformed (RFC 9112 §4).
    #[error("peer sent a malformed status line; it may speak another protocol on this port")]
    StatusLine,
    /// The version is neither HTTP/1.0 nor HTTP/1.1.
    #[error("peer sent an HTTP version other than 1.0 and 1.1")]
    Version,
    /// An HTTP/1.1 request has no Host field (RFC 9112 §3.2).
    #[error("peer sent an HTTP/1.1 request without a host field")]
    HostMissing,
    /// A request has two Host fields (RFC 9112 §3.2).
    #[error("peer sent more than one host field")]
    HostRepeated,
    /// The Host field is not a host with an optional port (RFC 9112 §3.2).
    #[error("peer sent a host field that is not a host with an optional port")]
    HostInvalid,
    /// Content-Length is not one decimal number below 2^64 (RFC 9110 §8.6).
    #[error("peer sent a content-length that is not one decimal number")]
    ContentLength,
    /// Two Content-Length fields, equal or not (RFC 9112 §6.3 allows refusing both).
    #[error("peer sent more than one content-length field")]
    ContentLengthRepeated,
    /// Content-Length and Transfer-Encoding in one message (RFC 9112 §6.3).
    #[error("peer sent both content-length and transfer-encoding; this may be request smuggling")]
    LengthAndCoding,
    /// Transfer-Encoding in an HTTP/1.0 message (RFC 9112 §6.1).
    #[error("peer sent transfer-encoding in an HTTP/1.0 message")]
    CodingInHttp10,
    /// A transfer coding other than chunked (RFC 9112 §6.1).
    #[error("peer sent a transfer coding other than chunked")]
    CodingUnknown,
    /// Transfer-Encoding is not exactly one `chunked` (RFC 9112 §6.3, §7.1).
    #[error("peer sent a transfer-encoding that is not exactly one chunked")]
    CodingMalformed,
    /// A CONNECT request announces content (RFC 9110 §9.3.6).
    #[error("peer sent a CONNECT request with content")]
    ConnectContent,
    /// A chunk size is not hexadecimal (RFC 9112 §7.1).
    #[error("peer sent a chunk size that is not hexadecimal")]
    ChunkSize,
    /// A chunk size of 2^60 or more.
    #[error("peer sent a chunk size that is too large")]
    ChunkSizeOverflow,
    /// Chunk lines use more than [`Config::chunk_overhead`](crate::Config::chunk_overhead).
    #[error("peer sent chunk extensions beyond the limit")]
    ChunkOverhead,
    /// No CRLF follows the data of a chunk.
    #[error("peer sent a chunk that is longer than its size")]
    ChunkEnd,
    /// More informational responses than [`Config::max_informational`](crate::Config::max_informational).
    #[error("peer sent too many informational responses to one request")]
    Informational,
    /// Status 101 without an upgrade in the request (RFC 9110 §7.8).
    #[error("peer switched protocols without a request for it")]
    UnaskedSwitch,
    /// Bytes from a server while no request is open.
    #[error("peer sent bytes that answer no request")]
    Unsolicited,
    /// The head of a request is not complete in time (RFC 9110 §15.5.9). The driver measures the time.
    #[error("peer took too long to send a request head")]
    HeadTimeout,
    /// The peer ended the connection within a message (RFC 9112 §8).
    #[error("peer closed the connection within a message")]
    Truncated,
    /// A server ended the connection before the first byte of its answer.
    #[error("peer closed the connection before it answered")]
    ClosedUnanswered,
}

impl Error {
    /// The status that answers a request with this fault. A fault of a response gives 502.
    pub fn status(self) -> u16 {
        match self {
            Error::HeadTooLarge | Error::TooManyFields => 431,
            Error::TargetTooLong => 414,
            Error::HeadTimeout => 408,
            Error::CodingUnknown => 501,
            Error::Version => 505,
            Error::StatusLine
            | Error::Informational
            | Error::UnaskedSwitch
            | Error::Unsolicited
            | Error::ClosedUnanswered => 502,
            _ => 400,
        }
    }
}

/// Misuse of the writer. Nothing of the refused call was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// The connection is not in a state for this call: no request is open, or the message is complete.
    #[error("connection is not ready for this message")]
    State,
    /// The connection takes no more requests.
    #[error("connection takes no more requests")]
    Closed,
    /// The method is not a token.
    #[error("method is not a token")]
    Method,
    /// The request target has no form that the method allows.
    #[error("request target is invalid for its method")]
    Target,
    /// The status is out of range for this call.
    #[error("status is out of range")]
    Status,
    /// A field name is not a token, or a value has a control character.
    #[error("field has an invalid name or value")]
    Field,
    /// The caller passed a field that the writer makes itself, or a trailer section cannot have.
    #[error("field belongs to message framing or is forbidden in this section")]
    ReservedField,
    /// The request does not have exactly one Host field.
    #[error("request needs exactly one valid host field")]
    Host,
    /// The message cannot have content, or needs none.
    #[error("message cannot have this content")]
    Content,
    /// More content than the announced length. The excess was not written.
    #[error("content exceeds the announced length")]
    TooLong,
    /// Less content than the announced length. The connection must be aborted.
    #[error("content ends before the announced length")]
    TooShort,
    /// The peer did not ask for the protocol switch, or its request is incomplete.
    #[error("protocol switch has no complete request for it")]
    Upgrade,
}
