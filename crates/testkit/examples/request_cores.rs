//! The cores of L7 policies for tests/bench/instructions.sh: each decides a thousand requests inside its measured function.
#![forbid(unsafe_code)]

use std::hint::black_box;
use std::net::IpAddr;
use std::sync::Arc;

use lateen_http::FieldName;
use lateen_policy::StringMatch;
use lateen_policy::request::{
    ConditionMatch, HeaderName, OperationMatch, PathPattern, PathTemplate, PeerBits, PeerFacts,
    RequestAction, RequestFacts, RequestPolicies, RequestPolicy, RequestRule, SourceMatch,
    TrustDomains, Values,
};
use lateen_types::{Identity, NamespacedName, VerifiedPeer};

const RUNS: usize = 1000;

fn main() {
    let core = std::env::args().nth(1).unwrap_or_default();
    let policies = compiled(if core == "request_policy_none" {
        0
    } else {
        1000
    });
    let identity = Identity::new("cluster.local", "shop", "web").expect("a good name");
    let peer = VerifiedPeer::by_certificate(identity);
    let facts = PeerFacts {
        peer: Some(&peer),
        source_ip: [10, 244, 1, 2].into(),
        destination: ([10, 96, 0, 1], 8080).into(),
        sni: None,
    };
    let bits = policies.peer(&facts);
    match core.as_str() {
        "request_policy_none" => measured_request_policy_none(&policies, &bits),
        "request_policy_many" => measured_request_policy_many(&policies, &bits),
        "request_policy_peer" => measured_request_policy_peer(&policies, &facts),
        _ => panic!("request_policy_none, request_policy_many or request_policy_peer"),
    }
}

/// DENY policies of all kinds, none of which matches: by path, template, host, method, header and peer.
fn compiled(count: usize) -> RequestPolicies {
    let any = |one: String| Values {
        any: vec![StringMatch::Exact(one.as_str().into())],
        not: Vec::new(),
    };
    let rule = |n: usize| -> RequestRule {
        let mut operation = OperationMatch::default();
        let mut rule = RequestRule::default();
        let path = match n % 8 {
            0 => PathPattern::Text(StringMatch::Exact(format!("/admin/{n}").as_str().into())),
            1 => PathPattern::Text(StringMatch::Prefix(format!("/reviews/{n}").as_str().into())),
            2 => PathPattern::Text(StringMatch::Suffix(format!(".{n}").as_str().into())),
            3 => {
                let template = format!("/api/{n}/{{*}}/items");
                PathPattern::Template(PathTemplate::new(&template).expect("a template"))
            }
            4 => {
                operation.hosts = any(format!("host{n}.example"));
                rule.to = vec![operation];
                return rule;
            }
            5 => {
                let name = HeaderName::new("x-tenant").expect("a name");
                let condition = ConditionMatch::Header(name, any(format!("tenant{n}")));
                rule.when = vec![condition];
                return rule;
            }
            6 => {
                operation.methods = any(format!("METHOD{n}"));
                rule.to = vec![operation];
                return rule;
            }
            _ => {
                rule.from = vec![SourceMatch {
                    principals: any(format!("cluster.local/ns/shop/sa/other{n}")),
                    ..SourceMatch::default()
                }];
                return rule;
            }
        };
        operation.paths.any = vec![path];
        rule.to = vec![operation];
        rule
    };
    let policies = (0..count).map(|n| {
        Arc::new(RequestPolicy {
            name: NamespacedName::new("shop", format!("policy{n}")),
            action: RequestAction::Deny,
            dry_run: false,
            provider: "".into(),
            rules: vec![rule(n)],
        })
    });
    RequestPolicies::compile(policies, &TrustDomains::default())
}

/// A request for a page.
struct Page;

impl RequestFacts for Page {
    fn authority(&self) -> &[u8] {
        black_box(b"reviews.shop.svc.cluster.local:9080")
    }

    fn method(&self) -> &[u8] {
        black_box(b"GET")
    }

    fn path(&self) -> &[u8] {
        black_box(b"/reviews/of/a/product/17")
    }

    fn target(&self) -> &[u8] {
        black_box(b"/reviews/of/a/product/17?page=2")
    }

    fn scheme(&self) -> &[u8] {
        b"http"
    }

    fn fields<'a>(&'a self, name: &'a FieldName) -> impl Iterator<Item = &'a [u8]> {
        let fields: &[(&str, &[u8])] = black_box(&[("accept", b"*/*"), ("x-tenant", b"tenant")]);
        let named = fields.iter().filter(|(known, _)| *known == name.as_str());
        named.map(|(_, value)| *value)
    }

    fn remote_ip(&self) -> IpAddr {
        [203, 0, 113, 9].into()
    }

    fn token_present(&self) -> bool {
        false
    }
}

fn decide(policies: &RequestPolicies, bits: &PeerBits) {
    for _ in 0..RUNS {
        let decision = policies.decide(black_box(bits), black_box(&Page));
        assert!(black_box(decision).is_allow(), "no policy matches");
    }
}

/// A request without policies.
#[inline(never)]
fn measured_request_policy_none(policies: &RequestPolicies, bits: &PeerBits) {
    // Another condition than below: equal functions would be made one.
    assert!(policies.is_empty());
    decide(policies, bits);
}

/// A request with a thousand policies that do not match.
#[inline(never)]
fn measured_request_policy_many(policies: &RequestPolicies, bits: &PeerBits) {
    decide(policies, bits);
}

/// One connection, judged by a thousand policies.
#[inline(never)]
fn measured_request_policy_peer(policies: &RequestPolicies, facts: &PeerFacts<'_>) {
    black_box(policies.peer(black_box(facts)));
}
