//! The program from outside: real sockets, real processes, real signals.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_lateen-load"))
}

/// An echo service in a process of its own; dropping it ends the process.
struct Service {
    process: Child,
    address: SocketAddr,
}

impl Service {
    fn start() -> Service {
        let mut process = program()
            .args(["serve", "--listen", "127.0.0.1:0"])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stderr.as_mut().unwrap())
            .read_line(&mut line)
            .unwrap();
        let address = line.trim().rsplit(' ').next().unwrap().parse().unwrap();
        Service { process, address }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        stream
    }

    /// Sends a GET on a connection of its own and returns all of the answer.
    fn get(&self, target: &str) -> String {
        let mut stream = self.connect();
        write!(
            stream,
            "GET {target} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn run(url: &str, args: &[&str]) -> Output {
    program()
        .args(["run", "--url", url, "--json", "-"])
        .args(args)
        .output()
        .unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)))
}

fn signal(process: &Child, signal: Signal) {
    kill(Pid::from_raw(i32::try_from(process.id()).unwrap()), signal).unwrap();
}

fn scratch(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name)
}

#[test]
fn every_request_that_was_meant_to_start_is_accounted_for() {
    let service = Service::start();
    for arrivals in ["uniform", "jitter", "poisson"] {
        let url = format!("http://{}/?size=1024", service.address);
        let output = run(
            &url,
            &[
                "--qps=500",
                "-c4",
                "-d1s",
                "--warmup=200ms",
                "--arrivals",
                arrivals,
            ],
        );
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let report = json(&output);
        let counts = &report["counts"];
        let ok = counts["ok"].as_u64().unwrap();
        assert!((400..600).contains(&ok), "{arrivals}: {counts}");
        assert_eq!(counts["intended"], counts["ok"], "{arrivals}: {counts}");
        assert_eq!(counts["content_bytes"], ok * 1024);
        assert_eq!(counts["connections_opened"], 4);
        assert_eq!(report["status"]["200"], ok);
        assert_eq!(report["errors"], Value::Object(Default::default()));
        for name in ["response_time", "service_time", "lateness"] {
            assert_eq!(report[name]["count"], ok, "{arrivals}: {name}");
        }
        assert_eq!(report["warmup_time"]["count"], counts["warmup_ok"]);
        let time = |name: &str, point: &str| report[name][point].as_f64().unwrap();
        assert!(time("response_time", "p50") >= time("service_time", "p50"));
        assert!(time("response_time", "p50") <= time("response_time", "p99.9"));
        assert!(time("response_time", "p99.9") <= time("response_time", "max"));
    }
}

#[test]
fn a_request_that_waits_for_a_busy_connection_counts_from_when_it_was_due() {
    let service = Service::start();
    // One connection, a request due every 10 ms, each taking 30 ms: a queue that only grows.
    let url = format!("http://{}/?delay=30ms", service.address);
    let report = json(&run(&url, &["--qps=100", "-c1", "-d1s", "--warmup=0"]));
    let at = |name: &str, point: &str| report[name][point].as_f64().unwrap();
    assert!(
        (30.0..200.0).contains(&at("service_time", "p50")),
        "{}",
        report["service_time"]
    );
    assert!(
        at("response_time", "max") > 1000.0,
        "{}",
        report["response_time"]
    );
    assert!(
        at("lateness", "p50") < 10.0,
        "waiting for the service is not the generator's fault"
    );
    assert!(report["rates"]["achieved_qps"].as_f64().unwrap() < 50.0);
}

#[test]
fn a_closed_loop_keeps_every_connection_busy() {
    let service = Service::start();
    let url = format!("http://{}/?delay=10ms", service.address);
    let report = json(&run(&url, &["--qps=0", "-c4", "-d1s", "--warmup=0"]));
    let ok = report["counts"]["ok"].as_u64().unwrap();
    assert!(
        (40..=404).contains(&ok),
        "four connections at 10 ms each: {ok}"
    );
    assert_eq!(report["config"]["arrivals"], "closed-loop");
}

#[test]
fn without_keep_alive_every_request_has_its_own_connection() {
    let service = Service::start();
    let url = format!("http://{}/", service.address);
    let report = json(&run(
        &url,
        &["--qps=100", "-c4", "-d1s", "--warmup=0", "--no-keepalive"],
    ));
    assert_eq!(report["counts"]["ok"], 100);
    // The first four requests use what was opened before the start.
    assert_eq!(report["counts"]["connections_opened"], 100);
}

#[test]
fn failures_are_counted_by_kind_and_do_not_end_the_run() {
    let service = Service::start();
    let url = format!("http://{}/?status=503:50&close=20", service.address);
    let output = run(&url, &["--qps=400", "-c4", "-d1s", "--warmup=0"]);
    assert!(output.status.success());
    let report = json(&output);
    let failed = report["counts"]["failed"].as_u64().unwrap();
    assert!((100..300).contains(&failed), "{}", report["counts"]);
    assert_eq!(report["errors"]["status_503"], failed);
    assert_eq!(report["status"]["503"], failed);
    assert_eq!(report["failed_time"]["count"], failed);
}

#[test]
fn a_response_that_never_comes_is_a_timeout_and_the_next_request_has_a_new_connection() {
    let service = Service::start();
    let url = format!("http://{}/?delay=5s:40", service.address);
    let report = json(&run(
        &url,
        &["--qps=20", "-c4", "-d1s", "--warmup=0", "--timeout=300ms"],
    ));
    let timeouts = report["errors"]["timeout"].as_u64().unwrap();
    assert!(
        timeouts > 0 && report["counts"]["ok"].as_u64().unwrap() > 0,
        "{}",
        report["counts"]
    );
    assert!(report["counts"]["connections_opened"].as_u64().unwrap() > 4);
}

/// A server that answers each connection with the same bytes and closes it.
fn answer_with(bytes: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // The thread ends with the test process.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut request = [0; 1024];
            if stream.read(&mut request).is_ok_and(|count| count > 0) {
                let _ = stream.write_all(bytes);
            }
        }
    });
    address
}

#[test]
fn broken_servers_are_told_apart_and_leave_nothing_to_trust() {
    let table: [(&[u8], &str); 4] = [
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\ncut short",
            "closed",
        ),
        (b"not http at all\r\n\r\n", "malformed"),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\ntoo long",
            "malformed",
        ),
        (b"", "closed"),
    ];
    for (bytes, kind) in table {
        let url = format!("http://{}/", answer_with(bytes));
        let output = run(&url, &["--qps=50", "-c1", "-d300ms", "--warmup=0"]);
        assert_eq!(output.status.code(), Some(1), "no answer is an error");
        let report = json(&output);
        let failed = report["counts"]["failed"].as_u64().unwrap();
        assert_eq!(
            (report["counts"]["ok"].as_u64(), failed),
            (Some(0), 15),
            "{kind}"
        );
        assert_eq!(report["errors"][kind], failed, "{}", report["errors"]);
    }
    let url = format!(
        "http://{}/",
        answer_with(b"HTTP/1.1 200 OK\r\n\r\nuntil the end")
    );
    let report = json(&run(&url, &["--qps=50", "-c1", "-d300ms", "--warmup=0"]));
    assert_eq!(
        report["counts"]["ok"], 15,
        "a body that the end of the connection ends is whole"
    );
}

#[test]
fn targets_that_cannot_be_used_are_an_error_with_a_cure() {
    let closed = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let table = [
        (format!("http://{closed}/"), "connection refused"),
        ("http://name.invalid/".to_owned(), "check the name"),
        ("https://127.0.0.1/".to_owned(), "use http://"),
        ("127.0.0.1:80".to_owned(), "begin with http://"),
    ];
    for (url, expected) in table {
        let output = run(&url, &["-d1s"]);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{url}");
        assert!(error.contains(expected), "{url}: {error}");
        assert!(
            output.stdout.is_empty(),
            "{url}: no result where nothing was measured"
        );
    }
    let output = program()
        .args(["run", "--url", "http://a", "--qps", "-5"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(64));
}

#[test]
fn an_interrupted_run_writes_what_it_has() {
    let service = Service::start();
    let file = scratch("interrupted.json");
    let url = format!("http://{}/", service.address);
    let mut process = program()
        .args([
            "run",
            "--url",
            &url,
            "--qps=200",
            "-c2",
            "-d10m",
            "--warmup=0",
            "--progress",
            "--json",
        ])
        .arg(&file)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A line of progress says that the run is under way.
    let mut line = String::new();
    BufReader::new(process.stderr.as_mut().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert!(line.contains("answers"), "{line}");
    signal(&process, Signal::SIGINT);
    assert!(process.wait().unwrap().success());
    let report: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(report["interrupted"], true);
    let (ok, measured) = (
        report["counts"]["ok"].as_f64().unwrap(),
        report["measured_s"].as_f64().unwrap(),
    );
    assert!(
        ok >= 100.0 && measured < 60.0,
        "{ok} answers in {measured} s"
    );
    assert!(
        report["rates"]["achieved_qps"].as_f64().unwrap() > 50.0,
        "the rate is that of the time measured"
    );
}

#[test]
fn the_service_answers_as_the_query_asks() {
    let service = Service::start();
    let answer = service.get("/health");
    assert!(
        answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nok\n"),
        "{answer}"
    );
    let answer = service.get("/x?status=404&size=3&header=X-A:b&delay=1ms");
    assert!(
        answer.starts_with("HTTP/1.1 404 ") && answer.contains("\r\nX-A: b\r\n"),
        "{answer}"
    );
    assert!(answer.ends_with("\r\n\r\nabc"), "{answer}");
    let answer = service.get("/?status=99");
    assert!(
        answer.starts_with("HTTP/1.1 400 ") && answer.contains("status=99"),
        "{answer}"
    );
    let large = service.get("/?size=3000000&writes=7");
    assert_eq!(large.split_once("\r\n\r\n").unwrap().1.len(), 3_000_000);

    let mut stream = service.connect();
    stream
        .write_all(
            b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n",
        )
        .unwrap();
    let mut interim = [0; 25];
    stream.read_exact(&mut interim).unwrap();
    assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream
        .write_all(b"helloGET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut answers = String::new();
    stream.read_to_string(&mut answers).unwrap();
    assert!(
        answers.contains("\r\n\r\nhelloHTTP/1.1 200 OK"),
        "both answers, in order: {answers}"
    );
}

#[test]
fn two_writes_without_nodelay_stall_and_with_it_do_not() {
    let service = Service::start();
    let service_time = |nodelay: u8| {
        let url = format!(
            "http://{}/?size=178&writes=2&nodelay={nodelay}",
            service.address
        );
        // The next request follows at once, so that the kernel holds its ACKs back meanwhile.
        let report = json(&run(&url, &["--qps=0", "-c1", "-d1s", "--warmup=500ms"]));
        report["service_time"]["p50"].as_f64().unwrap()
    };
    let (stalled, quick) = (service_time(0), service_time(1));
    assert!(stalled > 30.0, "the delayed ACK takes 40 ms: {stalled} ms");
    assert!(quick < stalled / 2.0, "{quick} ms");
}

#[test]
fn the_service_finishes_what_it_began_and_stops() {
    let mut service = Service::start();
    let idle = service.connect();
    let mut stream = service.connect();
    stream
        .write_all(b"GET /?delay=300ms&size=3 HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    // The health check behind it in time proves that the delayed request was read: one thread.
    service.get("/health");
    signal(&service.process, Signal::SIGTERM);
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("abc"), "{answer}");
    let deadline = Instant::now() + Duration::from_secs(20);
    while service.process.try_wait().unwrap().is_none() {
        assert!(Instant::now() < deadline, "it does not stop");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(service.process.wait().unwrap().success());
    drop(idle);
}

#[test]
fn the_service_holds_many_connections() {
    let service = Service::start();
    let mut connections: Vec<TcpStream> = (0..400).map(|_| service.connect()).collect();
    for stream in &mut connections {
        stream
            .write_all(b"GET /?size=2 HTTP/1.1\r\nHost: a\r\n\r\n")
            .unwrap();
    }
    for stream in &mut connections {
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\nab") {
            let mut piece = [0; 256];
            let count = stream.read(&mut piece).unwrap();
            assert!(count > 0, "{}", String::from_utf8_lossy(&answer));
            answer.extend_from_slice(&piece[..count]);
        }
    }
}

#[test]
fn results_become_a_table() {
    let service = Service::start();
    let url = format!("http://{}/", service.address);
    let mut files = Vec::new();
    for (name, round) in [("none", 1), ("mesh", 1)] {
        let file = scratch(&format!("table-{name}-{round}.json"));
        let status = program()
            .args([
                "run",
                "--url",
                &url,
                "--qps=100",
                "-c2",
                "-d300ms",
                "--warmup=0",
                "--name",
                name,
                "--json",
            ])
            .arg(&file)
            .stdout(Stdio::null())
            .status()
            .unwrap();
        assert!(status.success());
        files.push(file);
    }
    let output = program()
        .arg("table")
        .args(["--proxy-cpu", "mesh/1=55.5"])
        .args(&files)
        .output()
        .unwrap();
    let table = String::from_utf8(output.stdout).unwrap();
    for expected in [
        "no mesh 1",
        "mesh 1",
        "difference",
        "P99",
        "55.5",
        "Indicative, not a claim",
    ] {
        assert!(table.contains(expected), "{expected} is missing:\n{table}");
    }

    let broken = scratch("broken.json");
    std::fs::write(&broken, "{}").unwrap();
    let output = program().arg("table").arg(&broken).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("broken.json"));
}
