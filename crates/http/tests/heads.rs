//! Heads as codecs hand them over: limits, pseudo-header fields, targets, and one authority.

mod common;

use bytes::Bytes;
use common::*;
use lateen_http::*;

fn cause1(head: &str) -> Option<Cause> {
    request1(head).err().map(|refusal| refusal.cause())
}

fn cause2(fields: &[(&str, &str)]) -> Option<Cause> {
    request2(fields).err().map(|refusal| refusal.cause())
}

const GET: [(&str, &str); 4] = [
    (":method", "GET"),
    (":scheme", "http"),
    (":authority", "a"),
    (":path", "/"),
];

fn get_with<'a>(more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    GET.iter().chain(more).copied().collect()
}

#[test]
fn limits_have_statuses() {
    let fields: String = (0..101).map(|n| format!("x-{n}: v\r\n")).collect();
    let refusal =
        request1(&format!("GET / HTTP/1.1\r\n{fields}\r\n")).expect_err("too many fields");
    assert_eq!(
        (refusal.cause(), refusal.status().code()),
        (Cause::TooManyFields { limit: 100 }, 431)
    );
    let refusal = request1(&format!(
        "GET / HTTP/1.1\r\nhost: {}\r\n\r\n",
        "a".repeat(61 << 10)
    ))
    .expect_err("too large");
    assert_eq!(refusal.status().code(), 431);
    let head = Bytes::from(format!("GET /{} HTTP/1.1\r\n", "a".repeat(2000)));
    let limits = Limits {
        target: 1024,
        ..Limits::default()
    };
    let refusal =
        RawRequest::http1(head, 0..3, 4..2005, Version::Http11, limits).expect_err("too long");
    assert_eq!(refusal.status().code(), 414);
    let refusal = Version::parse(b"HTTP/1.2").expect_err("unknown");
    assert_eq!(refusal.status().code(), 505);
    assert_eq!(
        refusal.to_string(),
        "the version is not HTTP/1.0, HTTP/1.1 or HTTP/2"
    );
}

#[test]
fn spans_outside_of_the_bytes_are_refused() {
    let mut raw = RawRequest::http2(Bytes::from_static(b":method"), true, Limits::default())
        .expect("it is small");
    assert_eq!(
        raw.field(0..7, 7..8).expect_err("outside").cause(),
        Cause::Span
    );
    #[allow(clippy::reversed_empty_ranges)]
    let refusal = raw.field(7..3, 0..0).expect_err("backwards");
    assert_eq!(refusal.cause(), Cause::Span);
    assert!(
        RawRequest::http1(
            Bytes::from_static(b"GET"),
            0..3,
            4..5,
            Version::Http11,
            Limits::default()
        )
        .is_err()
    );
}

#[test]
fn names_and_values_of_http1_are_judged() {
    for (field, cause) in [
        ("a b: c", Cause::Name),
        ("a : c", Cause::Name),
        (": c", Cause::Name),
        (":path: /", Cause::Name),
        ("a: b\0c", Cause::Value),
        ("cookie: b\rc", Cause::KnownValue(Known::Cookie)),
        ("a: \x7f", Cause::Value),
    ] {
        assert_eq!(
            cause1(&format!("GET / HTTP/1.1\r\nhost: a\r\n{field}\r\n\r\n")),
            Some(cause),
            "{field:?}"
        );
    }
    let head =
        request1("GET / HTTP/1.1\r\nHost: a\r\nX-Custom: \t b c\t \r\n\r\n").expect("it is good");
    let name = FieldName::new("x-custom").expect("a name");
    assert_eq!(head.fields().named(&name).collect::<Vec<_>>(), [b"b c"]);
}

#[test]
fn names_values_and_pseudo_fields_of_http2_are_judged() {
    for (fields, cause) in [
        (get_with(&[("Host", "a")]), Cause::NameCase),
        (get_with(&[("X-a", "a")]), Cause::NameCase),
        (get_with(&[("a b", "a")]), Cause::Name),
        (get_with(&[("a", " b")]), Cause::ValueSpace),
        (get_with(&[("a", "b\t")]), Cause::ValueSpace),
        (get_with(&[("a", "b\r\nc: d")]), Cause::Value),
        (
            get_with(&[("connection", "close")]),
            Cause::Forbidden(Known::Connection),
        ),
        (
            get_with(&[("keep-alive", "1")]),
            Cause::Forbidden(Known::KeepAlive),
        ),
        (
            get_with(&[("proxy-connection", "close")]),
            Cause::Forbidden(Known::ProxyConnection),
        ),
        (
            get_with(&[("transfer-encoding", "chunked")]),
            Cause::Forbidden(Known::TransferEncoding),
        ),
        (
            get_with(&[("upgrade", "websocket")]),
            Cause::Forbidden(Known::Upgrade),
        ),
        (get_with(&[("te", "gzip")]), Cause::Te),
        (get_with(&[("a", "b"), (":path", "/")]), Cause::PseudoLate),
        (get_with(&[(":path", "/")]), Cause::PseudoTwice(":path")),
        (get_with(&[(":foo", "/")]), Cause::PseudoUnknown),
        (
            get_with(&[(":status", "200")]),
            Cause::PseudoMisplaced(":status"),
        ),
        (
            get_with(&[(":protocol", "websocket")]),
            Cause::PseudoMisplaced(":protocol"),
        ),
        (GET[1..].to_vec(), Cause::PseudoMissing(":method")),
        (
            vec![GET[0], GET[2], GET[3]],
            Cause::PseudoMissing(":scheme"),
        ),
        (GET[..3].to_vec(), Cause::PseudoMissing(":path")),
        (vec![GET[0], GET[1], GET[3]], Cause::HostMissing),
        (
            vec![GET[0], GET[1], GET[2], (":path", "")],
            Cause::PseudoTwice(":path"),
        ),
        (vec![GET[0], GET[1], GET[2], (":path", "a")], Cause::Target),
        (vec![GET[0], GET[1], GET[2], (":path", "*")], Cause::Target),
        (
            vec![GET[0], GET[1], GET[2], (":path", "http://a/")],
            Cause::Target,
        ),
        (
            vec![GET[0], (":scheme", "ftp"), GET[2], GET[3]],
            Cause::Scheme,
        ),
        (
            vec![
                (":method", "CONNECT"),
                GET[2],
                (":protocol", "connect-udp"),
                GET[1],
                GET[3],
            ],
            Cause::Protocol,
        ),
        (
            vec![
                (":method", "CONNECT"),
                GET[2],
                (":protocol", "websocket"),
                GET[3],
            ],
            Cause::PseudoMissing(":scheme"),
        ),
        (
            vec![(":method", "CONNECT"), GET[2], GET[3]],
            Cause::PseudoMisplaced(":scheme or :path"),
        ),
        (
            vec![(":method", "CONNECT")],
            Cause::PseudoMissing(":authority"),
        ),
    ] {
        assert_eq!(cause2(&fields), Some(cause), "{fields:?}");
    }
    assert_eq!(
        cause2(&get_with(&[("te", "trailers"), ("http2-settings", "x")])),
        None
    );
}

#[test]
fn every_request_has_one_authority() {
    for (head, authority) in [
        ("GET / HTTP/1.1\r\nHost: A.b:80\r\n\r\n", Ok("a.b:80")),
        ("GET http://a/ HTTP/1.1\r\nHost: A\r\n\r\n", Ok("a")),
        ("GET http://a/ HTTP/1.0\r\n\r\n", Ok("a")),
        (
            "GET http://a/ HTTP/1.1\r\nHost: b\r\n\r\n",
            Err(Cause::HostDiffers),
        ),
        (
            "GET http://a:80/ HTTP/1.1\r\nHost: a\r\n\r\n",
            Err(Cause::HostDiffers),
        ),
        (
            "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
            Err(Cause::Duplicate(Known::Host)),
        ),
        (
            "GET / HTTP/1.1\r\nHost: a,b\r\n\r\n",
            Err(Cause::HostCharacter),
        ),
        ("GET / HTTP/1.1\r\nHost:\r\n\r\n", Err(Cause::HostEmpty)),
        ("GET / HTTP/1.1\r\n\r\n", Err(Cause::HostMissing)),
        ("GET / HTTP/1.0\r\n\r\n", Err(Cause::HostMissing)),
        (
            "GET http://u@a/ HTTP/1.1\r\n\r\n",
            Err(Cause::UserInformation),
        ),
        ("GET http:///a HTTP/1.1\r\n\r\n", Err(Cause::HostEmpty)),
        (
            "GET http://a\\@b/ HTTP/1.1\r\nHost: a\r\n\r\n",
            Err(Cause::HostCharacter),
        ),
        (
            "GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n",
            Err(Cause::Scheme),
        ),
    ] {
        let found = request1(head).map(|head| text(head.authority().as_bytes()));
        assert_eq!(
            found.map_err(|refusal| refusal.cause()),
            authority.map(str::to_owned),
            "{head:?}"
        );
    }
    assert_eq!(cause2(&get_with(&[("host", "A.")])), None);
    assert_eq!(
        cause2(&get_with(&[("host", "b")])),
        Some(Cause::HostDiffers)
    );
    let head =
        request2(&[GET[0], GET[1], GET[3], ("host", "b:1")]).expect("host stands for :authority");
    assert_eq!(head.authority().as_bytes(), b"b:1");
    assert!(!head.fields().has(Known::Host));
}

#[test]
fn targets_have_the_forms_of_their_methods() {
    for (line, path) in [
        ("GET /a/./b?c", Ok("/a/b?c")),
        ("GET http://h/a/../b", Ok("/b")),
        ("GET http://h", Ok("/")),
        ("GET http://h?c=d", Ok("/?c=d")),
        ("OPTIONS *", Ok("*")),
        ("OPTIONS http://h", Ok("*")),
        ("OPTIONS http://h/", Ok("/")),
        ("GET *", Err(Cause::Target)),
        ("GET a", Err(Cause::Target)),
        ("GET h:80", Err(Cause::Target)),
        ("GET http:/h", Err(Cause::Target)),
        ("GET /a#b", Err(Cause::Fragment)),
        ("GET http://h#b", Err(Cause::Fragment)),
        ("GET http://h?a#b", Err(Cause::Fragment)),
    ] {
        let found = request1(&format!("{line} HTTP/1.1\r\nhost: h\r\n\r\n"));
        let found = found
            .map(|head| text(head.path().target()))
            .map_err(|refusal| refusal.cause());
        assert_eq!(found, path.map(str::to_owned), "{line}");
    }
}

#[test]
fn a_connect_is_no_request_for_a_path() {
    let mesh = peer(PeerKind::Mesh);
    let of = |raw: RawRequest| canonical_of(raw, &Rules::default(), &mesh);
    for (line, authority) in [
        ("CONNECT A:80", Ok("a:80")),
        ("CONNECT [::1]:80", Ok("[::1]:80")),
        ("CONNECT a", Err(Cause::PortMissing)),
        ("CONNECT /", Err(Cause::HostCharacter)),
        ("CONNECT http://a:80", Err(Cause::Port)),
    ] {
        let raw = raw1(format!("{line} HTTP/1.1\r\n\r\n").as_bytes()).expect("a head");
        let found = of(raw).map_err(|refusal| refusal.cause());
        match (found, authority) {
            (Ok(Canonical::Connect(head)), Ok(authority)) => {
                assert_eq!(head.authority().as_bytes(), authority.as_bytes())
            }
            (Err(found), Err(expected)) => assert_eq!(found, expected, "{line}"),
            (found, expected) => panic!("{line}: {found:?}, not {expected:?}"),
        }
    }
    let fields = [
        (&b":method"[..], &b"CONNECT"[..]),
        (b":authority", b"10.0.0.7:80"),
        (b"baggage", b"a=b"),
    ];
    let Ok(Canonical::Connect(head)) = of(raw2(&fields, false).expect("a head")) else {
        panic!("a CONNECT")
    };
    let mut out = Vec::new();
    head.http2(|field| out.push((text(field.name()), text(field.value()))));
    assert_eq!(
        out[..3],
        pairs(&[
            (":method", "CONNECT"),
            (":authority", "10.0.0.7:80"),
            ("baggage", "a=b")
        ])
    );
}

#[test]
fn hosts_that_the_listener_does_not_serve_are_misdirected() {
    let hosts = vec![HostPattern::new("*.example.com").expect("a pattern")];
    let downstream = peer(PeerKind::Edge).with_hosts(hosts);
    let of = |host: &str| {
        let raw =
            raw1(format!("GET / HTTP/1.1\r\nhost: {host}\r\n\r\n").as_bytes()).expect("a head");
        canonical_of(raw, &Rules::default(), &downstream).map(|_| ())
    };
    assert_eq!(of("A.EXAMPLE.com:443"), Ok(()));
    let refusal = of("other.test").expect_err("not served");
    assert_eq!(
        (refusal.cause(), refusal.status().code()),
        (Cause::Misdirected, 421)
    );
}

#[test]
fn an_https_target_without_tls_is_misdirected() {
    let of = |downstream: &Downstream, fields: &str| {
        let raw = raw1(format!("GET https://a/ HTTP/1.1\r\nhost: a\r\n{fields}\r\n").as_bytes())
            .expect("a head");
        canonical_of(raw, &Rules::default(), downstream).map(head)
    };
    let refusal = of(&peer(PeerKind::Edge), "x-forwarded-proto: https\r\n").expect_err("no TLS");
    assert_eq!(
        (refusal.cause(), refusal.status().code()),
        (Cause::SchemeOverClear, 421)
    );
    let tls = Downstream::new(
        PeerKind::Edge,
        "192.0.2.1:1".parse().expect("an address"),
        Scheme::Https,
    );
    assert_eq!(of(&tls, "").expect("TLS").scheme(), Scheme::Https);
    assert!(of(&peer(PeerKind::Mesh), "x-forwarded-proto: https\r\n").is_ok());
}

#[test]
fn a_detached_head_reads_the_same_and_keeps_no_read_buffer_alive() {
    for text in [
        "GET /chat?a HTTP/1.1\r\nhost: a:80\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nx-a: b\r\n\r\n",
        "PURGE /a/../b HTTP/1.1\r\nhost: A\r\ncookie: a=b\r\n\r\n",
        "CONNECT a:443 HTTP/1.1\r\nhost: a:443\r\nx-a: b\r\n\r\n",
    ] {
        let buffer = Bytes::copy_from_slice(text.as_bytes());
        let raw = raw1_over(&buffer).expect("it is good");
        let head = canonical_of(raw, &Rules::default(), &peer(PeerKind::Mesh));
        let mut head = head.expect("it is good");
        assert!(!buffer.is_unique(), "{text}");
        let before = format!("{head:?}");
        head.detach();
        assert!(buffer.is_unique(), "{text}");
        assert_eq!(format!("{head:?}"), before);
    }
}
