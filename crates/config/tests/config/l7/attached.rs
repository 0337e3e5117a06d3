//! Where policies take effect, what is compiled anew, and what fails closed.

use std::sync::Arc;

use lateen_config::l7::{AUTHENTICATION, AUTHORIZATION, GATEWAY};
use lateen_proto::l7 as proto;
use lateen_proto::l7::Action::{Allow, Deny};
use lateen_types::NamespacedName;
use prost::Message;

use super::support::*;

#[test]
fn a_policy_covers_what_it_is_attached_to() {
    let mut store = store();
    put_policy(
        &mut store,
        &policy("web", Deny, vec![to_service("web")], "GET"),
    );
    put_policy(
        &mut store,
        &policy("all", Deny, vec![to_gateway("shop/gateway")], "PUT"),
    );
    put_policy(
        &mut store,
        &policy("other", Deny, vec![to_gateway("shop/other")], "HEAD"),
    );
    let snapshot = store.snapshot();
    for (service, request, expected) in [
        ("web", "GET", "explicitly denied by: shop/web"),
        ("web", "PUT", "explicitly denied by: shop/all"),
        ("web", "HEAD", "allow"),
        ("db", "GET", "allow"),
        ("db", "PUT", "explicitly denied by: shop/all"),
    ] {
        assert_eq!(
            decision(&snapshot, service, request),
            expected,
            "{service} {request}"
        );
    }
    assert!(!snapshot.request_rules(None).policies.is_empty());
}

#[test]
fn allow_policies_of_the_gateway_and_of_the_service_are_alternatives() {
    let mut store = store();
    put_policy(
        &mut store,
        &policy("web", Allow, vec![to_service("web")], "GET"),
    );
    put_policy(
        &mut store,
        &policy("all", Allow, vec![to_gateway("shop/gateway")], "PUT"),
    );
    for (service, request, expected) in [
        ("web", "GET", true),
        ("web", "PUT", true),
        ("web", "HEAD", false),
        ("db", "GET", false),
        ("db", "PUT", true),
    ] {
        assert_eq!(
            allows(&mut store, service, request),
            expected,
            "{service} {request}"
        );
    }
}

#[test]
fn a_change_takes_effect_and_a_removal_ends_it() {
    let mut store = store();
    let both = vec![to_service("web"), to_gateway("shop/gateway")];
    put_policy(&mut store, &policy("p", Deny, both, "GET"));
    assert!(!allows(&mut store, "web", "GET") && !allows(&mut store, "db", "GET"));
    put_policy(
        &mut store,
        &policy("p", Deny, vec![to_service("db")], "GET"),
    );
    assert!(allows(&mut store, "web", "GET") && !allows(&mut store, "db", "GET"));
    remove(&mut store, &AUTHORIZATION, "shop/p");
    assert!(allows(&mut store, "web", "GET") && allows(&mut store, "db", "GET"));
    assert_eq!(
        store
            .snapshot()
            .resources::<lateen_config::l7::Authorization>(&AUTHORIZATION)
            .count(),
        0
    );
}

#[test]
fn rules_are_compiled_anew_where_something_changed_and_shared_elsewhere() {
    let mut store = store();
    for service in ["web", "db"] {
        put_policy(
            &mut store,
            &policy(service, Deny, vec![to_service(service)], "GET"),
        );
    }
    let key = |service: &str| NamespacedName::new("shop", service);
    let before = store.snapshot();
    let is_shared = |store: &mut lateen_config::Store, service: &str| {
        let key = key(service);
        let after = store.snapshot();
        Arc::ptr_eq(
            before.request_rules(Some(&key)),
            after.request_rules(Some(&key)),
        )
    };
    put_policy(
        &mut store,
        &policy("web", Deny, vec![to_service("web")], "PUT"),
    );
    put_policy(
        &mut store,
        &policy("far", Deny, vec![to_gateway("shop/other")], "PUT"),
    );
    assert!(!is_shared(&mut store, "web"));
    assert!(is_shared(&mut store, "db") && is_shared(&mut store, "other"));
    // The same content again changes nothing.
    put_policy(
        &mut store,
        &policy("db", Deny, vec![to_service("db")], "GET"),
    );
    assert!(is_shared(&mut store, "db"));
    put_policy(
        &mut store,
        &policy("all", Deny, vec![to_gateway("shop/gateway")], "GET"),
    );
    assert!(!is_shared(&mut store, "db") && !is_shared(&mut store, "other"));
}

#[test]
fn an_unreadable_policy_refuses_what_it_names() {
    let web = policy("p", Allow, vec![to_service("web")], "GET");
    let everything = policy(
        "p",
        Allow,
        vec![to_service("web"), proto::Target::default()],
        "GET",
    );
    let gateway = policy("p", Allow, vec![to_gateway("shop/gateway")], "GET");
    let other = policy("p", Allow, vec![to_gateway("shop/other")], "GET");
    let nothing = policy("p", Allow, Vec::new(), "GET");
    let invalid = proto::Authorization {
        action: 99,
        ..web.clone()
    };
    for (bytes, at_web, at_db) in [
        (with_unknown(&web), true, false),
        (invalid.encode_to_vec(), true, false),
        (with_unknown(&everything), true, true),
        (everything.encode_to_vec(), true, true),
        (with_unknown(&gateway), true, true),
        (with_unknown(&other), false, false),
        (nothing.encode_to_vec(), true, true),
        (vec![0xff], true, true),
    ] {
        let mut store = store();
        let refused = put(&mut store, &AUTHORIZATION, "shop/p", bytes.clone());
        assert!(refused.is_some_and(|reason| reason.starts_with("shop/p: ")));
        let snapshot = store.snapshot();
        for (service, refuses) in [("web", at_web), ("db", at_db)] {
            let decision = decision(&snapshot, service, "GET");
            let unknown = "policy shop/p applies but cannot be read here";
            assert_eq!(
                decision.starts_with(unknown),
                refuses,
                "{service}: {decision} {bytes:?}"
            );
        }
        put_policy(
            &mut store,
            &policy("p", Deny, vec![to_service("db")], "PUT"),
        );
        assert!(allows(&mut store, "web", "GET") && allows(&mut store, "db", "GET"));
    }
}

#[test]
fn a_readable_version_stays_where_the_next_cannot_be_read() {
    let mut store = store();
    let good = policy("p", Deny, vec![to_service("web")], "GET");
    put_policy(&mut store, &good);
    let worse = policy("p", Deny, vec![to_service("db")], "PUT");
    assert!(put(&mut store, &AUTHORIZATION, "shop/p", with_unknown(&worse)).is_some());
    assert!(!allows(&mut store, "web", "GET") && allows(&mut store, "web", "PUT"));
    assert!(allows(&mut store, "db", "PUT"));
    remove(&mut store, &AUTHORIZATION, "shop/p");
    assert!(put(&mut store, &AUTHORIZATION, "shop/p", with_unknown(&worse)).is_some());
    assert!(allows(&mut store, "web", "GET") && !allows(&mut store, "db", "GET"));
    remove(&mut store, &AUTHORIZATION, "shop/p");
    assert!(
        allows(&mut store, "db", "GET"),
        "the removal ends the refusal"
    );
}

fn authentication(
    targets: Vec<proto::Target>,
    rules: Vec<proto::TokenRule>,
) -> proto::Authentication {
    proto::Authentication {
        namespace: "shop".into(),
        name: "jwt".into(),
        targets,
        rules,
        ..Default::default()
    }
}

#[test]
fn tokens_are_looked_for_where_the_rules_say() {
    let cookie = |name: &str| proto::TokenRule {
        issuer: "i".into(),
        cookies: vec![name.into()],
        ..Default::default()
    };
    let default = proto::TokenRule::default();
    let mut store = store();
    let key = NamespacedName::new("shop", "web");
    let rules =
        |store: &mut lateen_config::Store| store.snapshot().request_rules(Some(&key)).clone();
    let none = rules(&mut store);
    assert!(!none.refuses_tokens);
    assert_eq!(
        &*none.tokens.params[0], "access_token",
        "conditions see the default places"
    );

    let wire = authentication(vec![to_service("web")], vec![cookie("a"), cookie("b")]);
    assert_eq!(
        put(
            &mut store,
            &AUTHENTICATION,
            "shop/jwt",
            wire.encode_to_vec()
        ),
        None
    );
    let own = rules(&mut store);
    assert!(own.refuses_tokens && own.tokens.params.is_empty() && own.tokens.fields.is_empty());
    assert_eq!(own.tokens.cookies, ["a".into(), "b".into()]);
    let other = NamespacedName::new("shop", "db");
    assert!(!store.snapshot().request_rules(Some(&other)).refuses_tokens);

    let wire = authentication(vec![to_gateway("shop/gateway")], vec![cookie("a"), default]);
    assert_eq!(
        put(
            &mut store,
            &AUTHENTICATION,
            "shop/jwt",
            wire.encode_to_vec()
        ),
        None
    );
    let all = rules(&mut store);
    assert!(all.refuses_tokens && !all.tokens.params.is_empty() && !all.tokens.fields.is_empty());
    assert_eq!(all.tokens.cookies, ["a".into()]);

    let wire = authentication(vec![to_gateway("shop/gateway")], Vec::new());
    assert_eq!(
        put(
            &mut store,
            &AUTHENTICATION,
            "shop/jwt",
            wire.encode_to_vec()
        ),
        None
    );
    assert!(!rules(&mut store).refuses_tokens, "no rule, no place");
}

#[test]
fn an_unreadable_authentication_refuses_what_it_names() {
    let mut store = store();
    let wire = authentication(vec![to_service("web")], Vec::new());
    let refused = put(&mut store, &AUTHENTICATION, "shop/jwt", with_unknown(&wire));
    assert!(refused.is_some());
    assert!(!allows(&mut store, "web", "GET") && allows(&mut store, "db", "GET"));
    remove(&mut store, &AUTHENTICATION, "shop/jwt");
    assert!(allows(&mut store, "web", "GET"));
}

#[test]
fn principals_are_those_of_the_meshs_trust_domains() {
    use lateen_policy::request::PeerFacts;
    use lateen_types::VerifiedPeer;
    let mut store = store();
    let mut wire = policy("p", Deny, vec![to_gateway("shop/gateway")], "GET");
    wire.rules[0].from = vec![proto::Source {
        principals: vec![exact("old/ns/shop/sa/web")],
        ..Default::default()
    }];
    put_policy(&mut store, &wire);
    let peer = VerifiedPeer::by_certificate("spiffe://new/ns/shop/sa/web".parse().unwrap());
    let is_denied = |store: &mut lateen_config::Store| {
        let snapshot = store.snapshot();
        let policies = &snapshot.request_rules(None).policies;
        let facts = PeerFacts {
            peer: Some(&peer),
            source_ip: [10, 0, 0, 1].into(),
            destination: ([10, 96, 0, 1], 80).into(),
            sni: None,
        };
        !policies
            .decide(&policies.peer(&facts), &Request("GET"))
            .is_allow()
    };
    assert!(!is_denied(&mut store));
    let gateway = |name: &str| proto::Gateway {
        namespace: "shop".into(),
        name: name.into(),
        identity: "shop/gateway".into(),
        settings: Some(proto::MeshSettings {
            trust_domain: "new".into(),
            trust_domain_aliases: vec!["old".into()],
            ..Default::default()
        }),
        ..Default::default()
    };
    for (name, expected) in [("other", false), ("gateway", true)] {
        let bytes = gateway(name).encode_to_vec();
        assert_eq!(
            put(&mut store, &GATEWAY, &format!("shop/{name}"), bytes),
            None
        );
        assert_eq!(is_denied(&mut store), expected, "{name}");
    }
}
