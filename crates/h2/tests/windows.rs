//! How much may come, how much may wait, and what grows when.

mod common;

use bytes::Bytes;
use common::*;
use lateen_h2::{Config, FLOOR, StreamId, Timestamp};

/// As much as goes in sixty round trips of ten milliseconds on a path that carries so much in each.
fn pour(pair: &mut Pair, stream: StreamId, per_trip: usize) {
    let bytes = Bytes::from(vec![0; 8 << 20]);
    for _ in 0..60 {
        let queued = pair.client.connection.queued_of(stream);
        let more = bytes.slice(queued..);
        pair.client.connection.send(stream, more).unwrap();
        pair.deliver(true, per_trip).unwrap();
        pair.deliver(false, usize::MAX).unwrap();
        pair.server.heard.data.clear();
        pair.now = pair.now.after(std::time::Duration::from_millis(10));
    }
}

/// All streams but one are filled to the brim and nobody reads them: the last one moves sixteen megabytes.
#[test]
fn streams_that_nobody_reads_do_not_stop_another() {
    let mut pair = Pair::usual();
    pair.server.reads = false;
    // One grows its window first, while it is alone.
    let first = pair.open();
    pair.server.reads = true;
    pour(&mut pair, first, 100 << 20);
    pair.settle();
    assert!(pair.server.connection.credit().wanted >= Config::tunnel().connection_most - 1000);
    pair.server.reads = false;
    let stalled: Vec<_> = (0..98).map(|_| pair.open()).collect();
    let much = Bytes::from(vec![2; 5 << 20]);
    for stream in stalled.iter().chain([&first]) {
        let more = much.clone();
        pair.client.connection.send(*stream, more).unwrap();
    }
    pair.settle();
    let held = pair.server.connection.credit().held;
    assert!(
        held >= 98 * FLOOR + Config::tunnel().stream_most / 4 * 3,
        "they hold {held}"
    );
    for stream in &stalled {
        assert!(pair.client.connection.queued_of(*stream) > 0);
    }
    let last = pair.open();
    pair.server.reads = true;
    pair.client
        .connection
        .send(last, vec![3; 16 << 20].into())
        .unwrap();
    pair.settle();
    assert_eq!(pair.server.heard.data[&last.get()].0.len(), 16 << 20);
}

/// Each has moved much, one after the other, and could have a large window; then nobody reads any of them. What they may
/// hold leaves a working window, for windows grow only where there is room for all.
#[test]
fn windows_grow_only_where_there_is_room_for_all() {
    let config = Config {
        max_streams: 10,
        stream_most: 1 << 20,
        connection_most: 1 << 20,
        allowance: 4 << 20,
        ..small()
    }
    .share();
    let mut pair = Pair::new(&config, &config);
    pair.settle();
    let mut streams = Vec::new();
    for _ in 0..9 {
        let stream = pair.open();
        pour(&mut pair, stream, 100 << 20);
        pair.settle();
        streams.push(stream);
    }
    pair.server.reads = false;
    for stream in &streams {
        let more = vec![1; 2 << 20];
        pair.client.connection.send(*stream, more.into()).unwrap();
    }
    pair.settle();
    let credit = pair.server.connection.credit();
    assert!(
        credit.held > 9 * FLOOR + (1 << 20),
        "some did grow: {credit:?}"
    );
    assert!(credit.credit > FLOOR, "{credit:?}");
    let last = pair.open();
    pair.server.reads = true;
    let more = vec![3; 16 << 20];
    pair.client.connection.send(last, more.into()).unwrap();
    pair.settle();
    assert_eq!(pair.server.heard.data[&last.get()].0.len(), 16 << 20);
}

/// Two that have moved much are read no longer, where a ledger lends little: there is something left for one that says little.
#[test]
fn windows_grow_into_what_may_be_lent_and_not_into_what_was_set() {
    let mut pair = Pair::usual();
    let lent = FLOOR + (1 << 20);
    pair.server.connection.set_allowance(lent);
    pair.server.connection.set_most(lent);
    let stalled = [pair.open(), pair.open()];
    for stream in stalled {
        pour(&mut pair, stream, 100 << 20);
        pair.settle();
    }
    pair.server.reads = false;
    for stream in stalled {
        let more = vec![1; 2 << 20];
        pair.client.connection.send(stream, more.into()).unwrap();
    }
    pair.settle();
    let credit = pair.server.connection.credit();
    assert!(credit.held > 3 * FLOOR, "some did grow: {credit:?}");
    let last = pair.open();
    pair.server.reads = true;
    let more = vec![3; 1 << 20];
    pair.client.connection.send(last, more.into()).unwrap();
    pair.settle();
    assert_eq!(pair.server.heard.data[&last.get()].0.len(), 1 << 20);
}

/// RFC 9113 §6.9.2: a peer may take back what it granted, and grant it again.
#[test]
fn a_first_window_that_changes_changes_all_streams() {
    let mut client = client(small(), 1);
    let window = |bytes: u32| [&[0, 4][..], &bytes.to_be_bytes()].concat();
    let ok = frame(1, 4, 1, b"\x88");
    let now = Timestamp::default();
    client.receive(&ok, now).unwrap();
    let (stream, _) = client.heard.heads[0];
    client
        .connection
        .send(stream, vec![1; 30_000].into())
        .unwrap();
    client.write(usize::MAX);
    // 30,000 are used: nothing may be sent until they and ten more are granted.
    client
        .receive(&frame(4, 0, 0, &window(10_000)), now)
        .unwrap();
    client.connection.send(stream, vec![2; 100].into()).unwrap();
    client.write(usize::MAX);
    assert_eq!(client.connection.queued_of(stream), 100);
    client
        .receive(&frame(8, 0, 1, &20_010u32.to_be_bytes()), now)
        .unwrap();
    client.write(usize::MAX);
    assert_eq!(client.connection.queued_of(stream), 90);
    client
        .receive(&frame(4, 0, 0, &window(65_535)), now)
        .unwrap();
    client.write(usize::MAX);
    assert_eq!(client.connection.queued_of(stream), 0);
}

/// RFC 9113 §6.9.1: padding counts against windows, and nobody else gives it back.
#[test]
fn padding_is_given_back_at_once() {
    let mut server = server(small());
    let now = Timestamp::default();
    server.receive(&frame(1, 4, 1, CONNECT), now).unwrap();
    let mut payload = vec![0; 256];
    payload[0] = 254;
    payload[1] = b'x';
    for _ in 0..2000 {
        server.receive(&frame(0, 8, 1, &payload), now).unwrap();
        server.write(usize::MAX);
    }
    assert_eq!(server.heard.data[&1].0.len(), 2000);
    assert_eq!(server.connection.credit().held, 0);
}

/// A ledger that lends little binds credit and what is held together; what is consumed moves on.
#[test]
fn a_small_allowance_is_kept_and_does_not_stop_the_stream() {
    let mut pair = Pair::usual();
    pair.server.connection.set_allowance(FLOOR);
    let stream = pair.open();
    pair.server.reads = false;
    pair.client
        .connection
        .send(stream, vec![3; 1 << 20].into())
        .unwrap();
    pair.settle();
    let credit = pair.server.connection.credit();
    assert_eq!((credit.held, credit.credit), (FLOOR, 0));
    assert!(credit.wanted > FLOOR);
    pair.server.reads = true;
    pair.server.connection.consumed(stream, FLOOR as usize);
    pair.settle();
    assert_eq!(pair.server.heard.data[&1].0.len(), 1 << 20);
}

/// The path holds a window's worth: windows double until they are no longer what holds the peer up, and no further.
#[test]
fn windows_grow_with_what_the_path_carries() {
    let run = |per_trip: usize| {
        let mut pair = Pair::usual();
        let stream = pair.open();
        pour(&mut pair, stream, per_trip);
        pair.server.connection.credit().wanted
    };
    let slow = run(40_000);
    assert!(slow <= 4 * FLOOR, "{slow}");
    let fast = run(600_000);
    assert!((1_000_000..3_000_000).contains(&fast), "{fast}");
    let most = run(100 << 20);
    assert!(most >= Config::tunnel().connection_most - 1000, "{most}");
}

/// Within a machine a round trip takes microseconds: the path is not asked in each.
#[test]
fn a_short_path_is_not_sampled_all_the_time() {
    let mut pair = Pair::usual();
    let stream = pair.open();
    let mut pings = 0;
    let bytes = Bytes::from(vec![0; 50_000]);
    for _ in 0..2000 {
        pair.client.connection.send(stream, bytes.clone()).unwrap();
        pair.deliver(true, usize::MAX).unwrap();
        pair.server.heard.data.clear();
        pair.server.write(usize::MAX);
        let is_ping = |bytes: &&[u8]| *bytes == b"\0\0\x08\x06\0\0\0\0\0";
        pings += pair.server.wire.windows(9).filter(is_ping).count();
        pair.deliver(false, usize::MAX).unwrap();
        pair.now = pair.now.after(std::time::Duration::from_micros(50));
    }
    assert!((1..40).contains(&pings), "{pings}");
}

#[test]
fn room_is_bounded_and_announced() {
    let config = Config {
        send_buffer: 10_000,
        send_total: 15_000,
        ..small()
    }
    .share();
    let mut pair = Pair::new(&config, &config);
    pair.settle();
    let (a, b) = (pair.open(), pair.open());
    let connection = &mut pair.client.connection;
    assert_eq!(connection.room(a), 10_000);
    connection.send(a, vec![1; 10_000].into()).unwrap();
    assert_eq!((connection.room(a), connection.room(b)), (0, 5_000));
    connection.send(b, vec![1; 5_000].into()).unwrap();
    connection.await_room(a);
    connection.await_room(b);
    assert_eq!(connection.next_with_room(), None);
    pair.settle();
    let connection = &mut pair.client.connection;
    assert_eq!(connection.next_with_room(), Some(a));
    assert_eq!(connection.next_with_room(), Some(b));
    assert_eq!(connection.next_with_room(), None);
    assert_eq!(connection.queued(), 0);
}

#[test]
fn a_lower_total_stops_senders_and_a_higher_one_is_announced() {
    let config = Config {
        send_total: 15_000,
        ..small()
    }
    .share();
    let mut pair = Pair::new(&config, &config);
    pair.settle();
    let (a, b) = (pair.open(), pair.open());
    let connection = &mut pair.client.connection;
    connection.set_send_total(5_000);
    connection.send(a, vec![1; 5_000].into()).unwrap();
    assert_eq!((connection.room(a), connection.room(b)), (0, 0));
    connection.await_room(b);
    assert_eq!(connection.next_with_room(), None);
    connection.set_send_total(8_000);
    assert_eq!(connection.room(b), 3_000);
    assert_eq!(connection.next_with_room(), Some(b));
    connection.set_send_total(usize::MAX);
    assert_eq!(connection.room(b), 10_000, "the configuration has less");
}

#[test]
fn an_end_needs_no_window() {
    // The stream's window is used up to the last byte.
    let mut pair = Pair::usual();
    pair.server.reads = false;
    let full = pair.open();
    let most = vec![1; FLOOR as usize];
    pair.client.connection.send(full, most.into()).unwrap();
    pair.settle();
    pair.client.connection.finish(full).unwrap();
    pair.settle();
    assert!(pair.server.heard.data[&full.get()].2);
    // The connection's is, by streams that have some left of their own and are before it.
    let mut pair = Pair::usual();
    pair.server.reads = false;
    pair.server.connection.set_allowance(FLOOR);
    let (a, b, c) = (pair.open(), pair.open(), pair.open());
    for stream in [a, b] {
        pair.client
            .connection
            .send(stream, vec![1; 50_000].into())
            .unwrap();
    }
    pair.settle();
    assert_eq!(pair.client.connection.window(), 0);
    pair.client.connection.finish(c).unwrap();
    pair.settle();
    assert!(pair.server.heard.data[&c.get()].2);
}
