//! Content that a peer does not read: the connection's window stays used up, and the exchanges that hold it are known.

mod common;

use std::time::Duration;

use bytes::Bytes;
use common::{PIPE, SETTINGS, head, virtually};
use lateen_exchange::{Account, Config, Protocol, client};
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex, split};
use tokio::task::spawn_local;
use tokio::time::sleep;

/// A WINDOW_UPDATE frame.
fn grant(stream: u8, bytes: u32) -> Vec<u8> {
    let mut frame = vec![0, 0, 4, 8, 0, 0, 0, 0, stream];
    frame.extend(bytes.to_be_bytes());
    frame
}

/// Sends a request with so many bytes of content, charged to this account.
fn upload(handle: &client::Handle, account: &Account, bytes: usize) {
    let chunked = head("POST", "/", &[("transfer-encoding", "chunked")]);
    let exchange = handle.request(&chunked, None).expect("it is ready");
    exchange.charge(account);
    spawn_local(async move {
        let _ = exchange.send(Bytes::from(vec![7; bytes])).await;
        std::future::pending::<()>().await;
    });
}

#[test]
fn a_window_that_nobody_reads_is_stalled_and_held_by_those_who_filled_it() {
    virtually(async {
        let (ours, theirs) = duplex(PIPE);
        let (handle, connection) = client::open(ours, Config::new(Protocol::Http2));
        spawn_local(connection);
        let (mut from, mut to) = split(theirs);
        spawn_local(async move {
            let mut buffer = vec![0; 4096];
            while let Ok(1..) = from.read(&mut buffer).await {}
        });
        to.write_all(&SETTINGS).await.expect("it is open");
        let process = Account::new(64 << 20);
        let [noisy, polite] = [(), ()].map(|()| process.within(32 << 20));
        let [first, its_friend, other] =
            [&noisy, &noisy, &polite].map(|namespace| namespace.within(16 << 20));
        upload(&handle, &other, 1000);
        upload(&handle, &first, 1 << 20);
        // Content that moves, though slowly, stalls nobody.
        for _ in 0..3 {
            sleep(Duration::from_millis(900)).await;
            assert!(!handle.is_stalled());
            let grants = [grant(3, 50_000), grant(0, 50_000)].concat();
            to.write_all(&grants).await.expect("it is open");
        }
        sleep(Duration::from_millis(900)).await;
        assert!(!handle.is_stalled());
        sleep(Duration::from_millis(200)).await;
        assert!(handle.is_stalled() && handle.is_ready());
        let is_held_by =
            |account: &Account| handle.holders().iter().any(|one| one.is_beside(account));
        assert!(is_held_by(&first) && is_held_by(&its_friend));
        assert!(!is_held_by(&other));
        to.write_all(&grant(0, 50_000)).await.expect("it is open");
        sleep(Duration::from_millis(10)).await;
        assert!(!handle.is_stalled());
    });
}

#[test]
fn the_largest_of_many_small_parts_holds_the_window() {
    virtually(async {
        let (ours, theirs) = duplex(PIPE);
        let (handle, connection) = client::open(ours, Config::new(Protocol::Http2));
        spawn_local(connection);
        let (mut from, mut to) = split(theirs);
        spawn_local(async move {
            let mut buffer = vec![0; 4096];
            while let Ok(1..) = from.read(&mut buffer).await {}
        });
        to.write_all(&SETTINGS).await.expect("it is open");
        let process = Account::new(64 << 20);
        assert!(handle.holders().is_empty());
        // Each part is less than a quarter of the window of 65,535 bytes, and all of them fill it.
        let parts = [13_106, 13_106, 13_111, 13_106, 13_106];
        let accounts = parts.map(|bytes| {
            let account = process.within(32 << 20).within(16 << 20);
            upload(&handle, &account, bytes);
            account
        });
        sleep(Duration::from_millis(1100)).await;
        assert!(handle.is_stalled());
        let holders = handle.holders();
        assert!(matches!(&holders[..], [one] if one.is(&accounts[2])));
    });
}
