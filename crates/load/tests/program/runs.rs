//! Counts and messages of a run, whatever it meets.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::process::Stdio;

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use socket2::{Domain, Socket, Type};

use crate::rig::{Ended, count, ended, http_server, program, report, run, serve, signal, within};
use crate::service::Service;

/// The command line of a run against a service of its own.
fn at(service: &Service, target: &str, load: &str) -> String {
    format!("--url {} {load}", service.url(target))
}

#[test]
fn a_run_tells_no_percentile_that_rests_on_few_answers() {
    let service = Service::start("");
    let line = at(&service, "/", "-n300 --qps=0 --json -");
    let ended = ended(format!("run {line}"));
    let report = ended.json();
    assert!(report["response_time"]["p50"].is_f64(), "{report}");
    assert!(report["response_time"].get("p75").is_none(), "{report}");
    ended.refused(0, "– fewer than 100 times");
}

#[test]
fn connections_of_the_warm_up_have_times_of_their_own() {
    let service = Service::start("");
    let load = at(&service, "/", "--qps=50 -c4 -d1s --warmup=500ms");
    let kept = report(&load);
    assert_eq!(kept["connect_time"]["count"], 0, "{kept}");
    assert_eq!(kept["warmup_connect_time"]["count"], 4);
    let report = report(load + " --no-keepalive");
    let [connects, before, opened, answers] = [
        "connect_time.count",
        "warmup_connect_time.count",
        "counts.connections_opened",
        "response_time.count",
    ]
    .map(|path| count(&report, path));
    assert_eq!(connects + before, opened);
    // A request of the measured time opens a connection of the measured time, or takes one of the four that may be open already. One of
    // the warm-up that is late opens one of the measured time, too.
    assert!(connects + 4 >= answers && before > 0, "{report}");
}

#[test]
fn every_request_that_was_meant_to_start_is_accounted_for() {
    let service = Service::start("");
    for arrivals in ["uniform", "jitter", "poisson"] {
        let load = format!("--qps=500 -c4 -d1s --warmup=200ms --arrivals {arrivals}");
        let ended = run(at(&service, "/?size=1024", &load));
        assert_eq!(ended.code, Some(0), "{}", ended.err);
        let report = ended.json();
        let counts = &report["counts"];
        let ok = count(&report, "counts.ok");
        within(ok, 400..600, arrivals);
        assert_eq!(counts["intended"], counts["ok"], "{arrivals}: {counts}");
        assert_eq!(counts["content_bytes"], ok * 1024);
        assert_eq!(counts["connections_opened"], 4);
        assert_eq!(report["status"]["200"], ok);
        assert_eq!(report["errors"], json!({}));
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
    let service = Service::start("");
    // One connection, a request due every 10 ms, each taking 30 ms: a queue that only grows.
    let file = tempfile::NamedTempFile::new().unwrap();
    let fortio = format!("-d1s --fortio-json={}", file.path().display());
    let report = report(at(&service, "/?delay=30ms --qps=100 -c1", &fortio));
    let result: Value = serde_json::from_slice(&std::fs::read(file.path()).unwrap()).unwrap();
    let rate = result["ActualQPS"].as_f64().unwrap();
    within(rate, ..34.0, "one request at a time, 30 ms each");
    let at = |name: &str, point: &str| report[name][point].as_f64().unwrap();
    within(at("service_time", "p50"), 30.0..200.0, "service");
    within(at("response_time", "max"), 1000.0.., "response");
    // Waiting for the service is not the generator's fault.
    within(at("lateness", "p50"), ..100.0, "lateness");
    within(at("rates", "achieved_qps"), ..50.0, "rate");
}

#[test]
fn connections_of_a_closed_loop_are_busy_and_those_without_keep_alive_carry_one_request() {
    let service = Service::start("");
    let closed = report(at(&service, "/?delay=10ms", "--qps=0 -c4 -d1s"));
    let ok = count(&closed, "counts.ok");
    within(ok, 40..=404, "four connections at 10 ms each");
    assert_eq!(closed["config"]["arrivals"], "closed-loop");
    let alone = report(at(&service, "/", "--qps=100 -c4 -d1s --no-keepalive"));
    assert_eq!(alone["counts"]["ok"], 100);
    // The first four requests use what was opened before the start.
    assert_eq!(alone["counts"]["connections_opened"], 100);
}

#[test]
fn a_number_of_requests_is_sent_exactly_at_a_rate_or_as_fast_as_possible() {
    let service = Service::start("");
    let url = "/?size=16&status=503:20&delay=20ms";
    let load = "-c4 --threads=2";
    // Fewer requests than connections, an uneven share of them, and many.
    for requests in [1, 3, 37, 500] {
        for qps in ["0", "1000"] {
            // A single request may be the one in five that fails, which is no result.
            let ended = run(at(
                &service,
                url,
                &format!("--qps {qps} {load} -n{requests}"),
            ));
            let report = ended.json();
            let counts = &report["counts"];
            let all = count(&report, "counts.ok") + count(&report, "counts.failed");
            assert_eq!(all, requests, "--qps {qps}: {counts}");
            assert_eq!(counts["intended"], requests, "--qps {qps}: {counts}");
            assert_eq!(counts["warmup_ok"], 0, "all are measured: {counts}");
            assert_eq!(report["config"]["requests"], requests);
            let measured = report["measured_s"].as_f64().unwrap();
            // The last answer ends the run.
            let due = if qps == "1000" { requests - 1 } else { 0 };
            within(measured, due as f64 / 1000.0..60.0, "seconds");
            if (qps, requests) == ("1000", 500) {
                // Four connections at 20 ms an answer carry 200 a second.
                ended.refused(0, "less than 99 % of the wanted rate");
            }
        }
    }
    for wrong in ["-n5 -d1s", "-n5 --warmup=1s", "-n0"] {
        run(at(&service, url, wrong)).refused(64, "--requests");
    }
}

#[test]
fn failures_are_counted_by_kind_and_do_not_end_the_run() {
    let service = Service::start("");
    let load = "--qps=400 -c4 -d1s";
    let ended = run(at(&service, "/?status=503:50&close=20", load));
    assert_eq!(ended.code, Some(0));
    let report = ended.json();
    let failed = count(&report, "counts.failed");
    within(failed, 100..300, "failed");
    for path in ["errors.status_503", "status.503", "failed_time.count"] {
        assert_eq!(count(&report, path), failed, "{path}");
    }
}

#[test]
fn a_response_that_never_comes_is_a_timeout_and_the_next_request_has_a_new_connection() {
    let service = Service::start("");
    let load = "--qps=20 -c4 -d1s --timeout=300ms";
    let report = report(at(&service, "/?delay=5s:40", load));
    for (path, least) in [
        ("errors.timeout", 1),
        ("counts.ok", 1),
        ("counts.connections_opened", 5),
    ] {
        within(count(&report, path), least.., path);
    }
}

/// A server that answers each connection with the same bytes and closes it.
fn answer_with(bytes: &'static [u8]) -> SocketAddr {
    serve(|mut stream, _| {
        if let Ok(1..) = stream.read(&mut [0; 1024]) {
            let _ = stream.write_all(bytes);
        }
    })
}

#[test]
fn broken_servers_are_told_apart_and_leave_nothing_to_trust() {
    let run = |bytes| {
        let address = answer_with(bytes);
        run(format!("--url http://{address}/ --qps=50 -c1 -d300ms"))
    };
    let short = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\ncut short";
    let long = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\ntoo long";
    let table: [(&[u8], &str); 4] = [
        (short, "closed"),
        (b"not http at all\r\n\r\n", "malformed"),
        (long, "malformed"),
        (b"", "closed"),
    ];
    for (bytes, kind) in table {
        let ended = run(bytes);
        assert_eq!(ended.code, Some(1), "no answer is an error");
        let report = ended.json();
        assert_eq!(report["counts"]["ok"], 0, "{kind}");
        assert_eq!(report["counts"]["failed"], 15, "{kind}");
        assert_eq!(report["errors"][kind], 15, "{report}");
    }
    let whole = run(b"HTTP/1.1 200 OK\r\n\r\nuntil the end").json();
    // The end of the connection ends a body.
    assert_eq!(whole["counts"]["ok"], 15, "{whole}");
}

/// A port on which nothing listens, and who holds it so that nobody else can.
fn closed_port() -> (Socket, SocketAddr) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    socket.bind(&any.into()).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    (socket, address)
}

#[test]
fn targets_that_cannot_be_used_are_an_error_with_a_cure_unless_initial_errors_are_allowed() {
    let (_held, address) = closed_port();
    let closed = format!("http://{address}/");
    for (url, expected) in [
        (&*closed, "connection refused"),
        ("http://name.invalid/", "check the name"),
        ("127.0.0.1:80", "begin with http://"),
    ] {
        let ended = run(format!("--url {url} -d1s"));
        ended.refused(1, expected);
        assert_eq!(ended.out, "", "{url}: no result where nothing was measured");
    }
    ended("run --url http://a --qps -5").refused(64, "-5");
    let late = report(format!("--url {closed} -n3 --qps=0 -c2 --initial-errors"));
    assert_eq!(late["errors"]["refused"], 3);
    assert_eq!(late["counts"]["ok"], 0);
}

/// Ends a program with SIGINT once it has said something. Its first line, and what it wrote.
fn interrupted(line: &str) -> (String, Ended) {
    let mut process = program(line)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(process.stderr.take().unwrap());
    let mut first = String::new();
    said.read_line(&mut first).unwrap();
    signal(&process, Signal::SIGINT);
    let output = process.wait_with_output().unwrap();
    std::io::copy(&mut said, &mut std::io::sink()).unwrap();
    (first, output.into())
}

#[test]
fn what_an_interrupted_run_or_search_has_is_written() {
    let (url, _) = http_server();
    let both = format!("--url {url}/ -c4 --threads=2 --json");
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    let run = "run --qps=200 -d10m --warmup=0";
    for (progress, to) in [("--progress=json", "-"), ("--progress", path)] {
        let (first, ended) = interrupted(&format!("{run} {progress} {both} {to}"));
        assert!(first.contains("answers"), "{first}");
        assert_eq!(ended.code, Some(0));
        let report = match to {
            "-" => ended.json(),
            _ => serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap(),
        };
        assert_eq!(report["interrupted"], true);
        within(count(&report, "counts.ok"), 100.., "answers");
        within(report["measured_s"].as_f64().unwrap(), ..60.0, "seconds");
        // The rate is that of the time measured.
        let rate = report["rates"]["achieved_qps"].as_f64().unwrap();
        within(rate, 50.0.., "rate");
    }
    // Its first line comes after the first rate, so a second one is under way.
    let search = "search --objective=p50<1m -d1s --warmup=0 --progress=none";
    let found = interrupted(&format!("{search} {both} -")).1.json();
    assert_eq!(found["limited_by"], "interrupted");
    assert_eq!(found["found_qps"], Value::Null);
    assert_eq!(found["steps"].as_array().unwrap().len(), 1);
}
