//! HTTP/2 and gRPC against a server that is none of ours, in the clear and over TLS.

mod rig;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{RecvStream, SendStream};
use http::{HeaderMap, Request, Response};
use rig::{Certificates, http_server, json, run, stderr};
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::runtime::Builder;
use tokio::task::LocalSet;
use tokio_rustls::TlsAcceptor;

/// What a server has seen.
#[derive(Debug, Default)]
struct Counts {
    connections: AtomicU64,
    streams: AtomicU64,
    most_at_once: AtomicU64,
    at_once: AtomicU64,
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
                    match tls {
                        None => connection(stream, counts).await,
                        Some(config) => {
                            if let Ok(stream) = TlsAcceptor::from(config).accept(stream).await {
                                connection(stream, counts).await;
                            }
                        }
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

async fn answer(
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
) -> Result<(), h2::Error> {
    let grpc = request
        .headers()
        .get("content-type")
        .is_some_and(|t| t == "application/grpc");
    let path = request.uri().path().to_owned();
    let mut body = request.into_body();
    if path == "/reset" {
        respond.send_reset(h2::Reason::REFUSED_STREAM);
        return Ok(());
    }
    if path == "/wait" {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    if path == "/slow" {
        tokio::time::sleep(Duration::from_secs(60)).await;
    }
    let mut send = respond.send_response(Response::new(()), false)?;
    while let Some(data) = body.data().await {
        let data = data?;
        body.flow_control().release_capacity(data.len())?;
        write(&mut send, data).await?;
    }
    let mut trailers = HeaderMap::new();
    if grpc {
        let status = if path == "/exhausted" { "8" } else { "0" };
        trailers.insert("grpc-status", status.parse().unwrap());
    }
    send.send_trailers(trailers)
}

/// Sends as the client's window allows, which is larger than anything here.
async fn write(send: &mut SendStream<Bytes>, data: Bytes) -> Result<(), h2::Error> {
    send.send_data(data, false)
}

#[test]
fn requests_share_connections_and_keep_to_what_the_server_allows() {
    let (address, counts) = server(None);
    let url = format!("http://{address}/x");
    let table = [
        ("1", "0", 1),
        ("3", "0", 3),
        ("9", "0", 4),
        ("9", "2000", 4),
    ];
    for (streams, qps, most) in table {
        counts.streams.store(0, Ordering::SeqCst);
        counts.most_at_once.store(0, Ordering::SeqCst);
        counts.connections.store(0, Ordering::SeqCst);
        let args = [
            "--url",
            &url,
            "--http2",
            "--streams",
            streams,
            "--qps",
            qps,
            "-c1",
            "-n300",
            "--body-size=50000",
        ];
        let output = run(&args);
        let report = json(&output);
        assert_eq!(report["counts"]["ok"], 300, "{}", stderr(&output));
        assert_eq!(report["counts"]["content_bytes"], 300 * 50_000);
        assert_eq!(report["config"]["protocol"], "h2c");
        assert_eq!(counts.streams.load(Ordering::SeqCst), 300);
        assert_eq!(counts.connections.load(Ordering::SeqCst), 1);
        let at_once = counts.most_at_once.load(Ordering::SeqCst);
        assert!(at_once <= most, "{at_once} streams at once");
        assert!(qps != "0" || at_once == most, "{at_once} streams at once");
    }
}

#[test]
fn waiting_for_the_server_to_allow_a_stream_is_no_service_time() {
    let (address, _) = server(None);
    let url = format!("http://{address}/wait");
    let args = [
        "--http2",
        "--qps=0",
        "-c1",
        "--streams=40",
        "-n200",
        "--all-percentiles",
        "--url",
        &url,
    ];
    let report = json(&run(&args));
    assert_eq!(report["counts"]["ok"], 200, "{report}");
    let at = |name: &str| report[name]["p50"].as_f64().unwrap();
    // Four at once of forty: a request waits nine times as long as it is served.
    assert!(at("service_time") >= 49.0, "{}", report["service_time"]);
    assert!(
        at("service_time") < at("response_time") / 3.0,
        "{} of {}",
        report["service_time"],
        report["response_time"]
    );
    assert!(
        at("lateness") < at("service_time"),
        "{}",
        report["lateness"]
    );
}

#[test]
fn over_tls_the_server_must_agree() {
    let certificates = Certificates::new();
    let ca = certificates.text("ca.pem");
    let (address, _) = server(Some(certificates.server(&["h2"], false)));
    let url = format!("https://localhost:{}/", address.port());
    let args = [
        "--url",
        &url,
        "--http2",
        "--cacert",
        &ca,
        "-n40",
        "--qps=0",
        "-c2",
        "--streams=4",
    ];
    let output = run(&args);
    let report = json(&output);
    assert_eq!(report["counts"]["ok"], 40, "{}", stderr(&output));
    assert_eq!(report["config"]["protocol"], "h2");
    let (address, _) = server(Some(certificates.server(&["http/1.1"], false)));
    let url = format!("https://localhost:{}/", address.port());
    let output = run(&["--url", &url, "--http2", "--cacert", &ca, "-n4"]);
    assert!(stderr(&output).contains("--http2"), "{}", stderr(&output));
    assert!(output.stdout.is_empty());
}

#[test]
fn calls_of_grpc_are_unary_or_messages_on_a_stream() {
    let certificates = Certificates::new();
    let (clear, counts) = server(None);
    let (encrypted, _) = server(Some(certificates.server(&["h2"], false)));
    let urls = [
        format!("grpc://{clear}"),
        format!("grpcs://localhost:{}", encrypted.port()),
    ];
    for url in &urls {
        for (streaming, streams) in [(false, "1"), (false, "3"), (true, "1"), (true, "3")] {
            counts.streams.store(0, Ordering::SeqCst);
            let streams = format!("--streams={streams}");
            let mut args = vec!["--url", url, "-n200", "--qps=0", "-c2", "--payload-size=90"];
            args.extend(["--insecure", &streams]);
            args.extend(streaming.then_some("--streaming"));
            let output = run(&args);
            let report = json(&output);
            assert_eq!(report["counts"]["ok"], 200, "{args:?}: {}", stderr(&output));
            // A field of protobuf: its number and kind, its length, and the text.
            assert_eq!(report["counts"]["content_bytes"], 200 * 92, "{args:?}");
            if *url == urls[0] {
                let streams = counts.streams.load(Ordering::SeqCst);
                assert!(
                    if streaming {
                        streams <= 6
                    } else {
                        streams == 200
                    },
                    "{streams}"
                );
            }
        }
    }
    let url = format!("grpc://{clear}/exhausted");
    let report = json(&run(&["--url", &url, "-n5", "--qps=0", "-c1"]));
    assert_eq!(report["errors"], serde_json::json!({"grpc_8": 5}));
}

#[test]
fn streams_fail_alone() {
    let (address, counts) = server(None);
    let urls = ["/reset", "/fine", "/slow"].map(|path| format!("http://{address}{path}"));
    let output = run(&[
        "--url",
        &urls[0],
        "--url",
        &urls[1],
        "--url",
        &urls[2],
        "--weights=2,6,1",
        "--http2",
        "--streams=4",
        "-c2",
        "--qps=200",
        "-n200",
        "--timeout=300ms",
    ]);
    let report = json(&output);
    let (counted, errors) = (&report["counts"], &report["errors"]);
    let count = |value: &serde_json::Value| value.as_u64().unwrap_or(0);
    let (refused, late) = (count(&errors["refusal"]), count(&errors["timeout"]));
    assert_eq!(
        count(&counted["ok"]) + refused + late,
        200,
        "{counted} {errors}"
    );
    assert!(
        refused > 0 && late > 0 && count(&counted["ok"]) > 0,
        "{errors}"
    );
    assert_eq!(
        counts.connections.load(Ordering::SeqCst),
        2,
        "no connection was given up"
    );
}

#[test]
fn a_server_of_another_protocol_is_an_error_before_the_start() {
    let (address, _) = http_server();
    let url = format!("grpc://{address}");
    let output = run(&["--url", &url, "-n4", "--timeout=400ms"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("protocol"), "{}", stderr(&output));
    let (address, _) = server(None);
    let url = format!("http://{address}");
    for (args, expected) in [("--streams=2", "with --http2"), ("--streaming", "grpc://")] {
        let output = run(&["--url", &url, "-n4", args]);
        assert!(stderr(&output).contains(expected), "{}", stderr(&output));
    }
}
