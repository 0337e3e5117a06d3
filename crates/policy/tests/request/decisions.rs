//! Rules, actions and their order.

use lateen_policy::DryRun;
use lateen_policy::request::{
    ConditionMatch, OperationMatch, RequestAction, RequestDecision, RequestPolicies, RequestPolicy,
    RequestRule, SourceMatch, Values,
};
use lateen_types::NamespacedName;

use super::support::*;

fn decision(policies: &RequestPolicies, request: &Request) -> String {
    match policies.decide(&policies.peer(&facts(None)), request) {
        RequestDecision::Allow { by: None } => "allow".to_owned(),
        RequestDecision::Allow { by: Some(name) } => format!("allow by {name}"),
        RequestDecision::Deny { by } => by.to_string(),
    }
}

fn on(name: &str, action: RequestAction, path: &str) -> RequestPolicy {
    policy(name, action, vec![to_paths(&[path])])
}

#[test]
fn without_policies_every_request_is_served() {
    let policies = compiled([]);
    assert!(policies.is_empty() && !policies.has_reports());
    assert_eq!(decision(&policies, &Request::default()), "allow");
}

#[test]
fn custom_goes_before_deny_and_deny_before_unknown_and_allow() {
    let policies = vec![
        on("z-custom", RequestAction::Custom, "/a"),
        on("z-deny", RequestAction::Deny, "/a*"),
        on("b-deny", RequestAction::Deny, "/ab"),
        on("allow", RequestAction::Allow, "*"),
    ];
    let known = compiled(policies.clone());
    let unknown = with_unknown(policies, &["shop/v", "shop/u"]);
    for (target, by_known, by_unknown) in [
        (
            "/a",
            "CUSTOM policy shop/z-custom,",
            "CUSTOM policy shop/z-custom,",
        ),
        (
            "/ab",
            "explicitly denied by: shop/b-deny",
            "explicitly denied by: shop/b-deny",
        ),
        (
            "/ac",
            "explicitly denied by: shop/z-deny",
            "explicitly denied by: shop/z-deny",
        ),
        (
            "/b",
            "allow by shop/allow",
            "policy shop/u applies but cannot be read here",
        ),
    ] {
        let request = Request::get(target);
        let (known, unknown) = (decision(&known, &request), decision(&unknown, &request));
        assert!(known.contains(by_known), "{target}: {known}");
        assert!(unknown.contains(by_unknown), "{target}: {unknown}");
    }
}

#[test]
fn an_unknown_policy_refuses_whatever_it_covers() {
    let policies = with_unknown(Vec::new(), &["shop/p"]);
    assert!(!policies.is_empty());
    assert!(decision(&policies, &Request::default()).starts_with("policy shop/p applies"));
}

#[test]
fn an_allow_policy_without_rules_admits_nobody() {
    let policies = compiled([policy("p", RequestAction::Allow, Vec::new())]);
    assert_eq!(
        decision(&policies, &Request::default()),
        "allow policies exist, but none allowed"
    );
    let names: Vec<_> = policies
        .allow_policies(false)
        .map(ToString::to_string)
        .collect();
    assert_eq!(names, ["shop/p"]);
}

#[test]
fn deny_and_custom_policies_without_rules_refuse_nobody() {
    let policies = compiled([
        policy("p", RequestAction::Deny, Vec::new()),
        policy("q", RequestAction::Custom, Vec::new()),
    ]);
    assert_eq!(decision(&policies, &Request::default()), "allow");
}

#[test]
fn a_rule_without_parts_matches_every_request() {
    assert!(matches(
        RequestRule::default(),
        &facts(None),
        &Request::default()
    ));
}

#[test]
fn a_source_or_an_operation_that_mentions_nothing_never_matches() {
    for rule in [from(SourceMatch::default()), to(OperationMatch::default())] {
        assert!(!matches(rule, &facts(None), &Request::default()));
    }
}

#[test]
fn one_source_one_operation_and_every_condition_must_match() {
    let source = |namespace: &str| SourceMatch {
        namespaces: any(&[namespace], text),
        ..SourceMatch::default()
    };
    let operation = |pattern: &str| OperationMatch {
        paths: any(&[pattern], path),
        ..OperationMatch::default()
    };
    let condition = |name: &str| header(name, any(&["1"], text)).when.remove(0);
    let rule = RequestRule {
        from: vec![source("a"), source("b")],
        to: vec![operation("/x"), operation("/y")],
        when: vec![condition("p"), condition("q")],
    };
    for (namespace, target, headers, expected) in [
        ("a", "/x", &["p", "q"][..], true),
        ("b", "/y", &["p", "q"], true),
        ("c", "/x", &["p", "q"], false),
        ("a", "/z", &["p", "q"], false),
        ("a", "/x", &["p"], false),
        ("a", "/x", &[], false),
    ] {
        let peer = peer(namespace, "web");
        let request = headers.iter().fold(Request::get(target), |request, name| {
            request.with(name, "1")
        });
        assert_eq!(
            matches(rule.clone(), &facts(Some(&peer)), &request),
            expected,
            "{namespace} {target} {headers:?}"
        );
    }
}

#[test]
fn the_values_of_an_operation_must_match_together() {
    let rule = to(OperationMatch {
        methods: any(&["GET"], text),
        paths: Values {
            any: vec![path("/a*")],
            not: vec![path("/a/secret")],
        },
        ..OperationMatch::default()
    });
    for (method, target, expected) in [
        ("GET", "/a/b", true),
        ("POST", "/a/b", false),
        ("GET", "/b", false),
        ("GET", "/a/secret", false),
    ] {
        let request = Request {
            method: method.into(),
            ..Request::get(target)
        };
        assert_eq!(
            matches(rule.clone(), &facts(None), &request),
            expected,
            "{method} {target}"
        );
    }
}

#[test]
fn policies_tell_if_they_compare_server_names_and_decide_by_them() {
    let names = |action, condition: fn(_) -> _| {
        let rule = when(condition(any(&["a.example"], text)));
        policy("names", action, vec![rule])
    };
    for (one, reads, decides) in [
        (names(RequestAction::Deny, ConditionMatch::Sni), true, true),
        (names(RequestAction::Allow, ConditionMatch::Sni), true, true),
        (
            names(RequestAction::Audit, ConditionMatch::Sni),
            true,
            false,
        ),
        (
            names(RequestAction::Deny, ConditionMatch::SourceNamespace),
            false,
            false,
        ),
    ] {
        let policies = compiled([one]);
        assert_eq!(policies.reads_sni(), reads);
        assert_eq!(policies.decides_by_sni(), decides);
    }
}

#[test]
fn audit_and_dry_run_report_and_decide_nothing() {
    let dry = |mut policy: RequestPolicy| {
        policy.dry_run = true;
        policy
    };
    let policies = compiled([
        on("audit-b", RequestAction::Audit, "/a*"),
        on("audit-a", RequestAction::Audit, "/a"),
        dry(on("dry-deny", RequestAction::Deny, "/a")),
        dry(on("dry-allow", RequestAction::Allow, "/b")),
    ]);
    assert!(policies.has_reports() && !policies.is_empty());
    let name = |name: &str| NamespacedName::new("shop", name);
    for (target, audited, dry_run) in [
        (
            "/a",
            &["audit-a", "audit-b"][..],
            vec![
                DryRun::WouldDeny(name("dry-deny")),
                DryRun::NoAllowWouldMatch,
            ],
        ),
        ("/b", &[], vec![DryRun::WouldAllow(name("dry-allow"))]),
        ("/c", &[], vec![DryRun::NoAllowWouldMatch]),
    ] {
        let request = Request::get(target);
        assert_eq!(decision(&policies, &request), "allow");
        let reports = policies.reports(&policies.peer(&facts(None)), &request);
        let names: Vec<_> = reports.audited.iter().map(|name| &*name.name).collect();
        assert_eq!(names, audited, "{target}");
        assert_eq!(reports.dry_run, dry_run, "{target}");
    }
}

#[test]
fn a_peer_that_other_policies_judged_is_refused() {
    let (old, new) = (compiled([]), compiled([]));
    let peer = old.peer(&facts(None));
    assert!(old.judged(&peer) && !new.judged(&peer));
    assert!(!new.decide(&peer, &Request::default()).is_allow());
}

/// Many rules under one path: the peer decides which of them are looked at, and all of those are.
#[test]
fn rules_that_share_a_path_are_told_apart_by_their_peers() {
    let rule = |n: usize| {
        let mut rule = to_paths(&["/a"]);
        rule.from = vec![SourceMatch {
            namespaces: any(&[&format!("n{}", n % 20)], text),
            ..SourceMatch::default()
        }];
        rule.when = header("x-n", any(&[&n.to_string()], text)).when;
        rule
    };
    let policies =
        compiled((0..200).map(|n| policy(&format!("p{n}"), RequestAction::Deny, vec![rule(n)])));
    for (namespace, n, denied) in [("n7", "7", true), ("n7", "187", true), ("n7", "8", false)] {
        let peer = peer(namespace, "web");
        let bits = policies.peer(&facts(Some(&peer)));
        let request = Request::get("/a").with("x-n", n);
        let decision = policies.decide(&bits, &request);
        assert_eq!(decision.is_allow(), !denied, "{namespace} {n}");
    }
}
