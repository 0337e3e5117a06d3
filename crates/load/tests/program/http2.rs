//! HTTP/2 and gRPC against a server that is none of ours, in the clear and over TLS.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use h2::RecvStream;
use h2::server::SendResponse;
use http::{HeaderMap, Request, Response};
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::runtime::Builder;
use tokio::task::LocalSet;
use tokio_rustls::TlsAcceptor;

use crate::rig::{Certificates, count, http_server, report, run};

/// The counts of a server.
#[derive(Debug, Default)]
struct Counts {
    connections: AtomicU64,
    streams: AtomicU64,
    most_at_once: AtomicU64,
    at_once: AtomicU64,
}

impl Counts {
    /// Connections, streams and the most streams at once since the last call.
    fn take(&self) -> [u64; 3] {
        let counts = [&self.connections, &self.streams, &self.most_at_once];
        counts.map(|count| count.swap(0, Ordering::SeqCst))
    }
}

/// A server that allows four streams at once, until the test process ends.
fn server(tls: Option<Arc<ServerConfig>>) -> (SocketAddr, Arc<Counts>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let counts = Arc::new(Counts::default());
    let shared = Arc::clone(&counts);
    std::thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        LocalSet::new().block_on(&runtime, async move {
            let listener = TcpListener::from_std(listener).unwrap();
            while let Ok((stream, _)) = listener.accept().await {
                stream.set_nodelay(true).unwrap();
                let (counts, tls) = (Arc::clone(&shared), tls.clone());
                counts.connections.fetch_add(1, Ordering::SeqCst);
                tokio::task::spawn_local(async move {
                    let Some(config) = tls else {
                        return connection(stream, counts).await;
                    };
                    if let Ok(stream) = TlsAcceptor::from(config).accept(stream).await {
                        connection(stream, counts).await;
                    }
                });
            }
        });
    });
    (address, counts)
}

async fn connection(stream: impl AsyncRead + AsyncWrite + Unpin, counts: Arc<Counts>) {
    let mut builder = h2::server::Builder::new();
    builder
        .max_concurrent_streams(4)
        .initial_window_size(20_000);
    let Ok(mut connection) = builder.handshake::<_, Bytes>(stream).await else {
        return;
    };
    while let Some(Ok((request, respond))) = connection.accept().await {
        let counts = Arc::clone(&counts);
        counts.streams.fetch_add(1, Ordering::SeqCst);
        let now = counts.at_once.fetch_add(1, Ordering::SeqCst) + 1;
        counts.most_at_once.fetch_max(now, Ordering::SeqCst);
        tokio::task::spawn_local(async move {
            let _ = answer(request, respond).await;
            counts.at_once.fetch_sub(1, Ordering::SeqCst);
        });
    }
}

/// Echoes a body. The client's window is larger than anything here.
async fn answer(
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
) -> Result<(), h2::Error> {
    let content_type = request.headers().get("content-type");
    let grpc = content_type.is_some_and(|value| value == "application/grpc");
    let path = request.uri().path().to_owned();
    let mut body = request.into_body();
    match &*path {
        "/reset" => {
            respond.send_reset(h2::Reason::REFUSED_STREAM);
            return Ok(());
        }
        "/wait" => tokio::time::sleep(Duration::from_millis(50)).await,
        "/slow" => tokio::time::sleep(Duration::from_secs(60)).await,
        _ => {}
    }
    let mut send = respond.send_response(Response::new(()), false)?;
    while let Some(data) = body.data().await {
        let data = data?;
        body.flow_control().release_capacity(data.len())?;
        send.send_data(data, false)?;
    }
    let mut trailers = HeaderMap::new();
    if grpc {
        let status = if path == "/exhausted" { "8" } else { "0" };
        trailers.insert("grpc-status", status.parse().unwrap());
    }
    send.send_trailers(trailers)
}

#[test]
fn requests_share_connections_and_keep_to_what_the_server_allows() {
    let (address, counts) = server(None);
    for (streams, qps, most) in [(1, 0, 1), (3, 0, 3), (9, 0, 4), (9, 2000, 4)] {
        counts.take();
        let load = format!("--streams {streams} --qps {qps} -c1 -n300 --body-size=50000");
        let report = report(format!("--url http://{address}/x --http2 {load}"));
        assert_eq!(report["counts"]["ok"], 300, "{report}");
        assert_eq!(report["counts"]["content_bytes"], 300 * 50_000);
        assert_eq!(report["config"]["protocol"], "h2c");
        let [connections, streams, at_once] = counts.take();
        assert_eq!((connections, streams), (1, 300));
        assert!(at_once <= most, "{at_once} streams at once");
        assert!(qps != 0 || at_once == most, "{at_once} streams at once");
    }
}

#[test]
fn waiting_for_the_server_to_allow_a_stream_is_no_service_time() {
    let (address, _) = server(None);
    let load = "--http2 --qps=0 -c1 --streams=40 -n200";
    let report = report(format!("--url http://{address}/wait {load}"));
    assert_eq!(report["counts"]["ok"], 200, "{report}");
    let at = |name: &str| report[name]["p50"].as_f64().unwrap();
    let (service, response) = (at("service_time"), at("response_time"));
    // Four at once of forty: a request waits nine times as long as it is served.
    assert!(service >= 49.0 && service < response / 3.0, "{report}");
    assert!(at("lateness") < service, "{report}");
}

#[test]
fn over_tls_the_server_must_agree() {
    let certificates = Certificates::new();
    let ca = certificates.path("ca.pem");
    let run = |alpn: &str, load: &str| {
        let (address, _) = server(Some(certificates.server(&[alpn], false)));
        let url = format!("https://localhost:{}/", address.port());
        run(format!("--url {url} --http2 --cacert {ca} {load}"))
    };
    let report = run("h2", "-n40 --qps=0 -c2 --streams=4").json();
    assert_eq!(report["counts"]["ok"], 40, "{report}");
    assert_eq!(report["config"]["protocol"], "h2");
    let refused = run("http/1.1", "-n4");
    refused.refused(1, "--http2");
    assert!(refused.out.is_empty());
}

#[test]
fn calls_of_grpc_are_unary_or_messages_on_a_stream() {
    let certificates = Certificates::new();
    let (clear, counts) = server(None);
    let (encrypted, _) = server(Some(certificates.server(&["h2"], false)));
    let encrypted = format!("grpcs://localhost:{}", encrypted.port());
    for url in [format!("grpc://{clear}"), encrypted] {
        for (streaming, streams) in [("", 1), ("", 3), ("--streaming", 1), ("--streaming", 3)] {
            counts.take();
            let load = "-n200 --qps=0 -c2 --payload-size=90 --insecure";
            let args = format!("--url {url} {load} {streaming} --streams={streams}");
            let report = report(&args);
            assert_eq!(report["counts"]["ok"], 200, "{args}: {report}");
            // A field of protobuf: its number and kind, its length, and the text.
            assert_eq!(report["counts"]["content_bytes"], 200 * 92, "{args}");
            if url.starts_with("grpc:") {
                let streams = counts.take()[1];
                let calls = if streaming.is_empty() {
                    200..=200
                } else {
                    1..=6
                };
                assert!(calls.contains(&streams), "{streams}");
            }
        }
    }
    let report = report(format!("--url grpc://{clear}/exhausted -n5 --qps=0 -c1"));
    assert_eq!(report["errors"], serde_json::json!({"grpc_8": 5}));
}

#[test]
fn streams_fail_alone() {
    let (address, counts) = server(None);
    let urls = ["reset", "fine", "slow"].map(|path| format!("--url http://{address}/{path} "));
    let load = "--weights=2,6,1 --http2 --streams=4 -c2 --qps=200 -n200 --timeout=300ms";
    let report = report(urls.concat() + load);
    let all = ["counts.ok", "errors.refusal", "errors.timeout"].map(|path| count(&report, path));
    assert_eq!(all.iter().sum::<u64>(), 200, "{report}");
    assert!(all.iter().all(|count| *count > 0), "{report}");
    assert_eq!(counts.take()[0], 2, "no connection was given up");
}

#[test]
fn a_server_of_another_protocol_is_an_error_before_the_start() {
    let (url, _) = http_server();
    let url = url.replace("http:", "grpc:");
    run(format!("--url {url} -n4 --timeout=400ms")).refused(1, "protocol");
    let (address, _) = server(None);
    for (option, expected) in [("--streams=2", "with --http2"), ("--streaming", "grpc://")] {
        run(format!("--url http://{address} -n4 {option}")).refused(1, expected);
    }
}
