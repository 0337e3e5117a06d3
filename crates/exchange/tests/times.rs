//! Times after which a peer that is slow or silent is given up, and those that a silent stream outlives.

mod common;

use std::time::Duration;

use bytes::Bytes;
use common::{PIPE, PROTOCOLS, answer, head, local, preface, text, virtually};
use lateen_exchange::{Account, Config, ConnectionError, Protocol, Timeouts, client, server};
use lateen_h2::{Field, Timestamp};
use lateen_http::{Length, Status};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::task::spawn_local;
use tokio::time::sleep;

/// A peer of a server that waits little for heads.
fn impatient() -> (DuplexStream, server::Connection<DuplexStream>) {
    let (peer, io) = duplex(4096);
    let mut config = Config::new(Protocol::Http1);
    config.timeouts = Some(Timeouts {
        check_interval: Duration::from_millis(10),
        head: Duration::from_millis(50),
        linger: Duration::from_millis(50),
        ..Timeouts::default()
    });
    (peer, server::Connection::new(io, config))
}

#[test]
fn slow_head_is_answered_with_408() {
    local(async {
        let (mut peer, mut server) = impatient();
        peer.write_all(b"GET / HT").await.expect("there is room");
        let driver = spawn_local(async move {
            let ended = server.next().await.map(|_| ());
            (ended, server.next_refused())
        });
        let told = text(&mut peer).await;
        assert!(told.starts_with("HTTP/1.1 408 "), "{told}");
        assert!(told.contains("connection: close"), "{told}");
        drop(peer);
        let (ended, refused) = driver.await.expect("no panic");
        assert!(matches!(ended, Err(ConnectionError::HeadTimeout)));
        assert_eq!(refused, Some(408));
    });
}

#[test]
fn slow_rest_of_an_answered_request_gets_no_second_answer() {
    local(async {
        let (mut peer, mut server) = impatient();
        let request = b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\nab";
        peer.write_all(request).await.expect("there is room");
        let driver = spawn_local(async move {
            let (_, exchange) = server.next().await.expect("no fault").expect("one");
            exchange
                .reply(Status::OK, &[], Length::None)
                .expect("it is open");
            drop(exchange);
            let ended = server.next().await.map(|_| ());
            (ended, server.next_refused())
        });
        let told = text(&mut peer).await;
        assert_eq!(told.matches("HTTP/1.1 ").count(), 1, "{told}");
        drop(peer);
        let (ended, refused) = driver.await.expect("no panic");
        assert!(matches!(ended, Err(ConnectionError::HeadTimeout)));
        assert_eq!(refused, None);
    });
}

#[test]
fn silent_http2_peer_is_given_up() {
    local(async {
        let (_peer, io) = duplex(4096);
        let mut config = Config::new(Protocol::Http2);
        config.timeouts = Some(Timeouts {
            check_interval: Duration::from_millis(10),
            ping_after: Duration::from_millis(30),
            ping_timeout: Duration::from_millis(30),
            linger: Duration::from_millis(50),
            ..Timeouts::default()
        });
        let mut server = server::Connection::new(io, config);
        let ended = server.next().await.map(|_| ());
        assert!(matches!(ended, Err(ConnectionError::PingTimeout)));
    });
}

/// Time-outs as a proxy has them inside of tunnels, which know whether their peers are there.
fn inside() -> Option<Timeouts> {
    Some(Timeouts {
        check_interval: Duration::from_secs(5),
        ping_after: Duration::MAX / 2,
        ..Timeouts::default()
    })
}

/// Writes a byte a second, and returns when the peer takes no more, and at what second.
async fn dribble(peer: &mut DuplexStream, bytes: &[u8]) -> usize {
    for (second, byte) in bytes.iter().enumerate() {
        if peer.write_all(&[*byte]).await.is_err() {
            return second;
        }
        sleep(Duration::from_secs(1)).await;
    }
    panic!("nobody was tired of it")
}

#[test]
fn a_head_of_a_byte_a_second_ends_in_a_minute_with_408() {
    virtually(async {
        let (peer, io) = duplex(4096);
        let config = Config {
            timeouts: inside(),
            ..Config::new(Protocol::Http1)
        };
        let mut server = server::Connection::new(io, config);
        let driver = spawn_local(async move { (server.next().await.map(|_| ()), server) });
        let (mut reader, mut writer) = tokio::io::split(peer);
        let write = async {
            let head = b"GET / HTTP/1.1\r\nx: ".iter().chain([b'x'; 1000].iter());
            for (second, byte) in head.enumerate() {
                if writer.write_all(&[*byte]).await.is_err() {
                    return second;
                }
                sleep(Duration::from_secs(1)).await;
            }
            panic!("nobody was tired of it")
        };
        let read = async {
            let mut told = String::new();
            reader.read_to_string(&mut told).await.expect("it is text");
            told
        };
        let told = tokio::select! {
            told = read => told,
            _ = write => panic!("the answer comes before the end"),
        };
        assert!(told.starts_with("HTTP/1.1 408 "), "{told}");
        assert!(told.contains("connection: close"), "{told}");
        drop((reader, writer));
        let (ended, mut server) = driver.await.expect("no panic");
        assert!(matches!(ended, Err(ConnectionError::HeadTimeout)));
        assert_eq!(server.next_refused(), Some(408));
    });
}

#[test]
fn a_header_block_of_a_byte_a_second_ends_its_connection_in_a_minute() {
    virtually(async {
        let (mut peer, io) = duplex(64 * 1024);
        let config = Config {
            timeouts: inside(),
            ..Config::new(Protocol::Http2)
        };
        let mut server = server::Connection::new(io, config);
        let driver = spawn_local(async move { server.next().await.map(|_| ()) });
        // A frame of HEADERS of 1000 bytes that begins with good fields.
        let begun = [&preface()[..], &[0, 3, 232, 1, 4, 0, 0, 0, 1]].concat();
        peer.write_all(&begun).await.expect("there is room");
        let seconds = dribble(&mut peer, &[0x82; 1000]).await;
        assert!((55..=75).contains(&seconds), "{seconds}");
        let ended = driver.await.expect("no panic");
        assert!(matches!(ended, Err(ConnectionError::HeadTimeout)));
    });
}

#[test]
fn a_stream_that_is_silent_for_hours_lives_and_an_idle_connection_ends() {
    virtually(async {
        let (ours, theirs) = duplex(PIPE);
        let config = Config {
            timeouts: inside(),
            ..Config::new(Protocol::Http2)
        };
        let (handle, connection) = client::open(ours, config.clone());
        let driver = spawn_local(connection);
        let mut server = server::Connection::new(theirs, config);
        let server = spawn_local(async move {
            let (_, exchange) = server.next().await?.expect("one");
            let late = spawn_local(async move {
                sleep(Duration::from_secs(3 * 3600)).await;
                exchange
                    .reply(Status::OK, &[], Length::None)
                    .expect("it is open");
            });
            let next = server.next().await;
            late.await.expect("no panic");
            next.map(|next| next.is_none())
        });
        let exchange = handle.request(&head("GET", "/", &[]), None);
        let exchange = exchange.expect("it is ready");
        let answer = answer(&exchange).await.expect("an answer");
        assert_eq!(answer.status(), Status::OK);
        drop(exchange);
        let told = tokio::time::Instant::now();
        // The client holds on to it.
        assert!(server.await.expect("no panic").expect("an orderly end"));
        driver.await.expect("no panic").expect("an orderly end");
        let idle = told.elapsed();
        assert!(idle >= Duration::from_secs(3590), "{idle:?}");
        assert!(idle <= Duration::from_secs(3660), "{idle:?}");
        assert!(handle.is_closed());
    });
}

#[test]
fn an_idle_peer_that_does_not_answer_is_ended_as_well() {
    virtually(async {
        let (mut peer, io) = duplex(64 * 1024);
        let config = Config {
            timeouts: inside(),
            ..Config::new(Protocol::Http2)
        };
        let mut server = server::Connection::new(io, config);
        peer.write_all(&preface()).await.expect("there is room");
        let start = tokio::time::Instant::now();
        let ended = server.next().await.map(|_| ());
        assert!(matches!(ended, Err(ConnectionError::IdleTimeout)));
        assert!(start.elapsed() <= Duration::from_secs(3660));
    });
}

/// A client of HTTP/2 that acknowledges SETTINGS and answers no PING, with these frames behind its preface.
async fn silent_client(peer: &mut DuplexStream, frames: &[u8]) {
    let begun = [&preface()[..], frames].concat();
    peer.write_all(&begun).await.expect("there is room");
}

/// GET of `/` at `a`, on the first stream.
const REQUEST: [u8; 15] = [0, 0, 6, 1, 5, 0, 0, 0, 1, 0x82, 0x86, 0x84, 1, 1, b'a'];

#[test]
fn a_peer_that_answers_no_ping_of_a_drain_is_ended() {
    virtually(async {
        let (mut peer, io) = duplex(64 * 1024);
        let config = Config {
            timeouts: inside(),
            ..Config::new(Protocol::Http2)
        };
        let mut server = server::Connection::new(io, config);
        silent_client(&mut peer, &[]).await;
        server.drain();
        let driver = spawn_local(async move { server.next().await.map(|_| ()) });
        let start = tokio::time::Instant::now();
        // It is there, but it says nothing that would end the drain.
        let ping = [0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
        while !driver.is_finished() && start.elapsed() < Duration::from_secs(60) {
            let _ = peer.write_all(&ping).await;
            sleep(Duration::from_secs(3)).await;
        }
        assert!(start.elapsed() >= Duration::from_secs(20));
        assert!(driver.is_finished());
        let ended = driver.await.expect("no panic");
        assert!(matches!(ended, Err(ConnectionError::IdleTimeout)));
        let mut told = Vec::new();
        peer.read_to_end(&mut told).await.expect("it was written");
        // No request came, and none will be taken.
        let last = [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        assert!(told.ends_with(&last), "{told:?}");
    });
}

#[test]
fn a_silent_stream_outlives_a_drain_that_nobody_answers() {
    virtually(async {
        let (mut peer, io) = duplex(64 * 1024);
        let config = Config {
            timeouts: inside(),
            ..Config::new(Protocol::Http2)
        };
        let mut server = server::Connection::new(io, config);
        silent_client(&mut peer, &REQUEST).await;
        let (_, exchange) = server.next().await.expect("no fault").expect("one");
        server.drain();
        let driver = spawn_local(async move { server.next().await.map(|_| ()) });
        sleep(Duration::from_secs(3600)).await;
        assert!(!driver.is_finished());
        let replied = exchange.reply(Status::OK, &[], Length::None);
        replied.expect("it is open");
        drop(exchange);
        sleep(Duration::from_secs(15)).await;
        assert!(!driver.is_finished(), "the peer has its time");
        sleep(Duration::from_secs(15)).await;
        assert!(driver.is_finished());
    });
}

#[test]
fn a_drained_peer_may_take_its_last_answer_slowly_and_pause_for_an_hour() {
    for protocol in PROTOCOLS {
        for reads in [false, true] {
            virtually(async {
                let (mut peer, io) = duplex(1024);
                let config = Config {
                    timeouts: inside(),
                    ..Config::new(protocol)
                };
                let mut server = server::Connection::new(io, config);
                let driver = spawn_local(async move {
                    let (_, exchange) = server.next().await?.expect("one");
                    server.drain();
                    let replied = exchange.reply(Status::OK, &[], Length::Known(40_000));
                    replied.expect("it is open");
                    let answer = spawn_local(async move {
                        exchange.send(vec![7; 40_000].into()).await?;
                        exchange.finish()
                    });
                    let next = server.next().await.map(|_| ());
                    answer.await.expect("no panic").expect("it had room");
                    next
                });
                match protocol {
                    Protocol::Http1 => {
                        let request = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";
                        peer.write_all(request).await.expect("there is room");
                    }
                    Protocol::Http2 => silent_client(&mut peer, &REQUEST).await,
                }
                let start = tokio::time::Instant::now();
                let (mut buffer, mut length) = ([0; 1024], 0);
                while !driver.is_finished() && start.elapsed() < Duration::from_secs(7200) {
                    sleep(Duration::from_secs(10)).await;
                    if reads {
                        length += peer.read(&mut buffer).await.expect("no fault");
                    }
                }
                let took = start.elapsed();
                assert!(driver.is_finished(), "{protocol:?} {reads}");
                match reads {
                    true => {
                        assert!(length > 40_000, "{protocol:?} {length} {took:?}");
                        assert!(took > Duration::from_secs(390), "{protocol:?} {took:?}");
                    }
                    false => {
                        assert!(took > Duration::from_secs(3590), "{protocol:?} {took:?}");
                        assert!(took < Duration::from_secs(3700), "{protocol:?} {took:?}");
                    }
                }
            });
        }
    }
}

#[test]
fn header_blocks_that_come_one_after_the_other_have_a_minute_each() {
    virtually(async {
        let (mut peer, io) = duplex(64 * 1024);
        let config = Config {
            timeouts: inside(),
            ..Config::new(Protocol::Http2)
        };
        let mut server = server::Connection::new(io, config);
        let driver = spawn_local(async move {
            let mut exchanges = Vec::new();
            while let Some(next) = server.next().await? {
                exchanges.push(next);
            }
            Ok::<_, ConnectionError>(exchanges.len())
        });
        peer.write_all(&preface()).await.expect("there is room");
        // Every check finds a block under way, and each is whole half a minute later.
        for stream in 0..6 {
            let head = [0, 0, 4, 1, 5, 0, 0, 0, 2 * stream + 1, 0x82, 0x86];
            peer.write_all(&head).await.expect("there is room");
            sleep(Duration::from_secs(30)).await;
            // The path, and an authority from the static table without a value.
            peer.write_all(&[0x84, 0x81]).await.expect("there is room");
        }
        rest_of(&driver).await;
        assert!(!driver.is_finished());
    });
}

async fn rest_of<T>(driver: &tokio::task::JoinHandle<T>) {
    for _ in 0..10 {
        sleep(Duration::from_millis(100)).await;
        if driver.is_finished() {
            return;
        }
    }
}

/// Answers each request at its head, and gives back nothing of the connection's first window.
async fn stingy(mut io: DuplexStream) {
    let config = lateen_h2::Config {
        stream_first: 1 << 20,
        // Its credit for the connection is the 65,535 bytes that nobody can take back.
        allowance: 0,
        ..lateen_h2::Config::requests()
    };
    let mut http2 = lateen_h2::Connection::server(&config.share(), Timestamp::default());
    let mut buffer = vec![0; PIPE];
    loop {
        while http2.has_output() {
            let bytes: Vec<u8> = http2.output().flatten().copied().collect();
            http2.advance(bytes.len());
            if io.write_all(&bytes).await.is_err() {
                return;
            }
        }
        let Ok(length @ 1..) = io.read(&mut buffer).await else {
            return;
        };
        let mut input = &buffer[..length];
        let mut asked = Vec::new();
        while let Ok(Some(event)) = http2.receive(&mut input, Timestamp::default()) {
            if let lateen_h2::Event::Request { stream, .. } = event {
                asked.push(stream);
            }
        }
        for stream in asked {
            let status = [Field::new(":status", "200")];
            http2
                .respond(stream, None, &status, true)
                .expect("it is open");
        }
    }
}

#[test]
fn the_rest_of_an_answered_request_that_its_peer_does_not_take_is_given_up() {
    virtually(async {
        let idle = Duration::from_secs(300);
        let (ours, theirs) = duplex(PIPE);
        let timeouts = Timeouts {
            idle: Some(idle),
            // As at a waypoint.
            ping_after: Duration::MAX / 2,
            ..Timeouts::default()
        };
        let patience = 2 * timeouts.ping_timeout + timeouts.check_interval;
        let config = Config {
            timeouts: Some(timeouts),
            http2: lateen_h2::Config {
                max_streams: 3,
                ..lateen_h2::Config::requests()
            }
            .share(),
            ..Config::new(Protocol::Http2)
        };
        let (handle, connection) = client::open(ours, config);
        let driver = spawn_local(connection);
        spawn_local(stingy(theirs));
        let account = Account::new(1 << 20);
        // The first one uses the window up. The content of the others waits for more.
        for length in [65_535, 8192, 10, 10] {
            let chunked = head("POST", "/", &[("transfer-encoding", "chunked")]);
            let exchange = handle.request(&chunked, None).expect("it is ready");
            exchange.charge(&account);
            let content = Bytes::from(vec![7; length]);
            exchange.send(content).await.expect("it is open");
            exchange.finish().expect("it is open");
            answer(&exchange).await.expect("an answer");
        }
        sleep(Duration::from_secs(1)).await;
        assert!(!handle.is_ready() && account.held() > 0);
        sleep(patience).await;
        assert!(handle.is_ready(), "they are reset");
        assert_eq!(account.held(), 0);
        // Nobody uses it, and it says nothing.
        sleep(2 * idle).await;
        assert!(handle.is_closed() && driver.is_finished());
    });
}
