//! Events that a connection hands to its caller.

use crate::code::Code;
use crate::error::{ConnectionError, StreamError, StreamId};

/// What came of the input. A stream that was named in an event is the caller's until it
/// [releases](crate::Connection::release) it, also when it is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event<'a> {
    /// To a server: a request, whose fields are [`Connection::fields`](crate::Connection::fields) until more is received.
    Request {
        /// Which one.
        stream: StreamId,
        /// Its method is CONNECT. An extended one (RFC 8441 §4) has [`Known::Protocol`](crate::Known::Protocol) among its
        /// fields.
        connect: bool,
        /// Nothing follows.
        end: bool,
    },
    /// To a server with [`Config::tell_large`](crate::Config::tell_large): a request with more or larger fields than it
    /// accepts, of which some were dropped. An answer of 431 is expected (RFC 6585 §5); its content is not counted.
    TooLarge {
        /// Which one.
        stream: StreamId,
        /// Nothing follows.
        end: bool,
    },
    /// To a client: the answer, with its fields likewise.
    Response {
        /// Which one.
        stream: StreamId,
        /// The status, 200 to 999.
        status: u16,
        /// Nothing follows.
        end: bool,
    },
    /// To a client: an answer before the answer, with its fields likewise.
    Informational {
        /// Which one.
        stream: StreamId,
        /// The status, 100 to 199.
        status: u16,
    },
    /// Fields behind the data, likewise. Nothing follows.
    Trailers {
        /// Which one.
        stream: StreamId,
    },
    /// Data, as it lies in the input. It counts as held until it is [consumed](crate::Connection::consumed).
    Data {
        /// Which one.
        stream: StreamId,
        /// None if there is nothing but the end.
        bytes: &'a [u8],
        /// Nothing follows.
        end: bool,
    },
    /// The peer reset a stream. What was to be sent is dropped.
    Reset {
        /// Which one.
        stream: StreamId,
        /// Why; REFUSED_STREAM says that the request was not processed (RFC 9113 §8.7).
        code: Code,
        /// The peer had ended its direction before: it only wants no more (RFC 9113 §8.1).
        ended: bool,
    },
    /// The peer broke a rule of a stream, which was reset. A request that is not well-formed was not announced before.
    Failed(StreamError),
    /// To a client: a GOAWAY leaves this request out, so it was not processed (RFC 9113 §6.8).
    Unprocessed {
        /// Which one.
        stream: StreamId,
    },
    /// The peer's SETTINGS are in force; [`Connection::limit`](crate::Connection::limit) may have changed.
    Settings,
    /// The peer has our SETTINGS.
    Acknowledged,
    /// The answer to [`Connection::ping`](crate::Connection::ping) with this number.
    Pong(u32),
    /// The peer takes no more requests, or is ending.
    GoAway {
        /// The last stream that it processed or may process.
        last: StreamId,
        /// NO_ERROR if it is done; else what it holds against us.
        code: Code,
    },
}

impl Event<'_> {
    /// The stream that it is about.
    pub(crate) fn stream(&self) -> Option<StreamId> {
        match self {
            Event::Request { stream, .. }
            | Event::TooLarge { stream, .. }
            | Event::Response { stream, .. }
            | Event::Informational { stream, .. }
            | Event::Trailers { stream }
            | Event::Data { stream, .. }
            | Event::Reset { stream, .. }
            | Event::Failed(StreamError { stream, .. })
            | Event::Unprocessed { stream } => Some(*stream),
            _ => None,
        }
    }
}

/// The result of a frame: an event, or nothing that concerns the caller.
pub(crate) type Outcome<'a> = Result<Option<Event<'a>>, ConnectionError>;
