//! Memory accounts: frames of requests that an HTTP/2 server leaves unread. Time is virtual: a sleep ends when nothing else moves.

mod common;

use std::time::Duration;

use bytes::Bytes;
use common::{KIB, SETTINGS, connect, head, patient, rest, trailers, virtually};
use lateen_exchange::{Account, Hold, Protocol, client};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::task::spawn_local;
use tokio::time::timeout;

const PING: [u8; 17] = [0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];

/// A connection to a server that has read only what the pipe holds.
async fn deaf() -> (client::Handle, DuplexStream) {
    let (ours, mut theirs) = duplex(KIB);
    let (handle, connection) = client::open(ours, patient(Protocol::Http2));
    spawn_local(connection);
    theirs.write_all(&SETTINGS).await.expect("it is open");
    rest().await;
    (handle, theirs)
}

/// Reads so many bytes.
async fn read(server: &mut DuplexStream, bytes: usize) {
    let mut buffer = vec![0; bytes];
    server.read_exact(&mut buffer).await.expect("they come");
    rest().await;
}

/// Reads whatever comes.
async fn read_all(mut server: DuplexStream) {
    spawn_local(async move {
        let mut buffer = vec![0; 4096];
        while let Ok(1..) = server.read(&mut buffer).await {}
    });
    rest().await;
}

/// A request with a head of some 10 KiB.
fn large(handle: &client::Handle, account: &Account) -> client::Exchange {
    // Characters that the compression of HTTP/2 leaves as they are.
    let value = "X".repeat(10 * KIB);
    let request = head("GET", "/", &[("x-large", &value)]);
    let exchange = handle.request(&request, None).expect("it is ready");
    exchange.charge(account);
    exchange.finish().expect("it is open");
    exchange
}

#[test]
fn heads_of_dropped_requests_are_charged_until_the_server_reads_them() {
    virtually(async {
        let (handle, mut server) = deaf().await;
        let process = Account::new(64 << 20);
        let [one, other] = [(), ()].map(|()| process.within(16 << 20));
        for _ in 0..10 {
            for account in [&one, &other] {
                drop(large(&handle, account));
                rest().await;
            }
        }
        for account in [&one, &other] {
            let held = account.held();
            assert!((95 * KIB..=110 * KIB).contains(&held), "{held}");
        }
        // The frames in the front are gone, of each account.
        read(&mut server, 100 * KIB).await;
        for account in [&one, &other] {
            let held = account.held();
            assert!((45 * KIB..=60 * KIB).contains(&held), "{held}");
        }
        read_all(server).await;
        assert_eq!(process.held(), 0);
    });
}

#[test]
fn heads_are_charged_though_the_server_has_answered_without_reading_them() {
    virtually(async {
        let (handle, mut server) = deaf().await;
        let account = Account::new(16 << 20);
        for stream in 0..10 {
            let exchange = large(&handle, &account);
            rest().await;
            // HEADERS with END_STREAM and END_HEADERS: status 204.
            let answer = [0, 0, 1, 1, 5, 0, 0, 0, 2 * stream + 1, 0x89];
            server.write_all(&answer).await.expect("it is open");
            let answered = exchange.answer().await.expect("it has come");
            assert_eq!(answered.status().code(), 204);
            assert!(exchange.has_ended());
            drop(exchange);
            rest().await;
        }
        let held = account.held();
        assert!((95 * KIB..=110 * KIB).contains(&held), "{held}");
        read_all(server).await;
        assert_eq!(account.held(), 0);
    });
}

#[test]
fn a_request_that_was_read_long_ago_is_charged_no_more() {
    virtually(async {
        let (handle, mut server) = deaf().await;
        let [account, other] = [(), ()].map(|()| Account::new(16 << 20));
        let long = large(&handle, &account);
        read(&mut server, 10 * KIB).await;
        let later = large(&handle, &other);
        rest().await;
        drop((long, later));
        rest().await;
        assert!(account.held() <= 4 * KIB, "{}", account.held());
        assert!(other.held() >= 8 * KIB, "{}", other.held());
    });
}

#[test]
fn heads_of_open_requests_are_charged_as_soon_as_the_server_is_known_to_read_nothing() {
    virtually(async {
        let (handle, server) = deaf().await;
        let account = Account::new(16 << 20);
        let first = large(&handle, &account);
        rest().await;
        let before = account.held();
        assert!(before >= 8 * KIB, "{before}");
        let second = large(&handle, &account);
        assert!(account.held() >= before + 10 * KIB, "{}", account.held());
        drop((first, second));
        assert!(account.held() >= before + 10 * KIB, "{}", account.held());
        read_all(server).await;
        assert_eq!(account.held(), 0);
    });
}

#[test]
fn small_heads_of_many_accounts_are_charged_with_about_their_bytes() {
    virtually(async {
        let process = Account::new(64 << 20);
        let accounts: Vec<_> = (0..40).map(|_| process.within(16 << 20)).collect();
        let (handle, server) = deaf().await;
        drop(large(&handle, &accounts[0]));
        rest().await;
        let before = process.held();
        for account in &accounts {
            let exchange = handle.request(&head("GET", "/", &[]), None);
            exchange.expect("it is ready").charge(account);
        }
        let more = process.held() - before;
        assert!((400..=4 * KIB).contains(&more), "{more}");
        read_all(server).await;
        assert_eq!(process.held(), 0);
    });
}

#[test]
fn an_upload_that_the_server_resets_is_not_charged_with_frames_of_others() {
    virtually(async {
        let (handle, mut server) = deaf().await;
        let [noisy, honest] = [(), ()].map(|()| Account::new(16 << 20));
        for _ in 0..10 {
            drop(large(&handle, &noisy));
        }
        let upload = head("POST", "/", &[("content-length", "200000")]);
        let exchange = handle.request(&upload, None).expect("it is ready");
        exchange.charge(&honest);
        let content = Bytes::from(vec![7; 200_000]);
        // As much as there is room for.
        let sending = timeout(Duration::from_secs(1), exchange.send(content));
        sending.await.expect_err("nobody reads it");
        assert!(honest.held() >= 32 * KIB, "{}", honest.held());
        let stream = 2 * 10 + 1;
        let reset = [0, 0, 4, 3, 0, 0, 0, 0, stream, 0, 0, 0, 8];
        server.write_all(&reset).await.expect("it is open");
        rest().await;
        assert!(honest.held() <= KIB, "{}", honest.held());
        assert!(noisy.held() >= 90 * KIB, "{}", noisy.held());
        drop(exchange);
        rest().await;
        assert!(honest.held() <= KIB, "{}", honest.held());
    });
}

#[test]
fn nobody_pays_for_frames_of_a_connection_that_has_ended() {
    virtually(async {
        let (handle, mut server) = deaf().await;
        let [idle, other] = [(), ()].map(|()| Account::new(16 << 20));
        let kept = handle.request(&head("GET", "/", &[]), None);
        let kept = kept.expect("it is ready");
        kept.charge(&idle);
        let upload = head("POST", "/", &[("content-length", "60000")]);
        let content = handle.request(&upload, None).expect("it is ready");
        content.charge(&other);
        let sent = content.send(Bytes::from(vec![7; 60_000]));
        sent.await.expect("it is open");
        let lost = large(&handle, &other);
        rest().await;
        assert!(other.held() >= 60 * KIB, "{}", other.held());
        // DATA on the stream that is the connection.
        let illegal = [0, 0, 0, 0, 0, 0, 0, 0, 0];
        server.write_all(&illegal).await.expect("it is open");
        drop(server);
        rest().await;
        drop((content, lost));
        assert_eq!(other.held(), 0);
        drop(kept);
    });
}

#[test]
fn a_full_account_makes_no_request_that_would_wait_for_the_server() {
    virtually(async {
        let process = Account::new(1 << 20);
        let namespaces = [(), ()].map(|()| process.within(512 * KIB));
        let [one, other] = namespaces.map(|namespace| namespace.within(64 * KIB));
        let (handle, server) = deaf().await;
        let mut made = 0;
        while handle.has_room_for(&one) {
            let value = "X".repeat(3 * KIB);
            let small = head("GET", "/", &[("x-small", &value)]);
            let exchange = handle.request(&small, None).expect("it is ready");
            exchange.charge(&one);
            drop(exchange);
            rest().await;
            made += 1;
        }
        // Requests may hold 32 KiB.
        assert!((8..15).contains(&made), "{made}");
        assert!(one.held() <= 36 * KIB, "{}", one.held());
        // Requests of others pass, also when they fill the process.
        let mut filled = Hold::new(&process.within(1 << 20));
        let _ = filled.raise(1 << 20);
        assert!(process.held() >= process.limit());
        assert!(handle.has_room_for(&other));
        drop(large(&handle, &other));
        rest().await;
        assert!(!handle.has_room_for(&other));
        read_all(server).await;
        assert!(handle.has_room_for(&one) && handle.has_room_for(&other));
    });
}

#[test]
fn requests_of_one_moment_pass_though_the_account_is_full() {
    virtually(async {
        let (handle, server) = deaf().await;
        read_all(server).await;
        let account = Account::new(64 * KIB);
        let mut filled = Hold::new(&account);
        let _ = filled.raise(64 * KIB);
        for _ in 0..10 {
            assert!(handle.has_room_for(&account));
            drop(large(&handle, &account));
        }
        rest().await;
        assert_eq!(account.held(), 64 * KIB);
    });
}

#[test]
fn trailers_of_a_request_whose_answer_is_complete_are_charged() {
    virtually(async {
        let (handle, mut server) = deaf().await;
        let account = Account::new(16 << 20);
        let upload = head("POST", "/", &[("transfer-encoding", "chunked")]);
        let exchange = handle.request(&upload, None).expect("it is ready");
        exchange.charge(&account);
        rest().await;
        // HEADERS with END_STREAM and END_HEADERS: status 204.
        let answer = [0, 0, 1, 1, 5, 0, 0, 0, 1, 0x89];
        server.write_all(&answer).await.expect("it is open");
        exchange.answer().await.expect("it has come");
        let trailers = trailers(10 * KIB);
        exchange.finish_with(&trailers).expect("it is open");
        drop(exchange);
        rest().await;
        assert!(account.held() >= 8 * KIB, "{}", account.held());
        read_all(server).await;
        assert_eq!(account.held(), 0);
    });
}

#[test]
fn a_request_that_the_server_reads_at_once_is_charged_to_nobody_after_its_end() {
    virtually(async {
        let (handle, server) = deaf().await;
        read_all(server).await;
        let account = Account::new(16 << 20);
        for _ in 0..10 {
            let exchange = large(&handle, &account);
            rest().await;
            drop(exchange);
            assert_eq!(account.held(), 0);
        }
    });
}

#[test]
fn content_in_frames_is_charged_until_the_server_reads_it() {
    virtually(async {
        let (handle, server) = deaf().await;
        let account = Account::new(16 << 20);
        let upload = head("POST", "/", &[("content-length", "60000")]);
        let exchange = handle.request(&upload, None).expect("it is ready");
        exchange.charge(&account);
        let sent = exchange.send(Bytes::from(vec![7; 60_000]));
        sent.await.expect("it is open");
        rest().await;
        let held = account.held();
        assert!((56 * KIB..=72 * KIB).contains(&held), "{held}");
        drop(exchange);
        rest().await;
        let held = account.held();
        assert!(held >= 8 * KIB, "{held}");
        read_all(server).await;
        assert_eq!(account.held(), 0);
    });
}

/// Content of 4000 bytes behind a head that the server leaves unread. The server answers without reading it, and the client is gone.
async fn answered_upload(handle: &client::Handle, server: &mut DuplexStream, account: &Account) {
    drop(large(handle, &Account::new(16 << 20)));
    rest().await;
    let upload = head("POST", "/", &[("content-length", "4000")]);
    let exchange = handle.request(&upload, None).expect("it is ready");
    exchange.charge(account);
    let sent = exchange.send(Bytes::from(vec![7; 4000]));
    sent.await.expect("it is open");
    exchange.finish().expect("it is open");
    rest().await;
    // HEADERS with END_STREAM and END_HEADERS: status 204.
    let answer = [0, 0, 1, 1, 5, 0, 0, 0, 3, 0x89];
    server.write_all(&answer).await.expect("it is open");
    exchange.answer().await.expect("it has come");
    assert!(exchange.has_ended());
    drop(exchange);
    rest().await;
}

#[test]
fn content_that_an_answered_request_has_left_is_charged_from_its_first_byte() {
    virtually(async {
        let (handle, mut server) = deaf().await;
        let account = Account::new(16 << 20);
        answered_upload(&handle, &mut server, &account).await;
        let held = account.held();
        assert!((4 * KIB..=5 * KIB).contains(&held), "{held}");
        read_all(server).await;
        assert_eq!(account.held(), 0);
    });
}

#[test]
fn content_that_an_answered_request_has_left_is_dropped_where_its_account_is_full() {
    virtually(async {
        let (handle, mut server) = deaf().await;
        let account = Account::new(64 * KIB);
        let mut filled = Hold::new(&account);
        let _ = filled.raise(64 * KIB);
        answered_upload(&handle, &mut server, &account).await;
        let more = account.held() - 64 * KIB;
        assert!(more < KIB, "{more}");
        read_all(server).await;
        assert_eq!(account.held(), 64 * KIB);
    });
}

#[test]
fn the_last_bytes_of_a_tunnel_are_sent_though_its_account_is_full() {
    virtually(async {
        let (handle, mut server) = deaf().await;
        let account = Account::new(64 * KIB);
        let mut filled = Hold::new(&account);
        let _ = filled.raise(64 * KIB);
        drop(large(&handle, &Account::new(16 << 20)));
        rest().await;
        let exchange = handle.connect(&connect("a:1")).expect("it is ready");
        exchange.charge(&account);
        // HEADERS with END_HEADERS: status 200. An empty DATA ends the server's direction.
        let answer = [0, 0, 1, 1, 4, 0, 0, 0, 3, 0x88, 0, 0, 0, 0, 1, 0, 0, 0, 3];
        server.write_all(&answer).await.expect("it is open");
        exchange.answer().await.expect("it has come");
        rest().await;
        let mut tunnel = exchange.into_tunnel().expect("it is accepted");
        tunnel.write_all(&[0xee; 4000]).await.expect("it is open");
        tunnel.shutdown().await.expect("it is open");
        drop(tunnel);
        rest().await;
        let mut came = Vec::new();
        let _ = timeout(Duration::from_secs(1), server.read_to_end(&mut came)).await;
        assert_eq!(came.iter().filter(|byte| **byte == 0xee).count(), 4000);
        rest().await;
        assert_eq!(account.held(), 64 * KIB);
    });
}

#[test]
fn a_server_that_leaves_frames_unread_for_a_minute_loses_the_connection() {
    for trickles in [false, true] {
        virtually(async move {
            let (handle, mut server) = deaf().await;
            let account = Account::new(16 << 20);
            let kept = large(&handle, &account);
            drop(large(&handle, &account));
            rest().await;
            for second in 0..70 {
                tokio::time::sleep(Duration::from_secs(1)).await;
                if trickles && second < 60 {
                    let _ = server.read(&mut [0]).await;
                }
                if second < 50 {
                    assert!(!handle.is_closed(), "after {second} seconds");
                    assert!(account.held() >= 16 * KIB, "{}", account.held());
                }
            }
            assert!(handle.is_closed());
            drop(kept);
            assert_eq!(account.held(), 0);
        });
    }
}

#[test]
fn a_server_that_leaves_answers_to_its_pings_unread_for_a_minute_loses_the_connection() {
    virtually(async {
        let (handle, mut server) = deaf().await;
        let request = head("GET", "/", &[]);
        let kept = handle.request(&request, None).expect("it is ready");
        kept.finish().expect("it is open");
        read(&mut server, KIB / 16).await;
        for _ in 0..200 {
            server.write_all(&PING).await.expect("it is open");
        }
        tokio::time::sleep(Duration::from_secs(50)).await;
        assert!(!handle.is_closed());
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert!(handle.is_closed());
        drop(kept);
    });
}

#[test]
fn a_server_that_reads_slowly_keeps_the_connection() {
    virtually(async {
        let (handle, mut server) = deaf().await;
        let account = Account::new(16 << 20);
        let mut kept = Vec::new();
        for _ in 0..20 {
            kept.push(large(&handle, &account));
            for _ in 0..10 {
                read(&mut server, KIB).await;
                tokio::time::sleep(Duration::from_secs(2)).await;
            }
            assert!(!handle.is_closed());
        }
    });
}
