//! The service's ends: of the whole, of connections that nobody uses, and of clients that do not finish what they began.

mod rig;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use http::Request;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rig::Certificates;
use rig::service::{DEADLINE, Service, block_on, connect, content, exchange, post};

/// How many descriptors the service holds.
fn descriptors(service: &Service) -> usize {
    let path = format!("/proc/{}/fd", service.process.id());
    std::fs::read_dir(path).unwrap().count()
}

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !condition() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// All that arrives until the service ends the connection.
fn rest(mut stream: TcpStream) -> String {
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
    }
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn what_is_under_way_is_finished_before_the_service_ends() {
    let mut service = Service::start(2, &["--tcp-echo=127.0.0.1:0"]);
    let mut echo = TcpStream::connect(service.addresses[1]).unwrap();
    echo.set_read_timeout(Some(DEADLINE)).unwrap();
    echo.write_all(b"x").unwrap();
    echo.read_exact(&mut [0]).unwrap();
    block_on(async {
        let address = service.http();
        let idle = connect(address).await;
        let mut requests = connect(address).await;
        let slow = post(address, "/?delay=500ms&size=3").body(()).unwrap();
        let (slow, _) = requests.send_request(slow, true).unwrap();
        // Its answer proves that the slow request before it was read.
        exchange(&mut requests, post(address, "/"), b"")
            .await
            .unwrap();
        service.signal();
        let (head, body, _) = content(slow.await.unwrap()).await.unwrap();
        assert_eq!((head.status.as_u16(), &body[..]), (200, &b"abc"[..]));
        let refused = tokio::net::TcpStream::connect(address).await;
        assert!(refused.is_err(), "nobody new is let in");
        drop(idle);
    });
    assert!(service.wait());
    assert_eq!(echo.read(&mut [0]).unwrap_or(0), 0);
}

#[test]
fn a_second_signal_ends_the_service_at_once() {
    let mut service = Service::start(1, &[]);
    let mut stream = TcpStream::connect(service.http()).unwrap();
    stream
        .write_all(b"GET /?delay=60s HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    service.signal();
    let begin = Instant::now();
    while TcpStream::connect(service.http()).is_ok() {
        assert!(begin.elapsed() < DEADLINE);
        std::thread::sleep(Duration::from_millis(5));
    }
    service.signal();
    assert!(service.wait());
}

#[test]
fn a_delayed_answer_is_held_only_for_a_client_that_waits() {
    let service = Service::start(1, &["--max-delay=10m"]);
    let before = descriptors(&service);
    let ask = |target: &str, fields: &str| {
        let mut stream = TcpStream::connect(service.http()).unwrap();
        write!(stream, "GET {target} HTTP/1.1\r\nHost: a\r\n{fields}\r\n").unwrap();
        stream
    };
    let many: Vec<TcpStream> = (0..50).map(|_| ask("/?delay=10m", "")).collect();
    wait_until("they are connected", || {
        descriptors(&service) == before + 50
    });
    drop(many);
    wait_until("they are gone", || descriptors(&service) == before);
    // Its last byte came with the request.
    let half = ask("/?delay=10m", "");
    half.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(rest(half), "");
    let patient = ask("/?delay=300ms&size=3", "Connection: close\r\n");
    patient.shutdown(std::net::Shutdown::Write).unwrap();
    assert!(rest(patient).ends_with("\r\n\r\nabc"), "it said so before");
    // A connection that breaks is gone, whatever was said.
    let broken = ask("/?delay=10m", "Connection: close\r\n");
    wait_until("it is connected", || descriptors(&service) == before + 1);
    socket2::SockRef::from(&broken)
        .set_linger(Some(Duration::ZERO))
        .unwrap();
    drop(broken);
    wait_until("it is gone", || descriptors(&service) == before);
}

#[test]
fn who_asks_in_pieces_without_end_is_not_waited_for() {
    let service = Service::start(2, &["--tcp-echo=127.0.0.1:0", "--request-timeout=400ms"]);
    for begin in [
        "G",
        "GET / HTTP/1.1\r\nHost: a\r\nX-A: b",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nabc",
        "PRI * HTTP/2.0\r\n",
    ] {
        let mut stream = TcpStream::connect(service.http()).unwrap();
        stream.write_all(begin.as_bytes()).unwrap();
        assert_eq!(rest(stream), "", "{begin}");
    }
    // A connection on which nothing was asked, and an answer that takes longer, are not meant.
    let idle = TcpStream::connect(service.http()).unwrap();
    let mut slow = TcpStream::connect(service.http()).unwrap();
    slow.write_all(b"GET /?delay=2s&size=3 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        .unwrap();
    assert!(rest(slow).ends_with("abc"));
    let mut idle = idle;
    idle.write_all(b"GET /?size=3 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        .unwrap();
    assert!(rest(idle).ends_with("abc"));
    block_on(async {
        let mut requests = connect(service.http()).await;
        let request = Request::post("http://a/").body(()).unwrap();
        let (response, _body) = requests.send_request(request, false).unwrap();
        let (head, ..) = content(response.await.unwrap()).await.unwrap();
        assert_eq!(head.status, 408);
        let (head, ..) = exchange(&mut requests, Request::get("http://a/"), b"")
            .await
            .unwrap();
        assert_eq!(head.status, 200, "the others on the connection go on");
    });
}

#[test]
fn tls_that_is_not_set_up_is_not_waited_for() {
    let certificates = Certificates::new();
    let (cert, key) = (
        certificates.text("server.pem"),
        certificates.text("server.key"),
    );
    let args = [
        "--tls-cert",
        &cert,
        "--tls-key",
        &key,
        "--request-timeout=400ms",
    ];
    let service = Service::start(1, &args);
    // An alert says that no handshake came of it.
    let said = rest(TcpStream::connect(service.http()).unwrap());
    assert!(said.is_empty() || said.starts_with('\x15'), "{said:?}");
}

#[test]
fn connections_that_nobody_uses_end() {
    let service = Service::start(2, &["--tcp-echo=127.0.0.1:0", "--idle-timeout=500ms"]);
    assert_eq!(rest(TcpStream::connect(service.http()).unwrap()), "");
    assert_eq!(rest(TcpStream::connect(service.addresses[1]).unwrap()), "");
    let mut asked = TcpStream::connect(service.http()).unwrap();
    asked
        .write_all(b"GET /?size=3 HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    assert!(rest(asked).ends_with("abc"));
    let mut slow = TcpStream::connect(service.http()).unwrap();
    slow.write_all(b"GET /?delay=3s&size=3 HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    assert!(rest(slow).ends_with("abc"), "a delay is no idleness");
    block_on(async {
        let socket = tokio::net::TcpStream::connect(service.http())
            .await
            .unwrap();
        let (mut requests, connection) = h2::client::handshake(socket).await.unwrap();
        let connection = tokio::spawn(connection);
        let (head, ..) = exchange(&mut requests, Request::get("http://a/"), b"")
            .await
            .unwrap();
        assert_eq!(head.status, 200);
        connection.await.unwrap().expect("it says goodbye");
    });
}

#[test]
fn who_had_asked_before_the_end_is_answered() {
    let mut service = Service::start(1, &[]);
    let idle = TcpStream::connect(service.http()).unwrap();
    // While it is stopped nothing is accepted or read: all of this waits in the kernel.
    let pid = Pid::from_raw(i32::try_from(service.process.id()).unwrap());
    kill(pid, Signal::SIGSTOP).unwrap();
    let asked: Vec<TcpStream> = (0..400)
        .map(|_| {
            let mut stream = TcpStream::connect(service.http()).unwrap();
            stream
                .write_all(b"GET /?size=3 HTTP/1.1\r\nHost: a\r\n\r\n")
                .unwrap();
            stream
        })
        .collect();
    service.signal();
    kill(pid, Signal::SIGCONT).unwrap();
    for stream in asked {
        let answer = rest(stream);
        assert!(answer.ends_with("\r\n\r\nabc"), "{answer:?}");
        assert!(answer.contains("connection: close"), "{answer}");
    }
    assert_eq!(rest(idle), "");
    assert!(service.wait());
}
