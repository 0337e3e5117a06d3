//! Published faults of matchers, one row each: what they let pass is refused here.

use lateen_http::{Path, PathLevel, PathRules};
use lateen_policy::StringMatch;
use lateen_policy::request::{OperationMatch, PathPattern, RequestAction, RequestRule, Values};
use proptest::prelude::{Just, Strategy, prop, prop_assert, prop_assume, prop_oneof, proptest};
use proptest::sample::select;

use super::support::*;

fn denied(rule: RequestRule, request: &Request) -> bool {
    let policies = compiled([policy("p", RequestAction::Deny, vec![rule])]);
    !policies
        .decide(&policies.peer(&facts(None)), request)
        .is_allow()
}

fn admitted(rule: RequestRule, request: &Request) -> bool {
    let policies = compiled([policy("p", RequestAction::Allow, vec![rule])]);
    policies
        .decide(&policies.peer(&facts(None)), request)
        .is_allow()
}

/// CVE-2026-73552: a regular expression does not match bytes that are not UTF-8, so that a DENY does not cover them.
#[test]
fn bytes_that_are_not_utf8_do_not_pass_a_deny() {
    for target in [
        &b"/admin/\xff"[..],
        b"/admin/\xc3\x28",
        b"/admin/\xed\xa0\x80",
    ] {
        let request = Request::get(target);
        for pattern in ["/admin*", "/admin/{*}", "/{**}", "*"] {
            assert!(
                denied(to_paths(&[pattern]), &request),
                "{pattern} {target:?}"
            );
        }
        let except = to(OperationMatch {
            paths: not(&["/public*"], path),
            ..OperationMatch::default()
        });
        assert!(denied(except, &request), "{target:?}");
    }
    let request = Request::default().with("x-user", b"\xff\xfe");
    for values in [any(&["*"], text), not(&["alice"], text)] {
        assert!(denied(header("x-user", values), &request));
    }
    assert!(!admitted(
        header("x-user", any(&["\u{fffd}\u{fffd}"], text)),
        &request
    ));
}

/// CVE-2025-46821: an asterisk in a path was no part of a template's segment.
#[test]
fn an_asterisk_in_a_path_does_not_pass_a_template() {
    for target in ["/admin/*", "/admin/a*b", "/admin/=", "/admin/\""] {
        for pattern in ["/admin/{*}", "/admin/{**}"] {
            assert!(
                denied(to_paths(&[pattern]), &Request::get(target)),
                "{pattern} {target}"
            );
        }
    }
}

/// A canonical path has escapes for characters that no path has, and an author may write the characters.
#[test]
fn a_character_that_no_path_has_does_not_pass_a_deny() {
    let request = Request::get("/a%22%7C/b");
    for pattern in ["/a\"|/b", "/a\"*", "*\"|/b", "/a\"%7c/{*}", "/a%22|/b"] {
        assert!(
            denied(to_paths(&[pattern]), &request),
            "{pattern} {request:?}"
        );
    }
}

/// A canonical path has capital digits in its escapes. An author may write others, and Envoy keeps a client's.
#[test]
fn escapes_in_lower_case_do_not_miss_a_canonical_path() {
    for pattern in ["/a%2fb", "/a%2fb*", "*a%2fb", "/{*}/a%2fb", "/x/{**}%2fb"] {
        let target = if pattern.starts_with("/a") {
            "/a%2Fb"
        } else {
            "/x/a%2Fb"
        };
        assert!(
            denied(to_paths(&[pattern]), &Request::get(target)),
            "{pattern}"
        );
        let except = to(OperationMatch {
            paths: not(&[pattern], path),
            ..OperationMatch::default()
        });
        assert!(!admitted(except, &Request::get(target)), "{pattern}");
    }
    // A path that is not normalised may have the author's digits.
    assert!(denied(to_paths(&["/a%2fb"]), &Request::get("/a%2fb")));
}

/// An application decodes a path once, and an author may write what it gets then.
#[test]
fn a_deny_covers_every_path_that_decodes_to_its_pattern() {
    for (pattern, target) in [
        ("/caf\u{e9}", "/caf%C3%A9"),
        ("/caf\u{e9}/*", "/caf%C3%A9/x"),
        ("*/\u{e9}", "/x/%C3%A9"),
        ("/a b", "/a%20b"),
        ("/%61dmin", "/admin"),
        ("/%61dmin/{*}", "/admin/x"),
        ("/a@b", "/a%40b"),
        ("/a%40b", "/a@b"),
        ("/a@b/{**}", "/a%40b/c"),
        ("/a%40b/{*}", "/a@b/c"),
        ("/a%2Fb/{*}", "/a/b/c"),
        ("/{*}%2Fb@", "/a%2Fb%40"),
        ("/a/b", "/a%2Fb"),
        ("/a;b", "/a%3Bb"),
        ("/a%b", "/a%25b"),
        ("/%61", "/%2561"),
        ("/%ff@", "/%FF%40"),
        ("/a?b", "/a%3Fb"),
    ] {
        let request = Request::get(target);
        assert!(denied(to_paths(&[pattern]), &request), "{pattern} {target}");
        let except = to(OperationMatch {
            paths: not(&[pattern], path),
            ..OperationMatch::default()
        });
        assert!(!admitted(except, &request), "{pattern} {target}");
    }
    for (pattern, target) in [("*40", "/a@"), ("/a%2540", "/a%40"), ("/b", "/%C3%A9")] {
        let request = Request::get(target);
        assert!(
            !denied(to_paths(&[pattern]), &request),
            "{pattern} {target}"
        );
    }
}

/// A path with an encoded character that has a meaning is another resource (RFC 3986 §2.2), and an ALLOW does not speak of it.
#[test]
fn an_allow_covers_no_path_but_the_one_that_its_author_wrote() {
    for (pattern, target) in [("/a/b", "/a%2Fb"), ("/a@b", "/a%40b"), ("/a%2Fb", "/a/b")] {
        let request = Request::get(target);
        assert!(
            !admitted(to_paths(&[pattern]), &request),
            "{pattern} {target}"
        );
        let except = to(OperationMatch {
            paths: not(&[pattern], path),
            ..OperationMatch::default()
        });
        assert!(denied(except, &request), "{pattern} {target}");
    }
    for (pattern, target) in [
        ("/caf\u{e9}", "/caf%C3%A9"),
        ("/a b/*", "/a%20b/c"),
        ("/%61dmin/{*}", "/admin/x"),
    ] {
        let request = Request::get(target);
        assert!(
            admitted(to_paths(&[pattern]), &request),
            "{pattern} {target}"
        );
    }
}

/// The octets that a path stands for, read from the left.
fn decoded(path: &[u8]) -> Vec<u8> {
    let mut octets = Vec::new();
    let mut rest = path.iter();
    while let Some(&octet) = rest.next() {
        octets.push(match octet {
            b'%' => {
                let digits: String = rest.by_ref().take(2).map(|&d| char::from(d)).collect();
                u8::from_str_radix(&digits, 16).expect("an accepted path has whole escapes")
            }
            _ => octet,
        });
    }
    octets
}

proptest! {
    #[test]
    fn a_deny_of_the_decoded_text_covers_every_path_that_is_accepted(
        parts in prop::collection::vec(
            prop_oneof![
                4 => (0x20u8..0x7f).prop_map(|byte| char::from(byte).to_string()),
                4 => prop::num::u8::ANY.prop_map(|byte| format!("%{byte:02x}")),
                2 => prop::num::u8::ANY.prop_map(|byte| format!("%{byte:02X}")),
                1 => Just("%C3%A9".to_owned()),
                1 => Just("/../".to_owned()),
            ],
            0..8,
        ),
        level in select(&[
            PathLevel::None, PathLevel::Base, PathLevel::MergeSlashes, PathLevel::DecodeAndMergeSlashes,
        ][..]),
    ) {
        let rules = PathRules { level, ..PathRules::default() };
        let accepted = Path::new(&format!("/{}", parts.concat()), rules);
        prop_assume!(accepted.is_ok());
        let accepted = accepted.unwrap();
        let text = String::from_utf8(decoded(accepted.as_bytes()));
        prop_assume!(text.is_ok());
        let pattern = StringMatch::Exact(text.unwrap().as_str().into());
        let rule = to(OperationMatch {
            paths: Values { any: vec![PathPattern::Text(pattern)], not: Vec::new() },
            ..OperationMatch::default()
        });
        prop_assert!(denied(rule, &Request::get(accepted.as_bytes())), "{:?}", accepted);
    }
}

/// Hosts of requests are in lower case, also where a condition calls them a header.
#[test]
fn a_host_in_capitals_does_not_miss_a_request_as_a_header() {
    for name in ["host", ":authority"] {
        let rule = header(name, any(&["Secret.example*"], text));
        assert!(
            denied(rule, &Request::for_host("secret.example:80")),
            "{name}"
        );
    }
}

/// CVE-2026-73547: a CONNECT has no path, and no ALLOW of paths speaks of it, by whatever exception.
#[test]
fn an_allow_of_paths_does_not_admit_a_connect() {
    let connect = Request {
        method: b"CONNECT".to_vec(),
        ..Request::get("")
    };
    for paths in [
        any(&["*"], path),
        any(&["/{**}"], path),
        not(&["/admin*"], path),
    ] {
        let rule = to(OperationMatch {
            paths,
            ..OperationMatch::default()
        });
        assert!(!admitted(rule.clone(), &connect), "{rule:?}");
    }
    for rule in [
        header(":path", any(&["*"], text)),
        header(":path", not(&["/admin*"], text)),
        header(":scheme", not(&["https"], text)),
    ] {
        assert!(!admitted(rule.clone(), &connect), "{rule:?}");
    }
    for rule in [
        to(OperationMatch {
            methods: any(&["CONNECT"], text),
            ..OperationMatch::default()
        }),
        header(":method", any(&["CONNECT"], text)),
    ] {
        assert!(admitted(rule.clone(), &connect), "{rule:?}");
    }
}

/// A DENY of what is not an allowed path covers a CONNECT, which has none.
#[test]
fn a_deny_of_other_paths_refuses_a_connect() {
    let connect = Request {
        method: b"CONNECT".to_vec(),
        ..Request::get("")
    };
    for values in [any(&["*"], text), not(&["/public*"], text)] {
        assert!(denied(header(":path", values), &connect));
    }
}

/// CVE-2020-16844: a suffix in a DENY was compared as a whole text.
#[test]
fn a_suffix_in_a_deny_is_a_suffix() {
    use lateen_policy::request::SourceMatch;
    let rule = from(SourceMatch {
        principals: any(&["*/sa/mallory"], text),
        ..SourceMatch::default()
    });
    let peer = peer("shop", "mallory");
    assert!(matches(rule, &facts(Some(&peer)), &Request::default()));
}

/// A value behind a NUL byte was not compared (the class of CVE-2025-66220).
#[test]
fn a_nul_byte_does_not_end_a_value() {
    let request = Request::default().with("x-user", b"alice\0mallory");
    assert!(!admitted(header("x-user", any(&["alice"], text)), &request));
    let target = Request::get(b"/public\0/../admin");
    assert!(!admitted(to_paths(&["/public"]), &target));
}

/// A second field of a name was not compared (CVE-2020-25017), and the values were joined, so that neither was compared
/// (CVE-2026-26308).
#[test]
fn a_second_field_does_not_hide_behind_the_first_nor_hide_it() {
    for users in [["alice", "mallory"], ["mallory", "alice"]] {
        let request = Request::default()
            .with("x-user", users[0])
            .with("x-user", users[1]);
        for values in [any(&["mallory"], text), not(&["alice"], text)] {
            assert!(denied(header("x-user", values), &request), "{users:?}");
        }
        for values in [any(&["alice"], text), not(&["mallory"], text)] {
            assert!(!admitted(header("x-user", values), &request), "{users:?}");
        }
        let both = header("x-user", any(&["alice", "mallory"], text));
        assert!(admitted(both, &request), "{users:?}");
    }
}

/// Istio matched hosts of a DENY with regard to case (CVE-2021-39155).
#[test]
fn a_host_in_capitals_does_not_pass_a_deny() {
    let rule = to(OperationMatch {
        hosts: any(&["Secret.example*"], text),
        ..OperationMatch::default()
    });
    for host in ["secret.example", "SECRET.EXAMPLE:80", "sEcReT.example"] {
        assert!(denied(rule.clone(), &Request::for_host(host)), "{host}");
    }
}

/// A condition on `:path` sees the canonical path, too.
#[test]
fn a_condition_on_the_target_covers_both_forms_of_its_escapes() {
    for (pattern, target) in [
        ("/a%2fb?x=1", "/a%2Fb?x=1"),
        ("/a\"*", "/a%22b"),
        ("*%2fb", "/a%2Fb"),
    ] {
        let rule = header(":path", any(&[pattern], text));
        assert!(denied(rule, &Request::get(target)), "{pattern}");
        let rule = header(":path", not(&[pattern], text));
        assert!(!admitted(rule, &Request::get(target)), "{pattern}");
    }
}
