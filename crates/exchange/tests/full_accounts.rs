//! Memory accounts that are full: what still passes, and what is refused. Time is virtual: a sleep ends when nothing else moves.

mod common;

use bytes::Bytes;
use common::{
    Exchanges, KIB, PIPE, PROTOCOLS, SETTINGS, answer, charged, content, head, keep, patient,
    pattern, preface, rest, virtually,
};
use lateen_exchange::{Account, Config, Error, Hold, Protocol, client, server};
use lateen_http::{
    FieldName, FieldValue, Length, Limits, PeerKind, RawTrailers, Status, Trailers, Version,
};
use tokio::io::{AsyncWriteExt, DuplexStream, duplex};
use tokio::task::spawn_local;

/// Clients whose uploads nobody reads, until the account has no room for requests.
async fn fill(account: &Account, exchanges: &Exchanges) -> Vec<client::Handle> {
    let mut handles = Vec::new();
    for _ in 0..16 {
        let (handle, server) = charged(Protocol::Http1, Some(account));
        keep(server, exchanges);
        let chunked = head("POST", "/", &[("transfer-encoding", "chunked")]);
        let exchange = handle.request(&chunked, None).expect("it is ready");
        spawn_local(async move {
            let _ = exchange.send(pattern(512 * KIB)).await;
            std::future::pending::<()>().await;
        });
        handles.push(handle);
    }
    rest().await;
    assert!(account.held() >= 128 * KIB, "{}", account.held());
    handles
}

/// A client that reads no answers, which take the rest of the account.
async fn fill_rest(account: &Account) -> DuplexStream {
    let (peer, exchanges) = deaf(account, 100).await;
    let mut left = exchanges.take();
    // The pipe takes the first 64 KiB.
    for exchanges in [left.split_off(50), left] {
        for exchange in exchanges {
            let _ = exchange.reply(Status::OK, &[long(3 * KIB)], Length::None);
        }
        rest().await;
    }
    let least = account.limit() - 8 * KIB;
    assert!(account.held() >= least, "{}", account.held());
    peer
}

/// Clients that leave the account no room, until they are dropped.
async fn full(account: &Account) -> (Vec<client::Handle>, Exchanges, DuplexStream) {
    let exchanges = Exchanges::default();
    let handles = fill(account, &exchanges).await;
    (handles, exchanges, fill_rest(account).await)
}

#[test]
fn small_messages_of_http1_pass_though_others_fill_the_account() {
    virtually(async {
        let process = Account::new(256 * KIB);
        let _others = full(&process.within(256 * KIB)).await;

        let own = process.within(256 * KIB);
        let (handle, server) = charged(Protocol::Http1, Some(&own));
        let (upstream, origin) = charged(Protocol::Http1, None);
        common::serve(origin, |_, exchange| async move {
            exchange.reply(Status::OK, &[], Length::Known(64 * 1024))?;
            exchange.send(pattern(64 * KIB)).await?;
            exchange.finish()
        });
        let account = own.clone();
        common::serve(server, move |_, exchange| {
            let (upstream, account) = (upstream.clone(), account.clone());
            async move {
                let above = upstream.request(&head("GET", "/", &[]), None)?;
                above.charge(&account);
                answer(&above).await?;
                exchange.reply(Status::OK, &[], Length::Delimited)?;
                while let Some(bytes) = above.data().await? {
                    exchange.send(bytes).await?;
                }
                exchange.finish()
            }
        });
        for _ in 0..3 {
            let asked = handle.request(&head("GET", "/", &[]), None);
            let asked = asked.expect("it is ready");
            assert_eq!(
                answer(&asked).await.expect("an answer").status(),
                Status::OK
            );
            let came = content(&asked).await.expect("content");
            assert_eq!(came.len(), 64 * KIB);
            drop(asked);
            rest().await;
        }
    });
}

/// A server that reads no more than the pipe holds, and has granted large windows.
async fn deaf_endpoint(protocol: Protocol) -> (client::Handle, DuplexStream) {
    let (ours, mut theirs) = duplex(KIB);
    let (handle, connection) = client::open(ours, patient(protocol));
    spawn_local(connection);
    if protocol == Protocol::Http2 {
        // INITIAL_WINDOW_SIZE, and a WINDOW_UPDATE of the connection.
        let settings = [0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, 0x7f, 0xff, 0xff, 0xff];
        let grant = [0, 0, 4, 8, 0, 0, 0, 0, 0, 0x7f, 0xff, 0, 0];
        let acknowledged = &SETTINGS[9..];
        let said = [&settings[..], &grant, acknowledged].concat();
        theirs.write_all(&said).await.expect("there is room");
        rest().await;
    }
    (handle, theirs)
}

/// An upload in pieces of 1 KiB, as many as there is room for. Turns of the timer make frames meanwhile.
async fn upload(handle: &client::Handle, account: &Account) -> client::Exchange {
    let chunked = head("POST", "/", &[("transfer-encoding", "chunked")]);
    let exchange = handle.request(&chunked, None).expect("it is ready");
    exchange.charge(account);
    let long = std::time::Duration::from_secs(5);
    while let Ok(sent) = tokio::time::timeout(long, exchange.send(pattern(KIB))).await {
        sent.expect("it is open");
    }
    exchange
}

#[test]
fn uploads_that_nobody_takes_wait_with_little_each_while_their_account_is_full() {
    // HTTP/2 has frames beside: 4 KiB, and those that one queue fills them up with.
    for (protocol, most) in [(Protocol::Http1, 8 * KIB), (Protocol::Http2, 16 * KIB)] {
        virtually(async {
            let process = Account::new(256 * KIB);
            let _others = full(&process.within(256 * KIB)).await;
            let own = process.within(256 * KIB);
            // One after the other they would be over before the last one is full.
            let uploads: Vec<_> = (0..10)
                .map(|_| {
                    let own = own.clone();
                    spawn_local(async move {
                        let (handle, server) = deaf_endpoint(protocol).await;
                        (upload(&handle, &own).await, server)
                    })
                })
                .collect();
            let mut ends = Vec::new();
            for upload in uploads {
                ends.push(upload.await.expect("no panic"));
            }
            let held = own.held();
            assert!(held <= 10 * most, "{protocol:?}: {held}");
            assert!(held >= 10 * 4 * KIB, "{protocol:?}: {held}");
        });
    }
}

#[test]
fn an_early_answer_is_read_though_the_account_is_full_and_content_waits() {
    for protocol in PROTOCOLS {
        virtually(async {
            let process = Account::new(256 * KIB);
            let _others = full(&process.within(256 * KIB)).await;
            let mut rest = Hold::new(&process);
            let _ = rest.raise(16 * KIB);
            let (handle, mut server) = deaf_endpoint(protocol).await;
            let exchange = upload(&handle, &process.within(256 * KIB)).await;
            let head: &[u8] = match protocol {
                Protocol::Http1 => b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n",
                // HEADERS with END_HEADERS: status 200. DATA of 1000 bytes follows.
                Protocol::Http2 => &[
                    0, 0, 1, 1, 4, 0, 0, 0, 1, 0x88, 0, 3, 0xe8, 0, 1, 0, 0, 0, 1,
                ],
            };
            let said = [head, &[7; 1000]].concat();
            // The pipe holds less.
            spawn_local(async move {
                let _ = server.write_all(&said).await;
                std::future::pending::<()>().await;
            });
            let answered = answer(&exchange).await.expect("an answer");
            assert_eq!(answered.status(), Status::OK);
            assert_eq!(content(&exchange).await.expect("content").len(), 1000);
        });
    }
}

#[test]
fn an_answer_passes_though_its_account_is_full_and_the_request_holds_what_is_free() {
    virtually(async {
        let process = Account::new(256 * KIB);
        let _others = full(&process.within(256 * KIB)).await;
        let (handle, server) = charged(Protocol::Http1, Some(&process.within(256 * KIB)));
        let kept = Exchanges::default();
        keep(server, &kept);
        let chunked = head("POST", "/", &[("transfer-encoding", "chunked")]);
        let upload = handle.request(&chunked, None).expect("it is ready");
        let _ = upload.send(pattern(100 * KIB)).await;
        rest().await;
        let exchange = kept.take().pop().expect("a request");
        exchange
            .reply(Status::OK, &[long(2 * KIB)], Length::Known(0))
            .expect("it has room");
        exchange.finish().expect("it has room");
        assert_eq!(
            answer(&upload).await.expect("an answer").status(),
            Status::OK
        );
    });
}

#[test]
fn open_requests_of_several_connections_are_bounded() {
    virtually(async {
        // One for every 2 KiB, beside the first of each connection.
        let account = Account::new(64 * KIB);
        let exchanges = Exchanges::default();
        let small = head("GET", "/", &[]);
        let mut open = Vec::new();
        for _ in 0..8 {
            let (handle, server) = charged(Protocol::Http2, Some(&account));
            keep(server, &exchanges);
            for _ in 0..20 {
                open.push(handle.request(&small, None).expect("it is ready"));
            }
            rest().await;
        }
        assert_eq!(exchanges.borrow().len(), 8 + 32);
        exchanges.take();
        drop(open);
        rest().await;
        let (handle, server) = charged(Protocol::Http2, Some(&account));
        keep(server, &exchanges);
        let again: Vec<_> = (0..20)
            .map(|_| handle.request(&small, None).expect("it is ready"))
            .collect();
        rest().await;
        assert_eq!(exchanges.borrow().len(), again.len());
    });
}

/// A client of HTTP/2 that asks for so many answers and reads none, and the exchanges of its server.
async fn deaf(account: &Account, requests: u32) -> (DuplexStream, Exchanges) {
    let (mut peer, theirs) = duplex(PIPE);
    let config = Config {
        account: Some(account.clone()),
        ..Config::new(Protocol::Http2)
    };
    let exchanges = Exchanges::default();
    keep(server::Connection::new(theirs, config), &exchanges);
    let mut bytes = preface();
    for number in 0..requests {
        // GET, http, / and the authority `a`, which ends the stream.
        let block = [0x82, 0x86, 0x84, 1, 1, b'a'];
        bytes.extend([0, 0, block.len() as u8, 1, 5]);
        bytes.extend((number * 2 + 1).to_be_bytes());
        bytes.extend(block);
    }
    peer.write_all(&bytes).await.expect("there is room");
    rest().await;
    assert_eq!(exchanges.borrow().len(), requests as usize);
    (peer, exchanges)
}

/// A field whose value has so many bytes.
fn long(bytes: usize) -> (FieldName, FieldValue) {
    let name = FieldName::new("x").expect("a name");
    let value = FieldValue::new(vec![b'v'; bytes]).expect("a value");
    (name, value)
}

fn trailers(bytes: usize) -> Trailers {
    let text = Bytes::from(format!("x-note{}", "v".repeat(bytes)));
    let length = text.len();
    let mut raw = RawTrailers::new(text, Version::Http11, Limits::default()).expect("it is short");
    raw.field(0..6, 6..length).expect("it is good");
    raw.canonical()
}

#[test]
fn heads_of_answers_that_nobody_reads_stay_within_the_account() {
    for bytes in [3 * KIB, 50 * KIB] {
        virtually(async {
            let account = Account::new(1024 * KIB);
            let mut peers = Vec::new();
            let (mut sent, mut refused) = (0, 0);
            for _ in 0..20 {
                let (peer, exchanges) = deaf(&account, 100).await;
                for exchange in exchanges.take() {
                    match exchange.reply(Status::OK, &[long(bytes)], Length::None) {
                        Ok(()) => sent += 1,
                        Err(Error::OverLimit) => refused += 1,
                        Err(error) => panic!("{error}"),
                    }
                }
                rest().await;
                peers.push(peer);
                // Beside the limit, 4 KiB of each connection may wait.
                let most = 1024 * KIB + 8 * KIB * peers.len();
                assert!(account.held() <= most, "{}", account.held());
            }
            assert!(sent * bytes >= 512 * KIB, "{sent} of {bytes} bytes");
            assert!(refused > 0, "{sent} of {bytes} bytes");
            drop(peers);
            rest().await;
            assert_eq!(account.held(), 0);
        });
    }
}

#[test]
fn trailers_that_nobody_reads_stay_within_the_account() {
    virtually(async {
        let account = Account::new(1024 * KIB);
        let mut peers = Vec::new();
        let mut refused = 0;
        for _ in 0..20 {
            let (peer, exchanges) = deaf(&account, 100).await;
            for exchange in exchanges.take() {
                let begun = exchange.reply(Status::OK, &[], Length::Delimited);
                let finished = begun.and_then(|()| exchange.finish_with(&trailers(10 * KIB)));
                match finished {
                    Ok(()) => {}
                    Err(Error::OverLimit) => refused += 1,
                    Err(error) => panic!("{error}"),
                }
            }
            rest().await;
            peers.push(peer);
            let most = 1024 * KIB + 8 * KIB * peers.len();
            assert!(account.held() <= most, "{}", account.held());
        }
        assert!(refused > 0);
    });
}

#[test]
fn trailers_behind_content_that_nobody_reads_stay_within_the_account() {
    virtually(async {
        let account = Account::new(1024 * KIB);
        let mut peers = Vec::new();
        let mut refused = 0;
        for _ in 0..20 {
            let (peer, exchanges) = deaf(&account, 100).await;
            let mut exchanges = exchanges.take().into_iter();
            let first = exchanges.next().expect("a request");
            let begun = first.reply(Status::OK, &[], Length::Delimited);
            if begun.is_ok() {
                // It takes the window of the connection.
                let _ = first.send(pattern(65_535)).await;
            }
            rest().await;
            for exchange in exchanges {
                let begun = exchange.reply(Status::OK, &[], Length::Delimited);
                let sent = match begun {
                    Ok(()) => exchange.send(pattern(1)).await,
                    refused => refused,
                };
                match sent.and_then(|()| exchange.finish_with(&trailers(10 * KIB))) {
                    Ok(()) => {}
                    Err(Error::OverLimit) => refused += 1,
                    Err(error) => panic!("{error}"),
                }
            }
            rest().await;
            peers.push(peer);
            let most = 1024 * KIB + 8 * KIB * peers.len();
            assert!(account.held() <= most, "{}", account.held());
        }
        assert!(refused > 0);
        drop(peers);
        rest().await;
        assert_eq!(account.held(), 0);
    });
}

#[test]
fn informational_heads_that_nobody_reads_stay_within_the_account() {
    virtually(async {
        let account = Account::new(1024 * KIB);
        let mut kept = Vec::new();
        let note = common::informational(103, &"v".repeat(50 * KIB));
        for number in 1..=60 {
            let (peer, exchanges) = deaf(&account, 1).await;
            let exchange = exchanges.take().pop().expect("a request");
            // One without room is left out, as an intermediary may do (RFC 9110 §15.2).
            for _ in 0..3 {
                exchange.inform(&note).expect("it is open");
                rest().await;
            }
            kept.push((peer, exchange));
            let most = 1024 * KIB + 8 * KIB * number;
            assert!(account.held() <= most, "{}", account.held());
        }
        assert!(account.held() >= 512 * KIB, "{}", account.held());
    });
}

#[test]
fn an_awaited_100_passes_without_its_fields_though_the_account_is_full() {
    virtually(async {
        let process = Account::new(256 * KIB);
        let _others = full(&process.within(256 * KIB)).await;
        let (handle, server) = charged(Protocol::Http1, Some(&process.within(256 * KIB)));
        let kept = Exchanges::default();
        keep(server, &kept);
        let asks = head(
            "POST",
            "/",
            &[("content-length", "5"), ("expect", "100-continue")],
        );
        let upload = handle.request(&asks, None).expect("it is ready");
        rest().await;
        let exchange = kept.take().pop().expect("a request");
        let go_on = common::informational(100, &"v".repeat(50 * KIB));
        exchange.inform(&go_on).expect("it is open");
        let heard = upload.answer().await.expect("an answer");
        let heard = heard.canonical(None, PeerKind::Mesh).expect("it is good");
        assert_eq!(heard.status().code(), 100);
        assert_eq!(heard.fields().iter().count(), 0);
    });
}

#[test]
fn trailers_that_a_protocol_has_no_place_for_need_no_room() {
    virtually(async {
        let account = Account::new(32 * KIB);
        let (mut peer, theirs) = duplex(PIPE);
        let config = Config {
            account: Some(account.clone()),
            ..Config::new(Protocol::Http1)
        };
        let kept = Exchanges::default();
        keep(server::Connection::new(theirs, config), &kept);
        peer.write_all(b"GET / HTTP/1.0\r\n\r\n")
            .await
            .expect("there is room");
        rest().await;
        let exchange = kept.take().pop().expect("a request");
        exchange
            .reply(Status::OK, &[], Length::Delimited)
            .expect("it has room");
        exchange
            .send(pattern(100 * KIB))
            .await
            .expect("it has room");
        rest().await;
        assert!(account.held() > 32 * KIB, "{}", account.held());
        exchange
            .finish_with(&trailers(10 * KIB))
            .expect("they are dropped");
    });
}

#[test]
fn trailers_of_a_request_that_wait_behind_its_content_are_charged() {
    virtually(async {
        let account = Account::new(1024 * KIB);
        let (mut peer, ours) = duplex(PIPE);
        let (handle, connection) = client::open(ours, Config::new(Protocol::Http2));
        spawn_local(connection);
        peer.write_all(&SETTINGS).await.expect("there is room");
        rest().await;
        let chunked = head("POST", "/", &[("transfer-encoding", "chunked")]);
        // It takes the window of the connection.
        let first = handle.request(&chunked, None).expect("it is ready");
        first.send(pattern(65_535)).await.expect("it has a window");
        rest().await;
        let upload = handle.request(&chunked, None).expect("it is ready");
        upload.charge(&account);
        upload.send(pattern(1)).await.expect("it has a window");
        rest().await;
        let before = account.held();
        upload.finish_with(&trailers(50 * KIB)).expect("it is open");
        assert!(account.held() >= before + 50 * KIB, "{}", account.held());
        rest().await;
        assert!(account.held() >= before + 50 * KIB, "{}", account.held());
        drop(upload);
        rest().await;
        // They wait, since the request was complete.
        assert!(account.held() >= before + 50 * KIB, "{}", account.held());
        drop((peer, first, handle));
        rest().await;
        assert_eq!(account.held(), 0);
    });
}
