//! Loop of a client: connect, run the stream, wait, connect again.

use std::convert::Infallible;
use std::path::PathBuf;

use lateen_config::{Batch, Kind, Kinds, Refused, Unlisted};
use tonic::metadata::{AsciiMetadataKey, AsciiMetadataValue};
use tonic::transport::Channel;

use crate::backoff::Backoff;
use crate::demand::Demand;
use crate::held::Held;
use crate::lookups::Asks;
use crate::node::Node;
use crate::transport::Channels;

/// Where resources go.
pub trait Sink {
    /// Puts a response to use and returns what it refuses. The response is acknowledged when the future resolves, which
    /// must not be before every worker decides by it. Responses come one at a time.
    fn apply(&mut self, batch: Batch) -> impl Future<Output = Vec<Refused>>;
}

/// What is worth counting.
pub trait Observer {
    /// A response arrived, with so many bytes of resources.
    fn message(&self, type_url: &str, bytes: u64) {
        let _ = (type_url, bytes);
    }

    /// A stream ended, or could not be opened.
    fn terminated(&self, how: Termination) {
        let _ = how;
    }

    /// Each kind was listed completely: the proxy knows the mesh. Called once.
    fn synced(&self) {}
}

impl Observer for () {}

/// How a stream ended; names as in ztunnel's metric `istio_xds_connection_terminations`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Termination {
    /// It could not be opened.
    ConnectionError,
    /// It broke.
    Error,
    /// The peer or the transport went away in an orderly way.
    Reconnect,
    /// The peer finished it.
    Complete,
}

/// How to reach and address the control plane.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Who this proxy is.
    pub node: Node,
    /// The file with the bearer token, read anew for each stream because tokens are rotated in place; `None`: no token.
    pub token: Option<PathBuf>,
    /// The cluster's id, sent as header `clusterid`.
    pub cluster_id: String,
    /// More headers, such as what `XDS_HEADER_*` variables say.
    pub headers: Vec<(AsciiMetadataKey, AsciiMetadataValue)>,
    /// The kinds to subscribe to, by their order.
    pub kinds: Kinds,
    /// The largest response accepted, in bytes; Istio's limit is [`Settings::MAX_MESSAGE`].
    pub max_message: usize,
}

impl Settings {
    /// 200 MiB: what a control plane of ten thousands of workloads may send at once.
    pub const MAX_MESSAGE: usize = 200 * 1024 * 1024;
}

/// The client. Everything it learned survives a lost connection.
#[derive(Debug)]
pub struct Client<S, O> {
    pub(crate) channel: Channel,
    channels: Channels,
    pub(crate) settings: Settings,
    pub(crate) sink: S,
    pub(crate) observer: O,
    /// What is held of each kind, in the order of the kinds.
    held: Vec<(&'static Kind, Held)>,
    /// The kinds that no acknowledged response has completed.
    pub(crate) unlisted: Unlisted,
    /// The resources of [`Kinds::on_demand`] are asked for one by one.
    pub(crate) on_demand: Option<(Asks, Demand)>,
    /// Kinds that are subscribed by one name, which is an alias or a parent of each of their resources.
    pub(crate) by_name: Vec<(&'static Kind, String)>,
}

impl<S: Sink, O: Observer> Client<S, O> {
    /// A client over channels as [`crate::channel`] makes them. Within a tokio runtime.
    pub fn new(channels: Channels, settings: Settings, sink: S, observer: O) -> Self {
        let kinds = settings.kinds.all();
        Self {
            channel: channels.another(),
            channels,
            held: kinds.iter().map(|kind| (*kind, Held::default())).collect(),
            unlisted: settings.kinds.unlisted(),
            settings,
            sink,
            observer,
            on_demand: None,
            by_name: Vec::new(),
        }
    }

    /// Subscribes these kinds by one name instead of all of their resources: the name of the parent whose children they are, as
    /// a Gateway is of its policies.
    ///
    /// # Panics
    /// If a kind is not among those of the settings, or is asked for on demand.
    #[must_use]
    pub fn children_of(
        mut self,
        parent: &str,
        kinds: impl IntoIterator<Item = &'static Kind>,
    ) -> Self {
        for kind in kinds {
            let known = self.settings.kinds.of(kind.type_url);
            assert!(known.is_some(), "{kind:?} is not subscribed");
            assert!(!kind.on_demand, "{kind:?} is asked for on demand");
            self.by_name.push((kind, parent.to_owned()));
        }
        self
    }

    /// Asks for workloads and services only when somebody needs them, rather than for all of them.
    #[must_use]
    pub fn on_demand(mut self, asks: Asks) -> Self {
        self.on_demand = Some((asks, Demand::default()));
        self
    }

    /// Runs until dropped: a control plane that is away is waited for, and what is known stays in use.
    pub async fn run(mut self) -> Infallible {
        let mut backoff = Backoff::default();
        loop {
            let ended = self.stream().await;
            let how = ended.termination();
            self.observer.terminated(how);
            if ended.worked {
                backoff.reset();
            }
            if ended.speaks_for_its_replica() {
                // A connection leads to one replica for as long as it stands. Another one may lead elsewhere.
                self.channel = self.channels.another();
            }
            let wait = backoff.wait(rand::random());
            match how {
                Termination::Complete | Termination::Reconnect => {
                    tracing::info!(?wait, "xds stream ended, connecting again: {ended}");
                }
                Termination::ConnectionError | Termination::Error => {
                    tracing::warn!(?wait, "xds stream failed, connecting again: {ended}");
                }
            }
            tokio::time::sleep(wait).await;
        }
    }

    /// What is held of a kind that is subscribed.
    pub(crate) fn held(&mut self, kind: &Kind) -> &mut Held {
        let mut all = self.held.iter_mut();
        let found = all.find(|(held, _)| *held == kind);
        &mut found.expect("every kind of the settings is there").1
    }
}
