//! Memory accounts: heads that have not ended, and trailers. Time is virtual: a sleep ends when nothing else moves.

mod common;

use std::rc::Rc;
use std::time::Duration;

use common::{
    Exchanges, KIB, PIPE, answer, charged, content, head, keep, preface, rest, trailers, virtually,
};
use lateen_exchange::{Account, BUFFER, Config, ConnectionError, Error, Protocol, client, server};
use lateen_h2::Code;
use lateen_http::{Length, Status};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::sleep;

/// A peer that writes bytes by hand, and the end of its server's connection.
type Raw = (DuplexStream, JoinHandle<Result<(), ConnectionError>>);

/// A connection of a peer that writes these bytes by hand.
async fn raw(protocol: Protocol, account: &Account, bytes: &[u8], exchanges: &Exchanges) -> Raw {
    let (mut peer, theirs) = duplex(PIPE);
    let config = Config {
        account: Some(account.clone()),
        ..Config::new(protocol)
    };
    let mut server = server::Connection::new(theirs, config);
    let exchanges = Rc::clone(exchanges);
    let driver = spawn_local(async move {
        while let Some((_, exchange)) = server.next().await? {
            exchanges.borrow_mut().push(exchange);
        }
        Ok(())
    });
    peer.write_all(bytes).await.expect("there is room");
    (peer, driver)
}

/// The head of a request with a field of so many bytes, without its end.
fn begun1(bytes: usize) -> Vec<u8> {
    let value = "v".repeat(bytes);
    format!("GET / HTTP/1.1\r\nhost: a\r\nx: {value}\r\n").into_bytes()
}

/// A frame of the first stream.
fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("it is short");
    let [_, length @ ..] = length.to_be_bytes();
    [&length[..], &[kind, flags, 0, 0, 0, 1], payload].concat()
}

/// A request of HTTP/2 whose header block has come to so many bytes, without its end.
fn begun2(bytes: usize) -> Vec<u8> {
    // GET, http, / and the authority `a`; then a field `x`.
    let mut block = vec![0x82, 0x86, 0x84, 1, 1, b'a', 0, 1, b'x', 127];
    let mut left = bytes - 127;
    while left >= 128 {
        block.push((left % 128) as u8 | 128);
        left /= 128;
    }
    block.push(left as u8);
    block.resize(block.len() + bytes, b'v');
    let mut frames = preface();
    for (place, part) in block.chunks(16 * KIB).enumerate() {
        // HEADERS that end their stream, then CONTINUATION.
        let (kind, flags) = if place == 0 { (1, 1) } else { (9, 0) };
        frames.extend(frame(kind, flags, part));
    }
    frames
}

/// The end of what was begun.
fn end(protocol: Protocol) -> Vec<u8> {
    match protocol {
        Protocol::Http1 => b"\r\n".to_vec(),
        // CONTINUATION with END_HEADERS, and a field from the static table.
        Protocol::Http2 => frame(9, 4, &[0x90]),
    }
}

#[test]
fn heads_that_have_not_ended_count_until_they_end_or_their_connection_does() {
    for protocol in common::PROTOCOLS {
        virtually(async {
            let account = Account::new(4096 * KIB);
            let exchanges = Exchanges::default();
            let begun = match protocol {
                Protocol::Http1 => begun1(30 * KIB),
                Protocol::Http2 => begun2(30 * KIB),
            };
            let mut peers = Vec::new();
            for _ in 0..8 {
                peers.push(raw(protocol, &account, &begun, &exchanges).await);
            }
            rest().await;
            let held = account.held();
            assert!((8 * 30 * KIB..=8 * 40 * KIB).contains(&held), "{held}");
            drop(peers.split_off(4));
            rest().await;
            let held = account.held();
            assert!((4 * 30 * KIB..=4 * 40 * KIB).contains(&held), "{held}");
            for (peer, _) in &mut peers {
                let end = end(protocol);
                peer.write_all(&end).await.expect("there is room");
            }
            rest().await;
            assert_eq!(exchanges.borrow().len(), 4, "{protocol:?}");
            for exchange in exchanges.take() {
                let replied = exchange.reply(Status::OK, &[], Length::None);
                replied.expect("it is open");
            }
            rest().await;
            assert_eq!(account.held(), 0, "{protocol:?}");
            let goes_on = |(_, driver): &Raw| !driver.is_finished();
            assert!(peers.iter().all(goes_on), "{protocol:?}");
        });
    }
}

#[test]
fn heads_of_http1_that_wait_for_room_end_in_a_minute() {
    virtually(async {
        let account = Account::new(128 * KIB);
        let exchanges = Exchanges::default();
        let mut peers = Vec::new();
        for _ in 0..8 {
            peers.push(raw(Protocol::Http1, &account, &begun1(48 * KIB), &exchanges).await);
        }
        rest().await;
        // Requests have a half, and one read may go beyond.
        let held = account.held();
        assert!((48 * KIB..=64 * KIB + 2 * BUFFER).contains(&held), "{held}");
        assert!(account.waiting() > 0);
        sleep(Duration::from_secs(55)).await;
        assert!(peers.iter().all(|(_, driver)| !driver.is_finished()));
        // Each that ends makes room for others, which have their minute then.
        sleep(Duration::from_secs(8 * 70)).await;
        let mut starved = 0;
        for (_peer, driver) in peers {
            assert!(driver.is_finished());
            match driver.await.expect("no panic") {
                Err(ConnectionError::OverLimit) => starved += 1,
                Err(ConnectionError::HeadTimeout) => {}
                ended => panic!("{ended:?}"),
            }
        }
        assert!(starved > 0);
        assert_eq!((account.held(), account.waiting()), (0, 0));
    });
}

#[test]
fn header_blocks_go_beyond_the_limit_by_a_little_and_then_their_connections_end() {
    virtually(async {
        let account = Account::new(128 * KIB);
        let exchanges = Exchanges::default();
        let mut peers = Vec::new();
        for _ in 0..12 {
            peers.push(raw(Protocol::Http2, &account, &begun2(30 * KIB), &exchanges).await);
        }
        rest().await;
        assert!(account.held() > 128 * KIB, "{}", account.held());
        assert!(account.held() <= 192 * KIB, "{}", account.held());
        // Connections that end are read for a second, so that their peers can read why.
        sleep(Duration::from_secs(2)).await;
        let (ended, open): (Vec<_>, Vec<_>) = peers
            .into_iter()
            .partition(|(_, driver)| driver.is_finished());
        assert!((5..=7).contains(&open.len()), "{}", open.len());
        for (mut peer, driver) in ended {
            let error = driver.await.expect("no panic").expect_err("it has no room");
            assert!(matches!(error, ConnectionError::OverLimit), "{error}");
            let mut told = Vec::new();
            peer.read_to_end(&mut told).await.expect("it was written");
            // GOAWAY for ENHANCE_YOUR_CALM.
            assert_eq!(told.last(), Some(&11), "{told:?}");
        }
        // A head that is cut but small is served, whatever others hold.
        let small = begun2(2 * KIB);
        let (mut peer, _driver) = raw(Protocol::Http2, &account, &small, &exchanges).await;
        rest().await;
        let end = end(Protocol::Http2);
        peer.write_all(&end).await.expect("there is room");
        rest().await;
        assert_eq!(exchanges.take().len(), 1);
        drop((peer, open));
        rest().await;
        assert_eq!(account.held(), 0);
    });
}

#[test]
fn heads_of_answers_over_http1_that_have_not_ended_count() {
    virtually(async {
        let account = Account::new(1024 * KIB);
        let (mut peer, theirs) = duplex(PIPE);
        let (handle, connection) = client::open(theirs, Config::new(Protocol::Http1));
        let driver = spawn_local(connection);
        let exchange = handle.request(&head("GET", "/", &[]), None);
        let exchange = exchange.expect("it is ready");
        exchange.charge(&account);
        let value = "v".repeat(30 * KIB);
        let begun = format!("HTTP/1.1 200 OK\r\ncontent-length: 2\r\nx: {value}\r\n");
        peer.write_all(begun.as_bytes()).await.expect("room");
        rest().await;
        let held = account.held();
        assert!((30 * KIB..=40 * KIB).contains(&held), "{held}");
        peer.write_all(b"\r\nhi").await.expect("there is room");
        answer(&exchange).await.expect("an answer");
        assert_eq!(content(&exchange).await.expect("all of it"), &b"hi"[..]);
        assert_eq!(account.held(), 0);
        drop((exchange, handle, driver));
    });
}

const CHUNKED: [(&str, &str); 2] = [("transfer-encoding", "chunked"), ("te", "trailers")];

#[test]
fn trailers_of_requests_count_until_they_are_taken() {
    for protocol in common::PROTOCOLS {
        virtually(async {
            let account = Account::new(1024 * KIB);
            let exchanges = Exchanges::default();
            let mut requests = Vec::new();
            for _ in 0..4 {
                let (handle, server) = charged(protocol, Some(&account));
                keep(server, &exchanges);
                let request = handle.request(&head("POST", "/", &CHUNKED), None);
                let request = request.expect("it is ready");
                request
                    .finish_with(&trailers(30 * KIB))
                    .expect("it is open");
                requests.push((request, handle));
            }
            rest().await;
            let held = account.held();
            assert!(
                (4 * 30 * KIB..=4 * 40 * KIB).contains(&held),
                "{protocol:?} {held}"
            );
            let kept = exchanges.take();
            assert_eq!(kept.len(), 4);
            for exchange in &kept {
                assert_eq!(exchange.data().await.expect("no fault"), None);
                let trailers = exchange.trailers().expect("they came");
                assert_eq!(trailers.fields().len(), 1);
            }
            assert_eq!(account.held(), 0, "{protocol:?}");
            drop(kept);
        });
    }
}

#[test]
fn trailers_of_answers_count_until_they_are_taken_or_their_exchange_ends() {
    for protocol in common::PROTOCOLS {
        virtually(async {
            let account = Account::new(1024 * KIB);
            let mut exchanges = Vec::new();
            for _ in 0..4 {
                let (handle, server) = charged(protocol, None);
                common::serve(server, |_, exchange| async move {
                    exchange.reply(Status::OK, &[], Length::Delimited)?;
                    exchange.finish_with(&trailers(30 * KIB))
                });
                let exchange = handle.request(&head("GET", "/", &CHUNKED[1..]), None);
                let exchange = exchange.expect("it is ready");
                exchange.charge(&account);
                exchanges.push((exchange, handle));
            }
            rest().await;
            let held = account.held();
            assert!(
                (4 * 30 * KIB..=4 * 40 * KIB).contains(&held),
                "{protocol:?} {held}"
            );
            drop(exchanges.split_off(2));
            let held = account.held();
            assert!(
                (2 * 30 * KIB..=2 * 40 * KIB).contains(&held),
                "{protocol:?} {held}"
            );
            for (exchange, _) in &exchanges {
                answer(exchange).await.expect("an answer");
                assert_eq!(exchange.data().await.expect("no fault"), None);
                let trailers = exchange.trailers().expect("they came");
                assert_eq!(trailers.fields().len(), 1);
            }
            assert_eq!(account.held(), 0, "{protocol:?}");
        });
    }
}

#[test]
fn trailers_of_http2_that_have_no_room_end_their_exchange() {
    virtually(async {
        let account = Account::new(64 * KIB);
        let (handle, server) = charged(Protocol::Http2, None);
        common::serve(server, |_, exchange| async move {
            exchange.reply(Status::OK, &[], Length::Delimited)?;
            exchange.finish_with(&trailers(30 * KIB))
        });
        let exchanges: Vec<_> = (0..3)
            .map(|_| {
                let exchange = handle.request(&head("GET", "/", &CHUNKED[1..]), None);
                let exchange = exchange.expect("it is ready");
                exchange.charge(&account);
                exchange
            })
            .collect();
        rest().await;
        assert_eq!(account.held(), 64 * KIB);
        let mut ended = 0;
        for exchange in &exchanges {
            match exchange.data().await {
                Ok(data) => assert_eq!(data, None),
                Err(Error::OverLimit) => ended += 1,
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!(ended, 1);
        drop(exchanges);
        assert_eq!(account.held(), 0);
        assert!(handle.is_ready());
    });
}

#[test]
fn trailers_of_requests_over_http2_that_have_no_room_end_their_exchange() {
    virtually(async {
        let account = Account::new(64 * KIB);
        let exchanges = Exchanges::default();
        let mut requests = Vec::new();
        for _ in 0..3 {
            let (handle, server) = charged(Protocol::Http2, Some(&account));
            keep(server, &exchanges);
            let request = handle.request(&head("POST", "/", &CHUNKED), None);
            let request = request.expect("it is ready");
            request
                .finish_with(&trailers(30 * KIB))
                .expect("it is open");
            requests.push((request, handle));
        }
        rest().await;
        assert_eq!(account.held(), 64 * KIB);
        let [.., (late, _)] = &requests[..] else {
            panic!("there are three");
        };
        let error = answer(late).await.expect_err("it has no room");
        assert!(
            matches!(error, Error::Reset(Code::ENHANCE_YOUR_CALM)),
            "{error}"
        );
        exchanges.take();
        rest().await;
        assert_eq!(account.held(), 0);
    });
}
