//! Published faults of matchers, one row each: what they let pass is refused here.

use lateen_policy::request::{OperationMatch, RequestAction, RequestRule};

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
    let method = to(OperationMatch {
        methods: any(&["CONNECT"], text),
        ..OperationMatch::default()
    });
    assert!(admitted(method, &connect));
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
