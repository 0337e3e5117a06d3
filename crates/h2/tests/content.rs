//! What a message says of its length, and what comes.

mod common;

use common::*;
use lateen_h2::Moment;

const NOW: Moment = Moment::from_micros(1_000_000);

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
