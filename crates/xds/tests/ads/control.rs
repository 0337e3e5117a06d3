//! A control plane in this process: the test takes each stream as it is opened and plays the peer's part by hand.

use std::future::{Ready, ready};
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::{Stream, StreamExt, stream};
use hyper_util::rt::TokioIo;
use lateen_proto::discovery::aggregated_discovery_service_server::{
    AggregatedDiscoveryService, AggregatedDiscoveryServiceServer,
};
use lateen_proto::discovery::{DeltaDiscoveryRequest, DeltaDiscoveryResponse, Resource};
use prost::Message;
use tokio::io::DuplexStream;
use tokio::sync::mpsc;
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status, Streaming};
use tower_service::Service;

/// Long enough for the slowest machine; never waited for when things work.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits for something that must happen.
pub async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(value) => value,
        Err(_) => panic!("did not happen: {what}"),
    }
}

/// The control plane.
pub struct Control {
    streams: mpsc::Receiver<Session>,
    dials: mpsc::Sender<DuplexStream>,
    away: Arc<AtomicBool>,
    turns_away: Arc<OnceLock<Status>>,
}

/// One stream, from the control plane's side.
pub struct Session {
    pub metadata: MetadataMap,
    requests: Streaming<DeltaDiscoveryRequest>,
    responses: mpsc::Sender<Result<DeltaDiscoveryResponse, Status>>,
}

impl Control {
    pub fn start() -> Self {
        let (open, streams) = mpsc::channel(8);
        let (dials, mut incoming) = mpsc::channel(8);
        let turns_away = Arc::<OnceLock<Status>>::default();
        let door = Door {
            open,
            turns_away: Arc::clone(&turns_away),
        };
        tokio::spawn(async move {
            let connections =
                stream::poll_fn(move |cx| incoming.poll_recv(cx)).map(Ok::<_, io::Error>);
            tonic::transport::Server::builder()
                .add_service(AggregatedDiscoveryServiceServer::new(door))
                .serve_with_incoming(connections)
                .await
        });
        Self {
            streams,
            dials,
            away: Arc::default(),
            turns_away,
        }
    }

    /// What a client dials with.
    pub fn connector(&self) -> Connector {
        Connector {
            dials: vec![self.dials.clone()],
            turn: Arc::default(),
            away: self.away.clone(),
        }
    }

    /// Answers every stream with this status from now on.
    pub fn turn_away(&self, status: Status) {
        self.turns_away.set(status).expect("said once");
    }

    /// Whether nobody answers a dial.
    pub fn set_away(&self, away: bool) {
        self.away.store(away, Ordering::Relaxed);
    }

    /// The next stream that a client opens.
    pub async fn session(&mut self) -> Session {
        soon("the client opens a stream", self.streams.recv())
            .await
            .expect("the server runs")
    }
}

impl Session {
    /// The next request.
    pub async fn request(&mut self) -> DeltaDiscoveryRequest {
        let message = soon("the client sends a request", self.requests.message()).await;
        message
            .expect("the stream is whole")
            .expect("the stream is open")
    }

    /// The first requests of the stream, policies and addresses.
    pub async fn subscriptions(&mut self) -> (DeltaDiscoveryRequest, DeltaDiscoveryRequest) {
        let (first, second) = (self.request().await, self.request().await);
        assert_eq!(first.type_url, lateen_proto::AUTHORIZATION_TYPE);
        assert_eq!(second.type_url, lateen_proto::ADDRESS_TYPE);
        (first, second)
    }

    /// Whether a request comes within a moment.
    pub async fn is_silent(&mut self) -> bool {
        tokio::time::timeout(Duration::from_millis(100), self.requests.message())
            .await
            .is_err()
    }

    pub async fn respond(&self, response: DeltaDiscoveryResponse) {
        self.responses
            .send(Ok(response))
            .await
            .expect("the stream is open");
    }

    /// Ends the stream with an error.
    pub async fn fail(self, status: Status) {
        self.responses
            .send(Err(status))
            .await
            .expect("the stream is open");
    }
}

/// A response with these resources.
pub fn response(type_url: &str, nonce: &str, resources: Vec<Resource>) -> DeltaDiscoveryResponse {
    DeltaDiscoveryResponse {
        type_url: type_url.into(),
        nonce: nonce.into(),
        resources,
        ..Default::default()
    }
}

/// One encoded resource.
pub fn resource(type_url: &str, name: &str, version: &str, message: &impl Message) -> Resource {
    Resource {
        name: name.into(),
        version: version.into(),
        resource: Some(prost_types::Any {
            type_url: type_url.into(),
            value: message.encode_to_vec(),
        }),
        aliases: Vec::new(),
    }
}

struct Door {
    open: mpsc::Sender<Session>,
    turns_away: Arc<OnceLock<Status>>,
}

#[tonic::async_trait]
impl AggregatedDiscoveryService for Door {
    type DeltaAggregatedResourcesStream =
        Pin<Box<dyn Stream<Item = Result<DeltaDiscoveryResponse, Status>> + Send>>;

    async fn delta_aggregated_resources(
        &self,
        request: Request<Streaming<DeltaDiscoveryRequest>>,
    ) -> Result<Response<Self::DeltaAggregatedResourcesStream>, Status> {
        if let Some(status) = self.turns_away.get() {
            return Err(status.clone());
        }
        let (responses, mut queue) = mpsc::channel(8);
        let (metadata, _, requests) = request.into_parts();
        let session = Session {
            metadata,
            requests,
            responses,
        };
        self.open
            .send(session)
            .await
            .map_err(|_| Status::unavailable("the test is over"))?;
        Ok(Response::new(Box::pin(stream::poll_fn(move |cx| {
            queue.poll_recv(cx)
        }))))
    }
}

/// Dials by handing the far end of an in-memory pipe to the server; to each in turn, where one address has several.
#[derive(Clone)]
pub struct Connector {
    dials: Vec<mpsc::Sender<DuplexStream>>,
    turn: Arc<AtomicUsize>,
    away: Arc<AtomicBool>,
}

impl Connector {
    /// Two replicas behind one address.
    pub fn alternating(first: &Control, second: &Control) -> Self {
        let mut both = first.connector();
        both.dials.push(second.dials.clone());
        both
    }
}

impl Service<http::Uri> for Connector {
    type Response = TokioIo<DuplexStream>;
    type Error = Box<dyn std::error::Error + Send + Sync>;
    type Future = Ready<Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: http::Uri) -> Self::Future {
        if self.away.load(Ordering::Relaxed) {
            return ready(Err("nobody answers".into()));
        }
        let (near, far) = tokio::io::duplex(64 * 1024);
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) % self.dials.len();
        ready(
            self.dials[turn]
                .try_send(far)
                .map(|()| TokioIo::new(near))
                .map_err(Into::into),
        )
    }
}
