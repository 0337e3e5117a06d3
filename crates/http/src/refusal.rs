//! Refusals: the cause in a sentence, and the status of the answer.

use crate::known::Known;
use crate::status::Status;

/// Why a message is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{cause}")]
pub struct Refusal {
    cause: Cause,
    is_response: bool,
}

impl Refusal {
    pub(crate) fn response(cause: Cause) -> Refusal {
        Refusal {
            cause,
            is_response: true,
        }
    }

    /// The cause.
    pub fn cause(&self) -> Cause {
        self.cause
    }

    /// The status of the answer to the client. A refused answer of an upstream is 502.
    pub fn status(&self) -> Status {
        if self.is_response {
            return Status::BAD_GATEWAY;
        }
        match self.cause {
            Cause::TooManyFields { .. } | Cause::TooLarge { .. } | Cause::NoRoom => {
                Status::HEADER_FIELDS_TOO_LARGE
            }
            Cause::TargetTooLong { .. } => Status::URI_TOO_LONG,
            Cause::Coding | Cause::MethodTooLong | Cause::Protocol => Status::NOT_IMPLEMENTED,
            Cause::Version => Status::VERSION_NOT_SUPPORTED,
            Cause::Misdirected | Cause::SchemeOverClear => Status::MISDIRECTED_REQUEST,
            _ => Status::BAD_REQUEST,
        }
    }
}

impl From<Cause> for Refusal {
    fn from(cause: Cause) -> Self {
        Refusal {
            cause,
            is_response: false,
        }
    }
}

/// The cause of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // The sentences say it.
pub enum Cause {
    #[error("the head has more than {limit} fields")]
    TooManyFields { limit: usize },
    #[error("the head has more than {limit} bytes")]
    TooLarge { limit: usize },
    #[error("the head leaves no room for the fields that this proxy adds")]
    NoRoom,
    #[error("the request target has more than {limit} bytes")]
    TargetTooLong { limit: usize },
    #[error("a field lies outside the bytes of its head")]
    Span,
    #[error("a field name is not a token (RFC 9110 section 5.1)")]
    Name,
    #[error("a field name has a capital letter, which HTTP/2 forbids")]
    NameCase,
    #[error("a field name has an underscore; applications may take it for a hyphen")]
    NameUnderscore,
    #[error("the value of {} has a control character", .0.as_str())]
    KnownValue(Known),
    #[error("a field value has a control character")]
    Value,
    #[error("a field value begins or ends with white space, which HTTP/2 forbids")]
    ValueSpace,
    #[error("the message has two {} fields", .0.as_str())]
    Duplicate(Known),
    #[error("HTTP/2 forbids the field {} (RFC 9113 section 8.2.2)", .0.as_str())]
    Forbidden(Known),
    #[error("HTTP/2 allows te with the value trailers only")]
    Te,
    #[error("the pseudo-header field {0} is missing")]
    PseudoMissing(&'static str),
    #[error("the pseudo-header field {0} occurs twice or is empty")]
    PseudoTwice(&'static str),
    #[error("the pseudo-header field {0} does not belong to this message")]
    PseudoMisplaced(&'static str),
    #[error("a pseudo-header field is unknown")]
    PseudoUnknown,
    #[error("a pseudo-header field stands behind a regular field")]
    PseudoLate,
    #[error("a trailer section has a pseudo-header field")]
    PseudoInTrailers,
    #[error("the version is not HTTP/1.0, HTTP/1.1 or HTTP/2")]
    Version,
    #[error("the status is not a number of three digits")]
    Status,
    #[error("the method is not a token")]
    MethodNotToken,
    #[error("the method is a registered method in other letters; methods are case-sensitive")]
    MethodCase,
    #[error("the method PRI belongs to the HTTP/2 preface alone")]
    MethodPreface,
    #[error("the method is longer than any known one")]
    MethodTooLong,
    #[error("content-length is not one decimal number")]
    Length,
    #[error("the message has content-length and transfer-encoding, so its end is ambiguous")]
    LengthAndCoding,
    #[error("transfer-encoding is not defined in HTTP/1.0")]
    CodingInHttp10,
    #[error("transfer-encoding is not exactly one chunked")]
    Coding,
    #[error("content-length announces content, but the message has none")]
    LengthOfNothing,
    #[error("a message without content has transfer-encoding")]
    CodingOfNothing,
    #[error("CONNECT has content-length or transfer-encoding")]
    ConnectContent,
    #[error("the request has no host and no authority")]
    HostMissing,
    #[error("the host is empty")]
    HostEmpty,
    #[error("the authority has user information before the host")]
    UserInformation,
    #[error("the host has a character that no host name has")]
    HostCharacter,
    #[error("the host has an empty label or more than 253 bytes")]
    HostLabel,
    #[error("the host ends in a number, but is not an IPv4 address of four decimal parts")]
    HostNumber,
    #[error("the host has a bracket, but is not an IPv6 address")]
    HostLiteral,
    #[error("the port is not a number from 1 to 65535")]
    Port,
    #[error("CONNECT names no port")]
    PortMissing,
    #[error("the host field and the authority of the request target differ")]
    HostDiffers,
    #[error("this connection does not serve the host of the request")]
    Misdirected,
    #[error("the request target has the scheme https, but the connection has no TLS")]
    SchemeOverClear,
    #[error("the scheme is not http or https")]
    Scheme,
    #[error("the request target is not a path, and its method allows no other form")]
    Target,
    #[error("the path has a fragment (#)")]
    Fragment,
    #[error("the path or query has white space, a control character or a byte beyond ASCII")]
    PathCharacter,
    #[error("the path has % without two hexadecimal digits")]
    PathEscape,
    #[error("the path has an encoded NUL")]
    PathNul,
    #[error("the path has an overlong UTF-8 sequence")]
    PathOverlong,
    #[error("the path has a dot segment, and its normalisation is off")]
    PathDots,
    #[error("the path has a dot segment beside an encoded slash or semicolon")]
    PathEncodedDots,
    #[error("the path has a parameter (;), which the settings forbid")]
    PathParameter,
    #[error("connection names {}, on which routing, policy or framing depends", .0.as_str())]
    Nominated(Known),
    #[error("connection names more than {limit} options")]
    TooManyOptions { limit: usize },
    #[error("connection has an option that is not a token")]
    Option,
    #[error("the request for an upgrade has content")]
    UpgradeContent,
    #[error("the request for a WebSocket has no valid sec-websocket-key")]
    WebSocketKey,
    #[error("the answer's sec-websocket-accept does not belong to the request's key")]
    WebSocketAccept,
    #[error("the protocol of the extended CONNECT is not supported")]
    Protocol,
    #[error("the answer switches protocols without being asked")]
    UnaskedUpgrade,
    #[error("the answer that accepts an upgrade has content-length or transfer-encoding")]
    TunnelContent,
    #[error("rules cannot edit {}: the message model holds its meaning elsewhere", .0.as_str())]
    Reserved(Known),
}
