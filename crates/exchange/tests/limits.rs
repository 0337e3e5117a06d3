//! Bounds on what a peer can make this side hold, and answers to heads that exceed or break them.

mod common;

use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use common::{PIPE, PROTOCOLS, answer, head, informational, local, pair, text};
use lateen_exchange::{Account, BUFFER, Config, ConnectionError, Protocol, client, server};
use lateen_h2::{Field, Timestamp};
use lateen_http::{FieldName, FieldValue, Length, Status};
use tokio::io::{AsyncWriteExt, duplex};
use tokio::task::spawn_local;
use tokio::time::sleep;

/// A server behind raw bytes, and what it says of the connection in the end.
async fn ask_raw(request: &[u8]) -> (String, Result<(), ConnectionError>) {
    let (mut peer, io) = duplex(PIPE);
    let mut server = server::Connection::new(io, Config::new(Protocol::Http1));
    let driver = spawn_local(async move {
        let next = server.next().await?;
        assert!(next.is_none(), "the request is answered by the connection");
        Ok(())
    });
    peer.write_all(request).await.expect("there is room");
    let answer = text(&mut peer).await;
    drop(peer);
    (answer, driver.await.expect("no panic"))
}

#[test]
fn large_head_is_answered_with_431() {
    local(async {
        let mut request = b"GET / HTTP/1.1\r\nhost: a\r\nx: ".to_vec();
        request.resize(62 * 1024, b'x');
        let (told, ended) = ask_raw(&request).await;
        assert!(told.starts_with("HTTP/1.1 431 "), "{told}");
        assert!(told.contains("connection: close"));
        let error = ended.expect_err("the peer is at fault");
        assert!(matches!(
            error,
            ConnectionError::Http1(lateen_h1::Error::HeadTooLarge)
        ));

        let mut pair = pair(Protocol::Http2);
        let mut head = head("GET", "/", &[]);
        for number in 0..120 {
            let name = FieldName::new(&format!("x-{number}")).expect("a token");
            let value = FieldValue::new("v").expect("it is visible");
            head.add(&name, &value).expect("there is room");
        }
        let driver = spawn_local(async move { pair.server.next().await.map(|_| ()) });
        let exchange = pair.handle.request(&head, None).expect("it is ready");
        let answer = answer(&exchange).await.expect("an answer");
        assert_eq!(answer.status(), Status::HEADER_FIELDS_TOO_LARGE);
        drop((exchange, pair.handle));
        driver.await.expect("no panic").expect("an orderly end");
    });
}

#[test]
fn malformed_head_is_answered_with_400() {
    local(async {
        for (request, error) in [
            (
                &b"GET / HTTP/1.1\nhost: a\r\n\r\n"[..],
                lateen_h1::Error::BareLineFeed,
            ),
            (
                b"GET / HTTP/1.1\r\n\r\n",
                lateen_h1::Error::HostMissing,
            ),
            (
                b"GET / HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n",
                lateen_h1::Error::LengthAndCoding,
            ),
        ] {
            let (answer, ended) = ask_raw(request).await;
            assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
            let ConnectionError::Http1(cause) = ended.expect_err("the peer is at fault") else {
                panic!("the cause is named")
            };
            assert_eq!(cause, error);
        }
        // The codec takes any token; the message model refuses a registered method in other letters.
        let (answer, ended) = ask_raw(b"get / HTTP/1.1\r\nhost: a\r\n\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
        ended.expect("the answer ends it");
    });
}

#[test]
fn malformed_http2_head_is_answered_with_400_and_the_connection_goes_on() {
    local(async {
        let (mut peer, io) = duplex(PIPE);
        let mut server = server::Connection::new(io, Config::new(Protocol::Http2));
        let driver = spawn_local(async move {
            let (_, exchange) = server.next().await?.expect("the good request");
            exchange
                .reply(Status::OK, &[], Length::None)
                .expect("it is open");
            drop(exchange);
            assert_eq!(
                (server.next_refused(), server.next_refused()),
                (Some(400), None)
            );
            server.next().await.map(|_| ())
        });
        let config = lateen_h2::Config::requests().share();
        let mut client = lateen_h2::Connection::client(&config, Timestamp::default());
        for method in ["get", "GET"] {
            let fields = [
                Field::new(":method", method),
                Field::new(":scheme", "http"),
                Field::new(":authority", "a"),
                Field::new(":path", "/"),
            ];
            client.request(None, &fields, true).expect("it is ready");
        }
        let mut statuses = Vec::new();
        while statuses.len() < 2 {
            while client.has_output() {
                let bytes = client.output().flatten().copied().collect::<Vec<_>>();
                peer.write_all(&bytes).await.expect("there is room");
                client.advance(bytes.len());
            }
            let mut input = [0; 4096];
            let length = tokio::io::AsyncReadExt::read(&mut peer, &mut input)
                .await
                .expect("it is open");
            let mut input = &input[..length];
            while let Ok(Some(event)) = client.receive(&mut input, Timestamp::default()) {
                if let lateen_h2::Event::Response { status, .. } = event {
                    statuses.push(status);
                }
            }
        }
        assert_eq!(statuses, [400, 200]);
        drop(peer);
        driver.await.expect("no panic").expect("an orderly end");
    });
}

#[test]
fn malformed_content_is_answered_with_400_though_its_exchange_is_dropped() {
    local(async {
        // The answer needs many writes.
        let (mut peer, io) = duplex(8);
        let mut server = server::Connection::new(io, Config::new(Protocol::Http1));
        let driver = spawn_local(async move {
            let (_, exchange) = server.next().await?.expect("a request");
            let reader = spawn_local(async move { exchange.data().await.map(|_| ()) });
            let ended = server.next().await.map(|_| ());
            assert!(reader.await.expect("no panic").is_err());
            ended
        });
        let request = b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nx\r\n";
        peer.write_all(request).await.expect("it is read");
        // The exchange is dropped by then.
        sleep(Duration::from_millis(50)).await;
        let answer = text(&mut peer).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
        assert!(answer.ends_with("\r\n\r\n"), "{answer}");
        drop(peer);
        let ended = driver.await.expect("no panic");
        assert!(matches!(
            ended,
            Err(ConnectionError::Http1(lateen_h1::Error::ChunkSize))
        ));
    });
}

#[test]
fn reader_that_stops_bounds_the_buffer() {
    for protocol in PROTOCOLS {
        local(async {
            let mut pair = pair(protocol);
            let chunked = head("POST", "/", &[("transfer-encoding", "chunked")]);
            let exchange = pair.handle.request(&chunked, None);
            let exchange = exchange.expect("it is ready");
            let sender = spawn_local(async move {
                let mut sent = 0;
                while exchange.send(Bytes::from(vec![7; 16 * 1024])).await.is_ok() {
                    sent += 16 * 1024;
                    if sent >= 8 << 20 {
                        break;
                    }
                }
                exchange.finish().map(|()| exchange)
            });
            let (_, incoming) = pair.server.next().await.expect("no fault").expect("one");
            // The connection is driven on, and nobody reads.
            let idle = sleep(Duration::from_millis(200));
            tokio::select! {
                _ = pair.server.next() => panic!("there is one request"),
                () = idle => {}
            }
            let held = incoming.held();
            assert!(held >= 32 * 1024, "{protocol:?} {held}");
            assert!(held <= 64 * 1024 + BUFFER, "{protocol:?} {held}");
            assert!(!sender.is_finished());
            let driver = spawn_local(async move { pair.server.next().await.map(|_| ()) });
            let mut came = 0;
            while let Some(bytes) = incoming.data().await.expect("content") {
                came += bytes.len();
            }
            assert_eq!(came, 8 << 20);
            let exchange = sender.await.expect("no panic").expect("it was read");
            incoming
                .reply(Status::OK, &[], Length::None)
                .expect("it is open");
            answer(&exchange).await.expect("an answer");
            drop((incoming, exchange, pair.handle));
            let ended = driver.await.expect("no panic");
            assert!(ended.is_ok(), "{protocol:?} {ended:?}");
        });
    }
}

#[test]
fn peer_that_does_not_read_makes_the_sender_wait() {
    for protocol in PROTOCOLS {
        local(async {
            let mut pair = pair(protocol);
            let exchange = pair.handle.request(&head("GET", "/", &[]), None);
            let exchange = exchange.expect("it is ready");
            let (_, incoming) = pair.server.next().await.expect("no fault").expect("one");
            incoming
                .reply(Status::OK, &[], Length::Delimited)
                .expect("it is open");
            let driver = spawn_local(async move { pair.server.next().await.map(|_| ()) });
            let mut taken = 0;
            loop {
                let mut piece = Bytes::from(vec![7; 16 * 1024]);
                let sent = std::future::poll_fn(|cx| {
                    Poll::Ready(incoming.poll_send(cx, &mut piece).is_ready())
                });
                if !sent.await {
                    // The pipe moves on while nobody reads the answer.
                    sleep(Duration::from_millis(20)).await;
                    if !std::future::poll_fn(|cx| {
                        Poll::Ready(incoming.poll_send(cx, &mut piece).is_ready())
                    })
                    .await
                    {
                        break;
                    }
                }
                taken += 16 * 1024;
                assert!(taken < 4 << 20, "{protocol:?}");
            }
            drop(exchange);
            let gone = std::future::poll_fn(|cx| incoming.poll_gone(cx)).await;
            assert!(!gone.to_string().is_empty());
            driver.abort();
        });
    }
}

#[test]
fn informational_answers_do_not_pile_up_for_a_peer_that_does_not_read() {
    local(async {
        let (mut peer, io) = duplex(PIPE);
        let config = Config::new(Protocol::Http1);
        let most = config.send_buffer + 2 * PIPE;
        let mut server = server::Connection::new(io, config);
        peer.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
            .await
            .expect("there is room");
        let (_, exchange) = server.next().await.expect("no fault").expect("a request");
        let hints = informational(103, &"x".repeat(50_000));
        for _ in 0..1000 {
            exchange.inform(&hints).expect("it is open");
        }
        exchange
            .reply(Status::OK, &[], Length::Known(0))
            .expect("it is open");
        drop(exchange);
        spawn_local(async move { server.next().await.map(|_| ()) });
        peer.shutdown().await.expect("it is open");
        let told = text(&mut peer).await;
        assert!(told.contains("HTTP/1.1 200 OK"));
        assert!(told.len() <= most, "{}", told.len());
    });
}

#[test]
fn pipelined_requests_are_read_ahead_to_one_buffer_at_most() {
    local(async {
        let (mut peer, io) = duplex(16 * 1024);
        let mut server = server::Connection::new(io, Config::new(Protocol::Http1));
        let writer = spawn_local(async move {
            let request = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";
            let mut written = 0;
            while let Ok(Ok(())) =
                tokio::time::timeout(Duration::from_millis(300), peer.write_all(request)).await
            {
                written += request.len();
            }
            (written, peer)
        });
        let (_, exchange) = server.next().await.expect("no fault").expect("one");
        let (written, _peer) = tokio::select! {
            _ = server.next() => panic!("the first one is not answered"),
            written = writer => written.expect("no panic"),
        };
        assert!(written <= 16 * 1024 + 2 * BUFFER, "{written}");
        drop(exchange);
    });
}

#[test]
fn a_connection_of_http1_whose_content_has_not_left_takes_no_other_request() {
    local(async {
        let (mut peer, io) = duplex(1024);
        let (handle, connection) = client::open(io, Config::new(Protocol::Http1));
        let driver = spawn_local(connection);
        let account = Account::new(1 << 20);
        let fields = [("content-length", "204800")];
        let exchange = handle.request(&head("POST", "/", &fields), None);
        let exchange = exchange.expect("it is ready");
        exchange.charge(&account);
        let content = Bytes::from(vec![7; 204_800]);
        exchange.send(content).await.expect("there is room");
        // The peer answers, and reads nothing.
        let early = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
        peer.write_all(early).await.expect("there is room");
        answer(&exchange).await.expect("an answer");
        assert!(account.held() >= 196_608, "{}", account.held());
        drop(exchange);
        assert!(!handle.is_ready(), "nobody pays for what it holds");
        let ended = driver.await.expect("no panic");
        assert!(matches!(ended, Err(ConnectionError::Abandoned)));
        assert_eq!(account.held(), 0);
    });
}

#[test]
fn heads_that_an_endpoint_does_not_read_are_bounded_though_their_requests_are_over() {
    local(async {
        let (ours, _theirs) = duplex(PIPE);
        let (handle, connection) = client::open(ours, Config::new(Protocol::Http2));
        let _driver = spawn_local(connection);
        let value = "v".repeat(50 * 1024);
        let large = head("GET", "/", &[("x-large", &value)]);
        let mut made = 0;
        while made < 100 && handle.is_ready() {
            // A drop resets it.
            drop(handle.request(&large, None).expect("it is ready"));
            made += 1;
            tokio::task::yield_now().await;
        }
        // 64 KiB are in the pipe, and 256 KiB wait.
        assert!((5..=8).contains(&made), "{made}");
    });
}
