//! Istio's L4 authorization semantics, one sentence a test.

use std::net::IpAddr;

use lateen_policy::{
    Action, Applied, Clause, Connection, Decision, DenyReason, DryRun, Match, Policy, Scope,
    ServiceAccount, StringMatch, allow_policies, decide, dry_run,
};
use lateen_types::{Identity, NamespacedName, VerifiedPeer};

fn peer(namespace: &str, account: &str) -> VerifiedPeer {
    VerifiedPeer::by_certificate(Identity::new("cluster.local", namespace, account).unwrap())
}

fn connection(peer: Option<&VerifiedPeer>) -> Connection<'_> {
    Connection {
        peer,
        source_ip: [10, 0, 0, 1].into(),
        destination: "10.0.0.2:8080".parse().unwrap(),
    }
}

fn policy(name: &str, action: Action, rules: Vec<Vec<Clause>>) -> Policy {
    let name = NamespacedName::new("default", name);
    Policy {
        name,
        scope: Scope::Namespace,
        action,
        rules,
        dry_run: false,
    }
}

/// A rule of one clause of one match.
fn when(one: Match) -> Vec<Vec<Clause>> {
    vec![vec![vec![one]]]
}

fn from_namespace(namespace: &str) -> Match {
    Match {
        namespaces: vec![StringMatch::Exact(namespace.into())],
        ..Match::default()
    }
}

fn matches(one: Match, connection: &Connection<'_>) -> bool {
    policy("p", Action::Allow, when(one)).matches(connection)
}

fn allowed(policies: &[Policy], connection: &Connection<'_>) -> bool {
    decide(policies, connection).is_allow()
}

fn denied_by(decision: &Decision) -> String {
    match decision {
        Decision::Deny { by } => by.to_string(),
        Decision::Allow { .. } => panic!("allowed"),
    }
}

#[test]
fn without_policies_everything_is_allowed() {
    assert_eq!(
        decide::<[Applied<'_>; 0]>([], &connection(None)),
        Decision::Allow { by: None }
    );
}

#[test]
fn policies_are_named_as_their_authors_wrote_them() {
    const MARK: &str = "web~0a1b2c3d";
    let caller = peer("a", "web");
    let connection = connection(Some(&caller));
    let mut policies = [
        policy(MARK, Action::Allow, when(from_namespace("a"))),
        policy(MARK, Action::Deny, when(from_namespace("a"))),
    ];
    let [allow, deny] = &policies;
    let own = NamespacedName::new("default", "web");
    let decision = decide([allow], &connection);
    assert_eq!(decision, Decision::Allow { by: Some(own) });
    let decision = decide([deny], &connection);
    assert_eq!(denied_by(&decision), "explicitly denied by: default/web");
    let unknown = [Applied::Unknown("default/web~0a1b2c3d")];
    let why = denied_by(&decide(unknown, &connection));
    assert!(why.starts_with("policy default/web applies"), "{why}");
    let page = serde_json::to_value(allow).unwrap();
    assert_eq!(page["name"], "web");
    for policy in &mut policies {
        policy.dry_run = true;
    }
    let reports: Vec<String> = dry_run(&policies, &connection)
        .iter()
        .map(ToString::to_string)
        .collect();
    let want = [
        "dry run: default/web would allow",
        "dry run: default/web would deny",
    ];
    assert_eq!(reports, want);
}

#[test]
fn a_deny_that_matches_wins_over_any_allow() {
    let caller = peer("a", "web");
    let deny = policy("deny", Action::Deny, when(from_namespace("a")));
    let allow = policy("allow", Action::Allow, when(from_namespace("a")));
    for order in [[deny.clone(), allow.clone()], [allow, deny]] {
        let decision = decide(&order, &connection(Some(&caller)));
        assert_eq!(denied_by(&decision), "explicitly denied by: default/deny");
    }
}

#[test]
fn an_allow_that_does_not_match_denies() {
    let caller = peer("a", "web");
    let policies = [policy("allow", Action::Allow, when(from_namespace("b")))];
    let decision = decide(&policies, &connection(Some(&caller)));
    assert_eq!(
        denied_by(&decision),
        "allow policies exist, but none allowed"
    );
}

#[test]
fn one_allow_of_several_is_enough_and_is_named() {
    let caller = peer("b", "web");
    let policies = [
        policy("a", Action::Allow, when(from_namespace("a"))),
        policy("b", Action::Allow, when(from_namespace("b"))),
    ];
    let by = Some(NamespacedName::new("default", "b"));
    assert_eq!(
        decide(&policies, &connection(Some(&caller))),
        Decision::Allow { by }
    );
}

#[test]
fn a_deny_that_does_not_match_allows_when_there_is_no_allow() {
    let caller = peer("b", "web");
    assert!(allowed(
        &[policy("deny", Action::Deny, when(from_namespace("a")))],
        &connection(Some(&caller))
    ));
}

#[test]
fn a_policy_without_rules_never_matches() {
    let caller = peer("a", "web");
    assert!(!allowed(
        &[policy("allow-nothing", Action::Allow, vec![])],
        &connection(Some(&caller))
    ));
    assert!(allowed(
        &[policy("deny-nothing", Action::Deny, vec![])],
        &connection(Some(&caller))
    ));
}

#[test]
fn a_rule_without_clauses_always_matches() {
    assert!(!allowed(
        &[policy("deny-all", Action::Deny, vec![vec![]])],
        &connection(None)
    ));
    assert!(allowed(
        &[policy("allow-all", Action::Allow, vec![vec![]])],
        &connection(None)
    ));
}

#[test]
fn a_clause_without_matches_always_matches() {
    assert!(allowed(
        &[policy("allow-all", Action::Allow, vec![vec![vec![]]])],
        &connection(None)
    ));
}

#[test]
fn a_match_without_attributes_never_matches() {
    assert!(!matches(Match::default(), &connection(None)));
}

#[test]
fn rules_are_alternatives_and_clauses_are_not() {
    let caller = peer("a", "web");
    let connection = connection(Some(&caller));
    let port = |port| Match {
        destination_ports: vec![port],
        ..Match::default()
    };
    let both = |ns, p| vec![vec![from_namespace(ns)], vec![port(p)]];
    assert!(policy("p", Action::Allow, vec![both("a", 8080)]).matches(&connection));
    assert!(!policy("p", Action::Allow, vec![both("a", 9090)]).matches(&connection));
    assert!(!policy("p", Action::Allow, vec![both("b", 8080)]).matches(&connection));
    assert!(
        policy("p", Action::Allow, vec![both("b", 8080), both("a", 8080)]).matches(&connection)
    );
}

#[test]
fn the_matches_of_a_clause_are_alternatives_and_the_attributes_of_a_match_are_not() {
    let caller = peer("a", "web");
    let connection = connection(Some(&caller));
    let either = vec![vec![vec![from_namespace("b"), from_namespace("a")]]];
    assert!(policy("p", Action::Allow, either).matches(&connection));
    let and = Match {
        destination_ports: vec![9090],
        ..from_namespace("a")
    };
    assert!(!matches(and, &connection));
}

#[test]
fn the_values_of_an_attribute_are_alternatives_and_a_negated_value_vetoes() {
    let caller = peer("a", "web");
    let connection = connection(Some(&caller));
    let ports = |positive: &[u16], negative: &[u16]| Match {
        destination_ports: positive.to_vec(),
        not_destination_ports: negative.to_vec(),
        ..Match::default()
    };
    assert!(matches(ports(&[1, 8080], &[]), &connection));
    assert!(matches(ports(&[], &[1]), &connection));
    assert!(!matches(ports(&[], &[1, 8080]), &connection));
    assert!(!matches(ports(&[8080], &[8080]), &connection));
}

#[test]
fn a_peer_without_identity_matches_no_principal_but_the_negation_of_any() {
    let any = |pattern: StringMatch| {
        let positive = Match {
            principals: vec![pattern.clone()],
            ..Match::default()
        };
        let negative = Match {
            not_principals: vec![pattern],
            ..Match::default()
        };
        (
            matches(positive, &connection(None)),
            matches(negative, &connection(None)),
        )
    };
    for pattern in [
        StringMatch::Presence,
        StringMatch::Prefix("".into()),
        StringMatch::Suffix("".into()),
        StringMatch::Exact("".into()),
    ] {
        assert_eq!(any(pattern.clone()), (false, true), "{pattern:?}");
    }
}

#[test]
fn allow_policies_are_named_as_written_and_apart_from_those_in_dry_run() {
    let named = |name: &str, action, dry_run| Policy {
        dry_run,
        ..policy(name, action, vec![])
    };
    let all = [
        named("web~f17b629b", Action::Allow, false),
        named("no", Action::Deny, false),
        named("later", Action::Allow, true),
    ];
    let names = |dry_run| -> Vec<String> {
        allow_policies(&all, dry_run)
            .map(|name| name.to_string())
            .collect()
    };
    assert_eq!(names(false), ["default/web"]);
    assert_eq!(names(true), ["default/later"]);
}

/// What the control plane makes of PeerAuthentication STRICT.
#[test]
fn strict_is_a_deny_of_whoever_has_no_principal() {
    let strict = [policy(
        "istio_converted_static_strict",
        Action::Deny,
        when(Match {
            not_principals: vec![StringMatch::Presence],
            ..Match::default()
        }),
    )];
    let caller = peer("a", "web");
    assert!(!allowed(&strict, &connection(None)));
    assert!(allowed(&strict, &connection(Some(&caller))));
}

#[test]
fn principals_are_spelled_without_scheme() {
    let caller = peer("a", "web");
    let connection = connection(Some(&caller));
    let principal = |pattern| {
        matches(
            Match {
                principals: vec![pattern],
                ..Match::default()
            },
            &connection,
        )
    };
    assert!(principal(StringMatch::Exact(
        "cluster.local/ns/a/sa/web".into()
    )));
    assert!(!principal(StringMatch::Exact(
        "spiffe://cluster.local/ns/a/sa/web".into()
    )));
    assert!(principal(StringMatch::Prefix("cluster.local/ns/a/".into())));
    assert!(!principal(StringMatch::Prefix("luster.local".into())));
    assert!(principal(StringMatch::Suffix("/sa/web".into())));
    assert!(!principal(StringMatch::Suffix("/sa/we".into())));
    assert!(principal(StringMatch::Presence));
}

#[test]
fn a_peer_without_identity_has_the_empty_namespace() {
    let namespace = |pattern| Match {
        namespaces: vec![pattern],
        ..Match::default()
    };
    assert!(!matches(
        namespace(StringMatch::Presence),
        &connection(None)
    ));
    assert!(matches(
        namespace(StringMatch::Exact("".into())),
        &connection(None)
    ));
}

#[test]
fn a_service_account_is_one_of_any_trust_domain() {
    let account = ServiceAccount {
        namespace: "a".into(),
        name: "web".into(),
    };
    let one = Match {
        service_accounts: vec![account],
        ..Match::default()
    };
    let foreign = VerifiedPeer::by_certificate(Identity::new("other.example", "a", "web").unwrap());
    assert!(matches(one.clone(), &connection(Some(&foreign))));
    assert!(!matches(one.clone(), &connection(Some(&peer("a", "api")))));
    assert!(!matches(one.clone(), &connection(Some(&peer("b", "web")))));
    assert!(!matches(one, &connection(None)));
}

/// CVE-2026-39350: the dot of a service account was one of a regular expression.
#[test]
fn a_dot_in_a_service_account_is_a_dot() {
    let account = ServiceAccount {
        namespace: "shop".into(),
        name: "a.b".into(),
    };
    let one = Match {
        service_accounts: vec![account],
        ..Match::default()
    };
    let (own, other) = (peer("shop", "a.b"), peer("shop", "aXb"));
    assert!(matches(one.clone(), &connection(Some(&own))));
    assert!(!matches(one, &connection(Some(&other))));
}

/// CVE-2020-16844: a suffix in a DENY of TCP connections was compared as a whole text.
#[test]
fn a_suffix_in_a_deny_of_connections_is_a_suffix() {
    let caller = peer("eu-prod", "mallory");
    let suffix = |text: &str| vec![StringMatch::Suffix(text.into())];
    let by_principal = Match {
        principals: suffix("/sa/mallory"),
        ..Match::default()
    };
    let by_namespace = Match {
        namespaces: suffix("-prod"),
        ..Match::default()
    };
    for one in [by_principal, by_namespace] {
        let deny = policy("deny", Action::Deny, when(one.clone()));
        assert!(!allowed(&[deny], &connection(Some(&caller))), "{one:?}");
    }
}

#[test]
fn addresses_match_by_prefix() {
    let from = |net: &str| Match {
        source_ips: vec![net.parse().unwrap()],
        ..Match::default()
    };
    let to = |net: &str| Match {
        destination_ips: vec![net.parse().unwrap()],
        ..Match::default()
    };
    assert!(matches(from("10.0.0.0/31"), &connection(None)));
    assert!(!matches(from("10.0.0.2/31"), &connection(None)));
    assert!(matches(to("10.0.0.2/32"), &connection(None)));
    assert!(!matches(to("10.0.0.1/32"), &connection(None)));
    assert!(matches(to("0.0.0.0/0"), &connection(None)));
    assert!(!matches(to("::/0"), &connection(None)));
}

#[test]
fn an_ipv4_address_in_ipv6_clothes_is_that_ipv4_address() {
    let mapped: IpAddr = "::ffff:10.0.0.1".parse().unwrap();
    let connection = Connection {
        source_ip: mapped,
        ..connection(None)
    };
    let deny = policy(
        "deny",
        Action::Deny,
        when(Match {
            source_ips: vec!["10.0.0.0/8".parse().unwrap()],
            ..Match::default()
        }),
    );
    assert!(!allowed(&[deny], &connection));
}

#[test]
fn a_policy_in_dry_run_decides_nothing_and_reports() {
    let caller = peer("a", "web");
    let connection = connection(Some(&caller));
    let dry = |name, action, namespace| Policy {
        dry_run: true,
        ..policy(name, action, when(from_namespace(namespace)))
    };
    let policies = [
        dry("deny", Action::Deny, "a"),
        dry("allow", Action::Allow, "b"),
    ];
    assert_eq!(decide(&policies, &connection), Decision::Allow { by: None });
    let denies = DryRun::WouldDeny(NamespacedName::new("default", "deny"));
    assert_eq!(
        dry_run(&policies, &connection),
        [denies, DryRun::NoAllowWouldMatch]
    );

    let policies = [dry("allow", Action::Allow, "a")];
    let allows = DryRun::WouldAllow(NamespacedName::new("default", "allow"));
    assert_eq!(dry_run(&policies, &connection), [allows]);

    let enforced = policy("real", Action::Allow, when(from_namespace("a")));
    let policies = [dry("allow", Action::Allow, "b"), enforced];
    assert!(
        dry_run(&policies, &connection).is_empty(),
        "an enforced ALLOW decides already"
    );
}

#[test]
fn a_policy_that_is_not_known_denies() {
    let caller = peer("a", "web");
    let allow = policy("allow", Action::Allow, when(from_namespace("a")));
    let decision = decide(
        [Applied::Policy(&allow), Applied::Unknown("default/new")],
        &connection(Some(&caller)),
    );
    let Decision::Deny {
        by: DenyReason::Unknown(name),
    } = &decision
    else {
        panic!("{decision:?}")
    };
    assert_eq!(name, "default/new");
}

#[test]
fn dumps_as_ztunnel_does() {
    let one = Match {
        principals: vec![StringMatch::Suffix("/web".into()), StringMatch::Presence],
        not_service_accounts: vec![ServiceAccount {
            namespace: "a".into(),
            name: "b".into(),
        }],
        source_ips: vec!["10.0.0.0/8".parse().unwrap()],
        ..Match::default()
    };
    let dump = serde_json::to_value(policy("p", Action::Deny, when(one))).unwrap();
    let expected = serde_json::json!({
        "name": "p", "namespace": "default", "scope": "Namespace", "action": "Deny", "dryRun": false,
        "rules": [[[{
            "principals": [{"Suffix": "/web"}, {"Presence": []}],
            "notServiceAccounts": [{"namespace": "a", "serviceAccount": "b"}],
            "sourceIps": ["10.0.0.0/8"],
        }]]],
    });
    assert_eq!(dump, expected);
}
