//! The echo service's other protocols from outside: HTTP/2, TLS, gRPC, TCP and UDP.

mod rig;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use lateen_load::serve::frames::{Frames, frame};
use rig::service::{DEADLINE, Service, block_on, connect, exchange, post};
use rig::{Certificates, json, program, run, stderr};

#[test]
fn http_2_is_answered_as_http_1_is() {
    let service = Service::start(1, &["--max-size=4000000"]);
    let address = service.http();
    block_on(async {
        let mut requests = connect(address).await;
        let requests = &mut requests;
        let target = "/x?status=404&header=X-A:b&header=X-A:c&delay=1ms";
        let request = post(address, target).header("content-type", "a/b");
        let (head, body, _) = exchange(requests, request, b"hello").await.unwrap();
        assert_eq!((head.status.as_u16(), &body[..]), (404, &b"hello"[..]));
        assert_eq!(head.headers.get_all("x-a").iter().count(), 2);
        assert_eq!(head.headers["content-type"], "a/b");
        assert_eq!(head.headers["content-length"], "5");
        assert!(head.headers.contains_key("date"));

        let large = post(address, "/?size=9000000");
        let (_, body, _) = exchange(requests, large, b"").await.unwrap();
        assert_eq!(
            body.len(),
            4_000_000,
            "cut to the limit, and larger than every window"
        );

        let request = post(address, "/?gzip=true&size=5000").header("accept-encoding", "gzip");
        let (head, body, _) = exchange(requests, request, b"").await.unwrap();
        assert_eq!(head.headers["content-encoding"], "gzip");
        assert!(body.len() < 1000 && body.starts_with(&[0x1f, 0x8b]));

        let hung_up = exchange(requests, post(address, "/?status=99"), b"").await;
        assert_eq!(
            hung_up.unwrap_err().reason(),
            Some(h2::Reason::INTERNAL_ERROR)
        );

        // A slow answer does not hold up those behind it on the connection.
        let slow = post(address, "/?delay=20s").body(()).unwrap();
        let (slow, _) = requests.send_request(slow, true).unwrap();
        let quick = exchange(requests, post(address, "/?status=201"), b"").await;
        assert_eq!(quick.unwrap().0.status, 201);
        drop(slow);

        let large = vec![0; (1 << 20) + 1];
        let (head, ..) = exchange(requests, post(address, "/"), &large)
            .await
            .unwrap();
        assert_eq!(head.status, 400);

        let last = exchange(requests, post(address, "/?close=true"), b"").await;
        assert_eq!(last.unwrap().0.status, 200);
        while requests.clone().ready().await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
}

#[test]
fn both_versions_of_http_share_a_port_however_the_first_bytes_are_cut() {
    let service = Service::start(1, &[]);
    for (bytes, expected) in [
        (
            &b"POST /?size=2 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"[..],
            &b"HTTP/1.1 200 OK"[..],
        ),
        (
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0",
            b"\0\0",
        ),
        (
            b"PRI * HTTP/1.1\r\nHost: a\r\n\r\nGET x\r\n\r\n",
            b"HTTP/1.1 400 Bad Request",
        ),
    ] {
        let mut stream = TcpStream::connect(service.http()).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        for byte in bytes {
            stream.write_all(&[*byte]).unwrap();
        }
        let mut answer = vec![0; expected.len()];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(answer, expected);
    }
}

fn call(address: SocketAddr, method: &str) -> http::request::Builder {
    post(address, method)
        .header("content-type", "application/grpc")
        .header("te", "trailers")
}

fn messages(content: &[u8], gzip: bool) -> Vec<Bytes> {
    let mut frames = Frames::default();
    frames.push(content);
    let mut messages = Vec::new();
    while let Some(message) = frames.next(gzip).unwrap() {
        messages.push(message);
    }
    assert!(frames.is_empty());
    messages
}

/// Fortio's PingMessage: seq 7, ts 1, this payload, and a delay of 5 ms.
const PING: &[u8] = b"\x08\x07\x10\x01\x1a\x05hello\x20\xc0\x96\xb1\x02";

#[test]
fn fortios_ping_comes_back_with_the_servers_time() {
    let service = Service::start(1, &[]);
    let address = service.http();
    block_on(async {
        let mut requests = connect(address).await;
        for gzip in [false, true] {
            let mut request = call(address, "/fgrpc.PingServer/Ping");
            if gzip {
                request = request.header("grpc-encoding", "gzip");
            }
            let begin = Instant::now();
            let answer = exchange(&mut requests, request, &frame(PING, gzip)).await;
            let (head, body, trailers) = answer.unwrap();
            assert!(begin.elapsed() >= Duration::from_millis(5));
            assert_eq!(head.headers["content-type"], "application/grpc");
            assert_eq!(trailers["grpc-status"], "0");
            let messages = messages(&body, gzip);
            assert_eq!(messages.len(), 1);
            let (seq, rest) = messages[0].split_at(2);
            assert_eq!(seq, b"\x08\x07");
            assert!(
                rest[0] == 0x10
                    && rest[1..10]
                        .iter()
                        .all(|byte| byte & 0x80 != 0 || *byte != 0)
            );
            assert!(rest.ends_with(&PING[4..]), "{rest:?}");
            assert!(
                rest.len() > PING.len(),
                "a time of this century takes nine bytes"
            );
        }
    });
}

#[test]
fn messages_of_a_stream_are_answered_one_by_one() {
    let service = Service::start(1, &[]);
    let address = service.http();
    block_on(async {
        let mut requests = connect(address).await;
        for method in ["/fgrpc.PingServer/Ping", "/lateen.load.v1.Echo/Stream"] {
            let request = call(address, method).body(()).unwrap();
            let (response, mut stream) = requests.send_request(request, false).unwrap();
            stream.send_data(frame(b"\x1a\x01a", false), false).unwrap();
            let mut body = response.await.unwrap().into_body();
            let mut held = Frames::default();
            for count in 0..5 {
                let message = loop {
                    if let Some(message) = held.next(false).unwrap() {
                        break message;
                    }
                    held.push(&body.data().await.unwrap().unwrap());
                };
                assert!(message.ends_with(b"\x1a\x01a"), "{count}: {message:?}");
                stream
                    .send_data(frame(b"\x1a\x01a", false), count == 4)
                    .unwrap();
            }
            while let Some(piece) = body.data().await {
                piece.unwrap();
            }
            assert_eq!(body.trailers().await.unwrap().unwrap()["grpc-status"], "0");
        }
    });
}

#[test]
fn health_is_told_and_what_cannot_be_called_has_a_status() {
    let service = Service::start(1, &[]);
    let address = service.http();
    let named = |name: &str| [&[0x0a, name.len() as u8], name.as_bytes()].concat();
    block_on(async {
        let mut requests = connect(address).await;
        let check = "/grpc.health.v1.Health/Check";
        let ping = "/fgrpc.PingServer/Ping";
        let table = [
            (check, frame(b"", false), "0", &b"\x08\x01"[..]),
            (check, frame(&named("ping"), false), "0", b"\x08\x01"),
            (check, frame(&named("ping_down"), false), "0", b"\x08\x02"),
            (check, frame(&named("other"), false), "5", b""),
            ("/a.B/C", frame(b"", false), "12", b""),
            (ping, frame(b"\xff\xff", false), "13", b""),
            (ping, Bytes::from_static(b"\0\0\0\0\x05ab"), "13", b""),
            (ping, Bytes::from_static(b"\0\xff\xff\xff\xff"), "8", b""),
            (ping, frame(b"", true), "13", b""),
        ];
        for (method, message, status, expected) in table {
            let answer = exchange(&mut requests, call(address, method), &message).await;
            let (head, body, trailers) = answer.unwrap();
            assert_eq!(head.status, 200);
            let found = trailers
                .get("grpc-status")
                .unwrap_or_else(|| &head.headers["grpc-status"]);
            assert_eq!(found, status, "{method} {message:?}");
            let messages = if body.is_empty() {
                vec![]
            } else {
                messages(&body, false)
            };
            assert_eq!(messages.concat(), expected);
        }
        let request = call(address, ping).header("grpc-encoding", "zstd");
        let (head, ..) = exchange(&mut requests, request, b"").await.unwrap();
        assert_eq!(head.headers["grpc-status"], "12");

        // A watch tells how it is and stays open.
        let request = call(address, "/grpc.health.v1.Health/Watch")
            .body(())
            .unwrap();
        let (response, mut stream) = requests.send_request(request, false).unwrap();
        stream
            .send_data(frame(&named("other"), false), true)
            .unwrap();
        let mut body = response.await.unwrap().into_body();
        assert_eq!(
            messages(&body.data().await.unwrap().unwrap(), false),
            [&b"\x08\x03"[..]]
        );
        let more = tokio::time::timeout(Duration::from_millis(50), body.data()).await;
        assert!(more.is_err(), "nothing more is said");
        // Only the end of the service ends it, and it does not hold that up.
        service.signal();
        while let Some(piece) = body.data().await {
            piece.unwrap();
        }
        assert_eq!(body.trailers().await.unwrap().unwrap()["grpc-status"], "14");
    });
}

#[test]
fn tls_speaks_what_the_client_chooses_and_asks_for_certificates_as_it_was_told() {
    let certificates = Certificates::new();
    let strangers = Certificates::new();
    let text = |name: &str| certificates.text(name);
    let (cert, key, ca) = (text("server.pem"), text("server.key"), text("ca.pem"));
    let own = ["--tls-cert", &cert, "--tls-key", &key];
    let (client_cert, client_key) = (text("client.pem"), text("client.key"));
    let with = ["--cert", &client_cert, "--key", &client_key];
    let (other_cert, other_key) = (strangers.text("client.pem"), strangers.text("client.key"));
    let strange = ["--cert", &other_cert, "--key", &other_key];
    let required = ["--client-ca", &ca];
    let wanted = ["--client-ca", &ca, "--client-cert", "want"];
    let none: &[&str] = &[];
    let table: [(&[&str], &[&str], bool); 7] = [
        (none, none, true),
        (none, &with, true),
        (&required, none, false),
        (&required, &with, true),
        (&required, &strange, false),
        (&wanted, none, true),
        (&wanted, &strange, false),
    ];
    for (asked, shown, expected) in table {
        let service = Service::start(1, &[&own[..], asked].concat());
        let port = service.http().port();
        for (scheme, path, more) in [
            ("https", "/?size=100000&writes=3", none),
            ("https", "/?size=7", &["--http2"]),
            ("grpcs", "", none),
        ] {
            let url = format!("{scheme}://127.0.0.1:{port}{path}");
            let args = [
                "--url",
                &url,
                "--server-name=localhost",
                "--cacert",
                &ca,
                "-n20",
                "-c2",
                "--qps=0",
            ];
            let output = run(&[&args[..], shown, more].concat());
            let ok = if output.stdout.is_empty() {
                0.into()
            } else {
                json(&output)["counts"]["ok"].clone()
            };
            let expected = if expected { 20 } else { 0 };
            assert_eq!(
                ok,
                expected,
                "{asked:?} {shown:?} {url} {more:?}: {}",
                stderr(&output)
            );
        }
        let mut plain = TcpStream::connect(service.http()).unwrap();
        plain.set_read_timeout(Some(DEADLINE)).unwrap();
        plain
            .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            .unwrap();
        let mut answer = Vec::new();
        let _ = plain.read_to_end(&mut answer);
        assert!(
            !answer.starts_with(b"HTTP"),
            "a port for TLS answers nothing else"
        );
    }
}

#[test]
fn bytes_and_datagrams_come_back() {
    let service = Service::start(3, &["--tcp-echo=127.0.0.1:0", "--udp-echo=127.0.0.1:0"]);
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    // Little fits on the way to us, so that the service has to hold bytes back.
    socket.set_recv_buffer_size(8192).unwrap();
    socket.connect(&service.addresses[1].into()).unwrap();
    let mut stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let sent: Vec<u8> = (0..40_000_000u32).map(|at| (at % 251) as u8).collect();
    let mut writer = stream.try_clone().unwrap();
    let copy = sent.clone();
    let written = Arc::new(AtomicUsize::new(0));
    let progress = Arc::clone(&written);
    let writing = std::thread::spawn(move || {
        for piece in copy.chunks(100_000) {
            writer.write_all(piece).unwrap();
            progress.fetch_add(piece.len(), Ordering::Relaxed);
        }
        writer.shutdown(std::net::Shutdown::Write).unwrap();
    });
    // Reading begins when nothing more fits between the two.
    let mut before = usize::MAX;
    while before != written.load(Ordering::Relaxed) {
        before = written.load(Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(300));
    }
    assert!(before < sent.len(), "what is not read is not taken");
    let other = TcpStream::connect(service.addresses[1]);
    let mut other = other.unwrap();
    other.write_all(b"meanwhile").unwrap();
    let mut meanwhile = [0; 9];
    other.set_read_timeout(Some(DEADLINE)).unwrap();
    other.read_exact(&mut meanwhile).unwrap();
    assert_eq!(&meanwhile, b"meanwhile");
    let mut received = Vec::new();
    stream.read_to_end(&mut received).unwrap();
    writing.join().unwrap();
    assert!(
        received == sent,
        "{} of {} bytes",
        received.len(),
        sent.len()
    );

    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(DEADLINE)).unwrap();
    for size in [0, 1, 9000, 60_000] {
        let sent = &sent[..size];
        socket.send_to(sent, service.addresses[2]).unwrap();
        let mut received = vec![0; 65_536];
        let (count, from) = socket.recv_from(&mut received).unwrap();
        assert_eq!((&received[..count], from), (sent, service.addresses[2]));
    }
}

#[test]
fn what_cannot_be_served_is_said_at_once() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = listener.local_addr().unwrap().to_string();
    let certificates = Certificates::new();
    let (cert, key) = (
        certificates.text("server.pem"),
        certificates.text("client.key"),
    );
    let table: [(&[&str], i32, &str); 5] = [
        (&["--tcp-echo", &taken], 1, "is the port taken"),
        (&["--tls-cert", &cert], 64, "--tls-key"),
        (
            &["--tls-cert", &cert, "--tls-key", &key],
            1,
            "do not belong together",
        ),
        (&["--tls-cert", &key, "--tls-key", &key], 1, "must hold"),
        (&["--client-ca", &cert], 64, "--tls-cert"),
    ];
    for (args, code, expected) in table {
        let output = program()
            .args(["serve", "--listen=127.0.0.1:0"])
            .args(args)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(code), "{args:?}");
        assert!(
            stderr(&output).contains(expected),
            "{args:?}: {}",
            stderr(&output)
        );
    }
    drop(listener);
}
