//! Exporter of connection reports to an OpenTelemetry collector (OTLP over gRPC): access log records, and one span for each
//! side of a traced connection. It decides when to send and when to give up. `lateen-telemetry` decides the content of a
//! report.
//!
//! A reporter never waits: a queue of fixed length takes what it has room for, and the rest is counted as dropped.
#![forbid(unsafe_code)]

mod message;
mod outcomes;
mod pipe;

use std::sync::Arc;

use lateen_telemetry::{Export, Report};
use lateen_tls::{Called, ControlConnector, Roots};
use prometheus_client::metrics::counter::Counter;
use tokio::sync::mpsc;
use tonic::codegen::http::{HeaderMap, Uri};
use tonic::metadata::MetadataMap;
use tonic::transport::{Channel, Endpoint};

pub use outcomes::Outcomes;
use pipe::Pipe;

/// Reports that wait for one collector, about 1.5 KiB each.
const QUEUE: usize = 2048;

/// Where to send to, and in whose name.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The collector of log records: `http://HOST:PORT` or `https://HOST:PORT`; `None` to send none.
    pub logs: Option<Uri>,
    /// The collector of spans.
    pub traces: Option<Uri>,
    /// Metadata of every request.
    pub headers: HeaderMap,
    /// Attributes of this process.
    pub resource: Vec<(String, String)>,
    /// Who may vouch for a collector at an https address.
    pub roots: Roots,
}

/// Takes reports in and never waits.
#[derive(Debug)]
pub struct Exporter {
    logs: Option<mpsc::Sender<Arc<Report>>>,
    traces: Option<mpsc::Sender<Arc<Report>>>,
    dropped: Counter,
}

impl Exporter {
    /// An exporter, and what sends as long as it is polled. Neither needs a collector to be there yet.
    pub fn new(
        settings: Settings,
        outcomes: &Outcomes,
    ) -> (Self, impl Future<Output = ()> + Send + use<>) {
        let open = |uri: &Uri| channel(uri.clone(), settings.roots.clone());
        let pipe = |uri: &Uri, kind| {
            let (sender, queue) = mpsc::channel(QUEUE);
            let headers = MetadataMap::from_headers(settings.headers.clone());
            let resource = message::resource(&settings.resource);
            let pipe = Pipe::new(kind, open(uri), headers, resource, outcomes.clone());
            (sender, pipe.run(queue))
        };
        let (logs, send_logs) = settings
            .logs
            .as_ref()
            .map(|uri| pipe(uri, pipe::Kind::Logs))
            .unzip();
        let (traces, send_traces) = settings
            .traces
            .as_ref()
            .map(|uri| pipe(uri, pipe::Kind::Traces))
            .unzip();
        let exporter = Self {
            logs,
            traces,
            dropped: outcomes.dropped.clone(),
        };
        let run = async move {
            let logs = async {
                if let Some(send) = send_logs {
                    send.await;
                }
            };
            let traces = async {
                if let Some(send) = send_traces {
                    send.await;
                }
            };
            tokio::join!(logs, traces);
        };
        (exporter, run)
    }
}

impl Export for Exporter {
    fn report(&self, report: Report) {
        let report = Arc::new(report);
        let traced = self
            .traces
            .iter()
            .filter(|_| report.trace.is_some_and(|trace| trace.sampled));
        for queue in self.logs.iter().chain(traced) {
            if queue.try_send(Arc::clone(&report)).is_err() {
                self.dropped.inc();
            }
        }
    }
}

fn channel(uri: Uri, roots: Roots) -> Channel {
    let secure = uri.scheme_str() == Some("https");
    let endpoint = Endpoint::from(uri).connect_timeout(pipe::PATIENCE);
    if secure {
        endpoint
            .connect_with_connector_lazy(ControlConnector::new(roots, None).to(Called::Collector))
    } else {
        endpoint.connect_lazy()
    }
}
