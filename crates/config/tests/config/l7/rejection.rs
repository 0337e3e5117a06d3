//! What is wrong with a resource, in words.

use lateen_config::l7::{AUTHENTICATION, AUTHORIZATION, BINDING, GATEWAY};
use lateen_proto::l7 as proto;
use prost::Message;

use super::support::*;

/// Why a policy with this rule is refused.
fn refuses(rule: proto::Rule) -> String {
    let mut wire = policy("p", proto::Action::Deny, vec![to_service("web")], "GET");
    wire.rules = vec![rule];
    let refused = put(&mut store(), &AUTHORIZATION, "shop/p", wire.encode_to_vec());
    refused.expect("it is refused")
}

fn to(operation: proto::Operation) -> proto::Rule {
    proto::Rule {
        to: vec![operation],
        ..Default::default()
    }
}

fn from(source: proto::Source) -> proto::Rule {
    proto::Rule {
        from: vec![source],
        ..Default::default()
    }
}

fn when(attribute: proto::condition::Attribute, value: Option<proto::value::Value>) -> proto::Rule {
    proto::Rule {
        when: vec![proto::Condition {
            attribute: Some(attribute),
            values: vec![proto::Value { value }],
            not_values: Vec::new(),
        }],
        ..Default::default()
    }
}

#[test]
fn a_value_that_cannot_be_judged_is_named_with_its_attribute() {
    use proto::condition::Attribute::{Claim, Header, Known};
    use proto::value::Value::{Port, Text};
    let known = |attribute: proto::Attribute| Known(attribute.into());
    let template = |text: &str| proto::PathMatch {
        r#match: Some(proto::path_match::Match::Template(text.into())),
    };
    let text = || Some(Text(exact("a")));
    for (rule, reason) in [
        (
            to(proto::Operation {
                paths: vec![template("/{x}")],
                ..Default::default()
            }),
            "shop/p: paths: path template \"/{x}\" has a segment that is neither",
        ),
        (
            to(proto::Operation {
                not_paths: vec![proto::PathMatch::default()],
                ..Default::default()
            }),
            "paths is missing",
        ),
        (
            to(proto::Operation {
                hosts: vec![proto::StringMatch {
                    r#match: Some(proto::string_match::Match::Present(false)),
                }],
                ..Default::default()
            }),
            "hosts: present is false",
        ),
        (
            to(proto::Operation {
                ports: vec![70_000],
                ..Default::default()
            }),
            "ports is 70000; a port is between 0 and 65535",
        ),
        (
            from(proto::Source {
                ip_blocks: vec![proto::Block {
                    address: vec![10, 0, 0].into(),
                    length: 8,
                }],
                ..Default::default()
            }),
            "ip_blocks holds an address of 3 bytes",
        ),
        (
            from(proto::Source {
                remote_ip_blocks: vec![proto::Block {
                    address: vec![10, 0, 0, 0].into(),
                    length: 33,
                }],
                ..Default::default()
            }),
            "remote_ip_blocks holds 10.0.0.0/33",
        ),
        (
            from(proto::Source {
                service_accounts: vec![proto::ServiceAccount::default()],
                ..Default::default()
            }),
            "service_accounts: the service account \"/\" lacks",
        ),
        (
            when(Header("a b".into()), text()),
            "request.headers: \"a b\" is not the name",
        ),
        (
            when(Header(":protocol".into()), text()),
            "\":protocol\" is not the name",
        ),
        (
            when(Claim(proto::Claim::default()), text()),
            "claim.path is missing",
        ),
        (
            when(Known(99), text()),
            "attribute has the unknown value 99",
        ),
        (
            when(known(proto::Attribute::Unknown), text()),
            "attribute is missing",
        ),
        (
            when(known(proto::Attribute::SourceIp), text()),
            "source.ip: a value has the form of another attribute's",
        ),
        (
            when(known(proto::Attribute::SourceNamespace), Some(Port(1))),
            "source.namespace: a value has the form of another attribute's",
        ),
        (
            when(known(proto::Attribute::RemoteIp), None),
            "remote.ip is missing",
        ),
        (
            proto::Rule {
                when: vec![proto::Condition {
                    attribute: Some(known(proto::Attribute::ConnectionSni)),
                    ..Default::default()
                }],
                ..Default::default()
            },
            "values is missing",
        ),
        (
            proto::Rule {
                when: vec![proto::Condition {
                    values: vec![proto::Value { value: text() }],
                    ..Default::default()
                }],
                ..Default::default()
            },
            "attribute is missing",
        ),
    ] {
        let refused = refuses(rule);
        assert!(refused.contains(reason), "{refused:?} lacks {reason:?}");
    }
}

#[test]
fn every_attribute_of_a_condition_is_read() {
    use proto::Attribute;
    use proto::value::Value;
    let block = Value::Block(proto::Block {
        address: vec![10, 0, 0, 0].into(),
        length: 8,
    });
    let account = Value::ServiceAccount(proto::ServiceAccount {
        namespace: "a".into(),
        name: "b".into(),
    });
    let text = Value::Text(exact("a"));
    for (attribute, value) in [
        (Attribute::SourceIp, &block),
        (Attribute::SourceNamespace, &text),
        (Attribute::SourcePrincipal, &text),
        (Attribute::SourceServiceAccount, &account),
        (Attribute::SourceTrustDomain, &text),
        (Attribute::RemoteIp, &block),
        (Attribute::DestinationIp, &block),
        (Attribute::DestinationPort, &Value::Port(80)),
        (Attribute::ConnectionSni, &text),
        (Attribute::RequestAuthPrincipal, &text),
        (Attribute::RequestAuthAudiences, &text),
        (Attribute::RequestAuthPresenter, &text),
    ] {
        let known = proto::condition::Attribute::Known(attribute.into());
        let mut wire = policy("p", proto::Action::Deny, vec![to_service("web")], "GET");
        wire.rules = vec![when(known, Some(value.clone()))];
        put_policy(&mut store(), &wire);
    }
}

#[test]
fn a_resource_has_the_name_of_its_content() {
    let wire = policy("p", proto::Action::Deny, vec![to_service("web")], "GET");
    let refused = put(&mut store(), &AUTHORIZATION, "shop/q", wire.encode_to_vec());
    assert!(refused.is_some_and(|reason| reason.contains("carries \"shop/p\"")));
    let service = proto::binding::Destination::Service("shop/web".into());
    let binding = proto::Binding {
        destination: Some(service),
        ..Default::default()
    };
    let refused = put(&mut store(), &BINDING, "shop/db", binding.encode_to_vec());
    assert!(refused.is_some_and(|reason| reason.contains("carries \"shop/web\"")));
}

#[test]
fn gateways_bindings_and_token_rules_that_lack_something_are_refused() {
    let gateway = proto::Gateway {
        namespace: "shop".into(),
        name: "gateway".into(),
        identity: "shop/gateway".into(),
        settings: Some(proto::MeshSettings {
            trust_domain: "td".into(),
            ..Default::default()
        }),
        ..Default::default()
    };
    let authentication = |rule: proto::TokenRule| proto::Authentication {
        namespace: "shop".into(),
        name: "jwt".into(),
        targets: vec![to_service("web")],
        rules: vec![rule],
        ..Default::default()
    };
    let field = |name: &str| proto::TokenRule {
        fields: vec![proto::TokenField {
            name: name.into(),
            prefix: String::new(),
        }],
        ..Default::default()
    };
    let nameless = proto::TokenRule {
        params: vec![String::new()],
        ..Default::default()
    };
    for (kind, name, bytes, reason) in [
        (
            &GATEWAY,
            "shop/gateway",
            proto::Gateway {
                settings: None,
                ..gateway.clone()
            }
            .encode_to_vec(),
            "settings is missing",
        ),
        (
            &GATEWAY,
            "shop/gateway",
            proto::Gateway {
                settings: Some(proto::MeshSettings::default()),
                ..gateway.clone()
            }
            .encode_to_vec(),
            "trust_domain is missing",
        ),
        (
            &GATEWAY,
            "shop/gateway",
            proto::Gateway {
                traffic: 9,
                ..gateway.clone()
            }
            .encode_to_vec(),
            "traffic has the unknown value 9",
        ),
        (
            &GATEWAY,
            "shop/gateway",
            proto::Gateway {
                identity: "gateway".into(),
                ..gateway.clone()
            }
            .encode_to_vec(),
            "identity: \"gateway\" is not a namespaced name",
        ),
        (
            &GATEWAY,
            "shop/gateway",
            with_unknown(&gateway),
            "has content that this proxy does not know",
        ),
        (
            &BINDING,
            "shop/web",
            proto::Binding::default().encode_to_vec(),
            "destination is missing",
        ),
        (
            &AUTHENTICATION,
            "shop/jwt",
            authentication(field("a b")).encode_to_vec(),
            "fields: \"a b\" is not the name of a field",
        ),
        (
            &AUTHENTICATION,
            "shop/jwt",
            authentication(nameless).encode_to_vec(),
            "params is missing",
        ),
    ] {
        let refused = put(&mut store(), kind, name, bytes).expect(reason);
        assert!(refused.contains(reason), "{refused:?} lacks {reason:?}");
    }
}
