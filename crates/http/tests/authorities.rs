//! Authorities: one form, or a refusal.

use lateen_http::{Authority, Cause, HostPattern};
use proptest::prelude::*;

#[test]
fn hosts_have_one_form() {
    for (given, host, port) in [
        ("a", "a", None),
        (
            "details.default.svc.cluster.local:9080",
            "details.default.svc.cluster.local",
            Some(9080),
        ),
        ("Example.COM", "example.com", None),
        ("example.com.", "example.com", None),
        ("example.com.:80", "example.com", Some(80)),
        ("a_b-c.d", "a_b-c.d", None),
        ("a:", "a", None),
        ("a:00080", "a", Some(80)),
        ("10.0.0.7:80", "10.0.0.7", Some(80)),
        ("a.1b", "a.1b", None),
        ("3com", "3com", None),
        ("[::1]", "[::1]", None),
        ("[0:0:0:0:0:0:0:1]:8443", "[::1]", Some(8443)),
        ("[2001:DB8::A]", "[2001:db8::a]", None),
        ("[::ffff:1.2.3.4]", "[::ffff:1.2.3.4]", None),
    ] {
        let authority = Authority::new(given).unwrap_or_else(|cause| panic!("{given}: {cause}"));
        assert_eq!(authority.host(), host.as_bytes(), "{given}");
        assert_eq!(authority.port(), port, "{given}");
        let text = port.map_or(host.to_owned(), |port| format!("{host}:{port}"));
        assert_eq!(authority.as_bytes(), text.as_bytes(), "{given}");
    }
}

#[test]
fn other_hosts_are_refused_with_the_cause() {
    let long = "a".repeat(254);
    for (given, cause) in [
        ("", Cause::HostEmpty),
        (".", Cause::HostEmpty),
        (":80", Cause::HostEmpty),
        ("user@a", Cause::UserInformation),
        ("user:pass@a:80", Cause::UserInformation),
        ("a,b", Cause::HostCharacter),
        ("a b", Cause::HostCharacter),
        ("a/b", Cause::HostCharacter),
        ("a\\b", Cause::HostCharacter),
        ("a?b", Cause::HostCharacter),
        ("a#b", Cause::HostCharacter),
        ("a%41", Cause::HostCharacter),
        ("a*", Cause::HostCharacter),
        ("\u{e9}", Cause::HostCharacter),
        ("a\0", Cause::HostCharacter),
        ("a..b", Cause::HostLabel),
        (".a", Cause::HostLabel),
        ("a..", Cause::HostLabel),
        (&long, Cause::HostLabel),
        ("127.1", Cause::HostNumber),
        ("2130706433", Cause::HostNumber),
        ("0x7f.0.0.0x1", Cause::HostNumber),
        ("010.0.0.1", Cause::HostNumber),
        ("1.2.3.4.5", Cause::HostNumber),
        ("256.1.1.1", Cause::HostNumber),
        ("a:0", Cause::Port),
        ("a:65536", Cause::Port),
        ("a:x", Cause::Port),
        ("a:1:2", Cause::Port),
        ("a:+1", Cause::Port),
        ("a:000080", Cause::Port),
        ("::1", Cause::HostEmpty),
        ("[::1", Cause::HostLiteral),
        ("[::1]x", Cause::HostLiteral),
        ("[fe80::1%25eth0]", Cause::HostLiteral),
        ("[v1.x]", Cause::HostLiteral),
        ("[]", Cause::HostLiteral),
        ("[1.2.3.4]", Cause::HostLiteral),
    ] {
        assert_eq!(Authority::new(given), Err(cause), "{given:?}");
    }
}

#[test]
fn patterns_cover_hosts_by_labels() {
    for (pattern, host, covers) in [
        ("*", "a.b", true),
        ("a.b", "A.b.:80", true),
        ("*.b", "a.b", true),
        ("*.b", "x.a.b", true),
        ("*.b", "b", false),
        ("*.b", "ab", false),
        ("a.b", "b", false),
    ] {
        let pattern_of = HostPattern::new(pattern).expect("a pattern");
        let host_of = Authority::new(host).expect("a host");
        assert_eq!(pattern_of.covers(&host_of), covers, "{pattern} {host}");
    }
    assert_eq!(HostPattern::new("a.*"), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn canonicalisation_is_idempotent(given in "[a-zA-Z0-9.:\\[\\]_@%,-]{0,24}|[a-z.]{30,60}(:[0-9]{1,5})?") {
        if let Ok(authority) = Authority::new(&given) {
            let text = String::from_utf8(authority.as_bytes().to_vec()).expect("ASCII");
            prop_assert_eq!(&Authority::new(&text).expect("its own form"), &authority);
            prop_assert!(!text.bytes().any(|byte| byte.is_ascii_uppercase()));
            prop_assert!(text.starts_with('[') || !authority.host().ends_with(b"."));
            prop_assert!(!text.contains("..") && !text.contains(['@', '%', ',', '/', ' ']));
        }
    }

    #[test]
    fn addresses_are_their_own_form(v4 in any::<std::net::Ipv4Addr>(), v6 in any::<std::net::Ipv6Addr>(), port in 1u16..) {
        for text in [v4.to_string(), format!("{v4}:{port}"), format!("[{v6}]"), format!("[{v6}]:{port}")] {
            let authority = Authority::new(&text).expect("an address");
            prop_assert_eq!(authority.as_bytes(), text.as_bytes());
        }
    }
}
