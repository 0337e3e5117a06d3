//! Every decision against a second evaluator, written from the words of Istio's documentation and of the proto alone: it
//! shares neither code nor structure with the one under test.

use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;
use lateen_policy::{
    Action, Applied, Connection, Decision, DryRun, Match, Policy, Scope, ServiceAccount,
    StringMatch, decide, dry_run,
};
use lateen_types::{Identity, NamespacedName, VerifiedPeer};
use proptest::prelude::*;
use proptest::sample::select;

mod naive {
    use super::*;

    /// A connection as plain texts and numbers.
    pub struct Facts {
        pub principal: Option<String>,
        pub namespace: String,
        pub account: Option<(String, String)>,
        pub from: IpAddr,
        pub to: IpAddr,
        pub port: u16,
    }

    fn bits(ip: IpAddr) -> String {
        let octets = match ip.to_canonical() {
            IpAddr::V4(ip) => ip.octets().to_vec(),
            IpAddr::V6(ip) => ip.octets().to_vec(),
        };
        octets.iter().map(|octet| format!("{octet:08b}")).collect()
    }

    fn within(net: &IpNet, ip: IpAddr) -> bool {
        let (net_bits, ip_bits) = (bits(net.addr()), bits(ip));
        let length = usize::from(net.prefix_len());
        net_bits.len() == ip_bits.len() && net_bits[..length] == ip_bits[..length]
    }

    fn like(pattern: &StringMatch, text: &str) -> bool {
        let (text, length) = (text.as_bytes(), text.len());
        match pattern {
            StringMatch::Exact(p) => text == p.as_bytes(),
            StringMatch::Prefix(p) => length >= p.len() && &text[..p.len()] == p.as_bytes(),
            StringMatch::Suffix(p) => {
                length >= p.len() && &text[length - p.len()..] == p.as_bytes()
            }
            StringMatch::Presence => length != 0,
        }
    }

    /// For each attribute: how many of its values hold, of how many, and the same of its negation.
    type Tally = [(usize, usize, usize, usize); 6];

    fn tally(m: &Match, c: &Facts) -> Tally {
        fn count<T>(
            yes: &[T],
            no: &[T],
            holds: impl Fn(&T) -> bool,
        ) -> (usize, usize, usize, usize) {
            let hits = |list: &[T]| list.iter().filter(|value| holds(value)).count();
            (hits(yes), yes.len(), hits(no), no.len())
        }
        let principal = |p: &StringMatch| match &c.principal {
            None => false,
            Some(text) => like(p, text),
        };
        let account =
            |a: &ServiceAccount| c.account == Some((a.namespace.to_string(), a.name.to_string()));
        [
            count(&m.namespaces, &m.not_namespaces, |p| like(p, &c.namespace)),
            count(&m.service_accounts, &m.not_service_accounts, account),
            count(&m.principals, &m.not_principals, principal),
            count(&m.source_ips, &m.not_source_ips, |net| within(net, c.from)),
            count(&m.destination_ips, &m.not_destination_ips, |net| {
                within(net, c.to)
            }),
            count(&m.destination_ports, &m.not_destination_ports, |port| {
                *port == c.port
            }),
        ]
    }

    fn match_holds(m: &Match, c: &Facts) -> bool {
        let tally = tally(m, c);
        let given: usize = tally.iter().map(|(_, yes, _, no)| yes + no).sum();
        let failed = tally
            .iter()
            .filter(|(hits, of, vetoes, _)| (*of > 0 && *hits == 0) || *vetoes > 0)
            .count();
        given > 0 && failed == 0
    }

    pub fn policy_holds(policy: &Policy, c: &Facts) -> bool {
        for rule in &policy.rules {
            let mut held = 0;
            for clause in rule {
                let fulfilled = clause.iter().filter(|m| match_holds(m, c)).count();
                if clause.is_empty() || fulfilled > 0 {
                    held += 1;
                }
            }
            if held == rule.len() {
                return true;
            }
        }
        false
    }

    /// The three steps of the documentation, after the fourth that is ours: what is not known denies.
    pub fn allows(policies: &[Policy], unknown: bool, c: &Facts) -> bool {
        let of = |action: Action| {
            let enforced = policies.iter().filter(|p| !p.dry_run);
            enforced.filter(move |p| p.action == action)
        };
        if unknown {
            return false;
        }
        if of(Action::Deny).any(|p| policy_holds(p, c)) {
            return false;
        }
        if of(Action::Allow).count() == 0 {
            return true;
        }
        of(Action::Allow).any(|p| policy_holds(p, c))
    }

    /// What would be otherwise, were the policies in dry run enforced: names of those that match.
    pub fn rehearsed(policies: &[Policy], c: &Facts) -> Vec<String> {
        let mut names: Vec<String> = policies
            .iter()
            .filter(|p| p.dry_run && policy_holds(p, c))
            .map(|p| format!("{:?} {}", p.action, p.name))
            .collect();
        let allows = |dry: bool| {
            let of = policies.iter().filter(move |p| p.dry_run == dry);
            of.filter(|p| p.action == Action::Allow)
        };
        let none = !allows(true).any(|p| policy_holds(p, c));
        if allows(true).count() > 0 && allows(false).count() == 0 && none {
            names.push("none".to_owned());
        }
        names
    }
}

fn text() -> impl Strategy<Value = &'static str> {
    select(vec![
        "",
        "a",
        "ab",
        "b",
        "cluster.local/ns/a/sa/b",
        "cluster.local/ns/",
        "/sa/b",
        "ab/sa/a",
    ])
}

fn pattern() -> impl Strategy<Value = StringMatch> {
    prop_oneof![
        text().prop_map(|t| StringMatch::Exact(t.into())),
        text().prop_map(|t| StringMatch::Prefix(t.into())),
        text().prop_map(|t| StringMatch::Suffix(t.into())),
        Just(StringMatch::Presence),
    ]
}

fn address() -> impl Strategy<Value = IpAddr> {
    let all = [
        "10.0.0.1",
        "10.0.0.2",
        "10.128.0.1",
        "fd00::1",
        "fd00::8000:1",
        "::ffff:10.0.0.1",
        "::",
    ];
    select(all.to_vec()).prop_map(|ip| ip.parse().unwrap())
}

fn range() -> impl Strategy<Value = IpNet> {
    let all = [
        "10.0.0.1/32",
        "10.0.0.0/8",
        "10.0.0.0/9",
        "0.0.0.0/0",
        "::/0",
        "fd00::/16",
        "fd00::1/128",
        "fd00::1/97",
    ];
    select(all.to_vec()).prop_map(|net| net.parse().unwrap())
}

fn account() -> impl Strategy<Value = ServiceAccount> {
    (select(vec!["a", "ab"]), select(vec!["a", "b"])).prop_map(|(namespace, name)| ServiceAccount {
        namespace: namespace.into(),
        name: name.into(),
    })
}

fn few<T: std::fmt::Debug>(
    of: impl Strategy<Value = T> + 'static,
) -> impl Strategy<Value = Vec<T>> {
    // Mostly none: a match of twelve attributes would never hold.
    prop_oneof![
        4 => Just(0usize),
        2 => Just(1),
        1 => Just(2),
    ]
    .prop_flat_map({
        let of = of.boxed();
        move |count| prop::collection::vec(of.clone(), count)
    })
}

fn one_match() -> impl Strategy<Value = Match> {
    let port = || select(vec![80u16, 8080]);
    let who = (
        few(pattern()),
        few(pattern()),
        few(account()),
        few(account()),
        few(pattern()),
        few(pattern()),
    );
    let place = (
        few(range()),
        few(range()),
        few(range()),
        few(range()),
        few(port()),
        few(port()),
    );
    (who, place).prop_map(|(who, place)| Match {
        namespaces: who.0,
        not_namespaces: who.1,
        service_accounts: who.2,
        not_service_accounts: who.3,
        principals: who.4,
        not_principals: who.5,
        source_ips: place.0,
        not_source_ips: place.1,
        destination_ips: place.2,
        not_destination_ips: place.3,
        destination_ports: place.4,
        not_destination_ports: place.5,
    })
}

fn policies() -> impl Strategy<Value = Vec<Policy>> {
    let rules = prop::collection::vec(
        prop::collection::vec(prop::collection::vec(one_match(), 0..3), 0..3),
        0..3,
    );
    let policy = (rules, any::<bool>(), prop::bool::weighted(0.3));
    prop::collection::vec(policy, 0..5).prop_map(|list| {
        let one = |(at, (rules, allow, dry_run)): (usize, _)| Policy {
            name: NamespacedName::new("default", format!("p{at}")),
            scope: Scope::Namespace,
            action: if allow { Action::Allow } else { Action::Deny },
            rules,
            dry_run,
        };
        list.into_iter().enumerate().map(one).collect()
    })
}

fn peer() -> impl Strategy<Value = Option<VerifiedPeer>> {
    let identity = (select(vec!["a", "ab"]), select(vec!["a", "b"]));
    prop::option::weighted(
        0.7,
        identity.prop_map(|(namespace, account)| {
            VerifiedPeer::by_certificate(
                Identity::new("cluster.local", namespace, account).unwrap(),
            )
        }),
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn decides_as_the_documentation_says(
        policies in policies(), peer in peer(), from in address(), to in address(), port in select(vec![80u16, 8080]),
        unknown in prop::bool::weighted(0.05),
    ) {
        let connection = Connection {
            peer: peer.as_ref(),
            source_ip: from,
            destination: SocketAddr::new(to, port),
        };
        let id = peer.as_ref().map(VerifiedPeer::identity);
        let facts = naive::Facts {
            principal: id.map(|id| format!("cluster.local/ns/{}/sa/{}", id.namespace(), id.service_account())),
            namespace: id.map(|id| id.namespace().to_string()).unwrap_or_default(),
            account: id.map(|id| (id.namespace().to_string(), id.service_account().to_string())),
            from,
            to,
            port,
        };
        let missing = unknown.then_some(Applied::Unknown("default/lost"));
        let applied = || policies.iter().map(Applied::Policy).chain(missing);
        let decision = decide(applied(), &connection);
        prop_assert_eq!(decision.is_allow(), naive::allows(&policies, unknown, &facts), "{:?}", decision);
        if let Decision::Allow { by: Some(name) } = &decision {
            let by = policies.iter().find(|p| p.name == *name).unwrap();
            prop_assert!(by.action == Action::Allow && !by.dry_run && naive::policy_holds(by, &facts));
        }
        let rehearsed: Vec<String> = dry_run(applied(), &connection)
            .iter()
            .map(|report| match report {
                DryRun::WouldDeny(name) => format!("Deny {name}"),
                DryRun::WouldAllow(name) => format!("Allow {name}"),
                DryRun::NoAllowWouldMatch => "none".to_owned(),
            })
            .collect();
        prop_assert_eq!(rehearsed, naive::rehearsed(&policies, &facts));
    }
}
