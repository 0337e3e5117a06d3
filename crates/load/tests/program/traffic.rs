//! Requests of a run and its use of connections, as servers see them.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use crate::rig::{
    Certificates, Seen, answer_pieces, count, ended, http, http_server, report, run, serve, tls,
    within,
};

#[test]
fn requests_have_the_method_fields_and_body_that_were_asked_for() {
    let (url, seen) = http_server();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "from a file").unwrap();
    let file = format!("--body-file {}", file.path().display());
    for (args, begin, body) in [
        ("", "GET /x HTTP/1.1\r\n", ""),
        ("--body abc", "POST /x HTTP/1.1\r\n", "abc"),
        (
            "--body-size 30 -XPUT",
            "PUT /x ",
            "abcdefghijklmnopqrstuvwxyzabcd",
        ),
        (&file, "POST /x ", "from a file"),
        ("-X DELETE -H X-A:b", "DELETE /x ", ""),
        ("-X HEAD", "HEAD /x ", ""),
    ] {
        seen.lock().unwrap().clear();
        let report = report(format!("--url {url}/x -n3 --qps=0 -c1 {args}"));
        assert_eq!(report["counts"]["ok"], 3, "{args}: {report}");
        let content = if begin.starts_with("HEAD") { 0 } else { 15 };
        assert_eq!(report["counts"]["content_bytes"], content, "{args}");
        assert_eq!(report["config"]["body_bytes"], body.len());
        for request in seen.lock().unwrap().iter().flatten() {
            assert!(request.starts_with(begin), "{request}");
            assert!(request.ends_with(&format!("\r\n\r\n{body}")), "{request}");
            assert_eq!(request.contains("X-A: b\r\n"), args.contains("X-A:b"));
        }
    }
    for (bad, said) in [
        ("--body=a --body-size=1", "cannot be used"),
        ("-X GET/", "not a method"),
    ] {
        run(format!("--url {url}/x {bad}")).refused(64, said);
    }
}

#[test]
fn several_targets_share_the_requests_by_weight() {
    let ((one, seen_by_one), (other, seen_by_other)) = (http_server(), http_server());
    let urls = format!("--url {one}/a --url {one}/b --url {other}/c --weights=1,3,4");
    let report = report(format!("{urls} -c4 --qps=2000 -n1600"));
    assert_eq!(report["counts"]["ok"], 1600, "{report}");
    assert_eq!(report["counts"]["connections_opened"], 4);
    let targets = report["config"]["targets"].as_array().unwrap();
    let weights: Vec<_> = targets
        .iter()
        .map(|target| target["weight"].as_f64())
        .collect();
    assert_eq!(weights, [Some(1.0), Some(3.0), Some(4.0)]);
    for (seen, path, range) in [
        (&seen_by_one, "GET /a ", 130..270),
        (&seen_by_one, "GET /b ", 500..700),
        (&seen_by_other, "GET /c ", 700..900),
        (&seen_by_one, "GET /c ", 0..1),
    ] {
        let seen = seen.lock().unwrap();
        let all = seen.iter().flatten();
        let count = all.filter(|request| request.starts_with(path)).count();
        within(count, range, path);
    }
    run(format!("--url {one}/a --url {other}/c -c1")).refused(1, "raise --connections");
}

#[test]
fn connections_carry_as_many_requests_as_were_asked_for() {
    let (url, seen) = http_server();
    let report = report(format!(
        "--url {url}/ -n200 --qps=0 -c4 --requests-per-connection=3:5"
    ));
    assert_eq!(report["counts"]["ok"], 200, "{report}");
    assert_eq!(report["config"]["requests_per_connection"], json!([3, 5]));
    let opened = count(&report, "counts.connections_opened");
    within(opened, 40..=70, "opened");
    let seen = seen.lock().unwrap();
    let lengths = seen.iter().map(Vec::len);
    let lengths: Vec<usize> = lengths.filter(|length| *length > 0).collect();
    // The last of each of the four connections ends with the run.
    let short = lengths.iter().filter(|length| **length < 3).count();
    assert!(
        short <= 4 && lengths.iter().all(|length| *length <= 5),
        "{lengths:?}"
    );
    assert!(lengths.contains(&3) && lengths.contains(&5), "{lengths:?}");
    for requests in seen.iter().filter(|requests| requests.len() == 5) {
        let closes = requests
            .iter()
            .map(|request| request.contains("Connection: close"));
        assert_eq!(
            closes.collect::<Vec<_>>(),
            [false, false, false, false, true]
        );
    }
}

#[test]
fn connections_are_replaced_at_a_rate_without_losing_a_request() {
    let (url, _) = http_server();
    let report = report(format!(
        "--url {url}/ --qps=200 -d2s -c4 --connection-rate=50"
    ));
    assert_eq!(report["counts"]["ok"], 400, "{report}");
    assert_eq!(report["errors"], json!({}));
    let opened = count(&report, "counts.connections_opened");
    // 4 at first and 50 a second; under load one that is still busy is replaced once, not twice.
    within(opened, 20..=104, "opened");
}

#[test]
fn threads_share_rate_connections_and_numbers() {
    let (url, seen) = http_server();
    let shared = format!("--url {url}/ -c5 --threads=3");
    for (qps, requests) in [(0, 1001), (1000, 501), (0, 2)] {
        let report = report(format!("{shared} --qps {qps} -n{requests}"));
        assert_eq!(report["counts"]["ok"], requests, "{report}");
        assert_eq!(report["response_time"]["count"], requests);
        assert_eq!(report["counts"]["connections_opened"], 5);
        assert_eq!(report["config"]["threads"], 3);
        assert!(report["measured_s"].as_f64().unwrap() < 60.0);
    }
    assert_eq!(seen.lock().unwrap().iter().flatten().count(), 1504);
    let report = report(format!("{shared} --qps=300 -d1s"));
    assert_eq!(report["counts"]["intended"], 300);
}

#[test]
fn a_closed_loop_thinks_between_requests() {
    let (url, _) = http_server();
    let report = report(format!("--url {url}/ --qps=0 -d2s -c2 --think-time=400ms"));
    let ok = count(&report, "counts.ok");
    within(ok, 2..=12, "two users, a request each 400 ms");
    let response = report["response_time"]["p50"].as_f64().unwrap();
    within(response, ..390.0, "thinking is no response time");
    run(format!("--url {url}/ --qps=1 --think-time=1s")).refused(1, "add --qps 0");
}

#[test]
fn raw_bytes_come_back() {
    let echo = serve(|stream, _| answer_pieces(stream, |bytes| Some(bytes.to_vec())));
    for size in [1, 100_000] {
        let load = format!("--payload-size {size} -n50 --qps=500 -c3");
        let report = report(format!("--url tcp://{echo} {load}"));
        assert_eq!(report["counts"]["ok"], 50, "{report}");
        assert_eq!(report["counts"]["content_bytes"], 50 * size);
        assert_eq!(report["config"]["protocol"], "tcp");
    }
    run(format!("--url tcp://{echo}")).refused(1, "--payload-size");

    // Another byte, and one too many.
    let load = "--payload-size=9 -n5 --qps=0 -c1";
    for wrong in ["abcdefgh.", "abcdefghij"] {
        let wrong = serve(move |stream, _| answer_pieces(stream, |_| Some(wrong.into())));
        let report = report(format!("--url tcp://{wrong} {load}"));
        assert_eq!(report["counts"]["ok"], 0);
        assert_eq!(report["errors"], json!({"malformed": 5}));
    }

    let talker = serve(|mut stream, _| {
        let _ = stream.write_all(b"220 hello\r\n");
        let _ = stream.read(&mut [0; 64]);
    });
    run(format!("--url tcp://{talker} {load}")).refused(1, "");
}

#[test]
fn progress_is_a_line_of_json_a_second() {
    let (url, _) = http_server();
    let load = "--qps=200 -d2500ms -c2 --threads=2 --progress=json";
    let text = run(format!("--url {url}/ {load}")).err;
    let lines = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    let lines: Vec<Value> = lines.collect();
    assert!(lines.len() >= 2, "{text}");
    for (index, line) in lines.iter().enumerate() {
        assert_eq!(line["t_s"], index + 1, "{line}");
        assert_eq!(line["failed_total"], 0);
        assert!(line["p99_ms"].as_f64().unwrap() >= line["p50_ms"].as_f64().unwrap());
    }
    // All threads are in it: half of the answers would be a hundred.
    assert!(count(&lines[1], "answers_total") > 250, "{text}");
}

#[test]
fn https_is_checked_and_its_handshake_is_counted() {
    let (certificates, others) = (Certificates::new(), Certificates::new());
    let start = |alpn: &[&str], mutual| {
        let (config, seen) = (certificates.server(alpn, mutual), Seen::default());
        let address = serve(move |stream, index| http(tls(&config, stream), index, &seen));
        format!("https://localhost:{}/", address.port())
    };
    let [ca, cert, key] =
        ["ca.pem", "client.pem", "client.key"].map(|name| certificates.path(name));
    let [other, strange, its_key] =
        ["ca.pem", "client.pem", "client.key"].map(|name| others.path(name));
    let (plain, mutual) = (start(&["http/1.1"], false), start(&["http/1.1"], true));
    let (nameless, h2) = (start(&[], false), start(&["h2"], false));
    let numeric = plain.replace("localhost", "127.0.0.1");
    let identity = format!("--cert {cert} --key {key}");
    for args in [
        format!("{plain} --cacert {ca}"),
        format!("{nameless} --cacert {ca}"),
        format!("{plain} --insecure"),
        format!("{numeric} --cacert {ca} --server-name=localhost"),
        format!("{mutual} --cacert {ca} {identity}"),
    ] {
        let report = report(format!("--url {args} -n40 --qps=0 -c2 --body-size=50000"));
        assert_eq!(report["counts"]["ok"], 40, "{args}: {report}");
        assert_eq!(report["handshake_time"]["count"], 2);
        assert_eq!(report["config"]["tls"], true);
        let at = |name: &str| report[name]["min"].as_f64().unwrap();
        assert!(at("connect_time") >= at("handshake_time") && at("handshake_time") > 0.0);
    }
    let clear = serve(|stream, _| {
        let answer = b"HTTP/1.1 400 Bad Request\r\n\r\n";
        answer_pieces(stream, |_| Some(answer.to_vec()));
    });
    let silent = http_server().0.replace("http:", "https:");
    // Options that would be passed over in the clear are refused.
    let open = mutual.replace("https:", "http:");
    let only = "only with TLS: write the URL with https://";
    let issuer = "name its issuer with --cacert";
    let silence = "timed out; the server does not go on with the TLS handshake";
    let refused = |args: String, expected: &str| {
        let limit = if args.contains("--timeout") {
            ""
        } else {
            "--timeout=15s"
        };
        run(format!("--url {args} -n4 --qps=0 -c1 {limit}")).refused(1, expected);
    };
    refused(format!("{plain} --cacert {other}"), issuer);
    refused(format!("{numeric} --cacert {ca}"), "--server-name");
    // The client's handshake ends before the server has seen what is missing.
    refused(format!("{mutual} --cacert {ca}"), "no request was answered");
    refused(format!("{h2} --cacert {ca}"), "--http2");
    refused(format!("{plain} --cacert /nowhere"), "read /nowhere");
    refused(format!("{plain} --cacert {key}"), "certificate");
    let unfit = format!("{plain} --insecure --cert {cert} --key {ca}");
    refused(unfit, "private key");
    let plainly = format!("https://{clear}/ --insecure");
    refused(plainly, "does the server speak TLS");
    // A server that asks for a certificate and does not take this one.
    let strange = format!("{mutual} --cacert {ca} --cert {strange} --key {its_key}");
    refused(strange, "look at the issuer");
    let mixed = format!("{mutual} --cacert {ca} --cert {cert} --key {its_key}");
    refused(mixed, "do not belong together");
    refused(format!("{open} {identity}"), only);
    refused(format!("{open} --cacert {ca}"), only);
    refused(format!("{open} --server-name=localhost"), only);
    refused(format!("{silent}/ --insecure --timeout=300ms"), silence);
}

#[test]
fn a_target_that_dies_midway_is_marked_in_the_result() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let seen = Arc::new(Seen::default());
        let (stream, _) = listener.accept().unwrap();
        let breaker = stream.try_clone().unwrap();
        let shared = Arc::clone(&seen);
        let server = std::thread::spawn(move || http(stream, 0, &shared));
        while seen.lock().unwrap().iter().flatten().count() < 50 {
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(listener);
        let _ = breaker.shutdown(Shutdown::Both);
        let _ = server.join();
    });
    let ended = run(format!("--url http://{address}/ --qps=200 -d2s -c1"));
    // There were answers.
    ended.refused(0, "first refused: Connection refused");
    ended.refused(0, "the other requests failed");
    assert!(!ended.err.contains("a queue"), "{}", ended.err);
    let report = ended.json();
    let ok = count(&report, "counts.ok");
    within(ok, 49..399, "answers");
    assert_eq!(report["counts"]["intended"], 400);
    assert!(count(&report, "errors.refused") > 0, "{report}");
}

#[test]
fn a_search_finds_what_a_service_carries() {
    // One connection at a time and 20 ms a request: 50 a second, whatever machine it is.
    let turn = Arc::new(Mutex::new(()));
    let address = serve(move |stream, _| {
        answer_pieces(stream, |_| {
            let _one_at_a_time = turn.lock().unwrap();
            std::thread::sleep(Duration::from_millis(20));
            Some(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_vec())
        });
    });
    let search = |args| ended(format!("search --url http://{address}/ --warmup=0 {args}"));
    let bounds = "--from=10 --precision=30 --confirm=1";
    let ended = search(format!("--objective=p50<300ms {bounds} -c8 -d1s --json=-"));
    let found = ended.json();
    let qps = found["found_qps"].as_f64().unwrap_or(0.0);
    assert!((5.0..70.0).contains(&qps), "{}", ended.err);
    // On a machine that is busy with something else the generator may be to blame, as its step says.
    let steps = found["steps"].as_array().unwrap();
    let above = |step: &&Value| step["verdict"] != "met" && step["qps"].as_f64().unwrap() > qps;
    let to_blame = match steps.iter().rev().find(above).unwrap()["verdict"].as_str() {
        Some("missed") => "service",
        _ => "generator",
    };
    assert_eq!(found["limited_by"], to_blame, "{}", ended.err);
    assert_eq!(found["objectives"], json!(["p50<300ms", "errors<1%"]));
    assert_eq!(found["report"]["config"]["qps"], qps);
    assert!(steps.iter().any(|step| step["purpose"] == "confirm"));

    let none = search("--objective=p50<1ms --from=4 --min-qps=4 -c1 -d1s".to_owned());
    assert_eq!(none.code, Some(1));
    let said = &none.out;
    assert!(said.contains("no rate was found under p50<1ms"), "{said}");
    search("--objective=fast".to_owned()).refused(64, "no objective");
}

#[test]
fn time_that_a_generator_was_not_let_run_is_counted() {
    let (url, _) = http_server();
    // Others on every core, more than one each, so that some of the time is theirs.
    let over = Arc::new(AtomicBool::new(false));
    let spin = |_| {
        let over = Arc::clone(&over);
        std::thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        })
    };
    let cores = std::thread::available_parallelism().unwrap().get();
    let others: Vec<_> = (0..3 * cores).map(spin).collect();
    let report = report(format!("--url {url}/ -d1s -c4 --qps=0 --threads=2"));
    over.store(true, Ordering::Relaxed);
    others.into_iter().for_each(|thread| thread.join().unwrap());
    let share = |name: &str| report["generator"][name].as_f64().unwrap();
    let (ran, waited) = (share("cpu_share"), share("wait_share"));
    assert!(ran > 0.0 && waited > 0.0, "{ran} {waited}");
    within(ran + waited, ..1.5, "both");
}
