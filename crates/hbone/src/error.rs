//! Errors of a tunnel, of a request on it, and of a stream.

use std::fmt;
use std::io;
use std::rc::Rc;

use lateen_h2::Abuse;

use crate::ended::Ended;

/// A tunnel that could not be set up or ended other than in order.
#[derive(Debug, thiserror::Error)]
pub enum TunnelError {
    /// The byte stream below broke.
    #[error("tunnel: connection lost: {0}")]
    Io(#[source] io::Error),
    /// The peer (or we) broke HTTP/2's rules or gave up the connection.
    #[error("tunnel: http/2 error: {0}")]
    Protocol(Reason),
    /// A PING went unanswered for the ping timeout.
    #[error("tunnel: peer did not answer a ping; its node or the path to it may be down")]
    Unresponsive,
    /// The connection took nothing of what there was to write for longer than a PING may take.
    #[error("tunnel: peer reads nothing; its proxy may be stuck")]
    Stalled,
    /// The peer's SETTINGS allow no streams, and the tunnel has none.
    #[error(
        "tunnel: peer allows no streams (SETTINGS_MAX_CONCURRENT_STREAMS is 0); it may be overloaded or ending"
    )]
    NoStreams,
    /// The peer abuses HTTP/2: it costs us more than it costs itself.
    #[error("tunnel: closed because the peer floods us: {0} ({word})", word = .0.as_str())]
    Abusive(Abuse),
}

/// How a tunnel ended, as metrics count it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CloseReason {
    /// Either side was done with it: idle, retired, drained.
    Done,
    /// The byte stream below broke.
    Lost,
    /// A PING went unanswered.
    Unresponsive,
    /// The peer read nothing.
    Stalled,
    /// The peer allowed no streams.
    NoStreams,
    /// The peer's identity, or its namespace, had as many tunnels as it may.
    TooManyTunnels,
    /// One side does not accept the other's certificate.
    Rejected,
    /// The peer (or we) broke HTTP/2's rules or gave up the connection with an error.
    Protocol,
    /// The peer abused HTTP/2.
    Abuse(Abuse),
}

impl CloseReason {
    /// The word for it in metrics; for abuse, [`Abuse::as_str`].
    pub fn as_str(self) -> &'static str {
        match self {
            CloseReason::Done => "done",
            CloseReason::Lost => "lost",
            CloseReason::Unresponsive => "unresponsive",
            CloseReason::Stalled => "stalled",
            CloseReason::NoStreams => "no_streams",
            CloseReason::TooManyTunnels => "too_many_tunnels",
            CloseReason::Rejected => "rejected",
            CloseReason::Protocol => "protocol_error",
            CloseReason::Abuse(abuse) => abuse.as_str(),
        }
    }

    /// What a tunnel's task or [`crate::Connection::next`] ended with.
    pub fn of<T>(result: &Result<T, TunnelError>) -> Self {
        match result {
            Ok(_) => CloseReason::Done,
            Err(error) => error.close_reason(),
        }
    }
}

/// A CONNECT request that did not become a stream.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The peer answered, and not with 200: 401 is policy, 503 is no connection to the application.
    #[error("{}", refusal(*.status))]
    Refused {
        /// The HTTP status.
        status: u16,
    },
    /// The request was not processed, and that is proven (RFC 9113 §8.7): the peer said so with REFUSED_STREAM or a
    /// GOAWAY that leaves it out, or it never left us. It may be sent again anywhere.
    #[error("peer took no more requests on this tunnel: {0}")]
    Unprocessed(Reason),
    /// The peer reset the request, and may have processed it.
    #[error(
        "peer reset the request without an answer; its application may have seen a connection open and close: {0}"
    )]
    Reset(Reason),
    /// The tunnel died, or its peer fell silent, while the request was under way; the peer may have processed it.
    #[error(
        "tunnel lost before the peer answered; its application may have seen a connection open and close: {0}"
    )]
    Lost(Reason),
    /// The tunnel died because one side does not accept the other: it would die again.
    #[error("{0}")]
    Rejected(Rc<TunnelError>),
    /// The request cannot be put into HTTP/2.
    #[error("request cannot be sent: {0}")]
    Invalid(&'static str),
}

fn refusal(status: u16) -> String {
    match status {
        401 => "peer refused the connection: http status 401: its authorization policy denies it".to_owned(),
        503 => "peer refused the connection: http status 503: it could not reach the workload, which may not listen on this port".to_owned(),
        _ => format!("peer refused the connection: http status {status}"),
    }
}

impl ConnectError {
    /// True if it is proven that nobody processed the request: it can be repeated and is not done twice.
    pub fn unprocessed(&self) -> bool {
        matches!(self, ConnectError::Unprocessed(_))
    }

    /// True if the peer had the request and never answered it. It may have opened a connection to its application and
    /// closed it again; no byte of ours travelled on it, for none does before the answer.
    pub fn unanswered(&self) -> bool {
        matches!(self, ConnectError::Lost(_) | ConnectError::Reset(_))
    }
}

/// An answer that could not be sent because the stream or its tunnel is gone.
#[derive(Debug, thiserror::Error)]
#[error("stream gone before it was answered: {0}")]
pub struct StreamError(pub(crate) Reason);

/// Why, as the peer says it, or as it was found out.
#[derive(Debug)]
pub struct Reason(Why);

#[derive(Debug)]
enum Why {
    Own(lateen_h2::ConnectionError),
    Told(lateen_h2::Code),
    Lost(Ended),
    Silent,
}

impl Reason {
    /// The peer broke a rule.
    pub(crate) fn own(error: lateen_h2::ConnectionError) -> Self {
        Reason(Why::Own(error))
    }

    /// The peer said so, or it was found out in its stead.
    pub(crate) fn told(code: lateen_h2::Code) -> Self {
        Reason(Why::Told(code))
    }

    /// The tunnel ended.
    pub(crate) fn lost(how: Ended) -> Self {
        Reason(Why::Lost(how))
    }

    /// The peer says nothing, not even to a PING.
    pub(crate) fn silent() -> Self {
        Reason(Why::Silent)
    }

    /// The RFC 9113 §7 error code, where there is one.
    pub fn code(&self) -> Option<u32> {
        match &self.0 {
            Why::Own(error) => Some(error.code.0),
            Why::Told(code) => Some(code.0),
            Why::Lost(_) | Why::Silent => None,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Why::Own(error) => error.fmt(f),
            Why::Told(code) => write!(f, "peer says {code}"),
            Why::Lost(how) => how.fmt(f),
            Why::Silent => f.write_str(
                "it did not answer a ping in time; its node or the path to it may be down",
            ),
        }
    }
}

impl TunnelError {
    /// The same for the tunnel's streams.
    pub(crate) fn ended(&self) -> Ended {
        let kind = match self {
            TunnelError::Io(error) => error.kind(),
            _ => std::io::ErrorKind::ConnectionAborted,
        };
        Ended::by(kind, self)
    }

    /// True if the layer below was refused or refuses, and did not just break: TLS says so with this kind
    /// of error, and says why in its text. To dial again would end the same way.
    pub fn is_rejection(&self) -> bool {
        matches!(self, TunnelError::Io(e) if e.kind() == io::ErrorKind::InvalidData)
    }

    /// The same as metrics count it.
    pub fn close_reason(&self) -> CloseReason {
        match self {
            _ if self.is_rejection() => CloseReason::Rejected,
            TunnelError::Io(_) => CloseReason::Lost,
            TunnelError::Protocol(_) => CloseReason::Protocol,
            TunnelError::Unresponsive => CloseReason::Unresponsive,
            TunnelError::Stalled => CloseReason::Stalled,
            TunnelError::NoStreams => CloseReason::NoStreams,
            TunnelError::Abusive(abuse) => CloseReason::Abuse(*abuse),
        }
    }
}
