//! Events that a connection hands to its caller.

use bytes::Bytes;

use crate::request::Request;
use crate::response::Response;
use crate::trailers::Trailers;

/// An event of a [`ServerConnection`](crate::ServerConnection).
#[derive(Debug)]
pub enum ServerEvent {
    /// A request. It is the caller's to answer.
    Request {
        /// The request's head.
        head: Request,
        /// The request has no content.
        end: bool,
    },
    /// Content of the request.
    Data {
        /// A slice of the input.
        bytes: Bytes,
        /// The request is complete.
        end: bool,
    },
    /// The request is complete, with a trailer section.
    Trailers(Trailers),
    /// The request is complete.
    End,
}

/// An event of a [`ClientConnection`](crate::ClientConnection).
#[derive(Debug)]
pub enum ClientEvent {
    /// An informational response other than 101 (RFC 9110 §15.2). The final response follows.
    Informational(Response),
    /// The final response.
    Response {
        /// The response's head.
        head: Response,
        /// The response has no content.
        end: bool,
    },
    /// Status 101 or a successful answer to CONNECT. Go on with [`ClientConnection::into_tunnel`](crate::ClientConnection::into_tunnel).
    Tunnel(Response),
    /// Content of the response.
    Data {
        /// A slice of the input.
        bytes: Bytes,
        /// The response is complete.
        end: bool,
    },
    /// The response is complete, with a trailer section.
    Trailers(Trailers),
    /// The response is complete.
    End,
}
