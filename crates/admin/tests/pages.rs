//! The pages over real connections.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lateen_admin::{
    Admin, MetricsPages, Pages, Readiness, ReadinessPages, Reply, bind, parameters, serve,
};
use lateen_telemetry::{BuildInfo, Metrics, log};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

async fn start(pages: impl Pages) -> SocketAddr {
    let listener = bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve(listener, pages));
    address
}

/// Status and body of one request.
async fn ask(address: SocketAddr, method: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").expect("an answer has a head");
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, body.to_owned())
}

fn admin(quits: &Arc<AtomicUsize>) -> Admin {
    let quits = Arc::clone(quits);
    let dump = || async { serde_json::json!({"workloads": [], "version": {"version": "1.2.3"}}) };
    Admin::new(dump, move |deadline| {
        if deadline.is_some_and(|deadline| deadline != "2h") {
            return Err("deadline: use a time".to_owned());
        }
        quits.fetch_add(1, Ordering::Relaxed);
        Ok(())
    })
}

#[tokio::test]
async fn the_dump_is_json() {
    let address = start(admin(&Arc::default())).await;
    let (status, body) = ask(address, "GET", "/config_dump").await;
    assert_eq!(status, 200);
    let dump: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!(dump["version"]["version"], "1.2.3");
}

#[tokio::test]
async fn only_a_post_ends_the_proxy() {
    let quits = Arc::new(AtomicUsize::new(0));
    let address = start(admin(&quits)).await;
    assert_eq!(ask(address, "GET", "/quitquitquit").await.0, 405);
    assert_eq!(quits.load(Ordering::Relaxed), 0);
    assert_eq!(
        ask(address, "POST", "/quitquitquit").await,
        (200, "shutdown now\n".to_owned())
    );
    assert_eq!(quits.load(Ordering::Relaxed), 1);
    let (status, _) = ask(address, "POST", "/quitquitquit?deadline=soon").await;
    assert_eq!((status, quits.load(Ordering::Relaxed)), (400, 1));
    let (status, _) = ask(address, "POST", "/quitquitquit?deadline=2h").await;
    assert_eq!((status, quits.load(Ordering::Relaxed)), (200, 2));
}

#[tokio::test]
async fn levels_are_shown_changed_and_undone() {
    log::init(log::Format::Plain, "warn").unwrap();
    let address = start(admin(&Arc::default())).await;
    assert_eq!(ask(address, "GET", "/logging").await.0, 405);
    let (status, body) = ask(address, "POST", "/logging").await;
    assert_eq!(
        (status, body.as_str()),
        (200, "current log level is warn\n")
    );
    let (status, body) = ask(address, "POST", "/logging?level=access%3Ddebug").await;
    assert_eq!(status, 200);
    assert!(
        body.contains("access=debug") && body.contains("warn"),
        "{body}"
    );
    let (status, body) = ask(address, "POST", "/logging?level=loud").await;
    assert_eq!(status, 400);
    assert!(body.contains("\"loud\" is not a log level"), "{body}");
    let (_, body) = ask(address, "POST", "/logging?reset").await;
    assert_eq!(body, "current log level is warn\n");
}

#[tokio::test]
async fn readiness_names_what_is_missing() {
    let readiness = Readiness::waiting_for(["state manager", "workload proxy manager"]);
    let address = start(ReadinessPages(readiness.clone())).await;
    readiness.reached("state manager");
    let (status, body) = ask(address, "GET", "/healthz/ready").await;
    assert_eq!(
        (status, body.as_str()),
        (500, "not ready, pending: workload proxy manager\n")
    );
    readiness.reached("workload proxy manager");
    assert_eq!(
        ask(address, "GET", "/healthz/ready").await,
        (200, "ready\n".to_owned())
    );
    assert_eq!(ask(address, "POST", "/healthz/ready").await.0, 405);
}

#[tokio::test]
async fn metrics_are_where_prometheus_looks() {
    let build = BuildInfo {
        component: "ztunnel",
        tag: "1.2.3",
    };
    let address = start(MetricsPages::new(
        Arc::new(Metrics::new(&build, Vec::new)),
        || async {},
    ))
    .await;
    for path in ["/metrics", "/stats/prometheus"] {
        let (status, body) = ask(address, "GET", path).await;
        assert_eq!(status, 200);
        assert!(
            body.contains("istio_build{component=\"ztunnel\",tag=\"1.2.3\"} 1\n"),
            "{body}"
        );
    }
    assert_eq!(ask(address, "GET", "/elsewhere").await.0, 404);
}

#[tokio::test]
async fn a_head_without_end_is_cut_off() {
    let address = start(admin(&Arc::default())).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
    let filler = format!("x: {}\r\n", "y".repeat(4000));
    let mut answer = Vec::new();
    // The server stops reading at its bound: writing fails, or the rest of the answer comes back.
    for _ in 0..64 {
        if stream.write_all(filler.as_bytes()).await.is_err() {
            break;
        }
    }
    let _ = stream.read_to_end(&mut answer).await;
    assert!(
        !answer.starts_with(b"HTTP/1.1 200"),
        "{}",
        String::from_utf8_lossy(&answer)
    );
    assert_eq!(ask(address, "GET", "/").await.0, 200);
}

#[tokio::test]
async fn a_taken_port_is_named() {
    let first = bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let error = bind(first.local_addr().unwrap()).await.unwrap_err();
    assert!(
        error
            .to_string()
            .contains(&first.local_addr().unwrap().to_string()),
        "{error}"
    );
}

#[tokio::test]
async fn lines_come_one_by_one_and_end_with_their_reader() {
    let (ended, mut end) = tokio::sync::mpsc::channel::<()>(1);
    let pages = admin(&Arc::default()).with_connections(move |asked| {
        let ended = ended.clone();
        async move {
            let (lines, receiver) = tokio::sync::mpsc::channel(1);
            tokio::spawn(async move {
                for (key, value) in parameters(&asked.query) {
                    lines.send(format!("{key}={value}\n").into()).await.unwrap();
                }
                lines.closed().await;
                ended.send(()).await.unwrap();
            });
            Reply::Lines(receiver)
        }
    });
    let mut stream = TcpStream::connect(start(pages).await).await.unwrap();
    stream
        .write_all(b"GET /connections?a=1&b=%20+2 HTTP/1.1\r\nhost: x\r\n\r\n")
        .await
        .unwrap();
    let mut read = Vec::new();
    while !String::from_utf8_lossy(&read).contains("b=  2\n") {
        assert_ne!(stream.read_buf(&mut read).await.unwrap(), 0);
    }
    assert!(String::from_utf8_lossy(&read).contains("a=1\n"));
    drop(stream);
    assert_eq!(
        end.recv().await,
        Some(()),
        "the sender hears that its reader has gone"
    );
}
