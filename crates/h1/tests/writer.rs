//! The writer: what leaves is well-formed, and misuse leaves nothing.

mod common;

use bytes::Bytes;
use common::*;
use lateen_h1::{Field, Length, WriteError};

#[test]
fn fields_cannot_carry_line_ends_or_nul() {
    for (name, value) in [
        ("a", "b\r\nc: d"),
        ("a", "b\nc"),
        ("a", "b\rc"),
        ("a", "b\0c"),
        ("a", "\x7f"),
        ("a b", "c"),
        ("", "c"),
        ("a:", "c"),
        ("a\r\n", "c"),
    ] {
        assert_eq!(
            Field::new(name, value).unwrap_err(),
            WriteError::Field,
            "{name:?}: {value:?}"
        );
    }
    let field = field("a", " \tb\tc ");
    assert_eq!((field.name(), field.value()), (&b"a"[..], &b"b\tc"[..]));
}

#[test]
fn a_requests_line_is_judged() {
    let mut client = client();
    let host = field("host", "a");
    for (method, target, error) in [
        ("G T", "/", WriteError::Method),
        ("", "/", WriteError::Method),
        ("GET", "/ HTTP/1.1\r\nx: y", WriteError::Target),
        ("GET", "/a b", WriteError::Target),
        ("GET", "/#a", WriteError::Target),
        ("GET", "", WriteError::Target),
        ("GET", "*", WriteError::Target),
        ("CONNECT", "/", WriteError::Target),
    ] {
        assert_eq!(
            client.request(method.as_bytes(), target.as_bytes(), [host], Length::None),
            Err(error),
            "{method} {target}"
        );
    }
    assert_eq!(
        client.request(b"CONNECT", b"a:80", [host], Length::Known(1)),
        Err(WriteError::Content)
    );
    assert_eq!(
        client.request(b"GET", b"/", [], Length::None),
        Err(WriteError::Host)
    );
    assert_eq!(
        client.request(b"GET", b"/", [host, host], Length::None),
        Err(WriteError::Host)
    );
    assert_eq!(
        client.request(b"GET", b"/", [field("host", "a/b")], Length::None),
        Err(WriteError::Host)
    );
    assert_eq!(client.queued(), 0, "a refused call leaves nothing");
    client.request(b"GET", b"/", [host], Length::None).unwrap();
}

#[test]
fn the_caller_cannot_write_framing_fields() {
    for name in [
        "Content-Length",
        "transfer-encoding",
        "CONNECTION",
        "keep-alive",
        "proxy-connection",
    ] {
        let fields = [field("host", "a"), field(name, "1")];
        assert_eq!(
            client().request(b"GET", b"/", fields, Length::None),
            Err(WriteError::ReservedField),
            "{name}"
        );
        let (mut server, _, _) = opened("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
        assert_eq!(
            server.respond(200, [field(name, "1")], Length::None),
            Err(WriteError::ReservedField)
        );
        assert_eq!(
            server.inform(103, [field(name, "1")]),
            Err(WriteError::ReservedField)
        );
        assert_eq!(server.queued(), 0);
    }
}

#[test]
fn requests_announce_their_content() {
    let host = field("host", "a");
    let mut client = client();
    client
        .request(
            b"POST",
            b"/",
            [host, field("te", "trailers")],
            Length::Unknown,
        )
        .unwrap();
    assert!(client.takes_trailers());
    client.send(Bytes::from_static(b"abc")).unwrap();
    client.send(Bytes::new()).unwrap();
    client.send(Bytes::from(vec![b'x'; 300])).unwrap();
    client.trailers([field("grpc-status", "0")]).unwrap();
    let expected = format!(
        "POST / HTTP/1.1\r\nhost: a\r\nte: trailers\r\ntransfer-encoding: chunked\r\nconnection: te\r\n\r\n3\r\nabc\r\n12c\r\n{}\r\n0\r\ngrpc-status: 0\r\n\r\n",
        "x".repeat(300)
    );
    assert_eq!(flush_client(&mut client), expected);
    assert_eq!(client.send(Bytes::new()), Ok(()), "nothing is no content");
    assert_eq!(
        client.send(Bytes::from_static(b"late")),
        Err(WriteError::State)
    );
    for (length, line) in [
        (Length::None, ""),
        (Length::Known(0), "content-length: 0\r\n"),
        (Length::Known(12345), "content-length: 12345\r\n"),
    ] {
        let mut client = common::client();
        client.request(b"POST", b"/", [host], length).unwrap();
        assert_eq!(
            flush_client(&mut client),
            format!("POST / HTTP/1.1\r\nhost: a\r\n{line}\r\n")
        );
    }
}

#[test]
fn content_matches_the_announced_length() {
    let (mut server, _, _) = opened("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    assert_eq!(
        server.send(Bytes::from_static(b"a")),
        Err(WriteError::State),
        "no head yet"
    );
    assert_eq!(server.finish(), Err(WriteError::State));
    server.respond(200, [], Length::Known(3)).unwrap();
    assert_eq!(server.finish(), Err(WriteError::TooShort));
    server.send(Bytes::from_static(b"ab")).unwrap();
    let before = server.queued();
    assert_eq!(
        server.send(Bytes::from_static(b"cd")),
        Err(WriteError::TooLong)
    );
    assert_eq!(server.queued(), before, "nothing of the excess is written");
    assert_eq!(server.trailers([]), Err(WriteError::Content));
    server.send(Bytes::from_static(b"c")).unwrap();
    assert_eq!(server.finish(), Ok(()));
    assert!(server.is_idle());
}

#[test]
fn responses_without_content_carry_none() {
    for (method, status, length, told) in [
        ("HEAD", 200, Length::Known(9), "content-length: 9\r\n"),
        ("HEAD", 200, Length::Unknown, ""),
        ("HEAD", 200, Length::None, ""),
        ("GET", 304, Length::Known(9), "content-length: 9\r\n"),
        ("GET", 304, Length::None, ""),
        ("GET", 204, Length::None, ""),
        ("GET", 204, Length::Known(0), ""),
        ("GET", 200, Length::None, "content-length: 0\r\n"),
        ("GET", 799, Length::None, "content-length: 0\r\n"),
    ] {
        let (mut server, _, _) = opened(&format!("{method} / HTTP/1.1\r\nhost: a\r\n\r\n"));
        server.respond(status, [], length).unwrap();
        assert!(
            flush(&mut server).ends_with(&format!("\r\n{told}\r\n")),
            "{method} {status} {length:?}"
        );
        assert!(server.is_idle() && server.send(Bytes::from_static(b"x")).is_err());
    }
    let (mut server, _, _) = opened("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    for length in [Length::Known(1), Length::Unknown] {
        assert_eq!(server.respond(204, [], length), Err(WriteError::Content));
    }
    for status in [0, 99, 100, 199, 1000] {
        assert_eq!(
            server.respond(status, [], Length::None),
            Err(WriteError::Status),
            "{status}"
        );
    }
    for status in [99, 101, 200] {
        assert_eq!(
            server.inform(status, []),
            Err(WriteError::Status),
            "{status}"
        );
    }
}

#[test]
fn trailers_cannot_carry_framing_or_routing() {
    let (mut server, _, _) = opened("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    server.respond(200, [], Length::Unknown).unwrap();
    let before = server.queued();
    for name in [
        "content-length",
        "transfer-encoding",
        "host",
        "authorization",
        "set-cookie",
        "content-type",
    ] {
        assert_eq!(
            server.trailers([field("x", "y"), field(name, "1")]),
            Err(WriteError::ReservedField),
            "{name}"
        );
    }
    assert_eq!(server.queued(), before);
    server.trailers([field("x", "y")]).unwrap();
    assert!(flush(&mut server).ends_with("\r\n\r\n0\r\nx: y\r\n\r\n"));
}

#[test]
fn fields_of_a_head_are_forwarded_as_they_came() {
    let (_, head, _) =
        opened("GET / HTTP/1.1\r\nHost: a\r\nX:  b \r\nempty:\r\ny:c\r\nz: d\r\n\r\n");
    let mut client = client();
    client
        .request(b"GET", b"/", head.fields().iter(), Length::None)
        .unwrap();
    assert_eq!(
        flush_client(&mut client),
        "GET / HTTP/1.1\r\nHost: a\r\nX: b\r\nempty: \r\ny: c\r\nz: d\r\n\r\n"
    );
}

#[test]
fn payloads_are_written_by_reference() {
    let (mut server, _, _) = opened("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    server.respond(200, [], Length::Unknown).unwrap();
    let payload = Bytes::from(vec![7; 1000]);
    server.send(payload.clone()).unwrap();
    assert!(
        server
            .output()
            .any(|piece| piece.as_ptr() == payload.as_ptr())
    );
}
