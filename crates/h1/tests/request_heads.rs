//! Request heads that a server accepts, and those that it refuses with their cause.

mod common;

use common::*;
use lateen_h1::{Config, Error, TargetForm, Version};

fn refusal(input: &[u8]) -> Option<Error> {
    let (messages, error, _) = requests(Config::default(), &[input]);
    assert!(
        error.is_none() || messages.is_empty(),
        "{:?} gave {messages:?}",
        text(input)
    );
    error
}

#[test]
fn a_head_is_split_into_its_parts() {
    let (_, head, rest) = opened(
        "POST /a?b=c HTTP/1.1\r\nHost: x:80\r\nX-A:\t one  two \t\r\nempty:\r\nContent-Length: 3\r\n\r\nabc",
    );
    assert_eq!(
        (head.method(), head.target()),
        (&b"POST"[..], &b"/a?b=c"[..])
    );
    assert_eq!(
        (head.form(), head.version()),
        (TargetForm::Origin, Version::Http11)
    );
    let fields = pairs(head.fields());
    let expected = [
        ("Host", "x:80"),
        ("X-A", "one  two"),
        ("empty", ""),
        ("Content-Length", "3"),
    ];
    assert_eq!(
        fields,
        expected.map(|(name, value)| (name.into(), value.into()))
    );
    assert_eq!(head.fields().get("x-a"), Some(&b"one  two"[..]));
    assert_eq!(head.fields().get("y"), None);
    assert_eq!(&rest[..], b"abc", "content stays in the input");
}

#[test]
fn a_head_in_one_piece_is_not_copied() {
    let input = bytes::Bytes::from(b"GET /target HTTP/1.1\r\nhost: a\r\n\r\nrest".to_vec());
    let range = input.as_ptr_range();
    let mut rest = input.clone();
    let Ok(Some(lateen_h1::ServerEvent::Request { head, .. })) = server().receive(&mut rest) else {
        panic!("a request")
    };
    assert!(range.contains(&head.target().as_ptr()));
    assert!(range.contains(&head.target_bytes().as_ptr()));
    assert!(range.contains(&head.fields().get("host").unwrap().as_ptr()));
}

#[test]
fn every_target_form_is_accepted_with_its_method() {
    for (line, form) in [
        ("GET /", TargetForm::Origin),
        ("GET http://a/b", TargetForm::Absolute),
        ("OPTIONS *", TargetForm::Asterisk),
        ("CONNECT a:80", TargetForm::Authority),
        ("M-SEARCH /", TargetForm::Origin),
    ] {
        let (_, head, _) = opened(&format!("{line} HTTP/1.1\r\nhost: a\r\n\r\n"));
        assert_eq!(head.form(), form, "{line}");
    }
}

#[test]
fn malformed_request_lines_are_refused() {
    for (line, error) in [
        ("GET /", Error::RequestLine),
        ("GET", Error::RequestLine),
        (" GET / HTTP/1.1", Error::RequestLine),
        ("GET  / HTTP/1.1", Error::RequestLine),
        ("GET /  HTTP/1.1", Error::RequestLine),
        ("GET / HTTP/1.1 ", Error::RequestLine),
        ("GET\t/ HTTP/1.1", Error::Method),
        ("GET /\tHTTP/1.1", Error::Target),
        ("GET / x HTTP/1.1", Error::RequestLine),
        ("GET / http/1.1", Error::RequestLine),
        ("GET / HTTP/1.10", Error::RequestLine),
        ("GET / HTTP/1", Error::RequestLine),
        ("GET / HTTP/11", Error::RequestLine),
        ("GET / HTTPS/1.1", Error::RequestLine),
        ("GET / HTTP/1.2", Error::Version),
        ("GET / HTTP/2.0", Error::Version),
        ("GET / HTTP/0.9", Error::Version),
        ("PRI * HTTP/2.0", Error::Version),
        ("G(T / HTTP/1.1", Error::Method),
        ("GET: / HTTP/1.1", Error::Method),
        ("G\u{e9}T / HTTP/1.1", Error::Method),
        ("GET /\u{e9} HTTP/1.1", Error::Target),
        ("GET /\0 HTTP/1.1", Error::Target),
        ("GET /\x7f HTTP/1.1", Error::Target),
        ("GET /#a HTTP/1.1", Error::Target),
        ("GET a HTTP/1.1", Error::Target),
        ("GET * HTTP/1.1", Error::Target),
        ("GET a:80 HTTP/1.1", Error::Target),
        ("CONNECT / HTTP/1.1", Error::Target),
        ("CONNECT a HTTP/1.1", Error::Target),
        ("CONNECT * HTTP/1.1", Error::Target),
        ("GET /\rHTTP/1.1", Error::BareCarriageReturn),
    ] {
        let input = format!("{line}\r\nhost: a\r\n\r\n");
        assert_eq!(refusal(input.as_bytes()), Some(error), "{line:?}");
    }
}

#[test]
fn malformed_field_lines_are_refused() {
    for (line, error) in [
        ("a b: c", Error::FieldName),
        ("a", Error::FieldName),
        ("a : b", Error::SpaceBeforeColon),
        ("a\t: b", Error::SpaceBeforeColon),
        (": b", Error::EmptyName),
        (" a: b", Error::FoldedLine),
        ("\ta: b", Error::FoldedLine),
        (" folded", Error::FoldedLine),
        ("a(b): c", Error::FieldName),
        ("a\u{e9}: c", Error::FieldName),
        ("a\0: c", Error::FieldName),
        ("a: b\0", Error::ControlCharacter),
        ("a: b\x01c", Error::ControlCharacter),
        ("a: b\x7fc", Error::ControlCharacter),
        ("a: b\rc", Error::BareCarriageReturn),
        ("a: b\r\r", Error::BareCarriageReturn),
        ("a\rb: c", Error::BareCarriageReturn),
        ("a: b\nc: d", Error::BareLineFeed),
        ("a\nb: c", Error::BareLineFeed),
        ("\nb: c", Error::BareLineFeed),
    ] {
        let input = format!("GET / HTTP/1.1\r\nhost: a\r\n{line}\r\n\r\n");
        assert_eq!(refusal(input.as_bytes()), Some(error), "{line:?}");
    }
    for line in [
        "GET / HTTP/1.1\nhost: a\r\n\r\n",
        "\nGET / HTTP/1.1\r\nhost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: a\r\n\n",
    ] {
        assert_eq!(
            refusal(line.as_bytes()),
            Some(Error::BareLineFeed),
            "{line:?}"
        );
    }
}

#[test]
fn values_keep_inner_white_space_and_bytes_beyond_ascii() {
    let (messages, error, _) = requests(
        Config::default(),
        &[b"GET / HTTP/1.1\r\nhost: a\r\nx: \xe9 \t b\r\n\r\n"],
    );
    assert_eq!(error, None);
    assert_eq!(messages[0].fields[1].1, "\u{e9} \t b");
}

#[test]
fn contradictory_framing_is_refused() {
    use Error::*;
    for (fields, error) in [
        (
            "content-length: 1\r\ncontent-length: 2",
            ContentLengthRepeated,
        ),
        (
            "content-length: 1\r\nContent-Length: 1",
            ContentLengthRepeated,
        ),
        ("content-length: 1, 1", ContentLength),
        ("content-length: 1,", ContentLength),
        ("content-length:", ContentLength),
        ("content-length: +1", ContentLength),
        ("content-length: -1", ContentLength),
        ("content-length: 0x1", ContentLength),
        ("content-length: 1 2", ContentLength),
        ("content-length: 1.0", ContentLength),
        ("content-length: 18446744073709551616", ContentLength),
        (
            "content-length: 1\r\ntransfer-encoding: chunked",
            LengthAndCoding,
        ),
        (
            "transfer-encoding: chunked\r\ncontent-length: 0",
            LengthAndCoding,
        ),
        (
            "transfer-encoding: gzip\r\ncontent-length: 0",
            LengthAndCoding,
        ),
        ("transfer-encoding: gzip", CodingUnknown),
        ("transfer-encoding: gzip, chunked", CodingUnknown),
        ("transfer-encoding: chunked, gzip", CodingUnknown),
        ("transfer-encoding: identity, chunked", CodingUnknown),
        ("transfer-encoding: identity", CodingUnknown),
        ("transfer-encoding: xchunked", CodingUnknown),
        (
            "transfer-encoding: chunked\r\ntransfer-encoding: identity",
            CodingUnknown,
        ),
        ("transfer-encoding: chunked, chunked", CodingMalformed),
        (
            "transfer-encoding: chunked\r\ntransfer-encoding: chunked",
            CodingMalformed,
        ),
        ("transfer-encoding:", CodingMalformed),
        ("transfer-encoding: ,", CodingMalformed),
        ("transfer-encoding: ,chunked", CodingMalformed),
        ("transfer-encoding: chunked;q=1", CodingMalformed),
        ("transfer-encoding: \"chunked\"", CodingMalformed),
        ("transfer-encoding: chunked chunked", CodingMalformed),
        ("transfer-encoding : chunked", SpaceBeforeColon),
        ("transfer-encoding: \x0bchunked", ControlCharacter),
    ] {
        let input = format!("POST / HTTP/1.1\r\nhost: a\r\n{fields}\r\n\r\n");
        assert_eq!(refusal(input.as_bytes()), Some(error), "{fields:?}");
    }
    let old = b"POST / HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n";
    assert_eq!(refusal(old), Some(CodingInHttp10));
    for framing in [
        "content-length: 1",
        "content-length: 0",
        "transfer-encoding: chunked",
    ] {
        let input = format!("CONNECT a:80 HTTP/1.1\r\nhost: a\r\n{framing}\r\n\r\n");
        assert_eq!(refusal(input.as_bytes()), Some(ConnectContent), "{framing}");
    }
}

#[test]
fn a_request_has_exactly_one_valid_host() {
    use Error::*;
    for (head, error) in [
        ("GET / HTTP/1.1\r\n", Some(HostMissing)),
        ("GET http://a/ HTTP/1.1\r\n", Some(HostMissing)),
        (
            "GET / HTTP/1.1\r\nhost: a\r\nHost: a\r\n",
            Some(HostRepeated),
        ),
        (
            "GET / HTTP/1.0\r\nhost: a\r\nHost: b\r\n",
            Some(HostRepeated),
        ),
        ("GET / HTTP/1.1\r\nhost: a,b\r\n", Some(HostInvalid)),
        ("GET / HTTP/1.1\r\nhost: a b\r\n", Some(HostInvalid)),
        ("GET / HTTP/1.1\r\nhost: u@a\r\n", Some(HostInvalid)),
        ("GET / HTTP/1.1\r\nhost: a/b\r\n", Some(HostInvalid)),
        ("GET / HTTP/1.0\r\n", None),
        ("GET / HTTP/1.1\r\nhost:\r\n", None),
        ("GET / HTTP/1.1\r\nhost: [::1]:80\r\n", None),
    ] {
        assert_eq!(refusal(format!("{head}\r\n").as_bytes()), error, "{head:?}");
    }
}

#[test]
fn empty_lines_before_a_request_are_bounded() {
    let input = |lines: usize| format!("{}GET / HTTP/1.1\r\nhost: a\r\n\r\n", "\r\n".repeat(lines));
    assert_eq!(refusal(input(4).as_bytes()), None);
    assert_eq!(refusal(input(5).as_bytes()), Some(Error::EmptyLines));
}

#[test]
fn limits_of_a_head_hold_to_the_byte() {
    let head = |target: usize, value: usize| {
        format!(
            "GET /{} HTTP/1.1\r\nhost: a\r\nx: {}\r\n\r\n",
            "a".repeat(target),
            "b".repeat(value)
        )
    };
    let fixed = head(0, 0).len();
    let most = 60 * 1024;
    assert_eq!(refusal(head(0, most - fixed).as_bytes()), None);
    assert_eq!(
        refusal(head(0, most - fixed + 1).as_bytes()),
        Some(Error::HeadTooLarge)
    );
    assert_eq!(refusal(head(most - fixed, 0).as_bytes()), None);
    assert_eq!(
        refusal(head(most, 0).as_bytes()),
        Some(Error::TargetTooLong)
    );
    assert_eq!(refusal(&vec![b'A'; most]), Some(Error::TargetTooLong));
    assert_eq!(refusal(&vec![b'A'; most - 1]), None, "more is awaited");
}

#[test]
fn the_number_of_fields_is_bounded() {
    let head = |fields: usize| {
        format!(
            "GET / HTTP/1.1\r\nhost: a\r\n{}\r\n",
            "x: y\r\n".repeat(fields - 1)
        )
    };
    assert_eq!(refusal(head(100).as_bytes()), None);
    assert_eq!(refusal(head(101).as_bytes()), Some(Error::TooManyFields));
}

#[test]
fn faults_have_the_status_that_answers_them() {
    for (error, status) in [
        (Error::HeadTooLarge, 431),
        (Error::TooManyFields, 431),
        (Error::TargetTooLong, 414),
        (Error::CodingUnknown, 501),
        (Error::Version, 505),
        (Error::BareLineFeed, 400),
        (Error::LengthAndCoding, 400),
        (Error::HostMissing, 400),
        (Error::Unsolicited, 502),
    ] {
        assert_eq!(error.status(), status, "{error}");
    }
}

#[test]
fn a_fault_can_be_answered_once_and_closes() {
    let mut server = server();
    let mut input = bytes::Bytes::from_static(
        b"GET / HTTP/3.0\r\nhost: a\r\n\r\nGET / HTTP/1.1\r\nhost: a\r\n\r\n",
    );
    let error = server.receive(&mut input).unwrap_err();
    server
        .respond(error.status(), [], lateen_h1::Length::Known(2))
        .unwrap();
    server.send(bytes::Bytes::from_static(b"no")).unwrap();
    assert_eq!(
        flush(&mut server),
        "HTTP/1.1 505 HTTP Version Not Supported\r\ncontent-length: 2\r\nconnection: close\r\n\r\nno"
    );
    assert!(server.is_done() && !server.wants_input());
    assert_eq!(
        server.receive(&mut input).unwrap_err(),
        error,
        "nothing behind a fault is read"
    );
    assert!(server.respond(400, [], lateen_h1::Length::None).is_err());
}
