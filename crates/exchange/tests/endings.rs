//! Ends of exchanges and connections: resets, drains, and the order of pipelined answers.

mod common;

use std::future::poll_fn;
use std::time::Duration;

use bytes::Bytes;
use common::{
    KIB, PIPE, PROTOCOLS, answer, canonical, content, head, local, pair, pattern, serve, text,
};
use lateen_exchange::{Config, ConnectionError, Error, Protocol, Timeouts, client, server};
use lateen_h2::Code;
use lateen_http::{Canonical, Length, Status};
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio::task::spawn_local;
use tokio::time::{sleep, timeout};

const CHUNKED: [(&str, &str); 1] = [("transfer-encoding", "chunked")];

#[test]
fn client_that_drops_its_request_resets_it() {
    for protocol in PROTOCOLS {
        local(async {
            let mut pair = pair(protocol);
            let exchange = pair.handle.request(&head("POST", "/", &CHUNKED), None);
            let exchange = exchange.expect("it is ready");
            exchange.send("half".into()).await.expect("it is open");
            let (_, incoming) = pair.server.next().await.expect("no fault").expect("one");
            let driver = spawn_local(async move { pair.server.next().await.map(|_| ()) });
            let data = incoming.data().await.expect("content");
            assert_eq!(data.as_deref(), Some(&b"half"[..]));
            drop(exchange);
            let error = incoming.data().await.expect_err("it is reset");
            match protocol {
                Protocol::Http2 => {
                    assert!(matches!(error, Error::Reset(Code::CANCEL)), "{error}");
                    drop(incoming);
                    assert!(pair.handle.is_ready());
                }
                Protocol::Http1 => {
                    let cut = matches!(
                        error,
                        Error::Connection(
                            ConnectionError::Http1(lateen_h1::Error::Truncated)
                                | ConnectionError::Io(_)
                        )
                    );
                    assert!(cut, "{error}");
                    assert!(pair.handle.is_closed());
                    let ended = pair.driver.await.expect("no panic");
                    assert!(matches!(ended, Err(ConnectionError::Abandoned)));
                }
            }
            drop(pair.handle);
            let ended = driver.await.expect("no panic");
            assert_eq!(ended.is_ok(), protocol == Protocol::Http2);
        });
    }
}

#[test]
fn server_that_drops_its_answer_never_completes_it() {
    for protocol in PROTOCOLS {
        for length in [Length::Delimited, Length::Known(9)] {
            local(async {
                let pair = pair(protocol);
                serve(pair.server, move |_, exchange| async move {
                    exchange.reply(Status::OK, &[], length)?;
                    exchange.send("half".into()).await?;
                    // The half has left by then.
                    sleep(Duration::from_millis(50)).await;
                    Ok(())
                });
                let exchange = pair.handle.request(&head("GET", "/", &[]), None);
                let exchange = exchange.expect("it is ready");
                answer(&exchange).await.expect("an answer");
                let data = exchange.data().await.expect("content");
                assert_eq!(data.as_deref(), Some(&b"half"[..]));
                let error = exchange.data().await.expect_err("it is cut");
                match error {
                    Error::Reset(code) => assert_eq!(code, Code::CANCEL),
                    Error::Connection(ConnectionError::Http1(error)) => {
                        assert_eq!(error, lateen_h1::Error::Truncated);
                    }
                    error => panic!("{error}"),
                }
            });
        }
    }
}

#[test]
fn reset_carries_its_code() {
    local(async {
        let pair = pair(Protocol::Http2);
        serve(pair.server, |_, exchange| async move {
            exchange.reset(Code::REFUSED_STREAM);
            assert!(exchange.reply(Status::OK, &[], Length::None).is_err());
            Ok(())
        });
        let exchange = pair.handle.request(&head("GET", "/", &[]), None);
        let error = exchange.expect("it is ready").answer().await;
        let error = error.expect_err("it is reset");
        assert!(matches!(error, Error::Reset(Code::REFUSED_STREAM)));
        assert!(error.is_unprocessed());
    });
}

#[test]
fn server_that_drains_answers_open_requests() {
    for protocol in PROTOCOLS {
        local(async {
            let mut pair = pair(protocol);
            let exchange = pair.handle.request(&head("GET", "/", &[]), None);
            let exchange = exchange.expect("it is ready");
            let (_, incoming) = pair.server.next().await.expect("no fault").expect("one");
            pair.server.drain();
            let driver = spawn_local(async move { pair.server.next().await.map(|_| ()) });
            sleep(Duration::from_millis(20)).await;
            assert!(!pair.handle.is_ready(), "{protocol:?}");
            incoming
                .reply(Status::OK, &[], Length::Known(2))
                .expect("it is open");
            incoming.send("ok".into()).await.expect("it is open");
            incoming.finish().expect("it is open");
            drop(incoming);
            answer(&exchange).await.expect("an answer");
            assert_eq!(content(&exchange).await.expect("content"), b"ok");
            drop(exchange);
            assert!(pair.handle.is_closed());
            let refused = pair.handle.request(&head("GET", "/", &[]), None);
            assert!(refused.expect_err("it is closing").is_unprocessed());
            pair.driver
                .await
                .expect("no panic")
                .expect("an orderly end");
            driver.await.expect("no panic").expect("an orderly end");
        });
    }
}

#[test]
fn client_that_drains_gets_its_answers() {
    for protocol in PROTOCOLS {
        local(async {
            let pair = pair(protocol);
            let server = serve(pair.server, |_, exchange| async move {
                sleep(Duration::from_millis(20)).await;
                exchange.reply(Status::OK, &[], Length::Known(2))?;
                exchange.send("ok".into()).await?;
                exchange.finish()
            });
            let exchange = pair.handle.request(&head("GET", "/", &[]), None);
            let exchange = exchange.expect("it is ready");
            drop(pair.handle);
            answer(&exchange).await.expect("an answer");
            assert_eq!(content(&exchange).await.expect("content"), b"ok");
            drop(exchange);
            pair.driver
                .await
                .expect("no panic")
                .expect("an orderly end");
            server.await.expect("no panic").expect("an orderly end");
        });
    }
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    local(async {
        let (mut peer, io) = duplex(PIPE);
        let server = server::Connection::new(io, Config::new(Protocol::Http1));
        let server = serve(server, |request, exchange| async move {
            let Canonical::Request(head) = canonical(request) else {
                panic!("a request")
            };
            let path = Bytes::copy_from_slice(head.path().target());
            // The first ones take longest.
            let number = u64::from(path[1] - b'0');
            sleep(Duration::from_millis(30 - 10 * number)).await;
            let body = content(&exchange).await?;
            exchange.reply(Status::OK, &[], Length::Delimited)?;
            exchange.send(path).await?;
            exchange.send(body.into()).await?;
            exchange.finish()
        });
        let requests = b"GET /0 HTTP/1.1\r\nhost: a\r\n\r\n\
            POST /1 HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\n\r\n!\
            GET /2 HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
        peer.write_all(requests).await.expect("there is room");
        let answers = text(&mut peer).await;
        let at = |needle| answers.find(needle).expect("it is answered");
        assert!(at("\r\n/0\r\n") < at("\r\n/1\r\n"), "{answers}");
        assert!(at("\r\n/1\r\n") < at("\r\n/2\r\n"), "{answers}");
        assert_eq!(answers.matches("HTTP/1.1 200 OK").count(), 3);
        assert_eq!(answers.matches("connection: close").count(), 1);
        drop(peer);
        server.await.expect("no panic").expect("an orderly end");
    });
}

#[test]
fn peer_that_closes_within_a_request_ends_it() {
    local(async {
        let (mut peer, io) = duplex(PIPE);
        let mut server = server::Connection::new(io, Config::new(Protocol::Http1));
        let request = b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\nhalf";
        peer.write_all(request).await.expect("there is room");
        let (_, exchange) = server.next().await.expect("no fault").expect("one");
        drop(peer);
        let ended = server.next().await.map(|_| ());
        assert!(matches!(
            ended,
            Err(ConnectionError::Http1(lateen_h1::Error::Truncated))
        ));
        assert_eq!(
            exchange.data().await.expect("content").as_deref(),
            Some(&b"half"[..])
        );
        assert!(exchange.data().await.is_err());
    });
}

#[test]
fn http1_client_that_ends_its_direction_is_answered_or_gone_as_the_configuration_says() {
    for half_close in [true, false] {
        local(async {
            let (near, mut peer) = duplex(PIPE);
            let config = Config {
                half_close,
                ..Config::new(Protocol::Http1)
            };
            let mut server = server::Connection::new(near, config);
            let request = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";
            peer.write_all(request).await.expect("it is open");
            let (_, exchange) = server.next().await.expect("no fault").expect("one");
            let driver = spawn_local(async move { server.next().await.map(|_| ()) });
            peer.shutdown().await.expect("it is open");
            let gone = timeout(
                Duration::from_millis(100),
                poll_fn(|cx| exchange.poll_gone(cx)),
            );
            let gone = gone.await.ok();
            assert_eq!(gone.is_none(), half_close);
            let replied = exchange.reply(Status::OK, &[], Length::Known(0));
            assert_eq!(replied.is_ok(), half_close);
            if half_close {
                exchange.finish().expect("it is open");
            } else {
                let gone = gone.expect("the client is gone");
                assert!(matches!(
                    gone,
                    Error::Connection(ConnectionError::ClosedByPeer)
                ));
            }
            drop(exchange);
            let mut answer = String::new();
            peer.read_to_string(&mut answer).await.expect("text");
            assert_eq!(answer.starts_with("HTTP/1.1 200 "), half_close, "{answer}");
            assert_eq!(driver.await.expect("no panic").is_ok(), half_close);
        });
    }
}

#[test]
fn idle_peers_that_close_end_in_order() {
    for protocol in PROTOCOLS {
        local(async {
            let mut pair = pair(protocol);
            pair.driver.abort();
            let _ = pair.driver.await;
            let next = pair.server.next().await;
            assert!(next.expect("no fault").is_none(), "{protocol:?}");
            let refused = pair.handle.request(&head("GET", "/", &[]), None);
            assert!(matches!(refused, Err(Error::NotTaken(_))));
        });
    }
}

#[test]
fn http1_server_that_has_drained_does_not_wait_for_a_peer_that_stays() {
    local(async {
        let (_peer, io) = duplex(4096);
        let mut config = Config::new(Protocol::Http1);
        config.timeouts = Some(Timeouts {
            check_interval: Duration::from_millis(10),
            linger: Duration::from_millis(50),
            ..Timeouts::default()
        });
        let mut server = server::Connection::new(io, config);
        server.drain();
        let next = server.next().await.expect("no fault");
        assert!(next.is_none(), "it takes no further requests");
    });
}

#[test]
fn answer_may_come_before_the_request_is_complete() {
    for protocol in PROTOCOLS {
        local(async {
            let pair = pair(protocol);
            serve(pair.server, |_, exchange| async move {
                exchange.reply(Status::new(413).expect("three digits"), &[], Length::None)
            });
            let exchange = pair.handle.request(&head("POST", "/", &CHUNKED), None);
            let exchange = exchange.expect("it is ready");
            exchange.send("half".into()).await.expect("it is open");
            let answer = answer(&exchange).await.expect("an answer");
            assert_eq!(answer.status().code(), 413, "{protocol:?}");
            assert_eq!(exchange.data().await.expect("an end"), None);
        });
    }
}

/// The answer has more content than may wait for its reader, so the client pauses reading while its writes fail.
#[test]
fn answer_of_an_http1_server_that_closes_without_reading_the_request_arrives_whole() {
    const PIECE: usize = 200 * KIB;
    for length in [Some(5 * PIECE), None] {
        local(async {
            let (near, mut peer) = duplex(1024 * KIB);
            let (handle, connection) = client::open(near, Config::new(Protocol::Http1));
            let driver = spawn_local(connection);
            let length = length.map(|length| length.to_string());
            let fields = match &length {
                Some(length) => [("content-length", &length[..])],
                None => CHUNKED,
            };
            let exchange = handle.request(&head("POST", "/", &fields), None);
            let exchange = exchange.expect("it is ready");
            let said = pattern(300 * KIB);
            let told = format!(
                "HTTP/1.1 413 Content Too Large\r\ncontent-length: {}\r\n\r\n",
                said.len()
            );
            peer.write_all(told.as_bytes()).await.expect("it is open");
            peer.write_all(&said).await.expect("it is open");
            drop(peer);
            // More than may wait for the wire: the exchange waits for room, and has it although nothing is written.
            for _ in 0..5 {
                exchange.send(pattern(PIECE)).await.expect("it is open");
            }
            exchange.finish().expect("it is open");
            let answer = answer(&exchange).await.expect("an answer");
            assert_eq!(answer.status().code(), 413);
            assert_eq!(content(&exchange).await.expect("content"), said);
            drop(exchange);
            assert!(handle.is_closed() && !handle.is_ready());
            driver.await.expect("no panic").expect("an orderly end");
        });
    }
}
