//! The gRPC channel over whatever connector secures it.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use http::Uri;
use tonic::transport::{Channel, Endpoint};
use tower_service::Service;

/// Channels to the control plane, one after the other: each has a connection of its own.
pub struct Channels(Box<dyn Fn() -> Channel + Send + Sync>);

impl Channels {
    /// A channel that shares nothing with those before it.
    pub(crate) fn another(&self) -> Channel {
        (self.0)()
    }
}

impl fmt::Debug for Channels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Channels")
    }
}

/// Channels to the control plane that connect when they are first used, and anew whenever they are used after a loss. To
/// be used within a tokio runtime. Keepalives find a silent peer within a minute.
pub fn channel<C>(address: Uri, connector: C) -> Channels
where
    C: Service<Uri> + Clone + Send + Sync + 'static,
    C::Response: hyper::rt::Read + hyper::rt::Write + Send + Unpin,
    C::Future: Send,
    C::Error: Into<Box<dyn Error + Send + Sync>> + Send,
    Box<dyn Error + Send + Sync>: From<C::Error>,
{
    let endpoint = Endpoint::from(address)
        .connect_timeout(Duration::from_secs(10))
        .http2_keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(20))
        .keep_alive_while_idle(true);
    Channels(Box::new(move || {
        endpoint.connect_with_connector_lazy(connector.clone())
    }))
}
