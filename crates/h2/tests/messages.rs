//! Ordinary messages: trailers, informational answers, limits of header lists, extended CONNECT.

mod common;

use common::*;
use lateen_h2::{
    Abuse, Cause, Code, Config, Connection, Event, Field, Fields, Gone, InformError, Known,
    RequestError, StreamId, Timestamp,
};

const NOW: Timestamp = Timestamp::from_micros(1_000_000);

/// Sends an ordinary request that ends, or that data follows.
fn ask(pair: &mut Pair, method: &str, end: bool) -> StreamId {
    let client = &mut pair.client.connection;
    let stream = client.request(None, &ordinary(method), end).unwrap();
    pair.settle();
    stream
}

fn answer(connection: &mut Connection, stream: StreamId) {
    let fields = [Field::new("content-type", "application/grpc").kept()];
    let answered = connection.respond(stream, Some(&ok()), &fields, false);
    answered.unwrap();
}

fn trailers_of(end: &End) -> Vec<(u32, List)> {
    let blocks = end.heard.blocks.iter();
    blocks
        .filter(|(_, what, _)| *what == "trailers")
        .map(|(id, _, list)| (*id, list.clone()))
        .collect()
}

const STATUS: [(&str, &str); 2] = [("grpc-status", "0"), ("x-checksum", "a1b2")];

fn status() -> [Field<'static>; 2] {
    [
        Field::known(Known::GrpcStatus, "0").kept(),
        Field::new("x-checksum", "a1b2"),
    ]
}

#[test]
fn trailers_follow_the_data_in_both_directions() {
    for length in [0, 5, 16_384, 200_000] {
        let mut pair = Pair::usual();
        let stream = ask(&mut pair, "POST", false);
        let body = vec![7; length];
        pair.client
            .connection
            .send(stream, body.clone().into())
            .unwrap();
        let extra = [Field::new("x-sum", "1")];
        pair.client.connection.trailers(stream, &extra).unwrap();
        answer(&mut pair.server.connection, stream);
        pair.server
            .connection
            .send(stream, body.clone().into())
            .unwrap();
        pair.server.connection.trailers(stream, &status()).unwrap();
        pair.settle();
        assert_eq!(trailers_of(&pair.server), [(1, list(&[("x-sum", "1")]))]);
        assert_eq!(trailers_of(&pair.client), [(1, list(&STATUS))]);
        for end in [&mut pair.client, &mut pair.server] {
            let got = end.heard.data.get(&1).cloned().unwrap_or_default();
            assert_eq!(got, (body.clone(), 0, false), "{length}");
            assert_eq!(end.connection.active(), 0);
            assert!(end.heard.failed.is_empty());
        }
    }
}

/// A block that waits behind its data is encoded when it is written: others came before it.
#[test]
fn trailers_that_wait_do_not_disturb_the_header_table() {
    let mut pair = Pair::usual();
    let streams: Vec<_> = (0..4).map(|_| ask(&mut pair, "POST", true)).collect();
    // More than the stream's window: the trailers wait here.
    for stream in &streams {
        answer(&mut pair.server.connection, *stream);
        let body = vec![1; 100_000].into();
        pair.server.connection.send(*stream, body).unwrap();
        let value = format!("{stream}");
        let fields = [Field::new("x-number", &value).kept(), status()[0]];
        pair.server.connection.trailers(*stream, &fields).unwrap();
    }
    let last = ask(&mut pair, "GET", true);
    let fields = [Field::new("x-late", "yes").kept()];
    let server = &mut pair.server.connection;
    server.respond(last, Some(&ok()), &fields, true).unwrap();
    pair.settle();
    let mut got = trailers_of(&pair.client);
    got.sort();
    for (stream, (id, fields)) in streams.iter().zip(&got) {
        let number = stream.to_string();
        assert_eq!(*id, stream.get());
        assert_eq!(
            *fields,
            list(&[("x-number", &number), ("grpc-status", "0")])
        );
    }
    assert_eq!(got.len(), 4);
    assert_eq!(pair.client.connection.active(), 0);
}

#[test]
fn trailers_of_a_stream_that_is_let_go_arrive() {
    let mut pair = Pair::usual();
    let stream = ask(&mut pair, "POST", true);
    answer(&mut pair.server.connection, stream);
    let server = &mut pair.server.connection;
    server.send(stream, vec![1; 100_000].into()).unwrap();
    server.trailers(stream, &status()).unwrap();
    server.release(stream);
    pair.settle();
    assert_eq!(trailers_of(&pair.client), [(1, list(&STATUS))]);
    assert_eq!(pair.server.connection.active(), 0);
}

#[test]
fn trailers_larger_than_a_frame_are_continued() {
    let mut pair = Pair::usual();
    let stream = ask(&mut pair, "POST", true);
    answer(&mut pair.server.connection, stream);
    let value = "x".repeat(40_000);
    let fields = [Field::new("x-large", &value)];
    pair.server.connection.trailers(stream, &fields).unwrap();
    pair.settle();
    assert_eq!(trailers_of(&pair.client)[0].1[0].1.len(), 40_000);
}

#[test]
fn trailers_come_once_and_behind_an_answer() {
    let mut pair = Pair::usual();
    let stream = ask(&mut pair, "POST", true);
    let server = &mut pair.server.connection;
    assert_eq!(server.trailers(stream, &status()), Err(Gone));
    answer(server, stream);
    server.send(stream, "x".into()).unwrap();
    server.trailers(stream, &status()).unwrap();
    assert_eq!(server.trailers(stream, &status()), Err(Gone));
    assert_eq!(server.send(stream, "y".into()), Err(Gone));
    // An end that was announced already is the same end.
    assert_eq!(server.finish(stream), Ok(()));
    pair.settle();
    assert_eq!(trailers_of(&pair.client).len(), 1);
    let server = &mut pair.server.connection;
    assert_eq!(server.trailers(stream, &status()), Err(Gone));
}

#[test]
fn a_reset_drops_trailers_that_wait() {
    let mut pair = Pair::usual();
    let stream = ask(&mut pair, "POST", true);
    answer(&mut pair.server.connection, stream);
    let server = &mut pair.server.connection;
    server.send(stream, vec![1; 100_000].into()).unwrap();
    server.trailers(stream, &status()).unwrap();
    server.reset(stream, Code::INTERNAL_ERROR);
    pair.settle();
    assert!(trailers_of(&pair.client).is_empty());
    assert_eq!(pair.client.heard.resets, [(1, Code::INTERNAL_ERROR.0)]);
}

#[test]
fn informational_answers_come_before_the_answer() {
    let mut pair = Pair::usual();
    let stream = ask(&mut pair, "POST", false);
    let server = &mut pair.server.connection;
    let hints = [Field::new("link", "</style.css>; rel=preload")];
    assert_eq!(server.inform(stream, 100, &[]), Ok(()));
    assert_eq!(server.inform(stream, 103, &hints), Ok(()));
    for status in [99, 101, 200, 600] {
        let refused = server.inform(stream, status, &[]);
        assert_eq!(refused, Err(InformError::Status), "{status}");
    }
    answer(server, stream);
    assert_eq!(server.inform(stream, 103, &[]), Err(InformError::Gone));
    pair.settle();
    let kinds: Vec<_> = pair.client.heard.blocks.iter().map(|b| b.1).collect();
    assert_eq!(kinds, ["informational", "informational", "response"]);
    let expected = [(":status", "103"), ("link", "</style.css>; rel=preload")];
    assert_eq!(pair.client.heard.blocks[1].2, list(&expected));
    let client = &mut pair.client.connection;
    assert_eq!(client.inform(stream, 103, &[]), Err(InformError::Gone));
}

/// A peer that does not read is sent no more of them, and final answers still have room.
#[test]
fn informational_answers_that_nobody_reads_are_bounded() {
    let mut server = server(small());
    server
        .receive(&frame(1, 5, 1, b"\x82\x86\x84"), NOW)
        .unwrap();
    let (stream, _) = server.heard.heads[0];
    let most = small().unread_replies;
    let count = (0..100_000).find(|_| {
        let refused = server.connection.inform(stream, 103, &[]);
        assert!(matches!(refused, Ok(()) | Err(InformError::Unread)));
        refused.is_err()
    });
    assert!(count.is_some_and(|count| count > 100));
    assert!(server.connection.unread() < most / 2 + 100);
    answer(&mut server.connection, stream);
    server.receive(&frame(6, 0, 0, &[1; 8]), NOW).unwrap();
}

/// The list is the caller's, and the next one does not touch it.
#[test]
fn fields_are_handed_over() {
    let mut end = server(small());
    let mut lists: Vec<Fields> = Vec::new();
    let mut spare = Fields::default();
    for (id, path) in [(1, "/a"), (3, "/b"), (5, "/c")] {
        let block = [b"\x82\x86\x04\x02", path.as_bytes()].concat();
        let bytes = frame(1, 5, id, &block);
        let mut input = &bytes[..];
        while let Some(event) = end.connection.receive(&mut input, NOW).unwrap() {
            assert!(matches!(event, Event::Request { .. }));
            if id == 5 {
                end.connection.swap_fields(&mut spare);
            } else {
                lists.push(end.connection.take_fields());
            }
            assert!(end.connection.fields().is_empty());
        }
    }
    lists.push(spare);
    let paths: Vec<_> = lists.iter().map(|list| list.find(Known::Path)).collect();
    assert_eq!(paths, [Some(&b"/a"[..]), Some(b"/b"), Some(b"/c")]);
    assert!(lists.iter().all(|list| list.get(":method") == Some(b"GET")));
}

/// Limits hold in a buffer that came from elsewhere.
#[test]
fn a_buffer_that_is_given_has_the_limits_of_its_connection() {
    let mut end = server(Config {
        max_fields: 3,
        ..small()
    });
    end.connection.swap_fields(&mut Fields::default());
    let many = [b"\x82\x86\x84".to_vec(), b"\0\x01a\x01b".repeat(4)].concat();
    end.receive(&frame(1, 5, 1, &many), NOW).unwrap();
    assert_eq!(end.heard.failed.len(), 1);
    end.receive(&frame(1, 5, 3, &many[..18]), NOW).unwrap();
    assert_eq!(end.heard.heads.len(), 1);
}

/// CVE-2019-15226: what is dropped counts too.
#[test]
fn a_list_of_too_many_fields_costs_its_stream() {
    let config = || Config {
        max_fields: 10,
        ..small()
    };
    let request =
        |fields: usize| [b"\x82\x86\x84".to_vec(), b"\0\x01a\x01b".repeat(fields)].concat();
    for (fields, good) in [(10, true), (11, false), (1000, false)] {
        let mut server = server(config());
        server
            .receive(&frame(1, 5, 1, &request(fields)), NOW)
            .unwrap();
        assert_eq!(server.heard.failed.is_empty(), good, "{fields}");
        // The others go on.
        server.receive(&frame(1, 5, 3, &request(0)), NOW).unwrap();
        assert_eq!(server.heard.heads.len(), 1 + usize::from(good));
    }
    let mut client = asking(config(), "GET");
    let answer = [b"\x88".to_vec(), b"\0\x01a\x01b".repeat(11)].concat();
    client.receive(&frame(1, 4, 1, &answer), NOW).unwrap();
    assert!(client.heard.failed[0].contains("more header fields than we accept"));
    assert!(client.heard.failed[0].contains("ENHANCE_YOUR_CALM"));
}

/// RFC 9113 §10.5.1, RFC 6585 §5.
#[test]
fn a_request_that_is_too_large_can_be_answered() {
    let config = Config {
        max_fields: 10,
        max_header_list: 2000,
        ..Config::requests()
    };
    let many = [b"\x82\x86\x84".to_vec(), b"\0\x01a\x01b".repeat(11)].concat();
    let mut large = b"\x82\x86\x84\0\x01a\x7f\xd1\x0e".to_vec();
    large.extend([b'x'; 2000]);
    for block in [many, large] {
        let mut server = server(config.clone());
        let bytes = [frame(1, 4, 1, &block), frame(0, 1, 1, b"body")].concat();
        server.receive(&bytes, NOW).unwrap();
        let (id, what, _) = &server.heard.blocks[0];
        assert_eq!((*id, *what), (1, "too large"));
        // Such requests are not free: an allowance bounds them.
        let ended = (0..1000).find_map(|n| {
            let bytes = frame(1, 5, 3 + 2 * n, &block);
            let event = match server.connection.receive(&mut &bytes[..], NOW) {
                Ok(event) => event,
                Err(error) => return Some((n, error)),
            };
            let Some(Event::TooLarge { stream, end: true }) = event else {
                panic!("{event:?}")
            };
            let fields = [Field::known(Known::Status, "431")];
            let connection = &mut server.connection;
            assert_eq!(connection.respond(stream, None, &fields, true), Ok(()));
            connection.release(stream);
            assert_eq!(connection.active(), 1);
            server.write(usize::MAX);
            server.wire.clear();
            None
        });
        let (count, error) = ended.expect("it ends");
        assert!(count > 100, "{count}");
        assert_eq!(error.cause, Cause::Abuse(Abuse::ProvokedResets));
    }
}

#[test]
fn an_extended_connect_opens_a_tunnel() {
    let config = Config::requests().share();
    let mut pair = Pair::new(&config, &config);
    let fields = [
        Field::new(":method", "CONNECT"),
        Field::new(":protocol", "websocket"),
        Field::new(":scheme", "https"),
        Field::new(":path", "/chat"),
        Field::new(":authority", "a"),
        Field::new("content-length", "3"),
    ];
    let client = &mut pair.client.connection;
    assert!(!client.allows_extended_connect());
    let early = client.request(None, &fields, false);
    assert_eq!(early, Err(RequestError::ExtendedConnect));
    pair.settle();
    let client = &mut pair.client.connection;
    assert!(client.allows_extended_connect());
    let stream = client.request(None, &fields, false).unwrap();
    client.send(stream, "longer than it says".into()).unwrap();
    pair.settle();
    let (_, what, got) = &pair.server.heard.blocks[0];
    assert_eq!(*what, "request");
    assert!(got.contains(&(":protocol".to_owned(), "websocket".to_owned())));
    let server = &mut pair.server.connection;
    server.respond(stream, Some(&ok()), &[], false).unwrap();
    server.send(stream, "both ways".into()).unwrap();
    pair.settle();
    assert_eq!(pair.client.heard.data[&1].0, b"both ways");
    assert_eq!(pair.server.heard.data[&1].0, b"longer than it says");
}

#[test]
fn an_extended_connect_is_malformed_where_it_is_not_announced() {
    let mut block = CONNECT.to_vec();
    block.extend(b"\x86\x84\0\x09:protocol\x09websocket");
    let mut tunnels = server(small());
    tunnels.receive(&frame(1, 4, 1, &block), NOW).unwrap();
    assert_eq!(tunnels.heard.failed.len(), 1);
    let mut requests = server(Config::requests());
    requests.receive(&frame(1, 4, 1, &block), NOW).unwrap();
    assert_eq!(requests.heard.heads.len(), 1);
    // A client of a server that does not announce it.
    let client = asking(small(), "GET");
    assert!(!client.connection.allows_extended_connect());
}

/// RFC 8441 §3.
#[test]
fn the_setting_of_extended_connect_is_0_or_1_and_not_taken_back() {
    let setting = |value: u8| frame(4, 0, 0, &[0, 8, 0, 0, 0, value]);
    for (values, good) in [
        (&[0][..], true),
        (&[1, 1], true),
        (&[0, 1], true),
        (&[2], false),
        (&[1, 0], false),
    ] {
        let mut client = asking(small(), "GET");
        let result = values
            .iter()
            .try_for_each(|value| client.receive(&setting(*value), NOW));
        let expected = match good {
            true => Ok(()),
            false => Err(Cause::Setting),
        };
        assert_eq!(result.map_err(|error| error.cause), expected, "{values:?}");
    }
}

#[test]
fn huffman_strings_are_shorter_and_read_alike() {
    let mut lengths = Vec::new();
    for huffman in [false, true] {
        let config = Config { huffman, ..small() }.share();
        let mut pair = Pair::new(&config, &config);
        pair.settle();
        let secret = Field::new("authorization", "Bearer abcdefghijklmnop").secret();
        let fields = [&ordinary("GET")[..], &[secret]].concat();
        let client = &mut pair.client.connection;
        client.request(None, &fields, true).unwrap();
        pair.client.write(usize::MAX);
        lengths.push(pair.client.wire.len());
        pair.settle();
        let got = &pair.server.heard.blocks[0].2;
        let sent = |field: &Field<'_>| {
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            (text(field.name), text(field.value))
        };
        assert_eq!(*got, fields.iter().map(sent).collect::<Vec<_>>());
    }
    assert!(lengths[1] * 10 < lengths[0] * 9, "{lengths:?}");
}

/// Libraries of gRPC send the text of an error as it is, which may end in a space.
#[test]
fn an_answer_has_its_values_without_blanks_at_their_ends() {
    let mut client = asking(small(), "GET");
    let head = b"\x88\0\x06x-tail\x02 a\0\x06x-both\x05\t b \t";
    client.receive(&frame(1, 4, 1, head), NOW).unwrap();
    let trailers = b"\0\x0cgrpc-message\x0bnot found: \0\x07x-blank\x02 \t";
    client.receive(&frame(1, 5, 1, trailers), NOW).unwrap();
    let heard = [
        (
            1,
            "response",
            list(&[(":status", "200"), ("x-tail", "a"), ("x-both", "b")]),
        ),
        (
            1,
            "trailers",
            list(&[("grpc-message", "not found:"), ("x-blank", "")]),
        ),
    ];
    assert_eq!(client.heard.blocks, heard);
    assert_eq!(client.heard.failed.len(), 0);
    // The status is no text.
    let mut client = asking(small(), "GET");
    let status = b"\x08\x04200 ";
    client.receive(&frame(1, 4, 1, status), NOW).unwrap();
    assert_eq!(client.heard.failed.len(), 1);
    // A request may be read differently behind a server that takes it.
    let mut server = server(small());
    let asked = b"\x82\x86\x84\x01\x01a\0\x06x-tail\x02a ";
    server.receive(&frame(1, 5, 1, asked), NOW).unwrap();
    assert_eq!(server.heard.failed.len(), 1);
}
