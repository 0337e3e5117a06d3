//! What a run sends, counts and says, whatever it meets.

use super::*;

#[test]
fn a_run_tells_no_percentile_that_rests_on_few_answers() {
    let service = Service::start();
    let url = format!("http://{}/", service.address);
    let output = program()
        .args(["run", "--url", &url, "-n300", "--qps=0", "--json", "-"])
        .output()
        .unwrap();
    let report = json(&output);
    assert!(report["response_time"]["p50"].is_f64(), "{report}");
    assert!(report["response_time"].get("p75").is_none(), "{report}");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("– fewer than 100 times"), "{text}");
}

#[test]
fn connections_of_the_warm_up_have_times_of_their_own() {
    let service = Service::start();
    let url = format!("http://{}/", service.address);
    let report = json(&run(&url, &["--qps=50", "-c4", "-d1s", "--warmup=500ms"]));
    assert_eq!(report["connect_time"]["count"], 0, "{report}");
    assert_eq!(report["warmup_connect_time"]["count"], 4);
    let args = [
        "--qps=50",
        "-c4",
        "-d1s",
        "--warmup=500ms",
        "--no-keepalive",
    ];
    let report = json(&run(&url, &args));
    let count = |name: &str| report[name]["count"].as_u64().unwrap();
    assert_eq!(
        count("connect_time") + count("warmup_connect_time"),
        report["counts"]["connections_opened"].as_u64().unwrap()
    );
    // A request of the measured time opens a connection of the measured time.
    assert!(count("connect_time") <= count("response_time"), "{report}");
    assert!(count("connect_time") >= 25, "{report}");
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
    let path = scratch("queue.json");
    let fortio = format!("--fortio-json={}", path.display());
    let report = json(&run(
        &url,
        &["--qps=100", "-c1", "-d1s", "--warmup=0", &fortio],
    ));
    let result: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    std::fs::remove_file(&path).unwrap();
    let rate = result["ActualQPS"].as_f64().unwrap();
    assert!(
        rate < 34.0,
        "one request at a time, 30 ms each: not {rate} a second"
    );
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
fn a_number_of_requests_is_sent_exactly_at_a_rate_or_as_fast_as_possible() {
    let service = Service::start();
    let url = format!(
        "http://{}/?size=16&status=503:20&delay=20ms",
        service.address
    );
    // Fewer requests than connections, an uneven share of them, and many.
    for requests in [1, 3, 37, 500] {
        for qps in ["0", "1000"] {
            let count = format!("-n{requests}");
            // A single request may be the one in five that fails, which is no result.
            let output = run(&url, &["--qps", qps, "-c4", &count]);
            let report = json(&output);
            let counts = &report["counts"];
            let (ok, failed) = (
                counts["ok"].as_u64().unwrap(),
                counts["failed"].as_u64().unwrap(),
            );
            assert_eq!(ok + failed, requests, "--qps {qps}: {counts}");
            assert_eq!(counts["intended"], requests, "--qps {qps}: {counts}");
            assert_eq!(counts["warmup_ok"], 0, "all are measured: {counts}");
            assert_eq!(report["config"]["requests"], requests);
            let measured = report["measured_s"].as_f64().unwrap();
            assert!(
                measured < 60.0,
                "the last answer ends the run: {measured} s"
            );
            if qps == "1000" {
                let due = (requests - 1) as f64 / 1000.0;
                assert!(measured >= due, "{requests} requests in {measured} s");
            }
            if (qps, requests) == ("1000", 500) {
                // Four connections at 20 ms an answer carry 200 a second.
                let text = String::from_utf8_lossy(&output.stderr);
                assert!(text.contains("less than 99 % of the wanted rate"), "{text}");
            }
        }
    }
    for other in ["-d1s", "--warmup=1s"] {
        let output = run(&url, &["-n5", other]);
        assert_eq!(output.status.code(), Some(64), "-n and {other}");
    }
    assert_eq!(run(&url, &["-n0"]).status.code(), Some(64));
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
fn a_target_that_is_not_there_yet_is_a_result_where_that_is_allowed() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let url = format!("http://{address}/");
    let refused = program()
        .args(["run", "--url", &url, "-n", "3", "--qps", "0", "--json", "-"])
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        refused.stdout.is_empty(),
        "it begins nothing unless told to"
    );
    let output = program()
        .args(["run", "--url", &url, "-n", "3", "--qps", "0", "--json", "-"])
        .args(["-c", "2", "--initial-errors"])
        .output()
        .unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["errors"]["refused"], 3);
    assert_eq!(report["counts"]["ok"], 0);
}
