//! Each attribute by a table: which values match, which do not, and what absence means.

use lateen_policy::request::{
    ConditionMatch, OperationMatch, RequestRule, SourceMatch, TrustDomains, Values,
};
use lateen_policy::request::{PeerFacts, RequestAction, RequestPolicies};
use lateen_policy::{ServiceAccount, StringMatch};
use lateen_types::{Identity, VerifiedPeer};

use super::support::*;

/// Checks a rule with positive values and the same with negative ones, which must match exactly where the first does not.
fn table<T: Copy>(
    cases: &[(T, bool)],
    describe: impl Fn(T) -> String,
    positive: &RequestRule,
    negative: &RequestRule,
    is: impl Fn(&RequestRule, T) -> bool,
) {
    for (case, expected) in cases {
        assert_eq!(is(positive, *case), *expected, "{}", describe(*case));
        assert_eq!(is(negative, *case), !*expected, "not {}", describe(*case));
    }
}

fn hosts(values: Values<StringMatch>) -> RequestRule {
    to(OperationMatch {
        hosts: values,
        ..OperationMatch::default()
    })
}

#[test]
fn hosts_are_compared_without_regard_to_case_and_with_their_port() {
    let list = ["web.example", "*.Shop.example", "API.example:*"];
    table(
        &[
            ("web.example", true),
            ("WEB.Example", true),
            ("web.example:80", false),
            ("a.shop.example", true),
            ("A.SHOP.EXAMPLE", true),
            ("shop.example", false),
            ("a.shop.example:80", false),
            ("api.example:8443", true),
            ("Api.Example:1", true),
            ("api.example", false),
            ("", false),
        ],
        str::to_owned,
        &hosts(any(&list, text)),
        &hosts(not(&list, text)),
        |rule, host| matches(rule.clone(), &facts(None), &Request::for_host(host)),
    );
}

#[test]
fn every_request_has_a_host_and_a_method_for_a_lone_asterisk() {
    let methods = to(OperationMatch {
        methods: any(&["*"], text),
        ..OperationMatch::default()
    });
    for rule in [hosts(any(&["*"], text)), methods] {
        for host in ["", "web.example"] {
            let request = Request::for_host(host);
            assert!(matches(rule.clone(), &facts(None), &request));
        }
    }
}

#[test]
fn methods_are_compared_with_regard_to_case() {
    let methods = |values| {
        to(OperationMatch {
            methods: values,
            ..OperationMatch::default()
        })
    };
    let list = ["GET", "PO*", "*TIONS"];
    table(
        &[
            ("GET", true),
            ("get", false),
            ("POST", true),
            ("PUT", false),
            ("OPTIONS", true),
            ("HEAD", false),
        ],
        str::to_owned,
        &methods(any(&list, text)),
        &methods(not(&list, text)),
        |rule, method| {
            let request = Request {
                method: method.into(),
                ..Request::default()
            };
            matches(rule.clone(), &facts(None), &request)
        },
    );
}

#[test]
fn paths_are_compared_with_regard_to_case_and_without_the_query() {
    let paths = |values| {
        to(OperationMatch {
            paths: values,
            ..OperationMatch::default()
        })
    };
    let list = ["/info", "/admin*", "*.css", "/v/{*}/x/{**}"];
    table(
        &[
            ("/info", true),
            ("/info?x=/admin", true),
            ("/info/", false),
            ("/Info", false),
            ("/administrator", true),
            ("/a/b.css?v=1", true),
            ("/a/b?c.css", false),
            ("/v/1/x/", true),
            ("/v/1/x", false),
            ("/v/1/2/x/y", false),
            ("/", false),
        ],
        str::to_owned,
        &paths(any(&list, path)),
        &paths(not(&list, path)),
        |rule, target| matches(rule.clone(), &facts(None), &Request::get(target)),
    );
}

#[test]
fn ports_are_those_of_the_connects_target() {
    let ports = |values| {
        to(OperationMatch {
            ports: values,
            ..OperationMatch::default()
        })
    };
    let port = |text: &str| text.parse().unwrap();
    for (list, expected) in [
        (&["8080"][..], true),
        (&["80"], false),
        (&["80", "8080"], true),
    ] {
        let request = Request::for_host("web.example:80");
        let is = |rule| matches(rule, &facts(None), &request);
        assert_eq!(is(ports(any(list, port))), expected, "{list:?}");
        assert_eq!(is(ports(not(list, port))), !expected, "not {list:?}");
        let condition = |values| when(ConditionMatch::DestinationPort(values));
        assert_eq!(is(condition(any(list, port))), expected, "{list:?}");
        assert_eq!(is(condition(not(list, port))), !expected, "not {list:?}");
    }
}

/// Checks an attribute of the peer's identity as a source's and as a condition.
fn identities<T: Clone>(
    list: &[T],
    cases: &[(&str, bool)],
    source: impl Fn(Values<T>) -> SourceMatch,
    condition: impl Fn(Values<T>) -> ConditionMatch,
) {
    let positive = Values {
        any: list.to_vec(),
        not: Vec::new(),
    };
    let negative = Values {
        any: Vec::new(),
        not: list.to_vec(),
    };
    let rules = [
        (
            from(source(positive.clone())),
            from(source(negative.clone())),
        ),
        (when(condition(positive)), when(condition(negative))),
    ];
    for (positive, negative) in rules {
        table(
            cases,
            str::to_owned,
            &positive,
            &negative,
            |rule, identity| {
                // Nobody: a connection without identity.
                let identity = identity.parse::<Identity>().ok();
                let peer = identity.map(VerifiedPeer::by_certificate);
                matches(rule.clone(), &facts(peer.as_ref()), &Request::default())
            },
        );
    }
}

#[test]
fn principals_are_identities_without_their_scheme() {
    identities(
        &[
            text("cluster.local/ns/shop/sa/web"),
            text("cluster.local/ns/ops/*"),
            text("*/sa/admin"),
        ],
        &[
            ("spiffe://cluster.local/ns/shop/sa/web", true),
            ("spiffe://cluster.local/ns/shop/sa/webs", false),
            ("spiffe://cluster.local/ns/ops/sa/any", true),
            ("spiffe://elsewhere/ns/ops/sa/any", false),
            ("spiffe://elsewhere/ns/a/sa/admin", true),
            ("nobody", false),
        ],
        |principals| SourceMatch {
            principals,
            ..SourceMatch::default()
        },
        ConditionMatch::SourcePrincipal,
    );
    identities(
        &[text("*")],
        &[
            ("spiffe://elsewhere/ns/a/sa/admin", true),
            ("nobody", false),
        ],
        |principals| SourceMatch {
            principals,
            ..SourceMatch::default()
        },
        ConditionMatch::SourcePrincipal,
    );
}

#[test]
fn namespaces_are_whole_parts_of_the_identity() {
    identities(
        &[text("shop"), text("team-*"), text("*-prod")],
        &[
            ("spiffe://td/ns/shop/sa/web", true),
            ("spiffe://td/ns/shops/sa/web", false),
            ("spiffe://td/ns/team-a/sa/web", true),
            ("spiffe://td/ns/eu-prod/sa/web", true),
            ("spiffe://td/ns/eu/sa/x-prod", false),
            ("spiffe://shop/ns/a/sa/shop", false),
            ("nobody", false),
        ],
        |namespaces| SourceMatch {
            namespaces,
            ..SourceMatch::default()
        },
        ConditionMatch::SourceNamespace,
    );
}

#[test]
fn service_accounts_are_compared_exactly() {
    let account = |namespace: &str, name: &str| ServiceAccount {
        namespace: namespace.into(),
        name: name.into(),
    };
    identities(
        &[account("shop", "a.b"), account("ops", "admin")],
        &[
            ("spiffe://td/ns/shop/sa/a.b", true),
            // CVE-2026-39350: the dot was one of a regular expression.
            ("spiffe://td/ns/shop/sa/aXb", false),
            ("spiffe://td/ns/shop/sa/admin", false),
            ("spiffe://other/ns/ops/sa/admin", true),
            ("nobody", false),
        ],
        |service_accounts| SourceMatch {
            service_accounts,
            ..SourceMatch::default()
        },
        ConditionMatch::SourceServiceAccount,
    );
}

#[test]
fn trust_domains_are_those_of_the_certificate() {
    identities(
        &[text("td1"), text("*.example")],
        &[
            ("spiffe://td1/ns/a/sa/b", true),
            ("spiffe://td10/ns/a/sa/b", false),
            ("spiffe://eu.example/ns/a/sa/b", true),
            ("nobody", false),
        ],
        |trust_domains| SourceMatch {
            trust_domains,
            ..SourceMatch::default()
        },
        ConditionMatch::SourceTrustDomain,
    );
}

#[test]
fn addresses_are_those_of_the_peer_of_the_client_and_of_the_destination() {
    let block = |text: &str| text.parse().unwrap();
    let source = |values| {
        from(SourceMatch {
            ip_blocks: values,
            ..SourceMatch::default()
        })
    };
    let remote = |values| {
        from(SourceMatch {
            remote_ip_blocks: values,
            ..SourceMatch::default()
        })
    };
    type Make<'a> = &'a dyn Fn(Values<ipnet::IpNet>) -> RequestRule;
    let blocks = ["10.0.0.0/24", "203.0.113.0/28", "10.96.0.0/16"];
    let kinds: [(Make<'_>, &str); 5] = [
        (&source, blocks[0]),
        (&|values| when(ConditionMatch::SourceIp(values)), blocks[0]),
        (&remote, blocks[1]),
        (&|values| when(ConditionMatch::RemoteIp(values)), blocks[1]),
        (
            &|values| when(ConditionMatch::DestinationIp(values)),
            blocks[2],
        ),
    ];
    for (rule, own) in kinds {
        for other in blocks {
            let is = |rule| matches(rule, &facts(None), &Request::default());
            let expected = own == other;
            assert_eq!(is(rule(any(&[other], block))), expected, "{own} {other}");
            assert_eq!(is(rule(not(&[other], block))), !expected, "{own} {other}");
        }
    }
}

#[test]
fn an_ipv4_address_in_ipv6_form_is_that_address() {
    let mut connection = facts(None);
    connection.source_ip = "::ffff:10.0.0.1".parse().unwrap();
    connection.destination = "[::ffff:10.96.0.1]:8080".parse().unwrap();
    let request = Request {
        remote: "::ffff:203.0.113.9".parse().unwrap(),
        ..Request::default()
    };
    let block = |text: &str| text.parse().unwrap();
    for condition in [
        ConditionMatch::SourceIp(any(&["10.0.0.1/32"], block)),
        ConditionMatch::RemoteIp(any(&["203.0.113.9/32"], block)),
        ConditionMatch::DestinationIp(any(&["10.96.0.1/32"], block)),
    ] {
        assert!(
            matches(when(condition.clone()), &connection, &request),
            "{condition:?}"
        );
    }
}

#[test]
fn a_server_name_that_was_not_sent_matches_no_value() {
    let list = ["web.example", "*.shop.example"];
    let rule = |values| when(ConditionMatch::Sni(values));
    for (sni, expected) in [
        (Some(&b"web.example"[..]), true),
        (Some(b"a.shop.example"), true),
        (Some(b"WEB.example"), false),
        (Some(b"\xff.shop.example"), true),
        (Some(b"\xff"), false),
        (None, false),
    ] {
        let connection = PeerFacts { sni, ..facts(None) };
        let is = |rule| matches(rule, &connection, &Request::default());
        assert_eq!(is(rule(any(&list, text))), expected, "{sni:?}");
        assert_eq!(is(rule(not(&list, text))), !expected, "not {sni:?}");
    }
}

#[test]
fn a_header_that_is_absent_matches_negative_values_alone() {
    let list = ["a", "b*", "*z"];
    let cases: &[(&[&str], bool)] = &[
        (&[], false),
        (&[""], false),
        (&["a"], true),
        (&["A"], false),
        (&["bx"], true),
        (&["xz"], true),
        (&["x"], false),
        (&["a", "a"], true),
        (&["x", ""], false),
    ];
    table(
        cases,
        |values| format!("{values:?}"),
        &header("X-User", any(&list, text)),
        &header("x-user", not(&list, text)),
        |rule, values| {
            let request = Request::default().with("x-other", "a");
            let request = values
                .iter()
                .fold(request, |request, value| request.with("X-user", value));
            matches(rule.clone(), &facts(None), &request)
        },
    );
}

/// True if a policy of this action with the one rule lets the request pass.
fn passes(action: RequestAction, rule: RequestRule, request: &Request) -> bool {
    let policies = compiled([policy("p", action, vec![rule])]);
    let peer = policies.peer(&facts(None));
    policies.decide(&peer, request).is_allow()
}

#[test]
fn the_joined_value_of_several_fields_admits_nobody() {
    let request = Request::default().with("x-user", "a").with("x-user", "b");
    for value in ["a,b", "a, b", "a*b", "a,*", "*,b"] {
        let rule = header("x-user", any(&[value], text));
        assert!(!passes(RequestAction::Allow, rule, &request), "{value}");
    }
}

#[test]
fn the_joined_value_of_several_fields_is_kept_out() {
    let several = Request::default().with("x-user", "a").with("x-user", "b");
    let one = Request::default().with("x-user", "a").with("x-other", "b");
    for (value, is_covered) in [
        ("a,b", true),
        ("a, b", true),
        ("a,*", true),
        ("*,b", true),
        ("*, b", true),
        ("b,a", false),
        ("a;b", false),
        ("a,b,*", false),
        ("ab", false),
    ] {
        let denied = header("x-user", any(&[value], text));
        let is_denied = |request| !passes(RequestAction::Deny, denied.clone(), request);
        assert_eq!(is_denied(&several), is_covered, "DENY of {value}");
        assert!(!is_denied(&one), "DENY of {value}, one field");
        let excepted = header("x-user", not(&[value], text));
        let is_admitted = |request| passes(RequestAction::Allow, excepted.clone(), request);
        assert_eq!(is_admitted(&several), !is_covered, "ALLOW but {value}");
        assert!(is_admitted(&one), "ALLOW but {value}, one field");
    }
}

/// Many rules are found by an index, which must know the joined value as well.
#[test]
fn the_joined_value_is_kept_out_by_one_of_many_rules() {
    let request = Request::default().with("x-user", "a").with("x-user", "b");
    let others = (0..500).map(|n| header("x-user", any(&[&format!("user-{n}")], text)));
    for (value, is_covered) in [("a,b", true), ("a, *", true), ("*,b", true), ("b,a", false)] {
        let rules = others
            .clone()
            .chain([header("x-user", any(&[value], text))])
            .collect();
        let policies = compiled([policy("p", RequestAction::Deny, rules)]);
        let peer = policies.peer(&facts(None));
        let is_denied = !policies.decide(&peer, &request).is_allow();
        assert_eq!(is_denied, is_covered, "{value}");
    }
}

/// The table names requests by their fields of one name. It has the decision of this engine, and that of Envoy 1.40 with the matchers that
/// istiod makes. An exception of a DENY admits, so each field must be excepted: the joined value does not count.
#[test]
fn several_fields_pass_no_rule_that_refuses_them_in_envoy() {
    const FIELDS: [&[&str]; 6] = [&[], &["a"], &["c"], &["a", "b"], &["a", "a"], &["a", "c"]];
    let but = |values: &[&str]| header("x-user", not(values, text));
    let of = |values: &[&str]| header("x-user", any(values, text));
    for (action, rule, here, envoy) in [
        (RequestAction::Deny, but(&["a", "b"]), "-+-++-", "-+-+++"),
        (RequestAction::Allow, but(&["a", "b"]), "+-+---", "+-+---"),
        (RequestAction::Allow, of(&["a", "b"]), "-+-++-", "-+-+++"),
        (RequestAction::Deny, of(&["a,b"]), "+++-++", "++++++"),
        (RequestAction::Allow, of(&["a,b"]), "------", "------"),
    ] {
        let rows = FIELDS.iter().zip(here.chars().zip(envoy.chars()));
        for (fields, (here, envoy)) in rows {
            let request = fields.iter().fold(Request::default(), |request, value| {
                request.with("x-user", value)
            });
            let does_pass = passes(action, rule.clone(), &request);
            let case = format!("{action:?} {rule:?}: {fields:?}");
            assert_eq!(does_pass, here == '+', "{case}");
            assert!(!does_pass || envoy == '+', "looser than Envoy: {case}");
        }
    }
}

#[test]
fn a_lone_asterisk_means_that_the_header_is_there() {
    let rule = header("x-user", any(&["*"], text));
    for (request, expected) in [
        (Request::default(), false),
        (Request::default().with("x-user", ""), true),
        (Request::default().with("x-user", "a"), true),
    ] {
        assert_eq!(matches(rule.clone(), &facts(None), &request), expected);
    }
}

#[test]
fn conditions_see_the_parts_of_the_head_as_headers() {
    let request = Request {
        authority: b"Web.example:80".to_vec(),
        ..Request::get("/a?b=c")
    };
    for (name, value, expected) in [
        (":authority", "Web.example:80", true),
        (":authority", "web.example:80", true),
        ("host", "Web.example:80", true),
        ("Host", "*:80", true),
        (":method", "GET", true),
        (":path", "/a?b=c", true),
        (":path", "/a", false),
        (":scheme", "http", true),
    ] {
        let rule = header(name, any(&[value], text));
        assert_eq!(
            matches(rule, &facts(None), &request),
            expected,
            "{name} {value}"
        );
    }
}

#[test]
fn a_principal_of_the_mesh_stands_for_its_aliases() {
    let rule = from(SourceMatch {
        principals: any(&["old/ns/shop/sa/web"], text),
        ..SourceMatch::default()
    });
    let domains = TrustDomains::new("new", ["old".into()]);
    let deny = policy("p", RequestAction::Deny, vec![rule]);
    let policies = RequestPolicies::compile([std::sync::Arc::new(deny)], &domains);
    for (identity, denied) in [
        ("spiffe://new/ns/shop/sa/web", true),
        ("spiffe://old/ns/shop/sa/web", true),
        ("spiffe://cluster.local/ns/shop/sa/web", false),
        ("spiffe://new/ns/shop/sa/other", false),
    ] {
        let peer = VerifiedPeer::by_certificate(identity.parse().unwrap());
        let bits = policies.peer(&facts(Some(&peer)));
        let decision = policies.decide(&bits, &Request::default());
        assert_eq!(decision.is_allow(), !denied, "{identity}");
    }
}
