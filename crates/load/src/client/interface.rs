//! Interface of a protocol's client: starts and completions of requests, and the trait that each protocol implements.

use std::fmt;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use crate::record::Failure;

/// The generator's own `user-agent`.
pub const USER_AGENT: &str = concat!("lateen-load/", env!("CARGO_PKG_VERSION"));

/// The rule that bytes from a server break.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// They break a rule of the client.
    #[error("malformed message: {0}")]
    Rule(&'static str),
    /// They break a rule of HTTP/1.
    #[error("malformed message: {0}")]
    Http1(#[from] lateen_h1::Error),
    /// They break a rule of HTTP/2.
    #[error("malformed message: {0}")]
    Http2(#[from] lateen_h2::ConnectionError),
}

/// A request to start.
#[derive(Debug, Default, Clone, Copy)]
pub struct Start {
    /// The place that it takes on its connection; its completion bears the same number.
    pub slot: usize,
    /// Which of the prepared requests it is.
    pub request: usize,
    /// Whether it is the last on its connection.
    pub last: bool,
}

/// The answer to a request.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// The status of HTTP; 200 in protocols that have none.
    pub status: u16,
    /// Bytes of content, without framing.
    pub content: u64,
}

/// A request that is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// The place of its start.
    pub slot: usize,
    /// Its answer or failure.
    pub outcome: Result<Answer, Failure>,
}

/// The output of a client.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// The bytes to send.
    pub bytes: BytesMut,
    /// The requests that are over.
    pub done: Vec<Completion>,
}

/// The client's side of one connection that is set up. Whoever drives it sends what it puts out,
/// starts no more requests than there is room for, and ends the connection after an error or once it
/// is over.
pub trait Client: fmt::Debug + Send {
    /// Puts out the bytes that come before the first request.
    fn open(&mut self, _: &mut Output) {}

    /// Whether the server has shown that it speaks this protocol, as far as it does so unasked.
    fn is_established(&self) -> bool {
        true
    }

    /// The number of requests that may be started now.
    fn room(&self) -> usize;

    /// Starts a request.
    fn start(&mut self, start: Start, out: &mut Output);

    /// Takes what the server sent at `now`, in nanoseconds since the run began. After an error nothing more can be said on the connection.
    fn receive(&mut self, input: &Bytes, now: u64, out: &mut Output) -> Result<(), Malformed>;

    /// The server sent its last byte; that completes what only the end of the connection ends.
    fn end(&mut self, out: &mut Output);

    /// Gives a request up. Returns whether the connection can go on without its answer.
    fn cancel(&mut self, _slot: usize, _: &mut Output) -> bool {
        false
    }

    /// Whether no more requests can be started, ever.
    fn is_over(&self) -> bool;
}

/// A request as the user describes it, before any protocol.
#[derive(Debug, Clone)]
pub struct Request {
    /// The method of HTTP.
    pub method: String,
    /// Host and port, as the URL has them.
    pub authority: String,
    /// Path and query.
    pub path: String,
    /// More fields.
    pub headers: Vec<(String, String)>,
    /// The content; shared, since every request sends the same.
    pub body: Arc<[u8]>,
}
