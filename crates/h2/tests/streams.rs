//! What happens on a good connection: requests, data, turns, ends.

mod common;

use common::*;
use lateen_h2::{Code, Config, Connection, Event, Field, Gone, RequestError, Timestamp};

#[test]
fn a_request_is_answered_and_data_goes_both_ways() {
    let mut pair = Pair::usual();
    let stream = pair.open();
    assert_eq!(
        pair.server.heard.heads,
        [(stream, "10.0.0.7:80".to_owned())]
    );
    assert_eq!(pair.client.heard.heads, [(stream, "200".to_owned())]);
    pair.client
        .connection
        .send(stream, "question".into())
        .unwrap();
    pair.client.connection.finish(stream).unwrap();
    pair.settle();
    assert_eq!(pair.server.heard.data[&1], (b"question".to_vec(), 0, true));
    // The other direction goes on.
    pair.server
        .connection
        .send(stream, "answer".into())
        .unwrap();
    pair.server.connection.finish(stream).unwrap();
    assert_eq!(pair.server.connection.active(), 1);
    pair.settle();
    assert_eq!(pair.client.heard.data[&1], (b"answer".to_vec(), 0, true));
    assert_eq!(
        (
            pair.client.connection.active(),
            pair.server.connection.active()
        ),
        (0, 0)
    );
    assert_eq!(
        pair.client.connection.send(stream, "more".into()),
        Err(Gone)
    );
}

#[test]
fn data_may_come_with_the_request() {
    let mut pair = Pair::usual();
    let stream = pair
        .client
        .connection
        .request(None, &connect("a:1"), false)
        .unwrap();
    pair.client.connection.send(stream, "early".into()).unwrap();
    pair.settle();
    assert_eq!(pair.server.heard.data[&1].0, b"early");
}

#[test]
fn what_a_peer_keeps_makes_the_next_request_small() {
    let mut pair = Pair::usual();
    let mut lengths = Vec::new();
    for _ in 0..3 {
        pair.client
            .connection
            .request(None, &connect("10.0.0.7:80"), false)
            .unwrap();
        pair.client.write(usize::MAX);
        lengths.push(pair.client.wire.len());
        pair.settle();
    }
    assert!(lengths[0] > 60);
    assert_eq!(lengths[1..], [9 + 2 + 13; 2]);
    assert_eq!(pair.server.heard.heads.len(), 3);
}

#[test]
fn a_reset_reaches_the_other_end_and_drops_what_waits() {
    let mut pair = Pair::usual();
    let stream = pair.open();
    pair.client
        .connection
        .send(stream, vec![7; 1 << 20].into())
        .unwrap();
    pair.client.connection.reset(stream, Code::CONNECT_ERROR);
    assert_eq!(pair.client.connection.queued_of(stream), 0);
    pair.settle();
    assert_eq!(pair.server.heard.resets, [(1, Code::CONNECT_ERROR.0)]);
    assert_eq!(pair.server.connection.active(), 0);
}

#[test]
fn a_server_that_has_said_all_lets_go_without_an_error() {
    let mut pair = Pair::usual();
    let stream = pair.open();
    pair.server.connection.finish(stream).unwrap();
    pair.settle();
    pair.server.connection.release(stream);
    pair.settle();
    assert_eq!(pair.client.heard.resets, [(1, Code::NO_ERROR.0)]);
    // What crosses it is no fault.
    let stream = pair.open();
    pair.client
        .connection
        .send(stream, vec![1; 5000].into())
        .unwrap();
    pair.server.connection.release(stream);
    pair.settle();
    assert_eq!(pair.client.heard.resets[1], (3, Code::CANCEL.0));
    assert_eq!(pair.server.connection.credit().held, 0);
}

#[test]
fn streams_take_turns_and_share_a_write() {
    let mut pair = Pair::usual();
    let streams: Vec<_> = (0..3).map(|_| pair.open()).collect();
    for stream in &streams {
        pair.client
            .connection
            .send(*stream, vec![9; 60_000].into())
            .unwrap();
    }
    let more = frame(8, 0, 0, &[0, 0x10, 0, 0]);
    pair.client.receive(&more, pair.now).unwrap();
    let pieces: Vec<usize> = pair.client.connection.output().map(<[u8]>::len).collect();
    // Heads between payloads, in turn, and 64 KiB in all: as many records, and not nine bytes in one of their own.
    assert_eq!(pieces[..6], [9, 16384, 9, 16384, 9, 16384]);
    assert_eq!(pieces.iter().sum::<usize>(), 64 * 1024, "{pieces:?}");
    // A stream that has little is not behind one that has much.
    let late = pair
        .client
        .connection
        .request(None, &connect("a:1"), false)
        .unwrap();
    pair.client.connection.send(late, "x".into()).unwrap();
    pair.client.write(usize::MAX);
    pair.client.write(usize::MAX);
    assert_eq!(pair.client.connection.queued_of(late), 0);
    assert!(pair.client.connection.queued() > 0);
    pair.settle();
}

#[test]
fn a_drain_loses_no_request() {
    let mut pair = Pair::usual();
    let open = pair.open();
    pair.server.connection.drain();
    // It crosses the first GOAWAY.
    let crossing = pair
        .client
        .connection
        .request(None, &connect("late:1"), false)
        .unwrap();
    pair.deliver(true, usize::MAX).unwrap();
    pair.settle();
    assert_eq!(pair.server.heard.heads[1].1, "late:1");
    assert_eq!(
        pair.client.connection.request(None, &connect("a:1"), false),
        Err(RequestError::Closing)
    );
    assert!(pair.client.heard.unprocessed.is_empty());
    for stream in [open, crossing] {
        assert!(!pair.server.connection.is_done());
        for end in [&mut pair.client, &mut pair.server] {
            end.connection.release(stream);
        }
        pair.settle();
    }
    assert!(pair.server.connection.is_done() && pair.client.connection.is_done());
}

#[test]
fn a_drain_loses_no_request_that_comes_behind_the_answer_to_its_first_ping() {
    let mut pair = Pair::usual();
    let queued = pair
        .client
        .connection
        .request(None, &connect("queued:1"), false)
        .unwrap();
    pair.client.write(usize::MAX);
    let request = std::mem::take(&mut pair.client.wire);
    pair.server.connection.drain();
    pair.deliver(false, usize::MAX).unwrap();
    pair.deliver(true, usize::MAX).unwrap();
    pair.server.receive(&request, pair.now).unwrap();
    pair.settle();
    assert_eq!(pair.server.heard.heads, [(queued, "queued:1".to_owned())]);
    assert!(pair.client.heard.unprocessed.is_empty());
    for end in [&mut pair.client, &mut pair.server] {
        end.connection.release(queued);
    }
    pair.settle();
    assert!(pair.server.connection.is_done() && pair.client.connection.is_done());
}

#[test]
fn a_drain_ends_without_the_answers_to_its_pings_when_it_is_told_to() {
    let mut pair = Pair::usual();
    pair.server.connection.end_drain();
    assert!(!pair.server.connection.is_draining());
    assert!(!pair.server.connection.has_output(), "it does not drain");
    let open = pair.open();
    pair.server.connection.drain();
    assert!(pair.server.connection.is_draining());
    pair.server.connection.end_drain();
    pair.server.connection.end_drain();
    let crossing = pair
        .client
        .connection
        .request(None, &connect("late:1"), false)
        .unwrap();
    pair.settle();
    assert_eq!(pair.client.heard.unprocessed, [crossing.get()]);
    assert_eq!(pair.server.heard.heads.len(), 1);
    assert!(!pair.server.connection.is_done(), "a stream is open");
    for end in [&mut pair.client, &mut pair.server] {
        end.connection.release(open);
    }
    pair.settle();
    assert!(pair.server.connection.is_done() && pair.client.connection.is_done());
}

#[test]
fn a_header_block_is_incomplete_until_its_last_byte_came() {
    let config = Config::requests().share();
    let mut server = Connection::server(&config, Timestamp::default());
    let mut client = Connection::client(&config, Timestamp::default());
    let preface: Vec<u8> = client.output().flatten().copied().collect();
    let mut input = &preface[..];
    while server
        .receive(&mut input, Timestamp::default())
        .unwrap()
        .is_some()
    {}
    let mut receive = |mut input: &[u8]| {
        let event = server.receive(&mut input, Timestamp::default()).unwrap();
        (
            matches!(event, Some(Event::Request { .. })),
            server.incomplete(),
        )
    };
    // GET and http, then / and the authority `a`.
    assert_eq!(receive(&frame(1, 1, 1, &[0x82, 0x86])), (false, 2));
    let rest = frame(9, 4, 1, &[0x84, 1, 1, b'a']);
    assert_eq!(receive(&rest[..10]), (false, 3));
    assert_eq!(receive(&rest[10..]), (true, 0));
}

#[test]
fn requests_that_a_go_away_leaves_out_are_told() {
    let mut client = client(small(), 3);
    client
        .receive(
            &frame(7, 0, 0, &[0, 0, 0, 3, 0, 0, 0, 0]),
            Timestamp::default(),
        )
        .unwrap();
    assert_eq!(client.heard.unprocessed, [5]);
    assert_eq!(client.connection.active(), 2);
}

#[test]
fn pings_are_answered_with_their_number() {
    let mut pair = Pair::usual();
    pair.client.connection.ping(77);
    pair.settle();
    assert_eq!(pair.client.heard.pongs, [77]);
}

#[test]
fn settings_must_be_acknowledged_in_time() {
    let config = small().share();
    let mut pair = Pair::new(&config, &config);
    let due = pair.server.connection.deadline().expect("it waits");
    assert_eq!(due.since(pair.now), config_timeout());
    assert!(
        pair.server
            .connection
            .tick(Timestamp::from_micros(due.as_micros() - 1))
            .is_ok()
    );
    assert_eq!(
        pair.server.connection.tick(due).unwrap_err().code,
        Code::SETTINGS_TIMEOUT
    );
    pair.client.connection.tick(pair.now).unwrap();
    let mut pair = Pair::usual();
    assert_eq!(pair.server.connection.deadline(), None);
    assert!(
        pair.server
            .connection
            .tick(Timestamp::from_micros(u64::MAX))
            .is_ok()
    );
    pair.server.connection.close(Code::NO_ERROR);
    pair.server.write(usize::MAX);
    assert!(pair.server.connection.is_done());
}

fn config_timeout() -> std::time::Duration {
    small().settings_timeout
}

#[test]
fn as_many_streams_as_the_peer_allows() {
    let server = Config {
        max_streams: 2,
        ..small()
    }
    .share();
    let mut pair = Pair::new(&small().share(), &server);
    pair.settle();
    assert_eq!(pair.client.connection.limit(), 2);
    pair.open();
    pair.open();
    assert_eq!(
        pair.client.connection.request(None, &connect("a:1"), false),
        Err(RequestError::TooMany)
    );
}

/// Who asks before the peer's SETTINGS are known may ask for too many: those are refused and can be repeated.
#[test]
fn streams_beyond_the_limit_are_refused() {
    let server = Config {
        max_streams: 2,
        ..small()
    }
    .share();
    let mut pair = Pair::new(&small().share(), &server);
    for _ in 0..5 {
        pair.client
            .connection
            .request(None, &connect("a:1"), false)
            .unwrap();
    }
    pair.settle();
    let refused: Vec<_> = [5, 7, 9].map(|id| (id, Code::REFUSED_STREAM.0)).into();
    assert_eq!(pair.client.heard.resets, refused);
}

#[test]
fn a_large_header_list_goes_in_pieces_and_one_too_large_is_not_sent() {
    let mut pair = Pair::usual();
    let value = "v".repeat(40_000);
    let fields = [
        Field::new(":method", "CONNECT"),
        Field::new(":authority", "a:1"),
        Field::new("x", &value),
    ];
    // The server takes frames of 256 KiB; one that does not:
    let modest = Config {
        max_frame: 1 << 14,
        ..small()
    }
    .share();
    let mut other = Pair::new(&small().share(), &modest);
    other.settle();
    for pair in [&mut pair, &mut other] {
        pair.client
            .connection
            .request(None, &fields, false)
            .unwrap();
        pair.settle();
        let (_, _, fields) = pair.server.heard.blocks.last().unwrap();
        let length = fields.iter().find(|(name, _)| name == "x");
        assert_eq!(length.map(|(_, value)| value.len()), Some(40_000));
    }
    let value = "v".repeat(70_000);
    let fields = [fields[0], fields[1], Field::new("x", &value)];
    assert_eq!(
        pair.client.connection.request(None, &fields, false),
        Err(RequestError::HeaderList)
    );
}

/// The peer has not seen the fields of such a request, so none of them is in its table.
#[test]
fn a_request_that_is_refused_for_its_size_changes_no_table() {
    let mut pair = Pair::usual();
    pair.settle();
    let value = "v".repeat(70_000);
    let fields = [
        Field::new(":method", "CONNECT"),
        Field::new(":authority", "a:1"),
        Field::new("x", "kept").kept(),
        Field::new("y", &value),
    ];
    let client = &mut pair.client.connection;
    assert_eq!(
        client.request(None, &fields, false),
        Err(RequestError::HeaderList)
    );
    assert!(!client.has_output());
    for _ in 0..2 {
        let client = &mut pair.client.connection;
        client.request(None, &fields[..3], false).unwrap();
        pair.settle();
        let kept = pair.server.connection.fields().get("x");
        assert_eq!(kept, Some(&b"kept"[..]));
    }
    assert_eq!(pair.server.heard.heads.len(), 2);
}

#[test]
fn an_idle_connection_gives_its_memory_back_and_works_on() {
    let mut pair = Pair::usual();
    let stream = pair.open();
    for end in [&mut pair.client, &mut pair.server] {
        end.connection.release(stream);
    }
    pair.settle();
    for end in [&mut pair.client, &mut pair.server] {
        end.connection.rest();
        assert!(end.connection.fields().is_empty());
    }
    pair.open();
    assert_eq!(pair.server.heard.heads.len(), 2);
}

/// Data is not copied: the event's bytes are the input's.
#[test]
fn data_is_a_slice_of_the_input() {
    let mut server = server(small());
    let now = Timestamp::default();
    server.receive(&frame(1, 4, 1, CONNECT), now).unwrap();
    let input = frame(0, 0, 1, &[5; 1000]);
    // Cut within the frame: what is there goes through at once.
    let mut first = &input[..600];
    let Ok(Some(Event::Data {
        bytes, end: false, ..
    })) = server.connection.receive(&mut first, now)
    else {
        panic!("data comes");
    };
    assert_eq!(bytes.as_ptr_range(), input[9..600].as_ptr_range());
}

/// The caller resets a stream, or lets it go, when half of a frame has come: it hears nothing of the rest.
#[test]
fn a_stream_that_was_let_go_in_the_midst_of_a_frame_says_nothing_more() {
    for release in [true, false] {
        let mut server = server(small());
        let now = Timestamp::default();
        server.receive(&frame(1, 4, 1, CONNECT), now).unwrap();
        let (stream, _) = server.heard.heads[0];
        let input = frame(0, 1, 1, &[5; 1000]);
        server.receive(&input[..600], now).unwrap();
        match release {
            true => server.connection.release(stream),
            false => server.connection.reset(stream, Code::CANCEL),
        }
        server.receive(&input[600..], now).unwrap();
        let (data, _, ended) = &server.heard.data[&1];
        assert_eq!((data.len(), *ended), (591, false));
        server.connection.release(stream);
        assert_eq!(server.connection.credit().held, 0);
        server.receive(&frame(6, 0, 0, &[1; 8]), now).unwrap();
    }
}
