//! Hop-by-hop fields, cookies, and trailers.

mod common;

use bytes::Bytes;
use common::*;
use lateen_http::*;

fn kept(fields: &str) -> Result<Vec<String>, Cause> {
    let head = request1(&format!(
        "GET / HTTP/1.1\r\nhost: a\r\nx-request-id: 1\r\nx-forwarded-proto: http\r\n{fields}\r\n"
    ));
    let names = |head: RequestHead| {
        let all = head.fields().iter().map(|field| text(field.name()));
        all.skip(2).collect()
    };
    head.map(names).map_err(|refusal| refusal.cause())
}

#[test]
fn hop_by_hop_fields_of_requests_are_removed() {
    for (fields, expected) in [
        ("connection: close\r\na: b\r\n", &["a"][..]),
        (
            "connection: a, B\r\na: 1\r\nb: 2\r\nA: 3\r\nc: 4\r\n",
            &["c"],
        ),
        (
            "connection: x\r\nConnection: y\r\nx: 1\r\ny: 2\r\nz: 3\r\n",
            &["z"],
        ),
        ("connection: ,,close, \r\na: b\r\n", &["a"]),
        (
            "keep-alive: timeout=5\r\nproxy-connection: close\r\nhttp2-settings: x\r\na: b\r\n",
            &["a"],
        ),
        (
            "upgrade: h2c\r\nconnection: upgrade, http2-settings\r\nhttp2-settings: x\r\na: b\r\n",
            &["a"],
        ),
        ("connection: etag\r\netag: x\r\na: b\r\n", &["a"]),
        ("transfer-encoding: chunked\r\na: b\r\n", &["a"]),
        ("te: gzip\r\na: b\r\n", &["a"]),
        ("te: gzip, Trailers\r\na: b\r\n", &["te", "a"]),
        ("trailer: x\r\n", &["trailer"]),
    ] {
        assert_eq!(
            kept(fields).as_deref(),
            Ok(&expected
                .iter()
                .map(|name| name.to_string())
                .collect::<Vec<_>>()[..]),
            "{fields:?}"
        );
    }
}

#[test]
fn connection_must_not_name_fields_on_which_decisions_depend() {
    for name in [
        "host",
        "Content-Length",
        "authorization",
        "cookie",
        "x-forwarded-for",
        "X-Envoy-Internal",
        "x-request-id",
        "traceparent",
        "grpc-timeout",
        "cache-control",
    ] {
        let found = kept(&format!("connection: close, {name}\r\n"));
        let known = Known::of(name.as_bytes()).expect("it is known");
        assert_eq!(found, Err(Cause::Nominated(known)), "{name}");
    }
    assert_eq!(kept("connection: a b\r\n"), Err(Cause::Option));
    assert_eq!(kept("connection: :path\r\n"), Err(Cause::Option));
    let many = vec!["a"; 17].join(",");
    assert_eq!(
        kept(&format!("connection: {many}\r\n")),
        Err(Cause::TooManyOptions { limit: 16 })
    );
    let cause = kept("connection: host\r\n").expect_err("refused");
    assert_eq!(
        cause.to_string(),
        "connection names host, on which routing, policy or framing depends"
    );
}

#[test]
fn hop_by_hop_fields_of_responses_are_removed() {
    let raw = response1(
        200,
        &[
            ("connection", "x, content-type, set-cookie"),
            ("x", "1"),
            ("content-type", "a"),
            ("keep-alive", "1"),
            ("upgrade", "h2c"),
            ("te", "trailers"),
            ("content-length", "0"),
        ],
    );
    let framed = raw
        .and_then(|raw| raw.frame(Asked::Ordinary))
        .expect("it is good");
    let head = framed.canonical(None, PeerKind::Mesh).expect("it is good");
    assert_eq!(
        listed(head.fields()),
        pairs(&[("content-type", "a"), ("content-length", "0")])
    );
}

#[test]
fn crumbs_of_a_cookie_become_one_field_in_the_place_of_the_first() {
    let head = request2(&[
        (":method", "GET"),
        (":scheme", "http"),
        (":authority", "a"),
        (":path", "/"),
        ("x-request-id", "1"),
        ("a", "1"),
        ("cookie", "b=1"),
        ("c", "2"),
        ("cookie", ""),
        ("cookie", "d=2; e=3"),
        ("x-forwarded-proto", "http"),
    ]);
    let head = head.expect("it is good");
    assert_eq!(
        listed(head.fields()),
        pairs(&[
            ("x-request-id", "1"),
            ("a", "1"),
            ("cookie", "b=1; d=2; e=3"),
            ("c", "2"),
            ("x-forwarded-proto", "http")
        ])
    );
}

#[test]
fn cookies_of_many_crumbs_stay_within_the_head() {
    let crumb = format!("a={}", "x".repeat(500));
    let mut fields = vec![
        (":method", "GET"),
        (":scheme", "http"),
        (":authority", "a"),
        (":path", "/"),
    ];
    fields.extend(std::iter::repeat_n(("cookie", crumb.as_str()), 96));
    let head = request2(&fields).expect("it is good");
    assert_eq!(
        head.fields().get(Known::Cookie).map(<[u8]>::len),
        Some(96 * 502 + 95 * 2)
    );
}

#[test]
fn trailers_have_no_fields_for_framing_routing_authentication_content_or_trust() {
    let list = [
        ("grpc-status", "0"),
        ("grpc-message", "ok"),
        ("content-length", "5"),
        ("transfer-encoding", "chunked"),
        ("Host", "b"),
        ("authorization", "x"),
        ("set-cookie", "a"),
        ("cookie", "a"),
        ("content-type", "a"),
        ("content-encoding", "gzip"),
        ("x-forwarded-for", "1.2.3.4"),
        ("X-Envoy-Foo", "a"),
        ("x-envoy-internal", "true"),
        ("connection", "x"),
        ("te", "trailers"),
        ("if-match", "a"),
        ("cache-control", "a"),
        ("trailer", "a"),
        ("www-authenticate", "a"),
        ("proxy-authorization", "a"),
        ("x-checksum", "1"),
        ("etag", "2"),
        ("traceparent", "3"),
        ("baggage", "x"),
        ("x_forwarded_client_cert", "URI=spiffe://admin"),
        ("X-Forwarded_Foo", "a"),
        ("x_envoy_foo", "a"),
        ("Content_Length", "5"),
        ("transfer_encoding", "chunked"),
        ("x_user", "4"),
    ];
    let (buffer, spans) = buffer(&bytes(&list));
    let mut raw =
        RawTrailers::new(buffer, Version::Http11, Limits::default()).expect("it is small");
    for [name, value] in spans {
        raw.field(name, value).expect("it is valid");
    }
    let trailers = raw.canonical();
    assert_eq!(
        listed(trailers.fields()),
        pairs(&[
            ("grpc-status", "0"),
            ("grpc-message", "ok"),
            ("x-checksum", "1"),
            ("etag", "2"),
            ("x_user", "4")
        ])
    );
    assert_eq!(trailers.dropped(), list.len() - 5);
    let mut raw = RawTrailers::new(
        Bytes::from_static(b":status200"),
        Version::Http2,
        Limits::default(),
    )
    .expect("it is small");
    assert_eq!(
        raw.field(0..7, 7..10).expect_err("pseudo").cause(),
        Cause::PseudoInTrailers
    );
}

#[test]
fn trailers_follow_http2_and_chunks() {
    assert!(can_have_trailers(Version::Http2, Length::Known(1)));
    assert!(can_have_trailers(Version::Http11, Length::Delimited));
    assert!(!can_have_trailers(Version::Http11, Length::Known(1)));
    assert!(!can_have_trailers(Version::Http10, Length::Delimited));
}
