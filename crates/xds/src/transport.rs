//! The gRPC channel over whatever connector secures it.

use std::error::Error;
use std::time::Duration;

use http::Uri;
use tonic::transport::{Channel, Endpoint};
use tower_service::Service;

/// A channel to the control plane that connects when it is first used, and anew whenever it is used after a loss. To be
/// made within a tokio runtime. Keepalives find a silent peer within a minute.
pub fn channel<C>(address: Uri, connector: C) -> Channel
where
    C: Service<Uri> + Send + 'static,
    C::Response: hyper::rt::Read + hyper::rt::Write + Send + Unpin,
    C::Future: Send,
    C::Error: Into<Box<dyn Error + Send + Sync>> + Send,
    Box<dyn Error + Send + Sync>: From<C::Error>,
{
    Endpoint::from(address)
        .connect_timeout(Duration::from_secs(10))
        .http2_keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(20))
        .keep_alive_while_idle(true)
        .connect_with_connector_lazy(connector)
}
