//! Reports against a collector of ours: one that takes them, one that refuses, one that hangs, and none at all.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use lateen_otlp::{Exporter, Outcomes, Settings};
use lateen_proto::otlp::collector::logs::v1::logs_service_server::{
    LogsService, LogsServiceServer,
};
use lateen_proto::otlp::collector::logs::v1::{
    ExportLogsServiceRequest, ExportLogsServiceResponse,
};
use lateen_proto::otlp::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use lateen_proto::otlp::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use lateen_proto::otlp::common::v1::any_value::Value;
use lateen_telemetry::{Export as _, Report, ReportValue, Reporter, Severity, Trace};
use lateen_testkit::{Ca, identity};
use lateen_tls::Roots;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tonic::{Request, Response, Status};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mood {
    Taking,
    Refusing,
    Hanging,
}

#[derive(Clone)]
struct Collector {
    mood: Mood,
    logs: Arc<Mutex<Vec<Request<ExportLogsServiceRequest>>>>,
    spans: Arc<Mutex<Vec<ExportTraceServiceRequest>>>,
}

impl Collector {
    async fn answer(&self) -> Result<(), Status> {
        match self.mood {
            Mood::Taking => Ok(()),
            Mood::Refusing => Err(Status::permission_denied("no")),
            Mood::Hanging => std::future::pending().await,
        }
    }
}

#[tonic::async_trait]
impl LogsService for Collector {
    async fn export(
        &self,
        request: Request<ExportLogsServiceRequest>,
    ) -> Result<Response<ExportLogsServiceResponse>, Status> {
        self.answer().await?;
        self.logs.lock().unwrap().push(request);
        Ok(Response::new(ExportLogsServiceResponse::default()))
    }
}

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        self.answer().await?;
        self.spans.lock().unwrap().push(request.into_inner());
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

/// A collector, and where it listens.
async fn listen(mood: Mood) -> (Collector, String) {
    let collector = Collector {
        mood,
        logs: Arc::default(),
        spans: Arc::default(),
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = tonic::transport::Server::builder()
        .add_service(LogsServiceServer::new(collector.clone()))
        .add_service(TraceServiceServer::new(collector.clone()));
    let accepted = tonic::transport::server::TcpIncoming::from(listener);
    tokio::spawn(server.serve_with_incoming(accepted));
    (collector, address)
}

/// A collector and an exporter to it.
async fn start(mood: Mood) -> (Collector, Exporter, Outcomes) {
    let (collector, address) = listen(mood).await;
    let (exporter, outcomes) = exporter(&format!("http://{address}"), Roots::System);
    (collector, exporter, outcomes)
}

fn exporter(uri: &str, roots: Roots) -> (Exporter, Outcomes) {
    let outcomes = Outcomes::default();
    let settings = Settings {
        logs: Some(uri.parse().unwrap()),
        traces: Some(uri.parse().unwrap()),
        headers: [(
            "authorization".parse().unwrap(),
            "Bearer x".parse().unwrap(),
        )]
        .into_iter()
        .collect(),
        resource: vec![("k8s.node.name".to_owned(), "n1".to_owned())],
        roots,
    };
    let (exporter, sending) = Exporter::new(settings, &outcomes);
    tokio::spawn(sending);
    (exporter, outcomes)
}

fn report(number: u64, sampled: bool) -> Report {
    Report {
        start: SystemTime::UNIX_EPOCH + Duration::from_secs(1),
        end: SystemTime::UNIX_EPOCH + Duration::from_secs(3),
        severity: Severity::Error,
        message: "connection complete",
        attributes: vec![
            ("src.workload", ReportValue::Text("client".to_owned())),
            ("bytes_sent", ReportValue::Number(number)),
        ],
        error: Some("broken".to_owned()),
        reporter: Reporter::Destination,
        trace: Some(Trace {
            trace: 7,
            span: 8,
            parent: Some(9),
            sampled,
        }),
    }
}

async fn until(what: &str, done: impl Fn() -> bool) {
    let waited = tokio::time::timeout(Duration::from_secs(60), async {
        while !done() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    waited.await.unwrap_or_else(|_| panic!("in vain: {what}"));
}

#[tokio::test]
async fn a_report_arrives_as_a_record_and_a_sampled_one_as_a_span_too() {
    let (collector, exporter, outcomes) = start(Mood::Taking).await;
    exporter.report(report(1, true));
    exporter.report(report(2, false));
    until("two records and a span", || outcomes.sent.get() == 3).await;
    let logs = collector.logs.lock().unwrap();
    assert_eq!(logs[0].metadata().get("authorization").unwrap(), "Bearer x");
    let records: Vec<_> = logs
        .iter()
        .flat_map(|request| &request.get_ref().resource_logs)
        .inspect(|resource| {
            let attributes = &resource.resource.as_ref().unwrap().attributes;
            assert_eq!(attributes[0].key, "k8s.node.name");
        })
        .flat_map(|resource| &resource.scope_logs[0].log_records)
        .collect();
    assert_eq!(records.len(), 2);
    assert_eq!(records[0].severity_number, 17);
    assert_eq!(records[0].time_unix_nano, 3_000_000_000);
    assert_eq!(records[0].attributes[0].key, "src.workload");
    let value = records[1].attributes[1].value.clone().unwrap().value;
    assert_eq!(value, Some(Value::IntValue(2)));
    let spans = collector.spans.lock().unwrap();
    let spans = &spans[0].resource_spans[0].scope_spans[0].spans;
    assert_eq!(spans.len(), 1, "the other one is not sampled");
    let span = &spans[0];
    assert_eq!((span.kind, span.trace_id.len()), (2, 16));
    assert_eq!(span.parent_span_id[7], 9);
    assert_eq!(
        span.end_time_unix_nano - span.start_time_unix_nano,
        2_000_000_000
    );
    assert_eq!(span.status.as_ref().unwrap().message, "broken");
    assert_eq!(outcomes.dropped.get(), 0);
}

#[tokio::test]
async fn a_collector_that_refuses_costs_the_reports_alone() {
    let (_, exporter, outcomes) = start(Mood::Refusing).await;
    exporter.report(report(1, true));
    until("both are dropped", || outcomes.dropped.get() == 2).await;
    assert_eq!(outcomes.sent.get(), 0);
}

#[tokio::test]
async fn who_reports_never_waits_and_what_waits_is_bounded() {
    for away in [false, true] {
        let (_kept, exporter, outcomes) = if away {
            let (exporter, outcomes) = exporter("http://127.0.0.1:1", Roots::System);
            (None, exporter, outcomes)
        } else {
            let (collector, exporter, outcomes) = start(Mood::Hanging).await;
            (Some(collector), exporter, outcomes)
        };
        for number in 0..20_000 {
            exporter.report(report(number, false));
            if number % 1000 == 0 {
                tokio::task::yield_now().await;
            }
        }
        let held = 20_000 - outcomes.dropped.get();
        assert!(held <= 2048 + 512, "{held} are held in memory");
        assert_eq!(outcomes.sent.get(), 0);
    }
}

/// What the log says on this thread.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Ends TLS before a collector that knows none, with a certificate of `ca` for `name`; answers its port.
async fn tls_before(collector: &str, ca: &Ca, name: &str) -> u16 {
    let bundle = ca.leaf(&identity("collector")).dns(name).issue();
    let chain = bundle.chain[..1]
        .iter()
        .map(|pem| CertificateDer::from_pem_slice(pem.as_bytes()).unwrap());
    let key = PrivateKeyDer::from_pem_slice(bundle.key.as_bytes()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain.collect(), key)
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let collector = collector.to_owned();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, collector) = (acceptor.clone(), collector.clone());
            tokio::spawn(async move {
                let mut stream = acceptor.accept(stream).await?;
                let mut onward = tokio::net::TcpStream::connect(collector).await?;
                tokio::io::copy_bidirectional(&mut stream, &mut onward).await
            });
        }
    });
    port
}

#[tokio::test]
async fn over_https_a_collector_must_prove_its_name_and_a_refusal_is_named_once() {
    let (ours, others) = (Ca::new(), Ca::new());
    for (ca, name, why) in [
        (&ours, "localhost", None),
        (&others, "localhost", Some("signed by an unknown authority")),
        (&ours, "elsewhere", Some("not valid for name")),
    ] {
        let (log, (collector, address)) = (Log::default(), listen(Mood::Taking).await);
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_writer(move || writer.clone());
        let _guard = tracing::subscriber::set_default(subscriber.finish());
        let port = tls_before(&address, ca, name).await;
        let (exporter, outcomes) = exporter(
            &format!("https://localhost:{port}"),
            Roots::Pem(ours.root().to_owned()),
        );
        for batch in 1..=2 {
            exporter.report(report(batch, false));
            until("the batch is through", || {
                outcomes.sent.get() + outcomes.dropped.get() == batch
            })
            .await;
        }
        let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        let refusals = text.matches("takes no reports").count();
        match why {
            None => assert_eq!((outcomes.sent.get(), refusals), (2, 0), "{text}"),
            Some(why) => {
                assert_eq!((outcomes.dropped.get(), refusals), (2, 1), "{text}");
                for part in [why, "tls to OpenTelemetry collector localhost"] {
                    assert!(text.contains(part), "{text} lacks {part}");
                }
                assert!(!text.contains("control plane"), "{text}");
                assert!(collector.logs.lock().unwrap().is_empty());
            }
        }
    }
}
