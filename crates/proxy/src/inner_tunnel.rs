//! A tunnel inside a stream to the gateway of another network: TLS of its own, and one CONNECT request. It is never shared, because
//! the gateway chooses an endpoint for each.

use std::sync::Arc;
use std::time::Duration;

use lateen_executor::SharedGroup;
use lateen_hbone::{
    Baggage, CloseReason, ConnectError, ConnectRequest, PoolKey, Settings, Stream, TunnelError,
    client,
};
use lateen_telemetry::{Metrics, Reporter};
use lateen_tls::{Credentials, Revocations, TlsError};
use lateen_types::Identity;
use tokio::time::timeout;

use crate::counted::Counted;
use crate::tunnels::{End, Guarded, Tunnels};

/// What a tunnel inside a stream is opened with.
pub(crate) struct InnerTunnel<'a> {
    pub(crate) credentials: &'a Arc<Credentials>,
    pub(crate) metrics: &'a Arc<Metrics>,
    pub(crate) tunnels: &'a Tunnels,
    pub(crate) revocations: &'a Revocations,
    pub(crate) settings: &'a Settings,
    /// The tunnel to the gateway, but for the identities: one of these must be proven.
    pub(crate) key: PoolKey,
    /// For the handshake.
    pub(crate) limit: Duration,
    /// The group of the tunnel, if its stream serves several groups.
    pub(crate) group: Option<SharedGroup>,
}

/// The stream of a tunnel inside a stream, and who serves it.
pub(crate) struct Inside {
    pub(crate) stream: Stream,
    /// The identity that the far end proved.
    pub(crate) identity: Identity,
    /// What it says about itself.
    pub(crate) baggage: Option<Baggage>,
}

/// Why there is none.
#[derive(Debug)]
pub(crate) enum InnerError {
    /// TLS with the far end failed.
    Tls(TlsError),
    /// The far end did not finish its handshake in time.
    Slow,
    /// No HTTP/2 with the far end.
    Tunnel(TunnelError),
    /// The far end did not take the request.
    Connect(ConnectError),
}

impl InnerTunnel<'_> {
    /// Opens it, and asks for a stream.
    pub(crate) async fn open(
        self,
        outer: Stream,
        request: &ConnectRequest,
    ) -> Result<Inside, InnerError> {
        let handshake = lateen_tls::connect(self.credentials, outer, &self.key.destinations);
        let (stream, session) = match timeout(self.limit, handshake).await {
            Ok(Ok(agreed)) => agreed,
            Ok(Err(error)) => return Err(InnerError::Tls(error)),
            Err(_) => return Err(InnerError::Slow),
        };
        let identity = session.peer().identity().clone();
        let counted = Counted::opened(self.metrics, Reporter::Source);
        // Charged to the peer that it proved to be, and to the pod that reads.
        let budget = &self.settings.budget;
        let settings = Settings {
            budget: budget.between(&identity, self.key.pod.as_str()),
            ..self.settings.clone()
        };
        let end = End::Outbound(self.key);
        let stream = self.tunnels.enter(stream, session, end, self.revocations);
        let (tunnel, mut driver) = match client::handshake(stream, settings).await {
            Ok(made) => made,
            Err(error) => {
                counted.ended(error.close_reason());
                return Err(InnerError::Tunnel(error));
            }
        };
        driver.ask(Guarded::INNER);
        // It ends with its one stream.
        let driven = async move {
            let ended = driver.await;
            counted.ended(CloseReason::of(&ended));
            if let Err(error) = ended {
                tracing::debug!(%error, "a tunnel through a gateway ended");
            }
        };
        match self.group {
            Some(group) => group.spawn(driven),
            None => lateen_executor::spawn_local(driven),
        }
        let asked = tunnel.connect(request).await;
        let (stream, answer) = asked.map_err(InnerError::Connect)?;
        Ok(Inside {
            stream,
            identity,
            baggage: answer.baggage,
        })
    }
}
