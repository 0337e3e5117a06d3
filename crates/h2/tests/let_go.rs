//! Streams that are let go before they are over, and room for what waits.

mod common;

use common::*;
use lateen_h2::{Code, Timestamp};

const NOW: Timestamp = Timestamp::from_micros(1_000_000);

/// A caller lets go of what it has finished, before anything was written.
#[test]
fn what_was_finished_arrives_though_its_caller_lets_go() {
    for by_server in [true, false] {
        let mut pair = Pair::usual();
        let stream = pair.open();
        let said = vec![7; 300_000];
        let near = match by_server {
            true => &mut pair.server,
            false => &mut pair.client,
        };
        near.connection.send(stream, said.clone().into()).unwrap();
        near.connection.finish(stream).unwrap();
        near.connection.release(stream);
        assert_eq!(near.connection.active(), 1);
        // What still comes is nobody's, and takes no credit.
        let far = match by_server {
            true => &mut pair.client,
            false => &mut pair.server,
        };
        far.connection.send(stream, vec![1; 30_000].into()).unwrap();
        pair.settle();
        let (near, far) = match by_server {
            true => (&mut pair.server, &mut pair.client),
            false => (&mut pair.client, &mut pair.server),
        };
        assert_eq!(far.heard.data[&1], (said, 0, true), "{by_server}");
        assert!(near.heard.data.is_empty());
        let code = if by_server {
            Code::NO_ERROR
        } else {
            Code::CANCEL
        };
        assert_eq!(far.heard.resets, [(1, code.0)]);
        assert_eq!(
            (near.connection.active(), near.connection.credit().held),
            (0, 0)
        );
        assert_eq!(pair.server.connection.queued(), 0);
    }
}

/// The peer ends first, resets, breaks a rule or goes away: the stream that was let go is told of no more, and is gone.
#[test]
fn a_stream_that_was_let_go_ends_in_every_way() {
    let reset = frame(3, 0, 1, &[0, 0, 0, 8]);
    for (what, bytes, over) in [
        ("an end", frame(0, 1, 1, b"x"), false),
        ("trailers", frame(1, 5, 1, b"\x00\x01a\x01b"), false),
        ("a reset", reset, true),
        ("a fault", frame(8, 0, 1, &[0; 4]), true),
        (
            "data beyond its window",
            frame(0, 0, 1, &vec![0; 65_535]),
            false,
        ),
        ("an end that goes away", frame(7, 0, 0, &[0; 8]), true),
    ] {
        let mut client = client(small(), 1);
        client.receive(&frame(1, 4, 1, b"\x88"), NOW).unwrap();
        client
            .receive(&frame(4, 0, 0, &[0, 4, 0, 0, 0, 0]), NOW)
            .unwrap();
        let (stream, _) = client.heard.heads[0];
        client.connection.send(stream, "waits".into()).unwrap();
        client.connection.finish(stream).unwrap();
        client.connection.release(stream);
        let before = client.heard.clone();
        client.receive(&bytes, NOW).expect(what);
        assert_eq!(client.connection.active(), usize::from(!over), "{what}");
        let told = |heard: &Heard| {
            (
                heard.data.clone(),
                heard.resets.clone(),
                heard.failed.clone(),
                heard.unprocessed.clone(),
            )
        };
        assert_eq!(told(&client.heard), told(&before), "{what}");
        assert_eq!(client.connection.credit().held, 0, "{what}");
        if !over {
            client
                .receive(&frame(4, 0, 0, &[0, 4, 0, 0, 1, 0]), NOW)
                .unwrap();
            client.write(usize::MAX);
            assert_eq!(client.connection.active(), 0, "{what}");
        }
        assert_eq!(client.connection.queued_of(stream), 0, "{what}");
    }
}

/// Nothing is taken that the stream's own window does not allow, and a grant is announced.
#[test]
fn room_follows_the_streams_window() {
    let mut client = client(small(), 2);
    let block = [frame(1, 4, 1, b"\x88"), frame(1, 4, 3, b"\x88")].concat();
    client.receive(&block, NOW).unwrap();
    let (stream, other) = (client.heard.heads[0].0, client.heard.heads[1].0);
    assert_eq!(client.connection.room(stream), 65_535);
    client
        .connection
        .send(stream, vec![7; 65_535].into())
        .unwrap();
    assert_eq!(client.connection.room(stream), 0);
    assert!(client.connection.room(other) > 0);
    client.connection.await_room(stream);
    client.write(usize::MAX);
    assert_eq!(client.connection.next_with_room(), None);
    client.receive(&frame(8, 0, 1, &[0, 0, 0, 9]), NOW).unwrap();
    assert_eq!(client.connection.next_with_room(), Some(stream));
    assert_eq!(client.connection.room(stream), 9);
    client.connection.await_room(stream);
    client.connection.send(stream, vec![7; 9].into()).unwrap();
    while client.connection.next_with_room().is_some() {}
    client.connection.await_room(stream);
    client
        .receive(&frame(4, 0, 0, &[0, 4, 0, 1, 0, 9]), NOW)
        .unwrap();
    assert_eq!(client.connection.next_with_room(), Some(stream));
}

#[test]
fn room_follows_the_limit_of_a_stream() {
    let mut client = client(small(), 2);
    let block = [frame(1, 4, 1, b"\x88"), frame(1, 4, 3, b"\x88")].concat();
    client.receive(&block, NOW).unwrap();
    let (stream, other) = (client.heard.heads[0].0, client.heard.heads[1].0);
    client.connection.set_send_buffer(stream, 8191);
    assert_eq!(client.connection.room(stream), 4096);
    assert_eq!(client.connection.room(other), 65_535);
    let content = vec![7; 4096].into();
    client.connection.send(stream, content).unwrap();
    assert_eq!(client.connection.room(stream), 0);
    client.connection.await_room(stream);
    assert_eq!(client.connection.next_with_room(), None);
    client.connection.set_send_buffer(stream, 8192);
    assert_eq!(client.connection.next_with_room(), Some(stream));
    assert_eq!(client.connection.room(stream), 4096);
    client.connection.set_send_buffer(stream, usize::MAX);
    assert_eq!(client.connection.room(stream), 65_535 - 4096);
}
