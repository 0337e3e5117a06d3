//! Conversion between HTTP/1 and HTTP/2.

mod common;

use common::*;
use lateen_http::*;
use proptest::prelude::*;

const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

#[test]
fn a_request_of_http1_becomes_one_of_http2() {
    let head = request1(
        "POST /a/../b?c HTTP/1.1\r\nHost: A.b:80\r\nX-Custom-Name: V\r\nConnection: close, x\r\nX: 1\r\nTE: trailers\r\nContent-Length: 3\r\nCookie: a=b\r\nX-Request-Id: 1\r\nX-Forwarded-Proto: http\r\n\r\n",
    );
    assert_eq!(
        http2_of(&head.expect("it is good")),
        pairs(&[
            (":method", "POST"),
            (":scheme", "http"),
            (":authority", "a.b:80"),
            (":path", "/b?c"),
            ("x-custom-name", "V"),
            ("te", "trailers"),
            ("content-length", "3"),
            ("cookie", "a=b"),
            ("x-request-id", "1"),
            ("x-forwarded-proto", "http"),
        ])
    );
}

#[test]
fn a_request_of_http2_becomes_one_of_http1() {
    let head = request2(&[
        (":method", "POST"),
        (":scheme", "https"),
        (":authority", "a"),
        (":path", "/"),
        ("te", "trailers"),
        ("cookie", "a=1"),
        ("cookie", "b=2"),
        ("x", "y"),
        ("x-request-id", "1"),
        ("x-forwarded-proto", "https"),
    ]);
    let head = head.expect("it is good");
    assert_eq!(
        (head.method().as_bytes(), head.path().target()),
        (&b"POST"[..], &b"/"[..])
    );
    assert_eq!(
        http1_of(&head, None).expect("no key is needed"),
        pairs(&[
            ("host", "a"),
            ("te", "trailers"),
            ("cookie", "a=1; b=2"),
            ("x", "y"),
            ("x-request-id", "1"),
            ("x-forwarded-proto", "https"),
            ("connection", "te"),
        ])
    );
}

/// Cookies become one field, which is never indexed if one of them was not.
#[test]
fn mark_of_a_field_that_is_never_indexed_stays_with_it() {
    let (buffer, spans) = buffer(&bytes(&[
        (":method", "GET"),
        (":scheme", "http"),
        (":authority", "a"),
        (":path", "/"),
        ("cookie", "a=1"),
        ("cookie", "b=2"),
        ("x", "y"),
        ("x-key", "1"),
    ]));
    let mut raw = RawRequest::http2(buffer, true, Limits::default()).expect("it is small");
    for (at, [name, value]) in spans.into_iter().enumerate() {
        raw.field(name, value).expect("it is good");
        match at {
            3 => raw.never_index(Some(PseudoField::Path)),
            5 | 7 => raw.never_index(None),
            _ => {}
        }
    }
    let canonical = canonical_of(raw, &Rules::default(), &peer(PeerKind::Mesh));
    let mut marked = Vec::new();
    head(canonical.expect("it is good")).http2(|field| {
        if field.is_never_indexed() {
            marked.push(text(field.name()));
        }
    });
    assert_eq!(marked, [":path", "cookie", "x-key"]);
}

fn handshake1(more: &str) -> Result<RequestHead, Refusal> {
    request1(&format!(
        "GET /chat HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nX-Request-Id: 1\r\nX-Forwarded-Proto: http\r\n{more}\r\n"
    ))
}

fn handshake2() -> RequestHead {
    let fields = bytes(&[
        (":method", "CONNECT"),
        (":protocol", "websocket"),
        (":scheme", "http"),
        (":authority", "a"),
        (":path", "/chat"),
        ("sec-websocket-version", "13"),
        ("x-request-id", "1"),
        ("x-forwarded-proto", "http"),
    ]);
    // The stream stays open for the tunnel.
    let raw = raw2(&fields, false).expect("it is good");
    let canonical = canonical_of(raw, &Rules::default(), &peer(PeerKind::Mesh));
    head(canonical.expect("it is good"))
}

#[test]
fn a_websocket_handshake_is_an_upgrade_in_http1_and_an_extended_connect_in_http2() {
    let one = handshake1(&format!("Sec-WebSocket-Key: {KEY}\r\n")).expect("it is good");
    let two = handshake2();
    assert_eq!(one.method(), &Method::GET);
    assert_eq!(two.method(), &Method::GET);
    assert_eq!(two.length(), Length::None, "its bytes are no content");
    let expected = [
        (":method", "CONNECT"),
        (":scheme", "http"),
        (":authority", "a"),
        (":path", "/chat"),
        (":protocol", "websocket"),
        ("sec-websocket-version", "13"),
        ("x-request-id", "1"),
        ("x-forwarded-proto", "http"),
    ];
    assert_eq!(http2_of(&one), pairs(&expected));
    assert_eq!(http2_of(&two), pairs(&expected));
    let expected = |key: &str| {
        pairs(&[
            ("host", "a"),
            ("sec-websocket-version", "13"),
            ("x-request-id", "1"),
            ("x-forwarded-proto", "http"),
            ("connection", "upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-key", key),
        ])
    };
    // Between two HTTP/1 connections names keep the client's letters.
    let lower = http1_of(&one, None).map(|list| {
        list.into_iter()
            .map(|(name, value)| (name.to_ascii_lowercase(), value))
            .collect()
    });
    assert_eq!(lower, Some(expected(KEY)));
    assert_eq!(http1_of(&two, None), None, "a client of HTTP/2 has no key");
    let made = WebSocketKey::of([7; 16]);
    assert_eq!(
        http1_of(&two, Some(&made)),
        Some(expected(&text(made.as_bytes())))
    );
}

#[test]
fn handshakes_without_a_valid_key_or_with_content_are_refused() {
    let cause = |more: &str| handshake1(more).expect_err("refused").cause();
    assert_eq!(cause(""), Cause::WebSocketKey);
    assert_eq!(cause("sec-websocket-key: short\r\n"), Cause::WebSocketKey);
    assert_eq!(
        cause("sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ!!\r\n"),
        Cause::WebSocketKey
    );
    assert_eq!(
        cause(&format!(
            "sec-websocket-key: {KEY}\r\ncontent-length: 5\r\n"
        )),
        Cause::UpgradeContent
    );
    assert_eq!(
        cause(&format!(
            "sec-websocket-key: {KEY}\r\ntransfer-encoding: chunked\r\n"
        )),
        Cause::UpgradeContent
    );
}

#[test]
fn other_upgrades_are_ignored() {
    for head in [
        "GET / HTTP/1.1\r\nhost: a\r\nupgrade: h2c\r\nconnection: upgrade, http2-settings\r\nhttp2-settings: AAMAAABk\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: a\r\nupgrade: TLS/1.0\r\nconnection: upgrade\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: a\r\nupgrade: h2c, websocket\r\nconnection: upgrade\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: a\r\nupgrade: websocket\r\n\r\n",
        "GET / HTTP/1.0\r\nhost: a\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n",
        "POST / HTTP/1.1\r\nhost: a\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n",
    ] {
        let head = request1(head).expect("it is good");
        assert_eq!(head.upgrade(), None);
        let out = http1_of(&head, None).expect("no key is needed");
        assert!(
            !out.iter().any(|(name, _)| name == "upgrade"
                || name == "connection"
                || name == "http2-settings"),
            "{out:?}"
        );
    }
}

#[test]
fn acceptance_of_a_websocket_is_101_in_http1_and_200_in_http2() {
    let one = handshake1(&format!("Sec-WebSocket-Key: {KEY}\r\n")).expect("it is good");
    let Some(Upgrade::WebSocket { key: Some(key) }) = one.upgrade() else {
        panic!("a key")
    };
    assert_eq!(key.accept().as_bytes(), ACCEPT.as_bytes());
    let switch = |accept: &str, upgrade: &str| {
        let fields = [
            ("upgrade", upgrade),
            ("connection", "Upgrade"),
            ("sec-websocket-accept", accept),
            ("sec-websocket-protocol", "chat"),
        ];
        response1(101, &fields)
            .and_then(|raw| raw.frame(one.asked()))
            .and_then(|framed| framed.canonical(Some(key), PeerKind::Mesh))
    };
    let ok = response2(
        &[(":status", "200"), ("sec-websocket-protocol", "chat")],
        false,
    );
    let ok = ok
        .and_then(|raw| raw.frame(Asked::Upgrade))
        .and_then(|framed| framed.canonical(None, PeerKind::Mesh));
    for head in [
        switch(ACCEPT, "WebSocket").expect("accepted"),
        ok.expect("accepted"),
    ] {
        assert!(head.opens_tunnel());
        let mut out = Vec::new();
        let status = head.http1(Some(key), |field| {
            out.push((text(field.name()), text(field.value())))
        });
        assert_eq!(status, Status::SWITCHING_PROTOCOLS);
        assert_eq!(
            out,
            pairs(&[
                ("sec-websocket-protocol", "chat"),
                ("connection", "upgrade"),
                ("upgrade", "websocket"),
                ("sec-websocket-accept", ACCEPT)
            ])
        );
        let mut out = Vec::new();
        head.http2(|field| out.push((text(field.name()), text(field.value()))));
        assert_eq!(
            out,
            pairs(&[(":status", "200"), ("sec-websocket-protocol", "chat")])
        );
    }
    let cause = |result: Result<ResponseHead, Refusal>| {
        result
            .map(|_| ())
            .map_err(|refusal| (refusal.cause(), refusal.status().code()))
    };
    assert_eq!(
        cause(switch("AAAA", "websocket")),
        Err((Cause::WebSocketAccept, 502))
    );
    assert_eq!(
        cause(switch(ACCEPT, "h2c")),
        Err((Cause::UnaskedUpgrade, 502))
    );
}

#[test]
fn refusals_of_a_websocket_are_ordinary_answers() {
    let head = response1(403, &[("content-length", "2")]).and_then(|raw| raw.frame(Asked::Upgrade));
    let head = head
        .and_then(|framed| framed.canonical(None, PeerKind::Mesh))
        .expect("it is good");
    assert!(!head.opens_tunnel());
    assert_eq!(
        head.http1(Some(&WebSocketKey::of([0; 16])), |_| {}).code(),
        403
    );
}

#[test]
fn edits_cannot_touch_what_the_model_holds_elsewhere() {
    let mut head =
        request1("GET / HTTP/1.1\r\nhost: a\r\nX-Old: 1\r\nx-old: 2\r\n\r\n").expect("it is good");
    let name = |name: &str| FieldName::new(name).expect("a name");
    let value = |value: &'static str| FieldValue::new(value).expect("a value");
    for reserved in [
        "host",
        "connection",
        "content-length",
        "transfer-encoding",
        "te",
        "upgrade",
        "keep-alive",
        "proxy-connection",
    ] {
        assert!(
            matches!(
                head.set(&name(reserved), &value("x")),
                Err(Cause::Reserved(_))
            ),
            "{reserved}"
        );
        assert!(
            matches!(
                head.add(&name(reserved), &value("x")),
                Err(Cause::Reserved(_))
            ),
            "{reserved}"
        );
        assert!(
            matches!(head.remove(&name(reserved)), Err(Cause::Reserved(_))),
            "{reserved}"
        );
    }
    head.remove(&name("X-OLD")).expect("it may go");
    head.set(&name("x-new"), &value("1"))
        .expect("there is room");
    head.add(&name("x-new"), &value("2"))
        .expect("there is room");
    head.set(&name("server"), &value("s"))
        .expect("there is room");
    let custom: Vec<_> = head.fields().named(&name("x-new")).map(text).collect();
    assert_eq!(custom, ["1", "2"]);
    assert_eq!(head.fields().named(&name("x-old")).count(), 0);
    assert_eq!(head.fields().get(Known::Server), Some(&b"s"[..]));
    let filled = (0..300).find_map(|_| head.add(&name("x-new"), &value("2")).err());
    assert!(
        matches!(filled, Some(Cause::TooManyFields { .. })),
        "memory is bounded"
    );
    let large = FieldValue::new("v".repeat(1000)).expect("a value");
    let mut head = request1("GET / HTTP/1.1\r\nhost: a\r\n\r\n").expect("it is good");
    let filled = (0..100).find_map(|_| head.set(&name("server"), &large).err());
    assert_eq!(filled, Some(Cause::NoRoom));
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(vec![
            "accept",
            "User-Agent",
            "x-forwarded-for",
            "etag",
            "cookie",
            "baggage",
            "b3",
            "X-Custom",
            "range",
            "date"
        ])
        .prop_map(str::to_owned),
        "[xX]-[a-zA-Z0-9]{1,8}",
    ]
}

fn fields() -> impl Strategy<Value = Vec<(String, String)>> {
    prop::collection::vec((name(), "[!-~]([ -~]{0,12}[!-~])?"), 0..20)
}

proptest! {
    #[test]
    fn http1_to_http2_to_http1_keeps_method_host_path_fields_and_order(
        method in prop::sample::select(vec!["GET", "POST", "PATCH", "FOO"]),
        host in "[a-z]{1,8}(\\.[a-z]{1,8}){0,3}(:[1-9][0-9]{0,3})?",
        path in "(/[a-z]{0,5}){1,4}(\\?[a-z=&]{0,8})?",
        fields in fields(),
        close in any::<bool>(),
    ) {
        let mut text = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n");
        if close {
            text.push_str("Connection: close\r\nKeep-Alive: 1\r\n");
        }
        for (name, value) in &fields {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        let one = request1(&format!("{text}\r\n")).expect("it is good");
        let two = http2_of(&one);
        let list: Vec<_> = two.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let again = request2(&list).expect("what this crate writes is good");
        prop_assert_eq!(one.method(), again.method());
        prop_assert_eq!(one.authority(), again.authority());
        prop_assert_eq!(again.authority().as_bytes(), host.as_bytes());
        prop_assert_eq!(one.path(), again.path());
        prop_assert_eq!(again.path().target(), path.as_bytes());
        let lower = |head: &RequestHead| -> Vec<_> {
            listed(head.fields()).into_iter().map(|(name, value)| (name.to_ascii_lowercase(), value)).collect()
        };
        prop_assert_eq!(lower(&one), lower(&again));
        // Names with a number are no bytes of a head of HTTP/2.
        prop_assert_eq!(one.fields().lines_len(), again.fields().lines_len());
        // All that was sent is there in its order; cookies are one field in the place of the first.
        let crumbs: Vec<_> = fields.iter().filter(|(name, _)| name == "cookie").map(|(_, value)| value.clone()).collect();
        let mut seen = false;
        let expected: Vec<_> = fields.iter().filter_map(|(name, value)| {
            if name != "cookie" { return Some((name.to_ascii_lowercase(), value.clone())) }
            (!std::mem::replace(&mut seen, true)).then(|| (name.clone(), crumbs.join("; ")))
        }).collect();
        prop_assert_eq!(&lower(&again)[..expected.len()], &expected[..]);
        let last = http1_of(&again, None).expect("no key is needed");
        prop_assert_eq!(&last[1..], &lower(&one)[..]);
        prop_assert_eq!(&last[0], &("host".to_owned(), host));
    }

    #[test]
    fn lists_agree_with_a_naive_one(edits in prop::collection::vec((0..4u8, name(), "[!-~]{1,6}"), 0..60)) {
        let mut head = request1("GET / HTTP/1.1\r\nhost: a\r\nX-A: 1\r\naccept: 2\r\nx-a: 3\r\nAccept: 4\r\nx-request-id: 5\r\nx-forwarded-proto: http\r\n\r\n").expect("it is good");
        let mut naive: Vec<(String, String)> = listed(head.fields()).into_iter().map(|(name, value)| (name.to_ascii_lowercase(), value)).collect();
        for (kind, name, value) in edits {
            let field = FieldName::new(&name).expect("a token");
            let content = FieldValue::new(value.clone()).expect("it is printable");
            let name = name.to_ascii_lowercase();
            match kind {
                0 => {
                    head.add(&field, &content).expect("there is room");
                    naive.push((name, value));
                }
                1 => {
                    head.remove(&field).expect("it is not reserved");
                    naive.retain(|(other, _)| *other != name);
                }
                2 => {
                    head.set(&field, &content).expect("there is room");
                    let first = naive.iter().position(|(other, _)| *other == name).filter(|_| field.known().is_some());
                    let mut at = 0;
                    naive.retain(|(other, _)| { at += 1; *other != name || Some(at - 1) == first });
                    match first {
                        Some(first) => naive[first].1 = value,
                        None => naive.push((name, value)),
                    }
                }
                _ => {
                    let found: Vec<_> = head.fields().named(&field).map(text).collect();
                    let expected: Vec<_> = naive.iter().filter(|(other, _)| *other == name).map(|(_, value)| value.clone()).collect();
                    prop_assert_eq!(found, expected);
                }
            }
            prop_assert_eq!(head.fields().len(), naive.len());
            let lines: usize = naive.iter().map(|(name, value)| format!("{name}: {value}\r\n").len()).sum();
            prop_assert_eq!(head.fields().lines_len(), lines);
        }
        let found: Vec<_> = listed(head.fields()).into_iter().map(|(name, value)| (name.to_ascii_lowercase(), value)).collect();
        prop_assert_eq!(found, naive);
    }
}
