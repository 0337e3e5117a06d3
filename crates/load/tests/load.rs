//! What a run sends and how it uses its connections, as servers see it.

mod rig;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rig::{Certificates, Seen, http, http_server, json, run, serve, stderr};
use serde_json::Value;

#[test]
fn requests_have_the_method_fields_and_body_that_were_asked_for() {
    let (address, seen) = http_server();
    let url = format!("http://{address}/x");
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "from a file").unwrap();
    let file = file.path().to_str().unwrap();
    let table: [(&[&str], &str, &str); 6] = [
        (&[], "GET /x HTTP/1.1\r\n", ""),
        (&["--body", "abc"], "POST /x HTTP/1.1\r\n", "abc"),
        (
            &["--body-size", "30", "-XPUT"],
            "PUT /x ",
            "abcdefghijklmnopqrstuvwxyzabcd",
        ),
        (&["--body-file", file], "POST /x ", "from a file"),
        (&["-X", "DELETE", "-H", "X-A: b"], "DELETE /x ", ""),
        (&["-X", "HEAD"], "HEAD /x ", ""),
    ];
    for (args, begin, body) in table {
        seen.lock().unwrap().clear();
        let output = run(&[&["--url", &url, "-n3", "--qps=0", "-c1"], args].concat());
        let report = json(&output);
        assert_eq!(report["counts"]["ok"], 3, "{args:?}: {}", stderr(&output));
        let content = if begin.starts_with("HEAD") { 0 } else { 15 };
        assert_eq!(report["counts"]["content_bytes"], content, "{args:?}");
        assert_eq!(report["config"]["body_bytes"], body.len());
        for request in seen.lock().unwrap().iter().flatten() {
            assert!(request.starts_with(begin), "{request}");
            assert!(request.ends_with(&format!("\r\n\r\n{body}")), "{request}");
            assert_eq!(request.contains("X-A: b\r\n"), args.contains(&"X-A: b"));
        }
    }
    for bad in [&["--body=a", "--body-size=1"][..], &["-X", "GET /"]] {
        let output = run(&[&["--url", &url], bad].concat());
        assert_eq!(output.status.code(), Some(64), "{bad:?}");
    }
}

#[test]
fn several_targets_share_the_requests_by_weight() {
    let (one, seen_by_one) = http_server();
    let (other, seen_by_other) = http_server();
    let urls = [
        format!("http://{one}/a"),
        format!("http://{one}/b"),
        format!("http://{other}/c"),
    ];
    let output = run(&[
        "--url",
        &urls[0],
        "--url",
        &urls[1],
        "--url",
        &urls[2],
        "--weights=1,3,4",
        "-c4",
        "--qps=2000",
        "-n1600",
    ]);
    let report = json(&output);
    assert_eq!(report["counts"]["ok"], 1600, "{}", stderr(&output));
    assert_eq!(report["counts"]["connections_opened"], 4);
    let targets = report["config"]["targets"].as_array().unwrap();
    assert_eq!(
        (targets.len(), &targets[1]["weight"]),
        (3, &Value::from(3.0))
    );
    let count = |seen: &Seen, path: &str| {
        let seen = seen.lock().unwrap();
        let all = seen.iter().flatten();
        all.filter(|request| request.starts_with(&format!("GET {path} ")))
            .count()
    };
    assert!((130..270).contains(&count(&seen_by_one, "/a")));
    assert!((500..700).contains(&count(&seen_by_one, "/b")));
    assert!((700..900).contains(&count(&seen_by_other, "/c")));
    assert_eq!(count(&seen_by_one, "/c"), 0);

    let output = run(&["--url", &urls[0], "--url", &urls[2], "-c1"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("raise --connections"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn connections_carry_as_many_requests_as_were_asked_for() {
    let (address, seen) = http_server();
    let url = format!("http://{address}/");
    let range = "--requests-per-connection=3:5";
    let output = run(&["--url", &url, "-n200", "--qps=0", "-c4", range]);
    let report = json(&output);
    assert_eq!(report["counts"]["ok"], 200, "{}", stderr(&output));
    assert_eq!(
        report["config"]["requests_per_connection"],
        serde_json::json!([3, 5])
    );
    let opened = report["counts"]["connections_opened"].as_u64().unwrap();
    assert!((40..=70).contains(&opened), "{opened}");
    let seen = seen.lock().unwrap();
    let lengths: Vec<usize> = seen
        .iter()
        .map(Vec::len)
        .filter(|length| *length > 0)
        .collect();
    // The last of each of the four connections ends with the run.
    assert!(lengths.iter().all(|length| *length <= 5), "{lengths:?}");
    assert!(
        lengths.iter().filter(|length| **length < 3).count() <= 4,
        "{lengths:?}"
    );
    assert!(lengths.contains(&3) && lengths.contains(&5), "{lengths:?}");
    for requests in seen.iter().filter(|requests| requests.len() == 5) {
        let closes: Vec<bool> = requests
            .iter()
            .map(|request| request.contains("Connection: close"))
            .collect();
        assert_eq!(closes, [false, false, false, false, true]);
    }
}

#[test]
fn connections_are_replaced_at_a_rate_without_losing_a_request() {
    let (address, _) = http_server();
    let url = format!("http://{address}/");
    let args = [
        "--url",
        &url,
        "--qps=200",
        "-d2s",
        "-c4",
        "--connection-rate=50",
    ];
    let output = run(&args);
    let report = json(&output);
    assert_eq!(report["counts"]["ok"], 400, "{}", stderr(&output));
    assert_eq!(report["errors"], serde_json::json!({}));
    let opened = report["counts"]["connections_opened"].as_u64().unwrap();
    // 4 at first and 50 a second; under load one that is still busy is replaced once, not twice.
    assert!((60..=104).contains(&opened), "{opened}");
}

#[test]
fn threads_share_rate_connections_and_numbers() {
    let (address, seen) = http_server();
    let url = format!("http://{address}/");
    for (qps, requests) in [("0", 1001), ("1000", 501), ("0", 2)] {
        let count = format!("-n{requests}");
        let output = run(&["--url", &url, "--qps", qps, &count, "-c5", "--threads=3"]);
        let report = json(&output);
        assert_eq!(report["counts"]["ok"], requests, "{}", stderr(&output));
        assert_eq!(report["response_time"]["count"], requests);
        assert_eq!(report["counts"]["connections_opened"], 5);
        assert_eq!(report["config"]["threads"], 3);
        assert!(report["measured_s"].as_f64().unwrap() < 60.0);
    }
    assert_eq!(seen.lock().unwrap().iter().flatten().count(), 1504);
    let report = json(&run(&[
        "--url",
        &url,
        "--qps=300",
        "-d1s",
        "-c5",
        "--threads=3",
    ]));
    assert_eq!(report["counts"]["intended"], 300);
}

#[test]
fn a_closed_loop_thinks_between_requests() {
    let (address, _) = http_server();
    let url = format!("http://{address}/");
    let args = [
        "--url",
        &url,
        "--qps=0",
        "-d2s",
        "-c2",
        "--think-time=400ms",
        "--all-percentiles",
    ];
    let report = json(&run(&args));
    let ok = report["counts"]["ok"].as_u64().unwrap();
    assert!(
        (2..=12).contains(&ok),
        "two users, a request each 400 ms: {ok}"
    );
    let response = report["response_time"]["p50"].as_f64().unwrap();
    assert!(
        response < 390.0,
        "thinking is no response time: {response} ms"
    );
    let output = run(&["--url", &url, "--qps=1", "--think-time=1s"]);
    assert!(
        stderr(&output).contains("add --qps 0"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn raw_bytes_come_back() {
    let address = serve(|mut stream, _| {
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = stream.read(&mut buffer) {
            if stream.write_all(&buffer[..count]).is_err() {
                return;
            }
        }
    });
    let url = format!("tcp://{address}");
    for size in ["1", "100000"] {
        let args = [
            "--url",
            &url,
            "--payload-size",
            size,
            "-n50",
            "--qps=500",
            "-c3",
        ];
        let output = run(&args);
        let report = json(&output);
        assert_eq!(report["counts"]["ok"], 50, "{}", stderr(&output));
        assert_eq!(
            report["counts"]["content_bytes"],
            50 * size.parse::<u64>().unwrap()
        );
        assert_eq!(report["config"]["protocol"], "tcp");
    }
    assert!(stderr(&run(&["--url", &url])).contains("--payload-size"));

    let wrong = serve(|mut stream, _| {
        let mut buffer = [0; 9];
        while stream.read_exact(&mut buffer).is_ok() {
            buffer[8] ^= 1;
            if stream.write_all(&buffer).is_err() {
                return;
            }
        }
    });
    let url = format!("tcp://{wrong}");
    let report = json(&run(&[
        "--url",
        &url,
        "--payload-size=9",
        "-n5",
        "--qps=0",
        "-c1",
    ]));
    assert_eq!(report["counts"]["ok"], 0);
    assert_eq!(report["errors"], serde_json::json!({"malformed": 5}));

    let talker = serve(|mut stream, _| {
        let _ = stream.write_all(b"220 hello\r\n");
        let _ = stream.read(&mut [0; 64]);
    });
    let url = format!("tcp://{talker}");
    let output = run(&["--url", &url, "--payload-size=9", "-n5", "--qps=0", "-c1"]);
    assert!(!output.status.success(), "{}", stderr(&output));
}

#[test]
fn progress_is_a_line_of_json_a_second() {
    let (address, _) = http_server();
    let url = format!("http://{address}/");
    let output = run(&[
        "--url",
        &url,
        "--qps=200",
        "-d2500ms",
        "-c2",
        "--threads=2",
        "--progress=json",
    ]);
    let text = stderr(&output);
    let lines: Vec<Value> = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    assert!(lines.len() >= 2, "{text}");
    for (index, line) in lines.iter().enumerate() {
        assert_eq!(line["t_s"], index + 1, "{line}");
        assert_eq!(line["failed_total"], 0);
        assert!(line["p99_ms"].as_f64().unwrap() >= line["p50_ms"].as_f64().unwrap());
    }
    // All threads are in it: half of the answers would be a hundred.
    assert!(lines[1]["answers_total"].as_u64().unwrap() > 250, "{text}");
}

#[test]
fn https_is_checked_and_its_handshake_is_counted() {
    let certificates = Certificates::new();
    let start = |alpn: &[&str], mutual| {
        let (config, seen) = (certificates.server(alpn, mutual), Seen::default());
        let address = serve(move |stream, index| http(rig::tls(&config, stream), index, &seen));
        format!("https://localhost:{}/", address.port())
    };
    let (ca, cert, key) = (
        certificates.text("ca.pem"),
        certificates.text("client.pem"),
        certificates.text("client.key"),
    );
    let plain = start(&["http/1.1"], false);
    let nameless = start(&[], false);
    let mutual = start(&["http/1.1"], true);
    let numeric = plain.replace("localhost", "127.0.0.1");
    let good: [&[&str]; 5] = [
        &[&plain, "--cacert", &ca],
        &[&nameless, "--cacert", &ca],
        &[&plain, "--insecure"],
        &[&numeric, "--cacert", &ca, "--server-name=localhost"],
        &[&mutual, "--cacert", &ca, "--cert", &cert, "--key", &key],
    ];
    for args in good {
        let url = [&["--url"], args].concat();
        let output = run(&[&url[..], &["-n40", "--qps=0", "-c2", "--body-size=50000"]].concat());
        let report = json(&output);
        assert_eq!(report["counts"]["ok"], 40, "{args:?}: {}", stderr(&output));
        assert_eq!(report["handshake_time"]["count"], 2);
        assert_eq!(report["config"]["tls"], true);
        let at = |name: &str| report[name]["min"].as_f64().unwrap();
        assert!(at("connect_time") >= at("handshake_time") && at("handshake_time") > 0.0);
    }
    let others = Certificates::new();
    let other = others.text("ca.pem");
    let h2 = start(&["h2"], false);
    let clear = serve(|mut stream, _| {
        let _ = stream.read(&mut [0; 1024]);
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    });
    let clear = format!("https://{clear}/");
    let bad: [(&[&str], &str); 8] = [
        (
            &[&plain, "--cacert", &other],
            "name its issuer with --cacert",
        ),
        (&[&numeric, "--cacert", &ca], "--server-name"),
        // The client's handshake ends before the server has seen what is missing.
        (&[&mutual, "--cacert", &ca], "no request was answered"),
        (&[&h2, "--cacert", &ca], "--http2"),
        (&[&plain, "--cacert", "/nowhere"], "read /nowhere"),
        (&[&plain, "--cacert", &key], "certificate"),
        (
            &[&plain, "--insecure", "--cert", &cert, "--key", &ca],
            "private key",
        ),
        (&[&clear, "--insecure"], "does the server speak TLS"),
    ];
    for (args, expected) in bad {
        let url = [&["--url"], args].concat();
        let output = run(&[&url[..], &["-n4", "--qps=0", "-c1", "--timeout=15s"]].concat());
        let text = stderr(&output);
        assert!(text.contains(expected), "{args:?}: {text}");
        assert_ne!(output.status.code(), Some(0), "{args:?}: {text}");
    }
    // A server that asks for a certificate and does not take this one.
    let (strange, its_key) = (others.text("client.pem"), others.text("client.key"));
    let both = ["--url", &mutual, "--cacert", &ca, "--cert"];
    let refused = [
        &both[..],
        &[&strange, "--key", &its_key, "-n4", "--qps=0", "-c1"],
    ]
    .concat();
    let text = stderr(&run(&refused));
    assert!(text.contains("look at the issuer"), "{text}");
    let mixed = [&both[..], &[&cert, "--key", &its_key]].concat();
    let text = stderr(&run(&mixed));
    assert!(text.contains("do not belong together"), "{text}");
    // What would be passed over in the clear is refused.
    let open = mutual.replace("https:", "http:");
    for option in [
        &["--cert", &cert, "--key", &key][..],
        &["--cacert", &ca],
        &["--server-name=localhost"],
    ] {
        let text = stderr(&run(&[&["--url", &open], option].concat()));
        assert!(
            text.contains("only with TLS: write the URL with https://"),
            "{text}"
        );
    }
    let (silent, _) = http_server();
    let url = format!("https://{silent}/");
    let text = stderr(&run(&["--url", &url, "--insecure", "--timeout=300ms"]));
    assert!(
        text.contains("timed out; the server does not go on with the TLS handshake"),
        "{text}"
    );
}

#[test]
fn a_target_that_dies_midway_is_marked_in_the_result() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let seen = Arc::new(Seen::default());
    std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let breaker = stream.try_clone().unwrap();
        let server = std::thread::spawn({
            let seen = Arc::clone(&seen);
            move || http(stream, 0, &seen)
        });
        while seen.lock().unwrap().iter().flatten().count() < 50 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        drop(listener);
        let _ = breaker.shutdown(Shutdown::Both);
        let _ = server.join();
    });
    let url = format!("http://{address}/");
    let output = run(&["--url", &url, "--qps=200", "-d2s", "-c1"]);
    let report = json(&output);
    assert!(
        output.status.success(),
        "there were answers: {}",
        stderr(&output)
    );
    let ok = report["counts"]["ok"].as_u64().unwrap();
    assert!((49..399).contains(&ok), "{ok}");
    assert_eq!(report["counts"]["intended"], 400);
    assert!(
        report["errors"]["refused"].as_u64().unwrap() > 0,
        "{}",
        report["errors"]
    );
    let text = stderr(&output);
    assert!(text.contains("first refused: Connection refused"), "{text}");
    assert!(text.contains("the other requests failed"), "{text}");
    assert!(!text.contains("a queue"), "{text}");
}

#[test]
fn a_search_finds_what_a_service_carries() {
    // One connection at a time and 20 ms a request: 50 a second, whatever machine it is.
    let turn = Arc::new(Mutex::new(()));
    let address = serve(move |mut stream, _| {
        let mut buffer = [0; 4096];
        while let Ok(1..) = stream.read(&mut buffer) {
            let one_at_a_time = turn.lock().unwrap();
            std::thread::sleep(Duration::from_millis(20));
            drop(one_at_a_time);
            if stream
                .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
                .is_err()
            {
                return;
            }
        }
    });
    let url = format!("http://{address}/");
    let output = rig::program()
        .args([
            "search",
            "--url",
            &url,
            "--objective=p50<300ms",
            "--from=10",
            "-c8",
            "-d1s",
        ])
        .args(["--warmup=0", "--precision=30", "--confirm=1", "--json=-"])
        .output()
        .unwrap();
    let found = json(&output);
    let qps = found["found_qps"]
        .as_f64()
        .unwrap_or_else(|| panic!("{}", stderr(&output)));
    assert!((5.0..70.0).contains(&qps), "{}", stderr(&output));
    // On a machine that is busy with something else the generator may be to blame, as its step says.
    let missed = found["steps"]
        .as_array()
        .unwrap()
        .iter()
        .rev()
        .find(|step| step["verdict"] != "met" && step["qps"].as_f64().unwrap() > qps);
    let to_blame = match missed.unwrap()["verdict"].as_str() {
        Some("missed") => "service",
        _ => "generator",
    };
    assert_eq!(found["limited_by"], to_blame, "{}", stderr(&output));
    assert_eq!(
        found["objectives"],
        serde_json::json!(["p50<300ms", "errors<1%"])
    );
    assert_eq!(found["report"]["config"]["qps"], qps);
    let steps = found["steps"].as_array().unwrap();
    assert!(steps.iter().any(|step| step["purpose"] == "confirm"));

    let output = rig::program()
        .args([
            "search",
            "--url",
            &url,
            "--objective=p50<1ms",
            "--from=4",
            "--min-qps=4",
        ])
        .args(["-c1", "-d1s", "--warmup=0"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("no rate was found under p50<1ms"), "{text}");
    let output = rig::program()
        .args(["search", "--url", &url, "--objective=fast"])
        .output();
    assert_eq!(output.unwrap().status.code(), Some(64));
}

/// Ends a program with SIGINT once it has said something, and returns what it wrote.
fn interrupted(args: &[&str]) -> std::process::Output {
    let mut process = rig::program()
        .args(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(process.stderr.take().unwrap());
    said.read_line(&mut String::new()).unwrap();
    let pid = Pid::from_raw(i32::try_from(process.id()).unwrap());
    kill(pid, Signal::SIGINT).unwrap();
    let output = process.wait_with_output().unwrap();
    std::io::copy(&mut said, &mut std::io::sink()).unwrap();
    output
}

#[test]
fn what_an_interrupted_run_or_search_has_is_written() {
    let (address, _) = http_server();
    let url = format!("http://{address}/");
    let both = ["--url", &url, "-c4", "--threads=2", "--json=-"];
    let run = ["run", "--qps=200", "-d10m", "--warmup=0", "--progress=json"];
    let output = interrupted(&[&run[..], &both].concat());
    let report = json(&output);
    assert!(output.status.success());
    assert_eq!(report["interrupted"], true);
    let (ok, measured) = (
        report["counts"]["ok"].as_u64().unwrap(),
        &report["measured_s"],
    );
    assert!(
        ok >= 100 && measured.as_f64().unwrap() < 60.0,
        "{ok} in {measured} s"
    );

    // Its first line comes after the first rate, so a second one is under way.
    let search = [
        "search",
        "--objective=p50<1m",
        "-d1s",
        "--warmup=0",
        "--progress=none",
    ];
    let output = interrupted(&[&search[..], &both].concat());
    let found = json(&output);
    assert_eq!(found["limited_by"], "interrupted");
    assert_eq!(found["found_qps"], Value::Null);
    assert_eq!(found["steps"].as_array().unwrap().len(), 1);
}

#[test]
fn time_that_a_generator_was_not_let_run_is_counted() {
    let (address, _) = http_server();
    let url = format!("http://{address}/");
    let shares = |args: &[&str]| {
        let report = json(&run(&[&["--url", &url, "-d1s", "-c4"], args].concat()));
        let share = |name: &str| report["generator"][name].as_f64().unwrap();
        (share("cpu_share"), share("wait_share"))
    };
    // Others on every core, more than one each, so that some of the time is theirs.
    let over = Arc::new(AtomicBool::new(false));
    let others: Vec<_> = (0..3 * std::thread::available_parallelism().unwrap().get())
        .map(|_| {
            let over = Arc::clone(&over);
            std::thread::spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            })
        })
        .collect();
    let (ran, waited) = shares(&["--qps=0", "--threads=2"]);
    over.store(true, Ordering::Relaxed);
    others.into_iter().for_each(|thread| thread.join().unwrap());
    assert!(
        ran > 0.0 && waited > 0.0 && ran + waited < 1.5,
        "{ran} {waited}"
    );
}
