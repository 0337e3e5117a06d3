//! Field names, field values, methods and statuses.

use bytes::Bytes;
use lateen_http::{FieldName, FieldValue, Known, Method, Scheme, Status};

#[test]
fn field_names_are_tokens_in_lower_case() {
    for (given, name, known) in [
        ("Host", "host", Some(Known::Host)),
        (
            "X-Forwarded-FOR",
            "x-forwarded-for",
            Some(Known::XForwardedFor),
        ),
        ("X-Custom", "x-custom", None),
        ("!#$%&'*+-.^_`|~1aZ", "!#$%&'*+-.^_`|~1az", None),
    ] {
        let field = FieldName::new(given).expect("a token");
        assert_eq!((field.as_str(), field.known()), (name, known), "{given}");
    }
    for bad in ["", ":path", "a b", "a:", "a\r", "a\0", "\u{e9}", "a(b)"] {
        assert_eq!(FieldName::new(bad), None, "{bad:?}");
    }
}

#[test]
fn field_values_have_no_control_characters_and_keep_bytes_beyond_ascii() {
    let value = |bytes: &'static [u8]| FieldValue::new(Bytes::from_static(bytes));
    let bytes = |bytes| value(bytes).map(|value| value.as_bytes().to_vec());
    assert_eq!(bytes(b" \ta b\tc \t"), Some(b"a b\tc".to_vec()));
    assert_eq!(bytes(b"caf\xe9 \xff"), Some(b"caf\xe9 \xff".to_vec()));
    assert_eq!(bytes(b""), Some(Vec::new()));
    for bad in [
        &b"a\r\nb: c"[..],
        b"a\nb",
        b"a\rb",
        b"a\0b",
        b"\x01",
        b"a\x7f",
        b"aaaaaaaaaaaaaaaaaaaa\n",
    ] {
        assert_eq!(value(bad), None, "{bad:?}");
    }
}

#[test]
fn methods_are_tokens_in_their_own_case() {
    for good in [
        "GET",
        "POST",
        "HEAD",
        "OPTIONS",
        "PROPFIND",
        "VERSION-CONTROL",
        "QUERY",
        "FOO",
        "foo",
        "M-SEARCH",
    ] {
        assert_eq!(Method::new(good).expect(good).as_bytes(), good.as_bytes());
    }
    for bad in [
        "get", "Get", "pOST", "options", "propfind", "connect", "PRI", "pri", "", "GE T", "GET\0",
        "G(T",
    ] {
        assert_eq!(Method::new(bad), None, "{bad:?}");
    }
    assert_eq!(Method::new(&"A".repeat(65)), None);
    assert_eq!(Method::new("GET"), Some(Method::GET));
    assert_eq!(Method::new("TRACE"), Some(Method::TRACE));
}

#[test]
fn statuses_have_three_digits_and_a_class() {
    for (digits, class) in [
        ("100", 1),
        ("204", 2),
        ("304", 3),
        ("418", 4),
        ("503", 5),
        ("600", 5),
        ("999", 5),
    ] {
        let status = Status::parse(digits.as_bytes()).expect(digits);
        assert_eq!(status.class(), class, "{digits}");
        assert_eq!(status.to_string(), digits);
    }
    for bad in ["", "20", "2000", "099", "2x0", "+20", " 20"] {
        assert_eq!(Status::parse(bad.as_bytes()), None, "{bad:?}");
    }
    assert_eq!(Status::new(99), None);
    assert_eq!(Status::new(1000), None);
}

#[test]
fn schemes_are_http_and_https_in_any_case() {
    assert_eq!(Scheme::parse(b"HTTPS"), Some(Scheme::Https));
    assert_eq!(Scheme::parse(b"http"), Some(Scheme::Http));
    for bad in ["", "ftp", "httpx", "https,http", "ws"] {
        assert_eq!(Scheme::parse(bad.as_bytes()), None, "{bad:?}");
    }
}
