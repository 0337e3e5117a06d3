//! The service's ends: of the whole, of connections that nobody uses, and of clients that do not finish what they began.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use http::Request;
use nix::sys::signal::Signal;

use crate::rig::{Certificates, signal};
use crate::service::{Service, block_on, connect, content, exchange, post, rest, wait_until};

/// The number of descriptors that the service holds.
fn descriptors(service: &Service) -> usize {
    let path = format!("/proc/{}/fd", service.process.id());
    std::fs::read_dir(path).unwrap().count()
}

#[test]
fn what_is_under_way_is_finished_before_the_service_ends() {
    let mut service = Service::start("--tcp-echo=127.0.0.1:0");
    let mut echo = service.connect_to(1);
    echo.write_all(b"x").unwrap();
    echo.read_exact(&mut [0]).unwrap();
    let unused = service.connect_to(0);
    let http1 = service.ask("/?delay=500ms&size=3", "");
    block_on(async {
        let address = service.http();
        let idle = connect(address).await;
        let mut requests = connect(address).await;
        let slow = post(address, "/?delay=500ms&size=3").body(()).unwrap();
        let (slow, _) = requests.send_request(slow, true).unwrap();
        // Its answer proves that the slow requests before it were read.
        let quick = exchange(&mut requests, post(address, "/"), b"").await;
        quick.unwrap();
        signal(&service.process, Signal::SIGTERM);
        let (head, body, _) = content(slow.await.unwrap()).await.unwrap();
        assert_eq!((head.status.as_u16(), &body[..]), (200, &b"abc"[..]));
        let refused = tokio::net::TcpStream::connect(address).await;
        assert!(refused.is_err(), "nobody new is let in");
        drop(idle);
    });
    assert!(rest(http1).ends_with("abc"));
    assert!(service.wait());
    assert_eq!(echo.read(&mut [0]).unwrap_or(0), 0);
    drop(unused);
}

#[test]
fn a_second_signal_ends_the_service_at_once() {
    let mut service = Service::start("");
    let _waiting = service.ask("/?delay=60s", "");
    service.signal();
    let address = service.http();
    wait_until("nobody is let in", || TcpStream::connect(address).is_err());
    service.signal();
    assert!(service.wait());
}

#[test]
fn a_delayed_answer_is_held_only_for_a_client_that_waits() {
    let service = Service::start("--max-delay=10m");
    // The service names its addresses before it has all descriptors of its own. It has them once it answers.
    let mut first = service.ask("/", "");
    first.read_exact(&mut [0]).unwrap();
    let before = descriptors(&service);
    let holds = |more| wait_until("connections", || descriptors(&service) == before + more);
    let many: Vec<TcpStream> = (0..50).map(|_| service.ask("/?delay=10m", "")).collect();
    holds(50);
    drop(many);
    holds(0);
    // Its last byte came with the request.
    let half = service.ask("/?delay=10m", "");
    half.shutdown(Shutdown::Write).unwrap();
    assert_eq!(rest(half), "");
    let patient = service.ask("/?delay=300ms&size=3", "Connection: close\r\n");
    patient.shutdown(Shutdown::Write).unwrap();
    assert!(rest(patient).ends_with("\r\n\r\nabc"), "it said so before");
    // A connection that breaks is gone, whatever was said.
    let broken = service.ask("/?delay=10m", "Connection: close\r\n");
    holds(1);
    let socket = socket2::SockRef::from(&broken);
    socket.set_linger(Some(Duration::ZERO)).unwrap();
    drop(broken);
    holds(0);
}

#[test]
fn who_asks_in_pieces_without_end_is_not_waited_for() {
    let service = Service::start("--tcp-echo=127.0.0.1:0 --request-timeout=400ms");
    let late = "HTTP/1.1 408 Request Timeout\r\n";
    for (begin, answer) in [
        ("G", late),
        ("GET / HTTP/1.1\r\nHost: a\r\nX-A: b", late),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nabc",
            "",
        ),
        ("PRI * HTTP/2.0\r\n", ""),
    ] {
        let told = rest(service.told(begin));
        assert_eq!(told.lines().next(), answer.lines().next(), "{begin}");
    }
    // A connection on which nothing was asked, and an answer that takes longer, are not meant.
    let mut idle = service.connect_to(0);
    assert!(service.get("/?delay=2s&size=3").ends_with("abc"));
    idle.write_all(b"GET /?size=3 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        .unwrap();
    assert!(rest(idle).ends_with("abc"));
    block_on(async {
        let mut requests = connect(service.http()).await;
        let request = Request::post("http://a/").body(()).unwrap();
        let (response, _body) = requests.send_request(request, false).unwrap();
        let (head, ..) = content(response.await.unwrap()).await.unwrap();
        assert_eq!(head.status, 408);
        let other = exchange(&mut requests, Request::get("http://a/"), b"").await;
        let status = other.unwrap().0.status;
        assert_eq!(status, 200, "the others on the connection go on");
    });
}

#[test]
fn tls_that_is_not_set_up_is_not_waited_for() {
    let certificates = Certificates::new();
    let (cert, key) = (
        certificates.path("server.pem"),
        certificates.path("server.key"),
    );
    let tls = format!("--tls-cert {cert} --tls-key {key} --request-timeout=400ms");
    // An alert says that no handshake came of it.
    let said = rest(Service::start(&tls).connect_to(0));
    assert!(said.is_empty() || said.starts_with('\x15'), "{said:?}");
}

#[test]
fn connections_that_nobody_uses_end() {
    let service = Service::start("--tcp-echo=127.0.0.1:0 --idle-timeout=3s");
    assert_eq!(rest(service.connect_to(0)), "");
    assert_eq!(rest(service.connect_to(1)), "");
    assert!(rest(service.ask("/?size=3", "")).ends_with("abc"));
    let slow = rest(service.ask("/?delay=5s&size=3", ""));
    assert!(slow.ends_with("abc"), "a delay is no idleness");
    block_on(async {
        let socket = tokio::net::TcpStream::connect(service.http()).await;
        let (mut requests, connection) = h2::client::handshake(socket.unwrap()).await.unwrap();
        let connection = tokio::spawn(connection);
        let answer = exchange(&mut requests, Request::get("http://a/"), b"").await;
        assert_eq!(answer.unwrap().0.status, 200);
        connection.await.unwrap().expect("it says goodbye");
    });
}

#[test]
fn who_had_asked_before_the_end_is_answered() {
    let mut service = Service::start("");
    let idle = service.connect_to(0);
    // While it is stopped nothing is accepted or read: all of this waits in the kernel.
    signal(&service.process, Signal::SIGSTOP);
    let asked: Vec<TcpStream> = (0..400).map(|_| service.ask("/?size=3", "")).collect();
    service.signal();
    signal(&service.process, Signal::SIGCONT);
    for stream in asked {
        let answer = rest(stream);
        assert!(answer.ends_with("\r\n\r\nabc"), "{answer:?}");
        assert!(answer.contains("connection: close"), "{answer}");
    }
    assert_eq!(rest(idle), "");
    assert!(service.wait());
}
