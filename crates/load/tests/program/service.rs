//! What the service answers, and how it ends.

use super::*;

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
        answer.starts_with("HTTP/1.1 404 ") && answer.contains("\r\nx-a: b\r\n"),
        "{answer}"
    );
    assert!(answer.ends_with("\r\n\r\nabc"), "{answer}");
    assert!(
        service.get("/?status=x").starts_with("HTTP/1.1 400 ")
            && service.get("/?status=99").is_empty(),
        "a value that is none and a status that is none are Fortio's"
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
fn limits_and_standard_parameters_are_set_for_the_service() {
    let service = Service::start_with(&[
        "--max-size=10",
        "--max-delay=1ms",
        "--default-params=size=5",
    ]);
    let length = |target: &str| {
        let answer = service.get(target);
        answer.split_once("\r\n\r\n").unwrap().1.len()
    };
    assert_eq!(
        [length("/"), length("/?size=500"), length("/?x")],
        [5, 10, 0]
    );
    let begin = Instant::now();
    service.get("/?delay=10m");
    assert!(begin.elapsed() < Duration::from_secs(60));
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
