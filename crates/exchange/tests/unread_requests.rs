//! Memory accounts: frames of requests that an HTTP/2 server leaves unread. Time is virtual: a sleep ends when nothing else moves.

mod common;

use bytes::Bytes;
use common::{KIB, head, rest, trailers, virtually};
use lateen_exchange::{Account, Config, Hold, Protocol, client};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::task::spawn_local;

/// An empty SETTINGS frame, and the acknowledgment of the client's.
const SETTINGS: [u8; 18] = [0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 4, 1, 0, 0, 0, 0];

/// A connection to a server that has read only what the pipe holds.
async fn deaf() -> (client::Handle, DuplexStream) {
    let (ours, mut theirs) = duplex(KIB);
    let (handle, connection) = client::open(ours, Config::new(Protocol::Http2));
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
        // Those in the front are gone, whoever's they are.
        read(&mut server, 100 * KIB).await;
        let held = one.held();
        assert!((90 * KIB..=110 * KIB).contains(&held), "{held}");
        read(&mut server, 80 * KIB).await;
        let held = one.held();
        assert!((10 * KIB..=30 * KIB).contains(&held), "{held}");
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
fn a_full_account_makes_no_request_that_would_wait_for_the_server() {
    virtually(async {
        let process = Account::new(1 << 20);
        let namespaces = [(), ()].map(|()| process.within(512 * KIB));
        let [one, other] = namespaces.map(|namespace| namespace.within(64 * KIB));
        let (handle, server) = deaf().await;
        let mut made = 0;
        while handle.has_room_for(&one) {
            // Less is charged to nobody at first.
            let value = "X".repeat(3 * KIB);
            let small = head("GET", "/", &[("x-small", &value)]);
            let exchange = handle.request(&small, None).expect("it is ready");
            exchange.charge(&one);
            drop(exchange);
            rest().await;
            made += 1;
        }
        assert!((15..30).contains(&made), "{made}");
        assert!(one.held() <= 68 * KIB, "{}", one.held());
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
