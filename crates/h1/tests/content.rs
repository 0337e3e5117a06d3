//! Content of messages: lengths, chunks, trailers, and content that the end of the connection ends.

mod common;

use bytes::Bytes;
use common::*;
use lateen_h1::{Config, Error, ServerEvent};

const CHUNKED: &str = "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n";

/// Content, trailers, the fault, and true if the message is complete.
type Outcome = (Vec<u8>, Vec<(String, String)>, Option<Error>, bool);

fn chunked(body: &str) -> Outcome {
    let input = format!("{CHUNKED}{body}");
    let (mut messages, error, _) = requests(Config::default(), &[input.as_bytes()]);
    let message = messages.remove(0);
    (
        message.content,
        message.trailers,
        error,
        message.is_complete,
    )
}

#[test]
fn content_of_a_known_length_ends_with_its_last_byte() {
    let (messages, error, rest) = requests(
        Config::default(),
        &[b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\n\r\nabcGET /b"],
    );
    assert_eq!(error, None);
    assert_eq!(
        (&messages[0].content[..], messages[0].is_complete),
        (&b"abc"[..], true)
    );
    assert_eq!(rest, b"", "the next head is collected");
    let (messages, _, _) = requests(
        Config::default(),
        &[b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\n\r\nabc"],
    );
    assert!(!messages[0].is_complete);
}

#[test]
fn content_is_a_slice_of_the_input() {
    let input = Bytes::from(format!("{CHUNKED}3\r\nabc\r\n0\r\n\r\n"));
    let range = input.as_ptr_range();
    let (mut server, mut rest) = (server(), input.clone());
    let mut slices = 0;
    while let Some(event) = server.receive(&mut rest).unwrap() {
        if let ServerEvent::Data { bytes, .. } = event {
            assert!(range.contains(&bytes.as_ptr()));
            slices += 1;
        }
    }
    assert_eq!(slices, 1);
}

#[test]
fn input_is_left_alone_while_the_caller_does_not_read() {
    let mut input = Bytes::from(format!("{CHUNKED}3\r\nabc\r\n3\r\ndef\r\n0\r\n\r\n"));
    let mut server = server();
    server.receive(&mut input).unwrap();
    let before = input.len();
    server.receive(&mut input).unwrap();
    assert_eq!(
        before - input.len(),
        "3\r\nabc".len(),
        "one event takes no more than its bytes"
    );
}

#[test]
fn chunks_are_joined() {
    for (body, content) in [
        ("0\r\n\r\n", ""),
        ("3\r\nabc\r\n0\r\n\r\n", "abc"),
        ("1\r\na\r\n2\r\nbc\r\n0\r\n\r\n", "abc"),
        ("a\r\n0123456789\r\n00\r\n\r\n", "0123456789"),
        ("A\r\n0123456789\r\n0\r\n\r\n", "0123456789"),
        ("00000003\r\nabc\r\n000\r\n\r\n", "abc"),
        ("3;a=b;c\r\nabc\r\n0;d=\"e f\"\r\n\r\n", "abc"),
        ("2\r\n\r\n\r\n0\r\n\r\n", "\r\n"),
    ] {
        assert_eq!(
            chunked(body),
            (content.into(), vec![], None, true),
            "{body:?}"
        );
    }
}

#[test]
fn malformed_chunks_are_refused() {
    use Error::*;
    for (body, error) in [
        ("\r\n", ChunkSize),
        (";a\r\n", ChunkSize),
        ("g\r\n", ChunkSize),
        ("-1\r\n", ChunkSize),
        ("+1\r\n", ChunkSize),
        ("0x1\r\n", ChunkSize),
        (" 1\r\n", ChunkSize),
        ("1 \r\na\r\n", ChunkSize),
        ("1 ;a\r\na\r\n", ChunkSize),
        ("1_0\r\n", ChunkSize),
        ("1\na", BareLineFeed),
        ("1;a\nb", BareLineFeed),
        ("1;a\rb", BareCarriageReturn),
        ("1;a\0\r\n", ControlCharacter),
        ("1\ra", BareCarriageReturn),
        ("1\r\nab\r\n", ChunkEnd),
        ("1\r\na\n", ChunkEnd),
        ("1\r\na0\r\n", ChunkEnd),
        ("1\r\na\rb", ChunkEnd),
        ("1\r\na\r\n\r\n", ChunkSize),
        ("1000000000000000\r\n", ChunkSizeOverflow),
        ("ffffffffffffffffff\r\n", ChunkSizeOverflow),
        ("0\r\n\n", BareLineFeed),
        ("0\r\na: b\n\r\n", BareLineFeed),
        ("0\r\na\r\n\r\n", FieldName),
        ("0\r\n a: b\r\n\r\n", FoldedLine),
        ("0\r\na : b\r\n\r\n", SpaceBeforeColon),
    ] {
        let (_, _, found, is_complete) = chunked(body);
        assert_eq!((found, is_complete), (Some(error), false), "{body:?}");
    }
}

#[test]
fn chunk_extensions_are_bounded_over_all_chunks() {
    let (_, _, error, _) = chunked(&format!("1;{}\r\na\r\n0\r\n\r\n", "x".repeat(16_000)));
    assert_eq!(error, None);
    let (_, _, error, _) = chunked(&format!("1;{}\r\na\r\n0\r\n\r\n", "x".repeat(17_000)));
    assert_eq!(error, Some(Error::ChunkOverhead));
    let (_, _, error, _) = chunked(&format!(
        "{}0\r\n\r\n",
        format!("1;{}\r\na\r\n", "x".repeat(1000)).repeat(18)
    ));
    assert_eq!(error, Some(Error::ChunkOverhead));
    let (_, _, error, _) = chunked(&format!("1{}\r\n", "0".repeat(3)));
    assert_eq!(error, None);
    let (_, _, error, _) = chunked(&"0".repeat(20_000));
    assert_eq!(error, Some(Error::ChunkOverhead));
}

#[test]
fn small_chunks_without_extensions_are_accepted() {
    let mut input = Bytes::from(format!(
        "{CHUNKED}{}10\r\n{}\r\n0\r\n\r\n",
        "1\r\na\r\n".repeat(5000),
        "b".repeat(16)
    ));
    let mut server = server();
    let mut length = 0;
    while let Some(event) = server.receive(&mut input).unwrap() {
        if let ServerEvent::Data { bytes, .. } = event {
            length += bytes.len();
        }
    }
    assert_eq!(length, 5000 + 16);
    server.respond(200, [], lateen_h1::Length::None).unwrap();
}

#[test]
fn trailers_are_apart_from_headers_and_forbidden_ones_are_dropped() {
    let mut input = Bytes::from(format!(
        "{CHUNKED}1\r\na\r\n0\r\nx: 1\r\nContent-Length: 9\r\nhost: b\r\nTransfer-Encoding: chunked\r\ny: 2\r\n\r\n"
    ));
    let mut server = server();
    let mut found = None;
    while let Some(event) = server.receive(&mut input).unwrap() {
        if let ServerEvent::Trailers(trailers) = event {
            found = Some(trailers);
        }
    }
    let trailers = found.expect("trailers");
    assert_eq!(
        pairs(&trailers.fields),
        [("x".into(), "1".into()), ("y".into(), "2".into())]
    );
    assert_eq!(trailers.dropped, 3);
    assert!(!server.wants_input());
}

#[test]
fn trailers_are_bounded_as_heads_are() {
    let (_, _, error, _) = chunked(&format!("0\r\n{}\r\n", "x: y\r\n".repeat(101)));
    assert_eq!(error, Some(Error::TooManyFields));
    let (_, _, error, _) = chunked(&format!("0\r\n{}\r\n", "host: y\r\n".repeat(101)));
    assert_eq!(error, Some(Error::TooManyFields), "dropped fields count");
    let (_, _, error, _) = chunked(&format!("0\r\nx: {}\r\n\r\n", "y".repeat(61_440)));
    assert_eq!(error, Some(Error::HeadTooLarge));
}

#[test]
fn content_may_end_with_the_connection_in_responses_alone() {
    let (messages, error) = responses("GET", &[b"HTTP/1.1 200 OK\r\n\r\nabc", b"def"], true);
    assert_eq!(
        (&messages[0].content[..], messages[0].is_complete, error),
        (&b"abcdef"[..], true, None)
    );
    let (messages, error, rest) = requests(
        Config::default(),
        &[b"POST / HTTP/1.1\r\nhost: a\r\n\r\nabc\r\n\r\n"],
    );
    assert_eq!(
        (messages[0].content.len(), messages[0].is_complete),
        (0, true)
    );
    assert_eq!(
        (error, &rest[..]),
        (Some(Error::RequestLine), &b"abc\r\n\r\n"[..]),
        "what follows is no content"
    );
}

#[test]
fn a_message_that_is_cut_off_is_not_complete() {
    for input in [
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhell",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n",
        "HTTP/1.1 200 OK\r\nconte",
    ] {
        let (_, error) = responses("GET", &[input.as_bytes()], true);
        assert_eq!(error, Some(Error::Truncated), "{input:?}");
    }
    assert_eq!(
        responses("GET", &[b""], true).1,
        Some(Error::ClosedUnanswered)
    );
    for input in [
        "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nhell",
        "GET / HT",
    ] {
        let mut server = server();
        let mut input = Bytes::copy_from_slice(input.as_bytes());
        while server.receive(&mut input).unwrap().is_some() {}
        assert_eq!(server.end_of_input(), Err(Error::Truncated));
    }
}
