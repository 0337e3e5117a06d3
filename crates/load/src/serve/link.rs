//! The state of an HTTP/2 connection that its requests share, and waiting that ends with its request.

use std::future::poll_fn;

use lateen_exchange::Error;
use lateen_exchange::server::Exchange;

use super::context::{Session, Stop};

/// State that the requests of one connection share.
#[derive(Debug)]
pub struct Link {
    /// The connection's view of the service.
    pub session: Session,
    /// Set when the connection takes no further request.
    pub stop: Stop,
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
