//! Every decision against a second evaluator that reads the policies naively: it follows the words of Istio's documentation and
//! shares neither code nor structure with the one under test.

use std::net::IpAddr;

use ipnet::IpNet;
use lateen_policy::request::{
    ConditionMatch, HeaderName, OperationMatch, PathPattern, RequestAction, RequestDecision,
    RequestDenial, RequestPolicy, RequestRule, SourceMatch, Values,
};
use lateen_policy::{DryRun, ServiceAccount, StringMatch};
use lateen_types::{Identity, VerifiedPeer};
use proptest::prelude::*;
use proptest::sample::select;

use super::support::{Request, facts, path, policy, with_unknown};

mod naive {
    use super::*;

    /// A connection and a request as texts.
    pub struct Facts<'a> {
        /// Trust domain, namespace, service account.
        pub peer: Option<[&'a str; 3]>,
        pub source: IpAddr,
        pub destination: IpAddr,
        pub port: u16,
        pub sni: Option<&'a str>,
        pub request: &'a Request,
    }

    fn string(bytes: &[u8]) -> String {
        // Each byte is one character: no two texts become one.
        bytes.iter().map(|&byte| byte as char).collect()
    }

    fn like(pattern: &StringMatch, text: &str) -> bool {
        match pattern {
            StringMatch::Exact(p) => text == string(p.as_bytes()),
            StringMatch::Prefix(p) => text.find(&string(p.as_bytes())) == Some(0),
            StringMatch::Suffix(p) => {
                let p = string(p.as_bytes());
                text.len() >= p.len() && text.rfind(&p) == Some(text.len() - p.len())
            }
            StringMatch::Presence => !text.is_empty(),
        }
    }

    /// The header rule: an asterisk is satisfied by anything that is there.
    fn there(pattern: &StringMatch, text: &str) -> bool {
        matches!(pattern, StringMatch::Presence) || like(pattern, text)
    }

    fn path_like(pattern: &PathPattern, text: &str) -> bool {
        match pattern {
            PathPattern::Text(pattern) => like(pattern, text),
            PathPattern::Template(template) => {
                let parts: Vec<&str> = template.as_str().split("{*}").collect();
                // The templates that are drawn have one operator at most.
                match &parts[..] {
                    [before, after] => text
                        .strip_prefix(before)
                        .and_then(|rest| rest.strip_suffix(after))
                        .is_some_and(|middle| !middle.is_empty() && !middle.contains('/')),
                    _ => {
                        let (before, after) = template.as_str().split_once("{**}").unwrap();
                        let rest = text.strip_prefix(before);
                        rest.is_some_and(|rest| rest.strip_suffix(after).is_some())
                    }
                }
            }
        }
    }

    fn within(net: &IpNet, ip: IpAddr) -> bool {
        let bits = |ip| match ip {
            IpAddr::V4(ip) => format!("{:032b}", u32::from(ip)),
            IpAddr::V6(ip) => format!("{:0128b}", u128::from(ip)),
        };
        let (net_bits, ip_bits) = (bits(net.addr()), bits(ip));
        let length = usize::from(net.prefix_len());
        net_bits.len() == ip_bits.len() && net_bits[..length] == ip_bits[..length]
    }

    /// Counts what is mentioned and whether it fails.
    #[derive(Default)]
    struct Tally {
        mentioned: usize,
        failed: usize,
    }

    impl Tally {
        fn of<T>(&mut self, values: &Values<T>, holds: impl Fn(&T) -> bool) {
            if values.any.len() + values.not.len() == 0 {
                return;
            }
            self.mentioned += 1;
            let hits = values.any.iter().filter(|value| holds(value)).count();
            let vetoes = values.not.iter().filter(|value| holds(value)).count();
            if (!values.any.is_empty() && hits == 0) || vetoes > 0 {
                self.failed += 1;
            }
        }

        fn token(&mut self, values: &Values<StringMatch>, action: RequestAction, has: bool) {
            if values.any.len() + values.not.len() == 0 {
                return;
            }
            self.mentioned += 1;
            let holds = match (action, has) {
                (RequestAction::Allow, true) => false,
                (_, true) => true,
                (_, false) => values.any.is_empty(),
            };
            if !holds {
                self.failed += 1;
            }
        }

        fn holds(&self) -> bool {
            self.mentioned > 0 && self.failed == 0
        }
    }

    /// The attributes of the peer.
    impl Facts<'_> {
        fn principal(&self, pattern: &StringMatch) -> bool {
            let principal = |[td, ns, sa]: [&str; 3]| format!("{td}/ns/{ns}/sa/{sa}");
            self.peer
                .map(principal)
                .is_some_and(|text| like(pattern, &text))
        }

        fn part(&self, number: usize, pattern: &StringMatch) -> bool {
            self.peer.is_some_and(|parts| like(pattern, parts[number]))
        }

        fn account(&self, account: &ServiceAccount) -> bool {
            let wanted = (&*account.namespace, &*account.name);
            self.peer.is_some_and(|[_, ns, sa]| (ns, sa) == wanted)
        }

        fn source(&self, source: &SourceMatch, action: RequestAction) -> bool {
            let mut tally = Tally::default();
            tally.of(&source.principals, |p| self.principal(p));
            tally.of(&source.namespaces, |p| self.part(1, p));
            tally.of(&source.trust_domains, |p| self.part(0, p));
            tally.of(&source.service_accounts, |a| self.account(a));
            tally.of(&source.ip_blocks, |net| within(net, self.source));
            tally.of(&source.remote_ip_blocks, |net| {
                within(net, self.request.remote)
            });
            tally.token(&source.request_principals, action, self.request.token);
            tally.holds()
        }

        fn operation(&self, operation: &OperationMatch) -> bool {
            let host = string(&self.request.authority).to_lowercase();
            let method = string(&self.request.method);
            let target = string(&self.request.target);
            let path = target.split('?').next().unwrap();
            let mut tally = Tally::default();
            tally.of(&operation.hosts, |p| {
                let lower = |text: &str| text.to_lowercase().as_str().into();
                let pattern = match p {
                    StringMatch::Exact(text) => StringMatch::Exact(lower(text)),
                    StringMatch::Prefix(text) => StringMatch::Prefix(lower(text)),
                    StringMatch::Suffix(text) => StringMatch::Suffix(lower(text)),
                    StringMatch::Presence => StringMatch::Presence,
                };
                there(&pattern, &host)
            });
            tally.of(&operation.methods, |p| there(p, &method));
            tally.of(&operation.ports, |port| *port == self.port);
            tally.of(&operation.paths, |p| path_like(p, path));
            tally.holds()
        }

        fn condition(&self, condition: &ConditionMatch, action: RequestAction) -> bool {
            let mut tally = Tally::default();
            match condition {
                ConditionMatch::Header(name, values) => {
                    let fields = self.request.fields.iter();
                    let of_name = fields.filter(|(known, _)| known == name.as_str());
                    let found: Vec<_> = of_name.map(|(_, value)| string(value)).collect();
                    // An ALLOW rule is about all fields of the name, another rule about any. What keeps requests out also covers one
                    // value that an application makes of several fields.
                    let joined: Vec<_> = match found.len() {
                        0 | 1 => Vec::new(),
                        _ => vec![found.join(","), found.join(", ")],
                    };
                    let passes = |value: Option<&String>| {
                        let mut alone = Tally::default();
                        alone.of(values, |p| value.is_some_and(|v| there(p, v)));
                        alone.failed == 0
                    };
                    let held = match (found.is_empty(), action) {
                        (true, _) => passes(None),
                        (false, RequestAction::Allow) => {
                            found.iter().all(|v| passes(Some(v)))
                                && !joined
                                    .iter()
                                    .any(|v| values.not.iter().any(|p| there(p, v)))
                        }
                        (false, _) => {
                            found.iter().any(|v| passes(Some(v)))
                                || !values.any.is_empty() && joined.iter().any(|v| passes(Some(v)))
                        }
                    };
                    tally.failed += usize::from(!held);
                }
                ConditionMatch::SourceIp(v) => tally.of(v, |net| within(net, self.source)),
                ConditionMatch::RemoteIp(v) => tally.of(v, |net| within(net, self.request.remote)),
                ConditionMatch::DestinationIp(v) => {
                    tally.of(v, |net| within(net, self.destination));
                }
                ConditionMatch::DestinationPort(v) => tally.of(v, |port| *port == self.port),
                ConditionMatch::SourcePrincipal(v) => tally.of(v, |p| self.principal(p)),
                ConditionMatch::SourceNamespace(v) => tally.of(v, |p| self.part(1, p)),
                ConditionMatch::SourceTrustDomain(v) => tally.of(v, |p| self.part(0, p)),
                ConditionMatch::SourceServiceAccount(v) => tally.of(v, |a| self.account(a)),
                ConditionMatch::Sni(v) => {
                    tally.of(v, |p| self.sni.is_some_and(|sni| like(p, sni)));
                }
                ConditionMatch::TokenPrincipal(v)
                | ConditionMatch::TokenAudiences(v)
                | ConditionMatch::TokenPresenter(v)
                | ConditionMatch::TokenClaim(_, v) => tally.token(v, action, self.request.token),
            }
            tally.failed == 0
        }

        pub fn matches(&self, policy: &RequestPolicy) -> bool {
            for rule in &policy.rules {
                let from = rule
                    .from
                    .iter()
                    .filter(|s| self.source(s, policy.action))
                    .count();
                let to = rule.to.iter().filter(|o| self.operation(o)).count();
                let when = rule
                    .when
                    .iter()
                    .filter(|c| self.condition(c, policy.action))
                    .count();
                if (rule.from.is_empty() || from > 0)
                    && (rule.to.is_empty() || to > 0)
                    && when == rule.when.len()
                {
                    return true;
                }
            }
            false
        }
    }

    /// The decision in words.
    pub fn decide(policies: &[RequestPolicy], unknown: Option<&str>, facts: &Facts<'_>) -> String {
        let first = |action| {
            let enforced = policies.iter().filter(|p| !p.dry_run && p.action == action);
            let matching = enforced.filter(|p| facts.matches(p));
            matching.map(|p| p.name.to_string()).min()
        };
        let mut allows = policies
            .iter()
            .filter(|p| !p.dry_run && p.action == RequestAction::Allow);
        if let Some(name) = first(RequestAction::Custom) {
            return format!("custom {name}");
        }
        if let Some(name) = first(RequestAction::Deny) {
            return format!("deny {name}");
        }
        if let Some(name) = unknown {
            return format!("unknown {name}");
        }
        match first(RequestAction::Allow) {
            Some(name) => format!("allow {name}"),
            None if allows.next().is_some() => "none".to_owned(),
            None => "allow".to_owned(),
        }
    }

    /// The reports in words.
    pub fn reports(policies: &[RequestPolicy], facts: &Facts<'_>) -> Vec<String> {
        let mut said: Vec<String> = policies
            .iter()
            .filter(|p| facts.matches(p))
            .filter_map(|p| match (p.action, p.dry_run) {
                (RequestAction::Audit, _) => Some(format!("audit {}", p.name)),
                (RequestAction::Allow, true) => Some(format!("would allow {}", p.name)),
                (_, true) => Some(format!("would deny {}", p.name)),
                _ => None,
            })
            .collect();
        let allows = |dry| {
            let of = policies.iter().filter(move |p| p.dry_run == dry);
            of.filter(|p| p.action == RequestAction::Allow)
        };
        let dry_matches = allows(true).any(|p| facts.matches(p));
        if allows(true).count() > 0 && allows(false).count() == 0 && !dry_matches {
            said.push("would match none".to_owned());
        }
        said.sort();
        said
    }
}

fn pattern(texts: &'static [&'static str]) -> impl Strategy<Value = StringMatch> {
    (select(texts), 0..4, 0usize..12).prop_map(move |(text, kind, at)| match kind {
        0 => StringMatch::Exact(text.into()),
        1 => StringMatch::Prefix(text.get(..at).unwrap_or(text).into()),
        2 => StringMatch::Suffix(text.get(at..).unwrap_or(text).into()),
        _ => StringMatch::Presence,
    })
}

fn values<T: Clone + std::fmt::Debug>(
    one: impl Strategy<Value = T> + Clone,
) -> impl Strategy<Value = Values<T>> {
    let some = prop::collection::vec(one, 1..3);
    prop_oneof![
        5 => Just(Values::default()),
        3 => some.clone().prop_map(|any| Values { any, not: Vec::new() }),
        1 => some.clone().prop_map(|not| Values { any: Vec::new(), not }),
        1 => (some.clone(), some).prop_map(|(any, not)| Values { any, not }),
    ]
}

const HOSTS: &[&str] = &["a.example", "A.example:80", "b.example", ""];
const METHODS: &[&str] = &["GET", "POST", "get"];
const PATHS: &[&str] = &["/", "/a", "/a/b", "/a/b/c", "/b", "/\u{e9}"];
const VALUES: &[&str] = &["1", "2", "1,2", "1, 2", "", "\u{fe}"];
const PRINCIPALS: &[&str] = &["td/ns/a/sa/w", "td/ns/b/sa/w", "ot/ns/a/sa/v"];
const NAMES: &[&str] = &["a", "b", "td", "w", "ot"];

fn path_pattern() -> impl Strategy<Value = PathPattern> + Clone {
    let templates = select(&["/{*}", "/a/{*}", "/{*}/b", "/{**}", "/a/{**}", "/{**}/b"][..]);
    prop_oneof![
        2 => pattern(PATHS).prop_map(PathPattern::Text).boxed(),
        1 => templates.prop_map(path).boxed(),
    ]
    .boxed()
}

fn block() -> impl Strategy<Value = IpNet> + Clone {
    let blocks = [
        "10.0.0.0/8",
        "10.0.0.1/32",
        "10.0.0.0/31",
        "fd00::/16",
        "::/0",
        "0.0.0.0/0",
    ];
    select(blocks.to_vec())
        .prop_map(|text| text.parse().unwrap())
        .boxed()
}

fn account() -> impl Strategy<Value = ServiceAccount> + Clone {
    (select(NAMES), select(NAMES))
        .prop_map(|(namespace, name)| ServiceAccount {
            namespace: namespace.into(),
            name: name.into(),
        })
        .boxed()
}

fn patterns(texts: &'static [&'static str]) -> impl Strategy<Value = Values<StringMatch>> {
    values(pattern(texts).boxed())
}

fn source() -> impl Strategy<Value = SourceMatch> {
    let tokens = prop_oneof![4 => Just(Values::default()), 1 => patterns(NAMES)];
    (
        patterns(PRINCIPALS),
        tokens,
        patterns(NAMES),
        values(account()),
        patterns(NAMES),
        values(block()),
        values(block()),
    )
        .prop_map(|parts| SourceMatch {
            principals: parts.0,
            request_principals: parts.1,
            namespaces: parts.2,
            service_accounts: parts.3,
            trust_domains: parts.4,
            ip_blocks: parts.5,
            remote_ip_blocks: parts.6,
        })
}

fn port() -> impl Strategy<Value = u16> + Clone {
    select(&[80, 8080][..])
}

fn operation() -> impl Strategy<Value = OperationMatch> {
    (
        patterns(HOSTS),
        values(port()),
        patterns(METHODS),
        values(path_pattern()),
    )
        .prop_map(|(hosts, ports, methods, paths)| OperationMatch {
            hosts,
            ports,
            methods,
            paths,
        })
}

fn condition() -> impl Strategy<Value = ConditionMatch> {
    let header = (select(&["x-a", "x-b", "cookie"][..]), patterns(VALUES));
    prop_oneof![
        6 => header.prop_map(|(name, v)| ConditionMatch::Header(HeaderName::new(name).unwrap(), v)),
        1 => values(block()).prop_map(ConditionMatch::SourceIp),
        1 => values(block()).prop_map(ConditionMatch::RemoteIp),
        1 => values(block()).prop_map(ConditionMatch::DestinationIp),
        1 => values(port()).prop_map(ConditionMatch::DestinationPort),
        1 => patterns(NAMES).prop_map(ConditionMatch::SourceNamespace),
        1 => patterns(PRINCIPALS).prop_map(ConditionMatch::SourcePrincipal),
        1 => values(account()).prop_map(ConditionMatch::SourceServiceAccount),
        1 => patterns(NAMES).prop_map(ConditionMatch::SourceTrustDomain),
        1 => patterns(HOSTS).prop_map(ConditionMatch::Sni),
        1 => patterns(NAMES).prop_map(ConditionMatch::TokenPrincipal),
        1 => patterns(NAMES).prop_map(|v| ConditionMatch::TokenClaim(vec!["c".into()], v)),
    ]
}

fn rule() -> impl Strategy<Value = RequestRule> {
    (
        // Mostly none, so that many rules are left to the request.
        prop_oneof![3 => Just(Vec::new()), 1 => prop::collection::vec(source(), 1..3)],
        prop::collection::vec(operation(), 0..3),
        prop::collection::vec(condition(), 0..3),
    )
        .prop_map(|(from, to, when)| RequestRule { from, to, when })
}

fn a_policy() -> impl Strategy<Value = RequestPolicy> {
    use RequestAction::{Allow, Audit, Custom, Deny};
    (
        prop::collection::vec(rule(), 0..4),
        select(&[Allow, Allow, Deny, Deny, Audit, Custom][..]),
        prop::bool::weighted(0.2),
    )
        .prop_map(|(rules, action, dry_run)| RequestPolicy {
            dry_run,
            ..policy("", action, rules)
        })
}

fn request() -> impl Strategy<Value = Request> {
    let field = (select(&["x-a", "x-b", "cookie"][..]), select(VALUES));
    (
        select(HOSTS),
        select(METHODS),
        select(PATHS),
        prop::bool::ANY,
        prop::collection::vec(field, 0..4),
        select(&["10.0.0.1", "10.0.0.2", "fd00::1"][..]),
        prop::bool::weighted(0.3),
    )
        .prop_map(
            |(host, method, path, query, fields, remote, token)| Request {
                authority: host.into(),
                method: method.into(),
                target: format!("{path}{}", if query { "?/a" } else { "" }).into(),
                fields: fields
                    .into_iter()
                    .map(|(name, value)| (name.to_owned(), value.into()))
                    .collect(),
                remote: remote.parse().unwrap(),
                token,
            },
        )
}

type Parts = [&'static str; 3];

fn identity() -> impl Strategy<Value = Option<Parts>> {
    let parts = [["td", "a", "w"], ["td", "b", "w"], ["ot", "a", "v"]];
    prop::option::weighted(0.8, select(parts.to_vec()))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn decides_as_a_naive_reading_does(
        policies in prop::collection::vec(a_policy(), 0..20),
        unknown in prop::bool::weighted(0.1),
        identity in identity(),
        source in select(&["10.0.0.1", "10.0.0.9", "fd00::1"][..]),
        port in port(),
        sni in prop::option::of(select(HOSTS)),
        requests in prop::collection::vec(request(), 1..8),
    ) {
        let policies: Vec<_> = policies
            .into_iter()
            .enumerate()
            // Names in another order than that of the list.
            .map(|(n, p)| RequestPolicy { name: policy(&format!("p{}", n * 5 % 32), p.action, Vec::new()).name, ..p })
            .collect();
        let names: &[&str] = if unknown { &["shop/u"] } else { &[] };
        let compiled = with_unknown(policies.clone(), names);
        let source: IpAddr = source.parse().unwrap();
        let peer = identity.map(|[td, ns, sa]| {
            VerifiedPeer::by_certificate(Identity::new(td, ns, sa).unwrap())
        });
        let mut connection = facts(peer.as_ref());
        connection.source_ip = source;
        connection.destination.set_port(port);
        connection.sni = sni.map(str::as_bytes);
        let bits = compiled.peer(&connection);
        for request in &requests {
            let facts = naive::Facts {
                peer: identity,
                source,
                destination: connection.destination.ip(),
                port,
                sni,
                request,
            };
            let said = match compiled.decide(&bits, request) {
                RequestDecision::Allow { by: None } => "allow".to_owned(),
                RequestDecision::Allow { by: Some(name) } => format!("allow {name}"),
                RequestDecision::Deny { by } => match by {
                    RequestDenial::Custom(name) => format!("custom {name}"),
                    RequestDenial::Policy(name) => format!("deny {name}"),
                    RequestDenial::Unknown(name) => format!("unknown {name}"),
                    RequestDenial::NoAllowMatched => "none".to_owned(),
                    RequestDenial::OtherPeer => "other".to_owned(),
                },
            };
            prop_assert_eq!(said, naive::decide(&policies, names.first().copied(), &facts));
            let reports = compiled.reports(&bits, request);
            let mut said: Vec<String> = reports.audited.iter().map(|n| format!("audit {n}")).collect();
            said.extend(reports.dry_run.iter().map(|dry| match dry {
                DryRun::WouldDeny(name) => format!("would deny {name}"),
                DryRun::WouldAllow(name) => format!("would allow {name}"),
                DryRun::NoAllowWouldMatch => "would match none".to_owned(),
            }));
            said.sort();
            prop_assert_eq!(said, naive::reports(&policies, &facts));
        }
    }
}
