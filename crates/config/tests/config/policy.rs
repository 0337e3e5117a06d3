//! The whole way from the wire to a decision, against an interpreter that reads the messages naively: it follows the
//! words of the contract, one loop per word, and shares nothing with the crate.

use std::net::IpAddr;

use lateen_config::Store;
use lateen_policy::{Connection, Decision, decide};
use lateen_proto::security::{
    Action, Address, Authorization, Clause, Match, Rule, Scope, ServiceAccountMatch, StringMatch,
    string_match,
};
use lateen_types::{Identity, VerifiedPeer};
use proptest::prelude::*;

use super::support::{Resource, pod, uid};

/// What the interpreter knows of a connection.
#[derive(Debug, Clone)]
struct Facts {
    /// Trust domain, namespace, service account.
    peer: Option<(String, String, String)>,
    source: IpAddr,
    destination: IpAddr,
    port: u16,
}

fn text_matches(pattern: &StringMatch, text: &str) -> bool {
    match pattern.match_type.as_ref().unwrap() {
        string_match::MatchType::Exact(whole) => text == whole,
        string_match::MatchType::Prefix(prefix) => {
            text.len() >= prefix.len() && text[..prefix.len()] == **prefix
        }
        string_match::MatchType::Suffix(suffix) => {
            text.len() >= suffix.len() && text[text.len() - suffix.len()..] == **suffix
        }
        string_match::MatchType::Presence(()) => !text.is_empty(),
    }
}

fn in_range(range: &Address, address: IpAddr) -> bool {
    let bits = |bytes: &[u8]| {
        bytes
            .iter()
            .flat_map(|byte| (0..8).map(move |i| byte >> (7 - i) & 1))
            .collect::<Vec<_>>()
    };
    let address = match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    };
    let length = range.length as usize;
    address.len() == range.address.len()
        && bits(&address)[..length] == bits(&range.address)[..length]
}

/// `Some(answer)` if the attribute is given.
fn given<T>(positive: &[T], negative: &[T], is: impl Fn(&T) -> bool) -> Option<bool> {
    let mut answers = Vec::new();
    if !positive.is_empty() {
        answers.push(positive.iter().any(&is));
    }
    if !negative.is_empty() {
        answers.push(!negative.iter().any(&is));
    }
    (!answers.is_empty()).then(|| answers.iter().all(|yes| *yes))
}

fn match_matches(m: &Match, facts: &Facts) -> bool {
    let namespace = facts
        .peer
        .as_ref()
        .map_or("", |(_, namespace, _)| namespace);
    let principal = facts
        .peer
        .as_ref()
        .map(|(td, ns, sa)| format!("{td}/ns/{ns}/sa/{sa}"));
    let account = |wanted: &ServiceAccountMatch| {
        facts
            .peer
            .as_ref()
            .is_some_and(|(_, ns, sa)| wanted.namespace == *ns && wanted.service_account == *sa)
    };
    let principal = |pattern: &StringMatch| {
        principal
            .as_ref()
            .is_some_and(|text| text_matches(pattern, text))
    };
    let answers: Vec<bool> = [
        given(&m.namespaces, &m.not_namespaces, |p| {
            text_matches(p, namespace)
        }),
        given(&m.principals, &m.not_principals, principal),
        given(&m.service_accounts, &m.not_service_accounts, account),
        given(&m.source_ips, &m.not_source_ips, |r| {
            in_range(r, facts.source)
        }),
        given(&m.destination_ips, &m.not_destination_ips, |r| {
            in_range(r, facts.destination)
        }),
        given(&m.destination_ports, &m.not_destination_ports, |p| {
            *p == u32::from(facts.port)
        }),
    ]
    .into_iter()
    .flatten()
    .collect();
    !answers.is_empty() && answers.iter().all(|yes| *yes)
}

fn policy_matches(policy: &Authorization, facts: &Facts) -> bool {
    for rule in &policy.rules {
        let mut every_clause = true;
        for clause in &rule.clauses {
            let mut any_match = clause.matches.is_empty();
            for m in &clause.matches {
                any_match = any_match || match_matches(m, facts);
            }
            every_clause = every_clause && any_match;
        }
        if every_clause {
            return true;
        }
    }
    false
}

/// Whether a workload of namespace `default` that names `named` serves the connection.
fn interpret(policies: &[Authorization], named: &[String], facts: &Facts) -> bool {
    let name = |p: &Authorization| format!("{}/{}", p.namespace, p.name);
    if named
        .iter()
        .any(|wanted| policies.iter().all(|p| name(p) != *wanted))
    {
        return false;
    }
    let covering: Vec<_> = policies
        .iter()
        .filter(|p| !p.dry_run)
        .filter(|p| {
            named.contains(&name(p))
                || p.scope() == Scope::Global
                || (p.scope() == Scope::Namespace && p.namespace == "default")
        })
        .collect();
    if covering
        .iter()
        .any(|p| p.action() == Action::Deny && policy_matches(p, facts))
    {
        return false;
    }
    let allows: Vec<_> = covering
        .iter()
        .filter(|p| p.action() == Action::Allow)
        .collect();
    allows.is_empty() || allows.iter().any(|p| policy_matches(p, facts))
}

fn a_text() -> impl Strategy<Value = String> {
    prop::sample::select(vec![
        "",
        "a",
        "b",
        "default",
        "cluster.local/ns/a/sa/b",
        "cluster.local/",
        "/sa/b",
    ])
    .prop_map(str::to_owned)
}

fn a_pattern() -> impl Strategy<Value = StringMatch> {
    use string_match::MatchType::{Exact, Prefix, Presence, Suffix};
    prop_oneof![
        a_text().prop_map(Exact),
        a_text().prop_map(Prefix),
        a_text().prop_map(Suffix),
        Just(Presence(())),
    ]
    .prop_map(|kind| StringMatch {
        match_type: Some(kind),
    })
}

fn an_address() -> impl Strategy<Value = IpAddr> {
    prop::sample::select(vec![
        "10.0.0.1",
        "10.0.0.2",
        "10.128.0.1",
        "fd00::1",
        "fd00::2",
    ])
    .prop_map(|text| text.parse().unwrap())
}

fn a_range() -> impl Strategy<Value = Address> {
    (an_address(), 0u32..=32).prop_map(|(address, length)| Address {
        address: match address {
            IpAddr::V4(v4) => v4.octets().to_vec().into(),
            IpAddr::V6(v6) => v6.octets().to_vec().into(),
        },
        length,
    })
}

fn few<T: Strategy>(one: T) -> impl Strategy<Value = Vec<T::Value>>
where
    T::Value: Clone + std::fmt::Debug,
{
    // Mostly nothing: matches of many attributes hardly ever match.
    prop_oneof![4 => Just(Vec::new()), 1 => prop::collection::vec(one, 1..3)]
}

fn a_match() -> impl Strategy<Value = Match> {
    let an_account = || {
        (
            prop::sample::select(vec!["a", "b"]),
            prop::sample::select(vec!["a", "b"]),
        )
            .prop_map(|(ns, sa)| ServiceAccountMatch {
                namespace: ns.into(),
                service_account: sa.into(),
            })
    };
    let a_port = || prop::sample::select(vec![80u32, 8080]);
    let who = (
        few(a_pattern()),
        few(a_pattern()),
        few(a_pattern()),
        few(a_pattern()),
        few(an_account()),
        few(an_account()),
    );
    let place = (
        few(a_range()),
        few(a_range()),
        few(a_range()),
        few(a_range()),
        few(a_port()),
        few(a_port()),
    );
    (who, place).prop_map(|(who, place)| Match {
        namespaces: who.0,
        not_namespaces: who.1,
        principals: who.2,
        not_principals: who.3,
        service_accounts: who.4,
        not_service_accounts: who.5,
        source_ips: place.0,
        not_source_ips: place.1,
        destination_ips: place.2,
        not_destination_ips: place.3,
        destination_ports: place.4,
        not_destination_ports: place.5,
        extensions: Vec::new(),
    })
}

fn a_policy() -> impl Strategy<Value = Authorization> {
    let clause = prop::collection::vec(a_match(), 0..3).prop_map(|matches| Clause { matches });
    let rule = prop::collection::vec(clause, 0..3).prop_map(|clauses| Rule { clauses });
    let namespace = prop::sample::select(vec!["default", "other"]);
    (
        prop::collection::vec(rule, 0..3),
        0..3i32,
        0..2i32,
        prop::bool::weighted(0.2),
        namespace,
    )
        .prop_map(|(rules, scope, action, dry_run, namespace)| Authorization {
            name: String::new(),
            namespace: namespace.into(),
            scope,
            action,
            rules,
            dry_run,
            extensions: Vec::new(),
        })
}

fn facts() -> impl Strategy<Value = Facts> {
    let part = || prop::sample::select(vec!["a", "b", "default"]).prop_map(str::to_owned);
    let domain = prop::sample::select(vec!["cluster.local", "a"]).prop_map(str::to_owned);
    (
        prop::option::weighted(0.7, (domain, part(), part())),
        an_address(),
        an_address(),
        prop::sample::select(vec![80u16, 8080]),
    )
        .prop_map(|(peer, source, destination, port)| Facts {
            peer,
            source,
            destination,
            port,
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn decides_as_the_contract_reads(
        mut policies in prop::collection::vec(a_policy(), 0..4),
        named in prop::collection::vec((0usize..5, prop::bool::ANY), 0..3),
        facts in facts(),
    ) {
        for (i, policy) in policies.iter_mut().enumerate() {
            policy.name = format!("p{i}");
        }
        // Mostly names of policies that exist; p4 never does.
        let named: Vec<String> = named
            .into_iter()
            .map(|(i, missing)| match policies.get(i) {
                Some(policy) => format!("{}/{}", policy.namespace, policy.name),
                None if missing => "default/p4".to_owned(),
                None => policies.first().map_or("default/p4".into(), |p| format!("{}/{}", p.namespace, p.name)),
            })
            .collect();

        let mut store = Store::new("", None);
        for policy in &policies {
            store.upsert_authorization(&format!("{}/{}", policy.namespace, policy.name), policy.clone()).unwrap();
        }
        let mut workload = pod("w", "10.0.0.1");
        workload.authorization_policies = named.clone();
        let (name, address) = workload.named();
        store.upsert(&name, address).unwrap();
        let snapshot = store.snapshot();
        let workload = snapshot.workload_by_uid(&uid("w")).unwrap();

        let peer = facts.peer.as_ref().map(|(td, ns, sa)| {
            VerifiedPeer::by_certificate(Identity::new(td, ns, sa).unwrap())
        });
        let connection = Connection {
            peer: peer.as_ref(),
            source_ip: facts.source,
            destination: (facts.destination, facts.port).into(),
        };
        let decision = decide(snapshot.policies_for(workload), &connection);
        prop_assert_eq!(
            matches!(decision, Decision::Allow { .. }),
            interpret(&policies, &named, &facts),
            "{:?}", decision
        );
    }
}
