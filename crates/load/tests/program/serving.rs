//! Answers of the echo service: HTTP of both versions, TLS, gRPC, TCP and UDP.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use lateen_load::frames::{Frames, frame};

use crate::rig::{Certificates, count, ended, report, run};
use crate::service::{DEADLINE, Service, block_on, connect, exchange, post, rest};

#[test]
fn the_service_answers_as_the_query_asks() {
    let service = Service::start("");
    let all = "/x?status=404&size=3&header=X-A:b&delay=1ms";
    for (target, begin, end) in [
        ("/health", "HTTP/1.1 200 OK\r\n", "\r\n\r\nok\n"),
        (all, "HTTP/1.1 404 ", "\r\n\r\nabc"),
        // A value that is none, and a status that is none, are Fortio's.
        ("/?status=x", "HTTP/1.1 400 ", ""),
        ("/?status=99", "", ""),
    ] {
        let answer = service.get(target);
        assert!(answer.starts_with(begin), "{answer}");
        assert!(answer.ends_with(end), "{answer}");
        assert_eq!(answer.is_empty(), begin.is_empty(), "{answer}");
        let has_field = answer.contains("\r\nx-a: b\r\n");
        assert_eq!(has_field, target.contains("X-A"), "{answer}");
    }
    let large = service.get("/?size=3000000&writes=7");
    assert_eq!(large.split_once("\r\n\r\n").unwrap().1.len(), 3_000_000);

    let ask = "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n";
    let mut stream = service.told(ask);
    let mut interim = [0; 25];
    stream.read_exact(&mut interim).unwrap();
    assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
    let more = b"helloGET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    stream.write_all(more).unwrap();
    let answers = rest(stream);
    // Both, in order.
    let both = "\r\n\r\nhelloHTTP/1.1 200 OK";
    assert!(answers.contains(both), "{answers}");
}

#[test]
fn limits_and_standard_parameters_are_set_for_the_service() {
    let service = Service::start("--max-size=10 --max-delay=1ms --default-params=size=5");
    let length = |target| service.get(target).split_once("\r\n\r\n").unwrap().1.len();
    assert_eq!(["/", "/?", "/?size=500", "/?x"].map(length), [5, 0, 10, 0]);
    assert!(service.get("/health").ends_with("\r\n\r\nok\n"));
    let begin = Instant::now();
    service.get("/?delay=10m");
    assert!(begin.elapsed() < Duration::from_secs(60));
}

#[test]
fn two_writes_without_nodelay_stall_and_with_it_do_not() {
    let service = Service::start("");
    let service_time = |nodelay: u8| {
        let url = service.url(&format!("/?size=178&writes=2&nodelay={nodelay}"));
        // The next request follows at once, so that the kernel holds its ACKs back meanwhile.
        let report = report(format!("--url {url} --qps=0 -c1 -d1s --warmup=500ms"));
        report["service_time"]["p50"].as_f64().unwrap()
    };
    let (stalled, quick) = (service_time(0), service_time(1));
    assert!(stalled > 30.0, "the delayed ACK takes 40 ms: {stalled} ms");
    assert!(quick < stalled / 2.0, "{quick} ms");
}

#[test]
fn the_service_holds_many_connections() {
    let service = Service::start("");
    let connections: Vec<_> = (0..400).map(|_| service.ask("/?size=2", "")).collect();
    for mut stream in connections {
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
fn http_2_is_answered_as_http_1_is() {
    let service = Service::start("--max-size=4000000");
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
        // Cut to the limit, and larger than every window.
        assert_eq!(body.len(), 4_000_000);

        let request = post(address, "/?gzip=true&size=5000").header("accept-encoding", "gzip");
        let (head, body, _) = exchange(requests, request, b"").await.unwrap();
        assert_eq!(head.headers["content-encoding"], "gzip");
        assert!(body.len() < 1000 && body.starts_with(&[0x1f, 0x8b]));

        let hung_up = exchange(requests, post(address, "/?status=99"), b"").await;
        let reason = hung_up.unwrap_err().reason();
        assert_eq!(reason, Some(h2::Reason::INTERNAL_ERROR));

        // A slow answer does not hold up those behind it on the connection.
        let slow = post(address, "/?delay=20s").body(()).unwrap();
        let (slow, _) = requests.send_request(slow, true).unwrap();
        let quick = exchange(requests, post(address, "/?status=201"), b"").await;
        assert_eq!(quick.unwrap().0.status, 201);
        drop(slow);

        let large = vec![0; (1 << 20) + 1];
        let refused = exchange(requests, post(address, "/"), &large).await;
        assert_eq!(refused.unwrap().0.status, 400);

        let last = exchange(requests, post(address, "/?close=true"), b"").await;
        assert_eq!(last.unwrap().0.status, 200);
        while requests.clone().ready().await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
}

#[test]
fn both_versions_of_http_share_a_port_however_the_first_bytes_are_cut() {
    let service = Service::start("");
    let one = "POST /?size=2 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let two = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    let neither = "PRI * HTTP/1.1\r\nHost: a\r\n\r\nGET x\r\n\r\n";
    for (bytes, expected) in [
        (one, "HTTP/1.1 200 OK"),
        (two, "\0\0"),
        (neither, "HTTP/1.1 400 Bad Request"),
    ] {
        let mut stream = service.connect_to(0);
        stream.set_nodelay(true).unwrap();
        for byte in bytes.as_bytes() {
            stream.write_all(&[*byte]).unwrap();
        }
        let mut answer = vec![0; expected.len()];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(answer, expected.as_bytes());
    }
}

fn call(address: SocketAddr, method: &str) -> http::request::Builder {
    let call = post(address, method).header("te", "trailers");
    call.header("content-type", "application/grpc")
}

fn messages(content: &[u8], gzip: bool) -> Vec<Bytes> {
    let mut frames = Frames::default();
    frames.push(content);
    let messages = std::iter::from_fn(|| frames.next(gzip).unwrap()).collect();
    assert!(frames.is_empty());
    messages
}

/// Fortio's PingMessage: seq 7, ts 1, this payload, and a delay of 5 ms.
const PING: &[u8] = b"\x08\x07\x10\x01\x1a\x05hello\x20\xc0\x96\xb1\x02";

#[test]
fn fortios_ping_comes_back_with_the_servers_time() {
    let service = Service::start("");
    let address = service.http();
    block_on(async {
        let mut requests = connect(address).await;
        for (gzip, encoding) in [(false, "identity"), (true, "gzip")] {
            let request = call(address, "/fgrpc.PingServer/Ping");
            let request = request.header("grpc-encoding", encoding);
            let begin = Instant::now();
            let answer = exchange(&mut requests, request, &frame(PING, gzip)).await;
            let (head, body, trailers) = answer.unwrap();
            assert!(begin.elapsed() >= Duration::from_millis(5));
            assert_eq!(head.headers["content-type"], "application/grpc");
            assert_eq!(trailers["grpc-status"], "0");
            let messages = messages(&body, gzip);
            assert_eq!(messages.len(), 1);
            let (seq, rest) = messages[0].split_at(2);
            assert_eq!((seq, rest[0]), (&b"\x08\x07"[..], 0x10));
            let mut time = rest[1..10].iter();
            assert!(time.all(|byte| byte & 0x80 != 0 || *byte != 0));
            assert!(rest.ends_with(&PING[4..]), "{rest:?}");
            // A time of this century takes nine bytes.
            assert!(rest.len() > PING.len(), "{rest:?}");
        }
    });
}

#[test]
fn messages_of_a_stream_are_answered_one_by_one() {
    let service = Service::start("");
    let address = service.http();
    let message = || frame(b"\x1a\x01a", false);
    block_on(async {
        let mut requests = connect(address).await;
        for method in ["/fgrpc.PingServer/Ping", "/lateen.load.v1.Echo/Stream"] {
            let request = call(address, method).body(()).unwrap();
            let (response, mut stream) = requests.send_request(request, false).unwrap();
            stream.send_data(message(), false).unwrap();
            let mut body = response.await.unwrap().into_body();
            let mut held = Frames::default();
            for count in 0..5 {
                let answer = loop {
                    if let Some(message) = held.next(false).unwrap() {
                        break message;
                    }
                    held.push(&body.data().await.unwrap().unwrap());
                };
                assert!(answer.ends_with(b"\x1a\x01a"), "{count}: {answer:?}");
                stream.send_data(message(), count == 4).unwrap();
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
    let service = Service::start("");
    let address = service.http();
    let named = |name: &str| {
        let message = [&[0x0a, name.len() as u8], name.as_bytes()].concat();
        frame(&message, false)
    };
    block_on(async {
        let mut requests = connect(address).await;
        let check = "/grpc.health.v1.Health/Check";
        let ping = "/fgrpc.PingServer/Ping";
        let table = [
            (check, frame(b"", false), "0", &b"\x08\x01"[..]),
            (check, named("ping"), "0", b"\x08\x01"),
            (check, named("ping_down"), "0", b"\x08\x02"),
            (check, named("other"), "5", b""),
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
            let found = trailers.get("grpc-status");
            let found = found.unwrap_or_else(|| &head.headers["grpc-status"]);
            assert_eq!(found, status, "{method} {message:?}");
            assert_eq!(messages(&body, false).concat(), expected);
        }
        let request = call(address, ping).header("grpc-encoding", "zstd");
        let (head, ..) = exchange(&mut requests, request, b"").await.unwrap();
        assert_eq!(head.headers["grpc-status"], "12");

        // A watch tells how it is and stays open.
        let request = call(address, "/grpc.health.v1.Health/Watch").body(());
        let (response, mut stream) = requests.send_request(request.unwrap(), false).unwrap();
        stream.send_data(named("other"), true).unwrap();
        let mut body = response.await.unwrap().into_body();
        let told = messages(&body.data().await.unwrap().unwrap(), false);
        assert_eq!(told, [&b"\x08\x03"[..]]);
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
    let (certificates, strangers) = (Certificates::new(), Certificates::new());
    let path = |name: &str| certificates.path(name);
    let [cert, key] = ["server.pem", "server.key"].map(path);
    let own = format!("--tls-cert {cert} --tls-key {key}");
    let shown = |from: &Certificates| {
        let (cert, key) = (from.path("client.pem"), from.path("client.key"));
        format!("--cert {cert} --key {key}")
    };
    let (with, strange) = (&*shown(&certificates), &*shown(&strangers));
    let ca = path("ca.pem");
    let required = &*format!("--client-ca {ca}");
    let wanted = &*format!("{required} --client-cert want");
    for (asked, shown, expected) in [
        ("", "", 20),
        ("", with, 20),
        (required, "", 0),
        (required, with, 20),
        (required, strange, 0),
        (wanted, "", 20),
        (wanted, strange, 0),
    ] {
        let service = Service::start(&format!("{own} {asked}"));
        let address = service.http();
        for (scheme, target) in [
            ("https", "/?size=100000&writes=3"),
            ("https", "/?size=7 --http2"),
            ("grpcs", ""),
        ] {
            let url = format!("{scheme}://{address}{target}");
            let tls = format!("--server-name=localhost --cacert {ca} {shown}");
            let ended = run(format!("--url {url} {tls} -n20 -c2 --qps=0"));
            let ok = match ended.out.is_empty() {
                true => 0,
                false => count(&ended.json(), "counts.ok"),
            };
            assert_eq!(ok, expected, "{asked} {shown} {url}: {}", ended.err);
        }
        let mut answer = Vec::new();
        let _ = service.ask("/", "").read_to_end(&mut answer);
        // A port for TLS answers nothing else.
        assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    }
}

#[test]
fn bytes_and_datagrams_come_back() {
    let service = Service::start("--tcp-echo=127.0.0.1:0 --udp-echo=127.0.0.1:0");
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
    let mut other = service.connect_to(1);
    other.write_all(b"meanwhile").unwrap();
    let mut meanwhile = [0; 9];
    other.read_exact(&mut meanwhile).unwrap();
    assert_eq!(&meanwhile, b"meanwhile");
    let mut received = Vec::new();
    stream.read_to_end(&mut received).unwrap();
    writing.join().unwrap();
    assert_eq!(received.len(), sent.len());
    assert!(received == sent, "other bytes came back");

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
    let taken = listener.local_addr().unwrap();
    let certificates = Certificates::new();
    let [cert, key] = ["server.pem", "client.key"].map(|name| certificates.path(name));
    let refused = |line: String, code, expected| {
        ended(format!("serve --listen=127.0.0.1:0 {line}")).refused(code, expected);
    };
    refused(format!("--tcp-echo {taken}"), 1, "is the port taken");
    refused(format!("--tls-cert {cert}"), 64, "--tls-key");
    let mixed = format!("--tls-cert {cert} --tls-key {key}");
    refused(mixed, 1, "do not belong together");
    refused(format!("--tls-cert {key} --tls-key {key}"), 1, "must hold");
    refused(format!("--client-ca {cert}"), 64, "--tls-cert");
}
