//! The state of a connection that its requests share, and waiting that ends with its request.

use std::cell::Cell;
use std::future::poll_fn;

use lateen_exchange::server::Exchange;
use lateen_exchange::{Error, Protocol};
use tokio_util::sync::CancellationToken;

use super::context::Session;

/// State that the requests of one connection share.
#[derive(Debug)]
pub struct Link {
    /// The connection's view of the service.
    pub session: Session,
    /// Cancelled when the connection takes no further request.
    pub stop: CancellationToken,
    /// The version of HTTP.
    pub protocol: Protocol,
    /// An answer waits whose client has gone when it has sent its last byte. Another one may wait with its half closed.
    pub leaves: Cell<bool>,
}

impl Link {
    /// Whether it is HTTP/2.
    pub fn is_http2(&self) -> bool {
        self.protocol == Protocol::Http2
    }

    /// Whether there is no client any more.
    pub fn is_left(&self) -> bool {
        let facts = &self.session.facts;
        facts.broken.get() || self.leaves.get() && facts.ended.get()
    }
}

/// Waits for `something`, but no longer than for the client to give the request up.
///
/// # Errors
/// The client gave it up.
pub async fn unless_gone(
    exchange: &Exchange,
    something: impl Future<Output = ()>,
) -> Result<(), Error> {
    tokio::select! {
        biased;
        () = something => Ok(()),
        error = poll_fn(|cx| exchange.poll_gone(cx)) => Err(error),
    }
}
