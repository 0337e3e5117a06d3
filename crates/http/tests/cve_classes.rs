//! One row for each class of published faults that concerns heads. A row names the class and its cases.

mod common;

use common::*;
use lateen_http::*;

/// What becomes of a request.
#[derive(Debug, PartialEq)]
enum Fate {
    /// The status and the cause.
    Refused(u16, Cause),
    /// The path that route, policy, log and upstream see.
    Path(&'static str),
    /// The names of all fields for the upstream but `host`.
    Fields(&'static [&'static str]),
    /// The host for route, policy and upstream.
    Host(&'static str),
    /// A CONNECT to this authority. It has no path that a filter could read.
    Tunnel(&'static str),
}

use Fate::*;

struct Row {
    class: &'static str,
    head: &'static str,
    kind: PeerKind,
    path: PathRules,
    fate: Fate,
}

const BASE: PathRules = PathRules {
    level: PathLevel::Base,
    parameters: Parameters::Keep,
};

fn row(class: &'static str, head: &'static str, fate: Fate) -> Row {
    Row {
        class,
        head,
        kind: PeerKind::Mesh,
        path: BASE,
        fate,
    }
}

fn edge(class: &'static str, head: &'static str, fate: Fate) -> Row {
    Row {
        kind: PeerKind::Edge,
        ..row(class, head, fate)
    }
}

fn with(level: PathLevel, parameters: Parameters, row: Row) -> Row {
    Row {
        path: PathRules { level, parameters },
        ..row
    }
}

/// Fields that every request from the edge gets, in the order in which they are added.
const EDGE: &[&str] = &[
    "x-forwarded-for",
    "x-envoy-external-address",
    "x-forwarded-proto",
    "x-request-id",
];

fn rows() -> Vec<Row> {
    use Parameters::*;
    use PathLevel::*;
    vec![
        // Path confusion between policy and application.
        row(
            "path not normalised (GHSA-xcx5-93pw-jw2w)",
            "GET /public/../admin HTTP/1.1",
            Path("/admin"),
        ),
        row(
            "path not normalised, encoded dots",
            "GET /public/%2e%2e/admin HTTP/1.1",
            Path("/admin"),
        ),
        row(
            "path not normalised, backslash",
            "GET /public\\..\\admin HTTP/1.1",
            Path("/admin"),
        ),
        with(
            None,
            Keep,
            row(
                "path not normalised, normalisation off",
                "GET /public/../admin HTTP/1.1",
                Refused(400, Cause::PathDots),
            ),
        ),
        row(
            "encoded slash beside dots",
            "GET /public/..%2fadmin HTTP/1.1",
            Refused(400, Cause::PathEncodedDots),
        ),
        with(
            DecodeAndMergeSlashes,
            Keep,
            row(
                "encoded slash beside dots, decoded",
                "GET /public/..%2fadmin HTTP/1.1",
                Path("/admin"),
            ),
        ),
        with(
            MergeSlashes,
            Keep,
            row("repeated slashes", "GET //admin HTTP/1.1", Path("/admin")),
        ),
        row(
            "fragment (CVE-2021-32779, CVE-2021-39156)",
            "GET /admin#x HTTP/1.1",
            Refused(400, Cause::Fragment),
        ),
        row(
            "fragment in a query",
            "GET /admin?a#x HTTP/1.1",
            Refused(400, Cause::Fragment),
        ),
        row(
            "..; segment (CVE-2026-73551)",
            "GET /public/..;x=y/admin HTTP/1.1",
            Path("/admin"),
        ),
        with(
            None,
            Keep,
            row(
                "..; segment, normalisation off",
                "GET /public/..;/admin HTTP/1.1",
                Refused(400, Cause::PathDots),
            ),
        ),
        row(
            "..; segment, encoded semicolon",
            "GET /public/..%3Bx/admin HTTP/1.1",
            Refused(400, Cause::PathEncodedDots),
        ),
        with(
            Base,
            Drop,
            row(
                ";params against policy (CVE-2026-73553)",
                "GET /admin;x=1 HTTP/1.1",
                Path("/admin"),
            ),
        ),
        with(
            Base,
            Refuse,
            row(
                ";params against policy, refused (CVE-2026-73511)",
                "GET /admin;x=1 HTTP/1.1",
                Refused(400, Cause::PathParameter),
            ),
        ),
        row(
            "asterisk for a policy pattern (CVE-2025-46821)",
            "GET * HTTP/1.1",
            Refused(400, Cause::Target),
        ),
        row(
            "double encoding",
            "GET /%252e%252e/admin HTTP/1.1",
            Path("/%252e%252e/admin"),
        ),
        row("encoded letters", "GET /%61dmin HTTP/1.1", Path("/admin")),
        row(
            "letters of an escape",
            "GET /a%e2%82%ac HTTP/1.1",
            Path("/a%E2%82%AC"),
        ),
        row(
            "overlong UTF-8",
            "GET /..%c0%afadmin HTTP/1.1",
            Refused(400, Cause::PathOverlong),
        ),
        row(
            "truncated escape",
            "GET /admin% HTTP/1.1",
            Refused(400, Cause::PathEscape),
        ),
        row(
            "NUL in a path",
            "GET /admin%00.png HTTP/1.1",
            Refused(400, Cause::PathNul),
        ),
        row(
            "bytes beyond ASCII in a path (CVE-2026-73552)",
            "GET /\u{e9} HTTP/1.1",
            Refused(400, Cause::PathCharacter),
        ),
        row(
            "white space in a path",
            "GET /a b HTTP/1.1",
            Refused(400, Cause::PathCharacter),
        ),
        // Methods.
        row(
            "case variant of a method (GHSA-w44g-8m76-8gc5)",
            "get / HTTP/1.1",
            Refused(400, Cause::MethodCase),
        ),
        row(
            "case variant of CONNECT",
            "Connect a:80 HTTP/1.1",
            Refused(400, Cause::MethodCase),
        ),
        row(
            "preface as a method",
            "PRI * HTTP/1.1",
            Refused(400, Cause::MethodPreface),
        ),
        // Hosts.
        row(
            "two hosts",
            "GET / HTTP/1.1\nhost: b",
            Refused(400, Cause::Duplicate(Known::Host)),
        ),
        row(
            "joined hosts",
            "GET / HTTP/1.1\nHost: a,b",
            Refused(400, Cause::Duplicate(Known::Host)),
        ),
        row(
            "host against an absolute target",
            "GET http://b/ HTTP/1.1",
            Refused(400, Cause::HostDiffers),
        ),
        row(
            "user information",
            "GET http://a@b/ HTTP/1.1",
            Refused(400, Cause::UserInformation),
        ),
        row("letters of a host", "GET http://A/ HTTP/1.1", Host("a")),
        row(
            "trailing dot of a host",
            "GET http://a./ HTTP/1.1",
            Host("a"),
        ),
        row(
            "backslash in an authority",
            "GET http://a\\.b/ HTTP/1.1",
            Refused(400, Cause::HostCharacter),
        ),
        row(
            "address in another notation",
            "GET http://0x7f.1/ HTTP/1.1",
            Refused(400, Cause::HostNumber),
        ),
        row(
            "scheme of the target (Envoy's privilege escalation)",
            "GET https://a/ HTTP/1.1",
            Refused(421, Cause::SchemeOverClear),
        ),
        row(
            "request without a path (CVE-2026-73547)",
            "CONNECT a:80 HTTP/1.1",
            Tunnel("a:80"),
        ),
        row(
            "host against the target of CONNECT",
            "CONNECT b:80 HTTP/1.1",
            Refused(400, Cause::HostDiffers),
        ),
        // Headers of the mesh from outside.
        edge(
            "x-envoy-original-path (CVE-2023-27487)",
            "GET / HTTP/1.1\nx-envoy-original-path: /admin",
            Fields(EDGE),
        ),
        row(
            "x-envoy-original-path from the mesh",
            "GET / HTTP/1.1\nx-envoy-original-path: /admin",
            Fields(&["x-forwarded-proto", "x-request-id"]),
        ),
        edge(
            "x-envoy-* (CVE-2024-45806)",
            "GET / HTTP/1.1\nx-envoy-internal: true\nX-Envoy-New: 1\nx-envoy-retry-on: 5xx",
            Fields(EDGE),
        ),
        edge(
            "x-forwarded-*",
            "GET / HTTP/1.1\nx-forwarded-host: b\nX-Forwarded-User: root\nforwarded: for=1",
            Fields(EDGE),
        ),
        edge(
            "x-forwarded-client-cert",
            "GET / HTTP/1.1\nx-forwarded-client-cert: URI=spiffe://a",
            Fields(EDGE),
        ),
        edge(
            "mesh metadata",
            "GET / HTTP/1.1\nbaggage: a\nx-istio-source: b\nx-forwarded-network: c",
            Fields(EDGE),
        ),
        row(
            "removal by connection",
            "GET / HTTP/1.1\nconnection: x-forwarded-for",
            Refused(400, Cause::Nominated(Known::XForwardedFor)),
        ),
        row(
            "two authorizations",
            "GET / HTTP/1.1\nauthorization: a\nauthorization: b",
            Refused(400, Cause::Duplicate(Known::Authorization)),
        ),
        // Injection.
        row(
            "CR in a value",
            "GET / HTTP/1.1\na: b\rc",
            Refused(400, Cause::Value),
        ),
        row(
            "NUL in a value (CVE-2025-66220)",
            "GET / HTTP/1.1\na: b\0c",
            Refused(400, Cause::Value),
        ),
        row(
            "space before a colon",
            "GET / HTTP/1.1\na : b",
            Refused(400, Cause::Name),
        ),
        // Desynchronisation.
        row(
            "content-length with transfer-encoding",
            "POST / HTTP/1.1\ncontent-length: 1\ntransfer-encoding: chunked",
            Refused(400, Cause::LengthAndCoding),
        ),
        row(
            "transfer-encoding in HTTP/1.0 (CVE-2026-2835)",
            "POST / HTTP/1.0\ntransfer-encoding: chunked",
            Refused(400, Cause::CodingInHttp10),
        ),
        row(
            "two codings (CVE-2026-2836)",
            "POST / HTTP/1.1\ntransfer-encoding: identity, chunked",
            Refused(501, Cause::Coding),
        ),
        row(
            "two lengths",
            "POST / HTTP/1.1\ncontent-length: 1\ncontent-length: 1",
            Refused(400, Cause::Duplicate(Known::ContentLength)),
        ),
        row(
            "length with a sign",
            "POST / HTTP/1.1\ncontent-length: +4",
            Refused(400, Cause::Length),
        ),
        row(
            "content of CONNECT (CVE-2025-64763)",
            "CONNECT a:80 HTTP/1.1\ncontent-length: 4",
            Refused(400, Cause::ConnectContent),
        ),
        row(
            "content of an upgrade (CVE-2026-2833)",
            "GET / HTTP/1.1\nupgrade: websocket\nconnection: upgrade\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\ncontent-length: 4",
            Refused(400, Cause::UpgradeContent),
        ),
        row(
            "h2c upgrade",
            "GET / HTTP/1.1\nupgrade: h2c\nconnection: upgrade, http2-settings\nhttp2-settings: a",
            Fields(&["x-forwarded-proto", "x-request-id"]),
        ),
        row(
            "unknown version",
            "GET / HTTP/1.2",
            Refused(505, Cause::Version),
        ),
    ]
}

#[test]
fn each_class_has_its_fate() {
    for Row {
        class,
        head,
        kind,
        path,
        fate,
    } in rows()
    {
        let (line, fields) = head.split_once('\n').unwrap_or((head, ""));
        let host = if line.contains("://A")
            || line.contains("://a./")
            || line.contains("0x7f")
            || line.contains("://a\\")
            || line.contains('@')
        {
            String::new()
        } else {
            "host: a\n".to_owned()
        };
        let request = format!("{line}\n{host}{fields}\n\n");
        let rules = Rules {
            path,
            ..Rules::default()
        };
        let result =
            raw1(request.as_bytes()).and_then(|raw| canonical_of(raw, &rules, &peer(kind)));
        match (result, fate) {
            (Err(refusal), Refused(status, cause)) => {
                assert_eq!(
                    (refusal.status().code(), refusal.cause()),
                    (status, cause),
                    "{class}"
                );
            }
            (Ok(Canonical::Request(head)), Path(path)) => {
                assert_eq!(text(head.path().target()), path, "{class}")
            }
            (Ok(Canonical::Request(head)), Host(host)) => {
                assert_eq!(text(head.authority().as_bytes()), host, "{class}")
            }
            (Ok(Canonical::Request(head)), Fields(names)) => {
                let found: Vec<_> = head
                    .fields()
                    .iter()
                    .map(|field| text(field.name()))
                    .collect();
                assert_eq!(found, names, "{class}");
            }
            (Ok(Canonical::Connect(head)), Tunnel(host)) => {
                assert_eq!(text(head.authority().as_bytes()), host, "{class}")
            }
            (result, fate) => panic!("{class}: {result:?}, not {fate:?}"),
        }
    }
}

#[test]
fn classes_of_http2_have_their_fate() {
    const HEAD: [(&str, &str); 4] = [
        (":method", "GET"),
        (":scheme", "http"),
        (":authority", "a"),
        (":path", "/"),
    ];
    for (class, more, cause) in [
        ("host against :authority", ("host", "b"), Cause::HostDiffers),
        (
            "CR and LF in a value (splitting at the downgrade)",
            ("a", "b\r\nhost: c"),
            Cause::Value,
        ),
        ("CR and LF in a name", ("a\r\nb", "c"), Cause::Name),
        ("colon in a name", ("a: b", "c"), Cause::Name),
        (
            "transfer-encoding at the downgrade",
            ("transfer-encoding", "chunked"),
            Cause::Forbidden(Known::TransferEncoding),
        ),
        (
            "upgrade at the downgrade",
            ("upgrade", "h2c"),
            Cause::Forbidden(Known::Upgrade),
        ),
        (
            "connection at the downgrade",
            ("connection", "x"),
            Cause::Forbidden(Known::Connection),
        ),
        (
            "content-length beyond END_STREAM",
            ("content-length", "5"),
            Cause::LengthOfNothing,
        ),
        (
            "second :path",
            (":path", "/admin"),
            Cause::PseudoTwice(":path"),
        ),
        (
            "capital letters in a name",
            ("X-Envoy-Internal", "true"),
            Cause::NameCase,
        ),
    ] {
        let fields: Vec<_> = HEAD.into_iter().chain([more]).collect();
        let refusal = request2(&fields).expect_err(class);
        assert_eq!(
            (refusal.cause(), refusal.status().code()),
            (cause, 400),
            "{class}"
        );
    }
    for (class, path, cause) in [
        (":path without a slash", "admin", Cause::Target),
        (
            ":path with a space (request line at the downgrade)",
            "/ HTTP/1.1",
            Cause::PathCharacter,
        ),
        (":path with an authority", "http://b/", Cause::Target),
        (":path with a fragment", "/#", Cause::Fragment),
    ] {
        let refusal = request2(&[HEAD[0], HEAD[1], HEAD[2], (":path", path)]).expect_err(class);
        assert_eq!(refusal.cause(), cause, "{class}");
    }
    for (class, method, cause) in [
        (
            ":method with a space (request line at the downgrade)",
            "GET / HTTP/1.1",
            Cause::MethodNotToken,
        ),
        (":method in other letters", "gET", Cause::MethodCase),
    ] {
        let refusal = request2(&[(":method", method), HEAD[1], HEAD[2], HEAD[3]]).expect_err(class);
        assert_eq!(refusal.cause(), cause, "{class}");
    }
}

#[test]
fn text_of_certificates_cannot_leave_its_value() {
    // GHSA-w5w5-487h-qv8q
    let certificate = ClientCertificate {
        subject: "CN=a\",URI=spiffe://root\r\nx: y\0;By=\\".to_owned(),
        uris: vec!["spiffe://a;URI=spiffe://root,By=x".to_owned()],
        ..ClientCertificate::default()
    };
    let rules = Rules {
        trust: Trust::gateway(0),
        ..Rules::default()
    };
    let downstream = peer(PeerKind::Edge).with_certificate(certificate);
    let raw = raw1(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").expect("a head");
    let head = head(canonical_of(raw, &rules, &downstream).expect("it is good"));
    let value = head.fields().get(Known::XForwardedClientCert).map(text);
    let expected = "Hash=;Subject=\"CN=a\\\",URI=spiffe://root%0D%0Ax: y%00;By=\\\\\";URI=\"spiffe://a;URI=spiffe://root,By=x\"";
    assert_eq!(value.as_deref(), Some(expected));
}
