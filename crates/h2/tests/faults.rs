//! What peers may not do.

mod common;

use common::*;
use lateen_h2::{Cause, Code, Timestamp};

const NOW: Timestamp = Timestamp::from_micros(1_000_000);

/// RFC 9113: what ends a connection, and with which code.
#[test]
fn faults_of_the_connection() {
    let ack = frame(4, 1, 0, &[]);
    let table: Vec<(&str, Vec<u8>, Code)> = vec![
        (
            "data on no stream",
            frame(0, 0, 0, b"x"),
            Code::PROTOCOL_ERROR,
        ),
        (
            "data on an idle stream",
            frame(0, 0, 5, b"x"),
            Code::PROTOCOL_ERROR,
        ),
        (
            "headers on no stream",
            frame(1, 4, 0, CONNECT),
            Code::PROTOCOL_ERROR,
        ),
        (
            "a stream that is not a client's",
            frame(1, 4, 2, CONNECT),
            Code::PROTOCOL_ERROR,
        ),
        (
            "a reset of an idle stream",
            frame(3, 0, 5, &[0; 4]),
            Code::PROTOCOL_ERROR,
        ),
        (
            "a short reset",
            frame(3, 0, 1, &[0; 3]),
            Code::FRAME_SIZE_ERROR,
        ),
        (
            "settings on a stream",
            frame(4, 0, 1, &[]),
            Code::PROTOCOL_ERROR,
        ),
        (
            "settings cut short",
            frame(4, 0, 0, &[0; 5]),
            Code::FRAME_SIZE_ERROR,
        ),
        (
            "an acknowledgement with something",
            frame(4, 1, 0, &[0; 6]),
            Code::FRAME_SIZE_ERROR,
        ),
        (
            "a window too large",
            frame(4, 0, 0, &[0, 4, 0x80, 0, 0, 0]),
            Code::FLOW_CONTROL_ERROR,
        ),
        (
            "frames too small",
            frame(4, 0, 0, &[0, 5, 0, 0, 0, 1]),
            Code::PROTOCOL_ERROR,
        ),
        (
            "frames too large",
            frame(4, 0, 0, &[0, 5, 1, 0, 0, 0]),
            Code::PROTOCOL_ERROR,
        ),
        (
            "push neither on nor off",
            frame(4, 0, 0, &[0, 2, 0, 0, 0, 2]),
            Code::PROTOCOL_ERROR,
        ),
        (
            "an acknowledgement of nothing",
            ack.clone(),
            Code::PROTOCOL_ERROR,
        ),
        (
            "a promise",
            frame(5, 4, 1, &[0, 0, 0, 2, 0x82]),
            Code::PROTOCOL_ERROR,
        ),
        (
            "a ping of seven",
            frame(6, 0, 0, &[0; 7]),
            Code::FRAME_SIZE_ERROR,
        ),
        (
            "a ping on a stream",
            frame(6, 0, 1, &[0; 8]),
            Code::PROTOCOL_ERROR,
        ),
        (
            "a go-away of seven",
            frame(7, 0, 0, &[0; 7]),
            Code::FRAME_SIZE_ERROR,
        ),
        (
            "a go-away on a stream",
            frame(7, 0, 1, &[0; 8]),
            Code::PROTOCOL_ERROR,
        ),
        (
            "an increment of nothing",
            frame(8, 0, 0, &[0; 4]),
            Code::PROTOCOL_ERROR,
        ),
        (
            "a window beyond the largest",
            frame(8, 0, 0, &[0x7f, 0xff, 0xff, 0xff]),
            Code::FLOW_CONTROL_ERROR,
        ),
        (
            "an update of an idle stream",
            frame(8, 0, 5, &[0, 0, 0, 1]),
            Code::PROTOCOL_ERROR,
        ),
        (
            "a continuation of nothing",
            frame(9, 4, 1, CONNECT),
            Code::PROTOCOL_ERROR,
        ),
        (
            "a block interrupted",
            [frame(1, 0, 3, CONNECT), ack].concat(),
            Code::PROTOCOL_ERROR,
        ),
        (
            "another stream's continuation",
            [frame(1, 0, 3, CONNECT), frame(9, 4, 5, &[])].concat(),
            Code::PROTOCOL_ERROR,
        ),
        (
            "a block that cannot be read",
            frame(1, 4, 3, &[0xff; 9]),
            Code::COMPRESSION_ERROR,
        ),
        (
            "more padding than frame",
            frame(0, 8, 1, &[5, 1]),
            Code::PROTOCOL_ERROR,
        ),
        (
            "padding one longer than what is left",
            frame(0, 8, 1, &[2, 1]),
            Code::PROTOCOL_ERROR,
        ),
        (
            "padding of nothing",
            frame(0, 8, 1, &[]),
            Code::FRAME_SIZE_ERROR,
        ),
        (
            "a frame too large",
            vec![0x10, 0, 0, 0, 0, 0, 0, 0, 1],
            Code::FRAME_SIZE_ERROR,
        ),
        (
            "data behind the end",
            [frame(0, 1, 1, b"x"), frame(0, 0, 1, b"x")].concat(),
            Code::STREAM_CLOSED,
        ),
        (
            "headers behind the end",
            [frame(0, 1, 1, b"x"), frame(1, 5, 1, CONNECT)].concat(),
            Code::STREAM_CLOSED,
        ),
        (
            "data behind a reset",
            [frame(3, 0, 1, &[0; 4]), frame(0, 0, 1, b"x")].concat(),
            Code::STREAM_CLOSED,
        ),
    ];
    for (what, bytes, code) in table {
        for cut in [1, 4, usize::MAX] {
            let mut server = server(small());
            server.receive(&frame(1, 4, 1, CONNECT), NOW).unwrap();
            server.write(usize::MAX);
            server.wire.clear();
            let result = bytes
                .chunks(cut.min(bytes.len()))
                .try_for_each(|piece| server.receive(piece, NOW));
            let error = result.expect_err(what);
            assert_eq!(error.code, code, "{what}: {error}");
            server.write(usize::MAX);
            // The last frame says so.
            let farewell = &server.wire[server.wire.len() - 17..];
            assert_eq!(farewell[3], 7, "{what}");
            assert_eq!(farewell[13..], code.0.to_be_bytes(), "{what}");
            assert_eq!(server.receive(&frame(6, 0, 0, &[0; 8]), NOW), Err(error));
        }
    }
    let end = lateen_h2::Connection::server(&small().share(), NOW);
    assert_eq!(
        End::new(end)
            .receive(b"GET / HTTP/1.1\r\n", NOW)
            .unwrap_err()
            .cause,
        Cause::Preface
    );
    let end = lateen_h2::Connection::client(&small().share(), NOW);
    assert_eq!(
        End::new(end)
            .receive(&frame(6, 0, 0, &[0; 8]), NOW)
            .unwrap_err()
            .cause,
        Cause::Preface
    );
}

/// What costs a stream and nothing else.
#[test]
fn faults_of_a_stream() {
    let table: Vec<(&str, Vec<u8>, Code)> = vec![
        (
            "no authority",
            frame(1, 4, 3, b"\x02\x07CONNECT"),
            Code::PROTOCOL_ERROR,
        ),
        (
            "a capital letter",
            frame(1, 4, 3, &[CONNECT, b"\x00\x01A\x01b"].concat()),
            Code::PROTOCOL_ERROR,
        ),
        (
            "headers on a tunnel",
            frame(1, 4, 1, b"\x00\x01a\x01b"),
            Code::PROTOCOL_ERROR,
        ),
        (
            "an increment of nothing",
            frame(8, 0, 1, &[0; 4]),
            Code::PROTOCOL_ERROR,
        ),
        (
            "a window beyond the largest",
            frame(8, 0, 1, &[0x7f, 0xff, 0xff, 0xff]),
            Code::FLOW_CONTROL_ERROR,
        ),
    ];
    for (what, bytes, code) in table {
        let mut server = server(small());
        server.receive(&frame(1, 4, 1, CONNECT), NOW).unwrap();
        server.write(usize::MAX);
        server.wire.clear();
        server.receive(&bytes, NOW).expect(what);
        assert_eq!(server.heard.failed.len(), 1, "{what}");
        server.write(usize::MAX);
        let reset = &server.wire[server.wire.len() - 13..];
        assert_eq!(
            (reset[3], &reset[9..]),
            (3, &code.0.to_be_bytes()[..]),
            "{what}"
        );
        // What was under way meanwhile is no fault.
        server
            .receive(&[frame(0, 0, 1, b"x"), frame(0, 1, 1, b"x")].concat(), NOW)
            .expect(what);
        server.receive(&frame(1, 4, 5, CONNECT), NOW).expect(what);
        assert_eq!(server.heard.heads.len(), 2, "{what}");
    }
}

#[test]
fn data_beyond_a_window_is_refused() {
    let mut server = server(small());
    server.reads = false;
    for id in [1, 3] {
        server.receive(&frame(1, 4, id, CONNECT), NOW).unwrap();
    }
    server.receive(&frame(0, 0, 1, &[0; 65_535]), NOW).unwrap();
    server.receive(&frame(0, 0, 1, &[0; 1]), NOW).unwrap();
    assert!(
        server.heard.failed[0].contains("FLOW_CONTROL_ERROR"),
        "{:?}",
        server.heard.failed
    );
    let error = (0..1000).find_map(|_| server.receive(&frame(0, 0, 1, &[0; 65_536]), NOW).err());
    assert!(error.is_some(), "the connection's window ends too");
    let mut fresh = common::server(small());
    fresh.receive(&frame(1, 4, 1, CONNECT), NOW).unwrap();
    let error = fresh
        .receive(&frame(0, 0, 1, &[0; 65_536]), NOW)
        .unwrap_err();
    assert_eq!(error.code, Code::FLOW_CONTROL_ERROR);
}

/// A client's stream gets one answer.
#[test]
fn answers_that_nobody_may_give() {
    for (what, bytes) in [
        ("data first", frame(0, 0, 1, b"x")),
        ("no status", frame(1, 4, 1, b"\x00\x01a\x01b")),
        ("an end that informs", frame(1, 5, 1, b"\x08\x03103")),
        (
            "a header block on a tunnel",
            [frame(1, 4, 1, b"\x88"), frame(1, 4, 1, b"\x00\x01a\x01b")].concat(),
        ),
        (
            "another status on a tunnel",
            [frame(1, 4, 1, b"\x88"), frame(1, 5, 1, b"\x88")].concat(),
        ),
        ("another protocol", frame(1, 4, 1, b"\x08\x03101")),
        (
            "two answers",
            [frame(1, 4, 1, b"\x8c"), frame(1, 4, 1, b"\x8c")].concat(),
        ),
    ] {
        let mut client = client(small(), 1);
        client.receive(&bytes, NOW).expect(what);
        assert_eq!(client.heard.failed.len(), 1, "{what}");
    }
    let mut client = common::client(small(), 1);
    assert!(
        client.receive(&frame(1, 4, 3, b"\x88"), NOW).is_err(),
        "a stream that was not opened"
    );
    let mut client = common::client(small(), 1);
    // A refusal is no tunnel, and may have trailers.
    let refusal = [
        frame(1, 4, 1, b"\x8c"),
        frame(0, 0, 1, b"why"),
        frame(1, 5, 1, b"\x00\x01a\x01b"),
    ];
    client.receive(&refusal.concat(), NOW).unwrap();
    assert!(client.heard.failed.is_empty(), "{:?}", client.heard.failed);
    assert_eq!(client.connection.fields().get("a"), Some(&b"b"[..]));
}

/// Some peers end a tunnel so, as they do other answers.
#[test]
fn a_header_block_that_ends_a_tunnel_is_its_end() {
    let mut client = client(small(), 1);
    let last = [
        frame(1, 4, 1, b"\x08\x03103"),
        frame(1, 4, 1, b"\x88"),
        frame(0, 0, 1, b"all"),
        frame(1, 5, 1, b"\x00\x01a\x01b"),
    ];
    client.receive(&last.concat(), NOW).unwrap();
    assert!(client.heard.failed.is_empty(), "{:?}", client.heard.failed);
    let trailers = |other: &String| other.starts_with("Trailers");
    assert_eq!(
        client.heard.others.iter().filter(|o| trailers(o)).count(),
        1
    );
    let error = client.receive(&frame(0, 0, 1, b"more"), NOW).unwrap_err();
    assert_eq!(error.code, Code::STREAM_CLOSED);
}
