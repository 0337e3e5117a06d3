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

/// A second field of a name was not compared (CVE-2020-25017): the joined value is what counts.
#[test]
fn a_second_field_does_not_hide_behind_the_first() {
    let request = Request::default()
        .with("x-user", "alice")
        .with("x-user", "mallory");
    assert!(!admitted(header("x-user", any(&["alice"], text)), &request));
    assert!(denied(header("x-user", any(&["*mallory"], text)), &request));
    assert!(denied(header("x-user", not(&["alice"], text)), &request));
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
