//! What a message says of its length, and what comes.

mod common;

use common::*;
use lateen_h2::Timestamp;

const NOW: Timestamp = Timestamp::from_micros(1_000_000);

/// RFC 9113 §8.1.1, and RFC 9110 §9.3.6 for tunnels.
#[test]
fn content_is_as_long_as_it_says() {
    // A GET or POST (its index in the static table) of so many bytes.
    let request = |said: &str| {
        let mut block = vec![0x83, 0x86, 0x84, 0x0f, 0x0d, said.len() as u8];
        block.extend(said.as_bytes());
        block
    };
    let post = |said: &str, flags: u8| frame(1, 4 | flags, 1, &request(said));
    let trailers = frame(1, 5, 1, b"\x00\x01a\x01b");
    for (what, bytes, good) in [
        (
            "as long",
            vec![post("4", 0), frame(0, 0, 1, b"lo"), frame(0, 1, 1, b"ng")],
            true,
        ),
        (
            "padded",
            vec![post("4", 0), frame(0, 9, 1, b"\x02long\0\0")],
            true,
        ),
        (
            "and trailers",
            vec![post("4", 0), frame(0, 0, 1, b"long"), trailers.clone()],
            true,
        ),
        ("nothing", vec![post("0", 1)], true),
        (
            "too long",
            vec![post("3", 0), frame(0, 0, 1, b"long")],
            false,
        ),
        (
            "too short",
            vec![post("5", 0), frame(0, 1, 1, b"long")],
            false,
        ),
        (
            "short, with trailers",
            vec![post("5", 0), frame(0, 0, 1, b"long"), trailers],
            false,
        ),
        ("none of it", vec![post("1", 1)], false),
        ("no number", vec![post("x", 0)], false),
        (
            "a tunnel",
            vec![
                frame(1, 4, 1, &[CONNECT, b"\x0f\x0d\x011"].concat()),
                frame(0, 1, 1, b"long"),
            ],
            true,
        ),
    ] {
        let mut server = server(small());
        server.receive(&bytes.concat(), NOW).expect(what);
        assert_eq!(server.heard.failed.is_empty(), good, "{what}");
        server.receive(&frame(1, 4, 3, CONNECT), NOW).expect(what);
        assert_eq!(
            server.connection.active(),
            if good { 2 } else { 1 },
            "{what}"
        );
    }
    for (what, bytes, good) in [
        (
            "an answer",
            vec![frame(1, 4, 1, b"\x8d\x0f\x0d\x011"), frame(0, 1, 1, b"x")],
            true,
        ),
        (
            "a short one",
            vec![frame(1, 4, 1, b"\x8d\x0f\x0d\x012"), frame(0, 1, 1, b"x")],
            false,
        ),
        (
            "a tunnel",
            vec![frame(1, 4, 1, b"\x88\x0f\x0d\x012"), frame(0, 1, 1, b"x")],
            true,
        ),
    ] {
        let mut client = client(small(), 1);
        client.receive(&bytes.concat(), NOW).expect(what);
        assert_eq!(client.heard.failed.is_empty(), good, "{what}");
    }
}

/// RFC 9110 §6.4.1, RFC 9113 §8.1.1: answers to requests of each method.
#[test]
fn an_answer_has_the_content_that_its_status_and_request_allow() {
    // A status, a content-length or none, and what follows.
    let head = |flags: u8, status: &str, length: Option<&str>| {
        let mut block = [b"\x08\x03", status.as_bytes()].concat();
        if let Some(length) = length {
            block.extend([0x0f, 0x0d, length.len() as u8]);
            block.extend(length.as_bytes());
        }
        frame(1, 4 | flags, 1, &block)
    };
    let data = |bytes: &[u8]| frame(0, 1, 1, bytes);
    let trailers = || frame(1, 5, 1, b"\0\x01a\x01b");
    for (method, what, bytes, good) in [
        (
            "GET",
            "as long",
            vec![head(0, "200", Some("4")), data(b"long")],
            true,
        ),
        (
            "GET",
            "too long",
            vec![head(0, "200", Some("3")), data(b"long")],
            false,
        ),
        (
            "GET",
            "too short",
            vec![head(0, "200", Some("5")), data(b"long")],
            false,
        ),
        ("GET", "nothing", vec![head(1, "200", Some("0"))], true),
        ("GET", "none of it", vec![head(1, "200", Some("1"))], false),
        ("GET", "no number", vec![head(1, "200", Some("x"))], false),
        (
            "GET",
            "unsaid",
            vec![head(0, "200", None), data(b"long")],
            true,
        ),
        (
            "GET",
            "a short error",
            vec![head(0, "404", Some("5")), data(b"long")],
            false,
        ),
        (
            "GET",
            "short, with trailers",
            vec![head(0, "200", Some("4")), trailers()],
            false,
        ),
        (
            "GET",
            "no content, with a length",
            vec![head(1, "204", Some("4"))],
            true,
        ),
        (
            "GET",
            "no content, and some",
            vec![head(0, "204", None), data(b"x")],
            false,
        ),
        ("GET", "not modified", vec![head(1, "304", Some("4"))], true),
        (
            "GET",
            "not modified, ended late",
            vec![head(0, "304", Some("4")), data(b"")],
            true,
        ),
        (
            "GET",
            "not modified, and content",
            vec![head(0, "304", Some("4")), data(b"long")],
            false,
        ),
        ("HEAD", "a length", vec![head(1, "200", Some("4"))], true),
        (
            "HEAD",
            "a length, and trailers",
            vec![head(0, "200", Some("4")), trailers()],
            true,
        ),
        (
            "HEAD",
            "content",
            vec![head(0, "200", Some("4")), data(b"long")],
            false,
        ),
        (
            "HEAD",
            "content without a length",
            vec![head(0, "404", None), data(b"x")],
            false,
        ),
        ("HEAD", "no number", vec![head(1, "200", Some("-1"))], false),
        (
            "POST",
            "behind an informational answer",
            vec![
                head(0, "100", Some("9")),
                head(0, "200", Some("4")),
                data(b"long"),
            ],
            true,
        ),
    ] {
        let mut client = asking(small(), method);
        client.receive(&bytes.concat(), NOW).expect(what);
        assert_eq!(
            client.heard.failed.is_empty(),
            good,
            "{method} {what}: {:?}",
            client.heard.failed
        );
        assert_eq!(client.connection.active(), 0, "{method} {what}");
    }
}

/// Each frame is held against the length of its own stream.
#[test]
fn a_thousand_bodies_are_counted_apart() {
    let mut server = server(lateen_h2::Config {
        max_streams: 1000,
        ..small()
    });
    let id = |n: usize| 1 + 2 * n as u32;
    for n in 0..1000 {
        let length = format!("{:04}", n % 7 + 1);
        let block = [b"\x83\x86\x84\x0f\x0d\x04", length.as_bytes()].concat();
        server.receive(&frame(1, 4, id(n), &block), NOW).unwrap();
    }
    let mut expected = 0;
    for round in 1..=7 {
        for n in 0..1000 {
            // Every hundredth ends a byte early.
            let length = n % 7 + 1 - usize::from(n % 100 == 99 && n % 7 > 0);
            if round <= length {
                let end = u8::from(round == length);
                server.receive(&frame(0, end, id(n), b"x"), NOW).unwrap();
            }
        }
    }
    for n in 0..1000 {
        expected += usize::from(n % 100 == 99 && n % 7 > 0);
    }
    assert_eq!(server.heard.failed.len(), expected);
}
