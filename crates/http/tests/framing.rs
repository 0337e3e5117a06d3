//! Framing: exactly one length of the content, or a refusal.

mod common;

use common::*;
use lateen_http::*;

fn request(head: &str) -> Result<Length, (Cause, u16)> {
    let framed = raw1(head.as_bytes()).and_then(RawRequest::frame);
    framed
        .map(|framed| framed.length())
        .map_err(|refusal| (refusal.cause(), refusal.status().code()))
}

#[test]
fn requests_of_http1_have_one_length() {
    let post = |fields: &str| request(&format!("POST / HTTP/1.1\r\nhost: a\r\n{fields}\r\n"));
    assert_eq!(post(""), Ok(Length::None));
    assert_eq!(post("content-length: 42\r\n"), Ok(Length::Known(42)));
    assert_eq!(
        post("Transfer-Encoding: Chunked\r\n"),
        Ok(Length::Delimited)
    );
    for (fields, cause, status) in [
        (
            "content-length: 1\r\ncontent-length: 1\r\n",
            Cause::Duplicate(Known::ContentLength),
            400,
        ),
        (
            "content-length: 1\r\ncontent-length: 2\r\n",
            Cause::Duplicate(Known::ContentLength),
            400,
        ),
        ("content-length: 1, 1\r\n", Cause::Length, 400),
        ("content-length: +1\r\n", Cause::Length, 400),
        ("content-length: -1\r\n", Cause::Length, 400),
        ("content-length: 0x1\r\n", Cause::Length, 400),
        ("content-length:\r\n", Cause::Length, 400),
        (
            "content-length: 18446744073709551616\r\n",
            Cause::Length,
            400,
        ),
        (
            "content-length: 1\r\ntransfer-encoding: chunked\r\n",
            Cause::LengthAndCoding,
            400,
        ),
        ("transfer-encoding: identity\r\n", Cause::Coding, 501),
        ("transfer-encoding: gzip, chunked\r\n", Cause::Coding, 501),
        (
            "transfer-encoding: chunked, chunked\r\n",
            Cause::Coding,
            501,
        ),
        (
            "transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n",
            Cause::Coding,
            501,
        ),
        ("transfer-encoding: xchunked\r\n", Cause::Coding, 501),
        ("transfer-encoding: \"chunked\"\r\n", Cause::Coding, 501),
        ("transfer-encoding:\r\n", Cause::Coding, 501),
    ] {
        assert_eq!(post(fields), Err((cause, status)), "{fields:?}");
    }
    assert_eq!(
        request("POST / HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n"),
        Err((Cause::CodingInHttp10, 400))
    );
    assert_eq!(
        request("CONNECT a:80 HTTP/1.1\r\ncontent-length: 0\r\n\r\n"),
        Err((Cause::ConnectContent, 400))
    );
}

#[test]
fn requests_of_http2_have_one_length() {
    let of = |length: Option<&str>, ends| {
        let mut fields = vec![
            (":method", "POST"),
            (":scheme", "http"),
            (":authority", "a"),
            (":path", "/"),
        ];
        fields.extend(length.map(|length| ("content-length", length)));
        let framed = raw2(&bytes(&fields), ends).and_then(RawRequest::frame);
        framed
            .map(|framed| framed.length())
            .map_err(|refusal| refusal.cause())
    };
    assert_eq!(of(None, true), Ok(Length::None));
    assert_eq!(of(None, false), Ok(Length::Delimited));
    assert_eq!(of(Some("5"), false), Ok(Length::Known(5)));
    assert_eq!(of(Some("0"), true), Ok(Length::Known(0)));
    assert_eq!(of(Some("5"), true), Err(Cause::LengthOfNothing));
    assert_eq!(of(Some("x"), false), Err(Cause::Length));
}

#[test]
fn responses_have_the_length_that_request_and_status_say() {
    use Asked::*;
    let coded = &[("transfer-encoding", "chunked")][..];
    let long = &[("content-length", "5")][..];
    let empty = &[("content-length", "0")][..];
    let both = &[("content-length", "5"), ("transfer-encoding", "chunked")][..];
    for (asked, status, fields, expected) in [
        (Ordinary, 200, &[][..], Ok(Length::UntilClose)),
        (Ordinary, 200, long, Ok(Length::Known(5))),
        (Ordinary, 200, coded, Ok(Length::Delimited)),
        (Ordinary, 204, &[], Ok(Length::None)),
        (Ordinary, 204, empty, Ok(Length::None)),
        (Ordinary, 204, long, Err(Cause::LengthOfNothing)),
        (Ordinary, 204, coded, Err(Cause::CodingOfNothing)),
        (Ordinary, 103, &[], Ok(Length::None)),
        (Ordinary, 103, coded, Err(Cause::CodingOfNothing)),
        (Ordinary, 304, long, Ok(Length::None)),
        (Ordinary, 304, coded, Ok(Length::None)),
        (Ordinary, 304, both, Err(Cause::LengthAndCoding)),
        (Ordinary, 101, &[], Err(Cause::UnaskedUpgrade)),
        (Head, 200, long, Ok(Length::None)),
        (Head, 200, coded, Ok(Length::None)),
        (Connect, 200, &[], Ok(Length::None)),
        (Connect, 200, empty, Ok(Length::None)),
        (Connect, 200, long, Ok(Length::None)),
        (Connect, 200, coded, Ok(Length::None)),
        (Connect, 403, long, Ok(Length::Known(5))),
        (Connect, 101, &[], Err(Cause::UnaskedUpgrade)),
        (Upgrade, 101, &[], Ok(Length::None)),
        (Upgrade, 101, empty, Ok(Length::None)),
        (Upgrade, 101, long, Err(Cause::TunnelContent)),
        (Upgrade, 101, coded, Err(Cause::TunnelContent)),
        (Upgrade, 200, long, Ok(Length::Known(5))),
    ] {
        let framed = response1(status, fields).and_then(|raw| raw.frame(asked));
        let found = framed.map(|framed| framed.length());
        let statuses = found.map_err(|refusal| (refusal.cause(), refusal.status().code()));
        assert_eq!(
            statuses,
            expected.map_err(|cause| (cause, 502)),
            "{asked:?} {status} {fields:?}"
        );
    }
}

#[test]
fn answers_say_how_long_the_connection_is_kept() {
    for (value, expected) in [
        ("timeout=5", Some(5)),
        ("timeout=5, max=100", Some(5)),
        ("max=100,Timeout=72", Some(72)),
        ("timeout=0", Some(0)),
        ("timeout=70000", None),
        ("timeout=5s", None),
        ("timeout=", None),
        ("timeout", None),
        ("300", None),
        ("", None),
    ] {
        let raw = response1(200, &[("keep-alive", value)]).expect("it is good");
        let framed = raw.frame(Asked::Ordinary).expect("it is good");
        assert_eq!(framed.keep_alive(), expected, "{value:?}");
    }
    let raw = response1(200, &[]).expect("it is good");
    let framed = raw.frame(Asked::Ordinary).expect("it is good");
    assert_eq!(framed.keep_alive(), None);
}

#[test]
fn responses_of_http2_are_framed_by_their_end() {
    let of = |fields: &[(&str, &str)], ends, asked| {
        let framed = response2(fields, ends).and_then(|raw| raw.frame(asked));
        framed
            .map(|framed| (framed.length(), framed.opens_tunnel()))
            .map_err(|refusal| refusal.cause())
    };
    let ok = (":status", "200");
    assert_eq!(
        of(&[ok], false, Asked::Ordinary),
        Ok((Length::Delimited, false))
    );
    assert_eq!(of(&[ok], true, Asked::Ordinary), Ok((Length::None, false)));
    assert_eq!(of(&[ok], false, Asked::Upgrade), Ok((Length::None, true)));
    assert_eq!(
        of(&[(":status", "101")], false, Asked::Upgrade),
        Err(Cause::UnaskedUpgrade)
    );
    assert_eq!(
        of(&[], false, Asked::Ordinary),
        Err(Cause::PseudoMissing(":status"))
    );
    assert_eq!(
        of(&[(":status", "20")], false, Asked::Ordinary),
        Err(Cause::Status)
    );
    assert_eq!(
        of(&[ok, (":path", "/")], false, Asked::Ordinary),
        Err(Cause::PseudoMisplaced(":method, :path or :scheme"))
    );
    assert_eq!(
        of(&[ok, ("content-length", "1")], true, Asked::Ordinary),
        Err(Cause::LengthOfNothing)
    );
    assert_eq!(
        of(&[ok, ("content-length", "1")], true, Asked::Head),
        Ok((Length::None, false))
    );
}

/// A client ignores such fields (RFC 9110 §9.3.6), and the reader behind it might not.
#[test]
fn an_accepted_connect_passes_no_length_on() {
    for (name, value) in [
        ("content-length", "0"),
        ("content-length", "5"),
        ("transfer-encoding", "chunked"),
    ] {
        let raw = response1(200, &[(name, value), ("a", "b")]);
        let framed = raw.and_then(|raw| raw.frame(Asked::Connect));
        let head = framed.and_then(|framed| framed.canonical(None, PeerKind::Mesh));
        let head = head.expect("it is good");
        assert!(head.opens_tunnel() && head.length() == Length::None);
        assert_eq!(listed(head.fields()), pairs(&[("a", "b")]));
    }
}

/// A server without content may say so and send trailers all the same, as Go's does.
#[test]
fn an_empty_answer_of_http2_leaves_room_for_its_trailers() {
    let head = |ends| {
        let fields = [(":status", "200"), ("content-length", "0")];
        let framed = response2(&fields, ends).and_then(|raw| raw.frame(Asked::Ordinary));
        let framed = framed.expect("it is good");
        framed.canonical(None, PeerKind::Mesh).expect("it is good")
    };
    let open = head(false);
    assert_eq!(open.length(), Length::Delimited);
    assert!(!open.fields().has(Known::ContentLength));
    let over = head(true);
    assert_eq!(over.length(), Length::Known(0));
    assert!(over.fields().has(Known::ContentLength));
}

#[test]
fn connection_fields_of_http1_decide_if_another_request_may_follow() {
    for (version, fields, expected) in [
        ("1.1", "", true),
        ("1.1", "connection: Close\r\n", false),
        ("1.1", "connection: te\r\nconnection: x, close\r\n", false),
        ("1.0", "", false),
        ("1.0", "connection: keep-alive\r\n", true),
    ] {
        let head = format!("GET / HTTP/{version}\r\nhost: a\r\n{fields}\r\n");
        let framed = raw1(head.as_bytes()).and_then(RawRequest::frame).unwrap();
        assert_eq!(framed.persists(), expected, "{head}");
    }
}
