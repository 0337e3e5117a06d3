//! Delivery from one queue to one collector: in batches, with a deadline and a limited number of attempts.

use std::sync::Arc;
use std::time::Duration;

use lateen_proto::otlp::collector::logs::v1::logs_service_client::LogsServiceClient;
use lateen_proto::otlp::collector::trace::v1::trace_service_client::TraceServiceClient;
use lateen_proto::otlp::resource::v1::Resource;
use lateen_telemetry::Report;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tonic::metadata::MetadataMap;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

use crate::message;
use crate::outcomes::Outcomes;

/// How long a collector may take to connect, or to answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// Reports in one request.
const BATCH: usize = 512;
/// Reports of this time go out together.
const GATHER: Duration = Duration::from_millis(500);
/// Attempts for one batch; between them the pause doubles.
const ATTEMPTS: u32 = 4;
const PAUSE: Duration = Duration::from_millis(500);

#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Logs,
    Traces,
}

pub(crate) struct Pipe {
    kind: Kind,
    channel: Channel,
    headers: MetadataMap,
    resource: Resource,
    outcomes: Outcomes,
    /// Whether the last batch was taken: a change is worth a line of the log, a state is not.
    well: bool,
}

impl Pipe {
    pub(crate) fn new(
        kind: Kind,
        channel: Channel,
        headers: MetadataMap,
        resource: Resource,
        outcomes: Outcomes,
    ) -> Self {
        Self {
            kind,
            channel,
            headers,
            resource,
            outcomes,
            well: true,
        }
    }

    /// Sends what comes until nobody can report any more.
    pub(crate) async fn run(mut self, mut queue: mpsc::Receiver<Arc<Report>>) {
        let mut batch = Vec::with_capacity(BATCH);
        while queue.recv_many(&mut batch, BATCH).await > 0 {
            if batch.len() < BATCH {
                sleep(GATHER).await;
                while batch.len() < BATCH
                    && let Ok(report) = queue.try_recv()
                {
                    batch.push(report);
                }
            }
            self.send(&batch).await;
            batch.clear();
        }
    }

    async fn send(&mut self, batch: &[Arc<Report>]) {
        let count = batch.len() as u64;
        let mut pause = PAUSE;
        for attempt in 1..=ATTEMPTS {
            let outcome = timeout(PATIENCE, self.export(batch))
                .await
                .unwrap_or_else(|_| Err(Status::deadline_exceeded("no answer in time")));
            match outcome {
                Ok(rejected) => {
                    let rejected = rejected.min(count);
                    self.outcomes.sent.inc_by(count - rejected);
                    self.outcomes.dropped.inc_by(rejected);
                    if !std::mem::replace(&mut self.well, true) {
                        tracing::info!(kind = ?self.kind, "the OpenTelemetry collector takes reports again");
                    }
                    return;
                }
                Err(status) => {
                    if std::mem::replace(&mut self.well, false) {
                        tracing::warn!(
                            kind = ?self.kind, error = %status,
                            "the OpenTelemetry collector takes no reports; traffic goes on, reports are dropped when their \
                             queue is full: check OTEL_EXPORTER_OTLP_ENDPOINT"
                        );
                    }
                    if attempt == ATTEMPTS || !may_pass(status.code()) {
                        self.outcomes.dropped.inc_by(count);
                        return;
                    }
                }
            }
            sleep(pause).await;
            pause *= 2;
        }
    }

    /// Answers how many reports the collector refused.
    async fn export(&self, batch: &[Arc<Report>]) -> Result<u64, Status> {
        let refused = |count: i64| u64::try_from(count).unwrap_or_default();
        match self.kind {
            Kind::Logs => {
                let mut client = LogsServiceClient::new(self.channel.clone());
                let request = self.request(message::logs(self.resource.clone(), batch));
                let answer = client.export(request).await?.into_inner();
                let partial = answer.partial_success.unwrap_or_default();
                Ok(refused(partial.rejected_log_records))
            }
            Kind::Traces => {
                let mut client = TraceServiceClient::new(self.channel.clone());
                let request = self.request(message::spans(self.resource.clone(), batch));
                let answer = client.export(request).await?.into_inner();
                let partial = answer.partial_success.unwrap_or_default();
                Ok(refused(partial.rejected_spans))
            }
        }
    }

    fn request<M>(&self, message: M) -> Request<M> {
        let mut request = Request::new(message);
        *request.metadata_mut() = self.headers.clone();
        request
    }
}

/// Whether trying again can help, by the protocol's list.
fn may_pass(code: Code) -> bool {
    matches!(
        code,
        Code::Cancelled
            | Code::DeadlineExceeded
            | Code::Aborted
            | Code::OutOfRange
            | Code::Unavailable
            | Code::DataLoss
            | Code::ResourceExhausted
    )
}
