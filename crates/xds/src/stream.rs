//! One stream: subscribe, take responses one at a time, answer each.

use std::error::Error;
use std::fmt;
use std::future::pending;
use std::time::Duration;

use futures_util::stream;
use lateen_config::{Batch, Kind};
use lateen_proto::discovery::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use lateen_proto::discovery::{DeltaDiscoveryRequest, DeltaDiscoveryResponse};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tonic::{Code, Request, Status};

use crate::client::{Client, Observer, Sink, Termination};
use crate::complaint;
use crate::demand::{Demand, Told};
use crate::held::unpack;
use crate::lookups::Asks;

/// How often answers are looked through for those that are no longer believed.
const EXPIRY: Duration = Duration::from_secs(1);

/// How a stream ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// Whether it brought any response: then the peer works, and there is no reason to wait long.
    pub(crate) worked: bool,
    cause: Cause,
}

#[derive(Debug)]
enum Cause {
    /// There is no token to show.
    Token { path: String, error: std::io::Error },
    /// It could not be opened.
    Open(Status),
    /// It broke.
    Broke(Status),
    /// The peer finished it.
    Finished,
}

impl Ended {
    pub(crate) fn termination(&self) -> Termination {
        match &self.cause {
            Cause::Token { .. } | Cause::Open(_) => Termination::ConnectionError,
            Cause::Finished => Termination::Complete,
            Cause::Broke(status) if is_orderly(status) => Termination::Reconnect,
            Cause::Broke(_) => Termination::Error,
        }
    }

    /// Whether another replica may serve where this one does not: it says that it cannot, or that it does not know us.
    /// While tokens cannot be verified, replicas that have verified ours before still take it.
    pub(crate) fn speaks_for_its_replica(&self) -> bool {
        match &self.cause {
            Cause::Open(status) | Cause::Broke(status) => {
                matches!(status.code(), Code::Unavailable | Code::Unauthenticated)
            }
            Cause::Token { .. } | Cause::Finished => false,
        }
    }
}

/// What a restart of the control plane or the end of a connection's allotted age looks like from here.
fn is_orderly(status: &Status) -> bool {
    match status.code() {
        Code::Unknown | Code::Cancelled | Code::DeadlineExceeded => true,
        Code::Unavailable => ["transport is closing", "received prior goaway"]
            .iter()
            .any(|m| status.message().contains(m)),
        _ => false,
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            Cause::Token { path, error } => {
                write!(
                    f,
                    "read token {path}: {error}; is the service account token mounted there?"
                )
            }
            Cause::Open(status) | Cause::Broke(status) => {
                write!(f, "{:?}: {}", status.code(), status.message())?;
                let mut source = status.source();
                while let Some(error) = source {
                    write!(f, ": {error}")?;
                    source = error.source();
                }
                match status.code() {
                    Code::Unauthenticated => f.write_str(
                        "; is the token valid, and is its audience the control plane's?",
                    ),
                    Code::OutOfRange => {
                        f.write_str("; a response is larger than this proxy accepts")
                    }
                    _ => Ok(()),
                }
            }
            Cause::Finished => f.write_str("finished by the control plane"),
        }
    }
}

impl<S: Sink, O: Observer> Client<S, O> {
    /// Runs one stream to its end.
    pub(crate) async fn stream(&mut self) -> Ended {
        let mut worked = false;
        let cause = match self.open().await {
            Err(cause) => cause,
            Ok((requests, mut responses)) => loop {
                let response = tokio::select! {
                    response = responses.message() => response,
                    (subscribe, unsubscribe) = demanded(&mut self.on_demand) => {
                        self.forget(&unsubscribe).await;
                        if let Some(changes) = self.changes(subscribe, unsubscribe) {
                            let _ = requests.send(changes).await;
                        }
                        continue;
                    }
                };
                match response {
                    Err(status) => break Cause::Broke(status),
                    Ok(None) => break Cause::Finished,
                    Ok(Some(response)) => {
                        worked = true;
                        for answer in self.take(response).await {
                            // A closed channel means that the stream is over; its end says why.
                            let _ = requests.send(answer).await;
                        }
                    }
                }
            },
        };
        Ended { worked, cause }
    }

    async fn open(
        &mut self,
    ) -> Result<
        (
            mpsc::Sender<DeltaDiscoveryRequest>,
            tonic::Streaming<DeltaDiscoveryResponse>,
        ),
        Cause,
    > {
        let authorization = self.authorization()?;
        let kinds = self.settings.kinds.clone();
        let (requests, queue) = mpsc::channel(kinds.all().len() + 2);
        for kind in kinds.all() {
            let first = self.subscription(kind);
            requests
                .try_send(first)
                .expect("the queue holds every first request");
        }
        let mut call = Request::new(stream::unfold(queue, |mut queue| async move {
            let request = queue.recv().await?;
            Some((request, queue))
        }));
        let metadata = call.metadata_mut();
        if let Some(authorization) = authorization {
            metadata.insert("authorization", authorization);
        }
        match self.settings.cluster_id.parse() {
            Ok(id) => drop(metadata.insert("clusterid", id)),
            Err(_) => {
                return Err(Cause::Open(Status::invalid_argument(
                    "the cluster id cannot stand in a header",
                )));
            }
        }
        for (key, value) in &self.settings.headers {
            metadata.insert(key.clone(), value.clone());
        }
        let mut service = AggregatedDiscoveryServiceClient::new(self.channel.clone())
            .max_decoding_message_size(self.settings.max_message);
        let responses = service
            .delta_aggregated_resources(call)
            .await
            .map_err(Cause::Open)?;
        tracing::info!("xds stream established");
        Ok((requests, responses.into_inner()))
    }

    fn authorization(&self) -> Result<Option<tonic::metadata::AsciiMetadataValue>, Cause> {
        let Some(path) = &self.settings.token else {
            return Ok(None);
        };
        let fail = |error| Cause::Token {
            path: path.display().to_string(),
            error,
        };
        let token = std::fs::read_to_string(path).map_err(fail)?;
        let mut value: tonic::metadata::AsciiMetadataValue =
            format!("Bearer {}", token.trim()).parse().map_err(|_| {
                fail(std::io::Error::new(
                    std::io::ErrorKind::InvalidData,
                    "not a token",
                ))
            })?;
        value.set_sensitive(true);
        Ok(Some(value))
    }

    /// The first request of a kind: everything, or the children of one parent, but for what is held in the same version. On
    /// demand: what was asked for by name. The protocol cannot subscribe to nothing; to everything and at once not to it is the
    /// same.
    fn subscription(&mut self, kind: &Kind) -> DeltaDiscoveryRequest {
        let mut request = DeltaDiscoveryRequest {
            node: Some(self.settings.node.to_wire()),
            type_url: kind.type_url.to_owned(),
            initial_resource_versions: self.held(kind).versions(),
            ..Default::default()
        };
        let parents = self.by_name.iter().filter(|(of, _)| *of == kind);
        request.resource_names_subscribe = parents.map(|(_, name)| name.clone()).collect();
        if let (true, Some((_, demand))) = (kind.on_demand, &self.on_demand) {
            let everything = "*".to_owned();
            let asked = demand.names().map(ToString::to_string);
            request.resource_names_subscribe =
                [everything.clone()].into_iter().chain(asked).collect();
            request.resource_names_unsubscribe = vec![everything];
        }
        request
    }

    /// Stops believing answers.
    async fn forget(&mut self, names: &[String]) {
        if !names.is_empty()
            && let Some(kind) = self.settings.kinds.on_demand()
        {
            let mut batch = Batch::new(kind);
            batch.forgotten = names.iter().map(|name| name.as_str().into()).collect();
            // It says nothing of what there is.
            batch.more = true;
            self.sink.apply(batch).await;
        }
    }

    /// Puts a response to use; the first answer acknowledges it, or names what is refused.
    async fn take(&mut self, response: DeltaDiscoveryResponse) -> Vec<DeltaDiscoveryRequest> {
        let mut answer = DeltaDiscoveryRequest {
            type_url: response.type_url.clone(),
            response_nonce: response.nonce.clone(),
            ..Default::default()
        };
        let bytes = response
            .resources
            .iter()
            .filter_map(|r| r.resource.as_ref())
            .map(|any| any.value.len() as u64)
            .sum();
        self.observer.message(&response.type_url, bytes);
        let Some(kind) = self.settings.kinds.of(&response.type_url) else {
            answer.error_detail = Some(complaint::of_response(format!(
                "this proxy did not subscribe to {:?}",
                response.type_url
            )));
            return vec![answer];
        };
        let told = match &mut self.on_demand {
            Some((_, demand)) if kind.on_demand => {
                let found = response.resources.iter();
                let found = found.map(|found| (found.name.as_str(), found.aliases.as_slice()));
                demand.read(found, &response.removed_resources, Instant::now())
            }
            _ => Told::default(),
        };
        let (mut batch, versions) = unpack(kind, response);
        batch.more = is_followed(&answer.response_nonce);
        batch.answered.clone_from(&told.answered);
        batch.forgotten.clone_from(&told.forgotten);
        tracing::debug!(
            ?kind,
            upserts = batch.upserts.len(),
            removals = batch.removals.len(),
            "xds response"
        );
        let refused = self.sink.apply(batch.clone()).await;
        self.held(kind).note(&batch, versions, &refused);
        let unsubscribe = told.forgotten.iter().map(ToString::to_string).collect();
        told.tell();
        // A push is whole whatever was refused in it: one bad object must not keep a proxy, and so its pods, offline. What
        // a refused policy covers is refused until it is understood, which the sink sees to.
        if !batch.more && self.unlisted.listed(kind) {
            self.observer.synced();
        }
        if !refused.is_empty() {
            let error = complaint::of_resources(&refused);
            tracing::warn!(
                ?kind,
                "xds resources refused, the rest is in use: {}",
                error.message
            );
            answer.error_detail = Some(error);
        }
        let mut answers = vec![answer];
        answers.extend(self.changes(Vec::new(), unsubscribe));
        answers
    }

    /// The request that changes what is asked for by name, if there is anything to change.
    fn changes(
        &self,
        subscribe: Vec<String>,
        unsubscribe: Vec<String>,
    ) -> Option<DeltaDiscoveryRequest> {
        let some = !subscribe.is_empty() || !unsubscribe.is_empty();
        let kind = self.settings.kinds.on_demand().filter(|_| some)?;
        Some(DeltaDiscoveryRequest {
            type_url: kind.type_url.to_owned(),
            resource_names_subscribe: subscribe,
            resource_names_unsubscribe: unsubscribe,
            ..Default::default()
        })
    }
}

/// Whether a nonce says that others of its type follow before the first push is whole. Delta ADS has no mark for it;
/// our control plane's nonce is `epoch.generation.chunk`, with a `+` behind it until then. Any other control plane's
/// first response is taken for the whole, as ztunnel does.
fn is_followed(nonce: &str) -> bool {
    let number = |part: Option<&str>| part.is_some_and(|part| part.parse::<u64>().is_ok());
    nonce.strip_suffix('+').is_some_and(|nonce| {
        let mut parts = nonce.rsplitn(3, '.');
        number(parts.next()) && number(parts.next()) && parts.next().is_some()
    })
}

/// The next names to subscribe to and to unsubscribe from; never, if everything is asked for.
async fn demanded(on_demand: &mut Option<(Asks, Demand)>) -> (Vec<String>, Vec<String>) {
    let Some((asks, demand)) = on_demand else {
        return pending().await;
    };
    loop {
        let ask = timeout(EXPIRY, asks.0.recv()).await;
        let now = Instant::now();
        let mut subscribe = Vec::new();
        let mut take = |ask| subscribe.extend(demand.ask(ask, now).map(|name| name.to_string()));
        match ask {
            Ok(Some(ask)) => {
                take(ask);
                // What was asked meanwhile goes into the same request.
                while let Ok(ask) = asks.0.try_recv() {
                    take(ask);
                }
            }
            // Nobody can ask any more.
            Ok(None) => tokio::time::sleep(EXPIRY).await,
            Err(_) => {}
        }
        let expired = demand.expire(now);
        if !subscribe.is_empty() || !expired.is_empty() {
            return (subscribe, expired.iter().map(ToString::to_string).collect());
        }
    }
}
