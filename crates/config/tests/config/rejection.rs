//! What is refused, and that nothing panics.

use bytes::Bytes;
use lateen_config::{Batch, Rejection, Store, resource_kinds};
use lateen_policy::{Connection, Decision, DenyReason, decide};
use lateen_proto::security::{
    Address as Range, Authorization, Clause, Match, Rule, Scope, StringMatch, string_match,
};
use lateen_proto::workload::{
    Address, Extension, GatewayAddress, LoadBalancing, NetworkAddress, Service, TunnelProtocol,
    Workload, service,
};
use proptest::prelude::*;
use prost::Message;

use super::support::{self, Resource, at, pod};

fn refused_workload(change: impl FnOnce(&mut Workload)) -> Rejection {
    let mut workload = pod("w", "10.0.0.1");
    change(&mut workload);
    refused(workload)
}

fn refused_service(change: impl FnOnce(&mut Service)) -> Rejection {
    let mut service = support::service("s", "10.96.0.1", &[(80, 80)]);
    change(&mut service);
    refused(service)
}

fn refused(resource: impl Resource) -> Rejection {
    let (name, address) = resource.named();
    let mut store = Store::new("", None);
    let before = store.snapshot();
    let rejection = store
        .upsert(&name, address)
        .expect_err("it must be refused");
    assert_eq!(
        store.snapshot().generation(),
        before.generation(),
        "a refusal changes nothing"
    );
    rejection
}

#[test]
fn workloads() {
    let address = |length: usize| refused_workload(|w| w.addresses.push(vec![1; length].into()));
    for length in [0, 3, 5, 15, 17] {
        assert_eq!(
            address(length),
            Rejection::AddressLength {
                field: "addresses",
                bytes: length
            }
        );
    }
    let legacy = TunnelProtocol::LegacyIstioMtls.into();
    assert_eq!(
        refused_workload(|w| w.tunnel_protocol = legacy),
        Rejection::LegacyMtls
    );
    let unknown = |field, value| Rejection::UnknownValue { field, value };
    assert_eq!(
        refused_workload(|w| w.tunnel_protocol = 9),
        unknown("tunnel_protocol", 9)
    );
    assert_eq!(refused_workload(|w| w.status = -1), unknown("status", -1));
    assert_eq!(
        refused_workload(|w| w.network_mode = 2),
        unknown("network_mode", 2)
    );
    assert_eq!(
        refused_workload(|w| w.workload_type = 4),
        unknown("workload_type", 4)
    );
    assert_eq!(
        refused_workload(|w| w.uid.clear()),
        Rejection::Missing { field: "uid" }
    );
    assert!(matches!(
        refused_workload(|w| w.namespace.clear()),
        Rejection::Identity(_)
    ));
    assert!(matches!(
        refused_workload(|w| w.service_account = "a/b".into()),
        Rejection::Identity(_)
    ));
    assert!(matches!(
        refused_workload(|w| drop(w.services.insert("no-namespace".into(), Default::default()))),
        Rejection::ServiceKey(_)
    ));
    let nowhere = GatewayAddress::default();
    assert_eq!(
        refused_workload(|w| w.waypoint = Some(nowhere.clone())),
        Rejection::Missing { field: "waypoint" }
    );
    assert_eq!(
        refused_workload(|w| w.network_gateway = Some(nowhere)),
        Rejection::Missing {
            field: "network_gateway"
        }
    );
}

/// Found by fuzzing: such a service could not be removed, since its name was split in another place.
#[test]
fn a_services_namespace_holds_no_slash() {
    assert_eq!(
        refused_service(|s| s.namespace = "d/fault".into()),
        Rejection::NamespaceSlash {
            namespace: "d/fault".into()
        }
    );
}

/// What is left of a range around the addresses of some thousand nodes: the last of its blocks is there twice.
#[test]
fn one_of_many_ranges_is_there_twice() {
    let block = |n: u32| NetworkAddress {
        network: "".into(),
        address: (0x0a00_0000 + 4 * n).to_be_bytes().to_vec().into(),
        length: Some(30),
    };
    let blocks = (0..30_000).chain([29_999]).map(block).collect();
    assert_eq!(
        refused_service(|s| s.addresses = blocks),
        Rejection::DuplicateAddress {
            address: "/10.1.212.188/30".into()
        }
    );
}

#[test]
fn services() {
    let twice = refused_service(|s| s.addresses.push(at("", "10.96.0.1")));
    assert_eq!(
        twice,
        Rejection::DuplicateAddress {
            address: "/10.96.0.1".into()
        }
    );
    let range = |length| NetworkAddress {
        length: Some(length),
        ..at("", "10.96.0.0")
    };
    assert!(matches!(
        refused_service(|s| s.addresses = vec![range(33)]),
        Rejection::PrefixLength { length: 33, .. }
    ));
    assert!(matches!(
        refused_service(|s| s.addresses = vec![
            range(24),
            NetworkAddress {
                length: Some(24),
                ..at("", "10.96.0.7")
            }
        ]),
        Rejection::DuplicateAddress { .. }
    ));
    for (from, to) in [(0, 80), (65536, 80), (80, 65536)] {
        assert!(matches!(
            refused_service(|s| s.ports = support::ports(&[(from, to)])),
            Rejection::Port { .. }
        ));
    }
    assert_eq!(
        refused_service(|s| s.hostname.clear()),
        Rejection::Missing { field: "hostname" }
    );
    let unknown = |field, value| Rejection::UnknownValue { field, value };
    assert_eq!(
        refused_service(|s| s.ip_families = 4),
        unknown("ip_families", 4)
    );
    assert_eq!(
        refused_service(|s| s.visibility = 2),
        unknown("visibility", 2)
    );
    let balancing = |routing_preference: &[i32], mode, health_policy| LoadBalancing {
        routing_preference: routing_preference.to_vec(),
        mode,
        health_policy,
    };
    for (wrong, field, value) in [
        (
            balancing(&[7], 0, 0),
            "load_balancing.routing_preference",
            7,
        ),
        (
            balancing(&[0], 0, 0),
            "load_balancing.routing_preference",
            0,
        ),
        (balancing(&[], 4, 0), "load_balancing.mode", 4),
        (balancing(&[], 0, 2), "load_balancing.health_policy", 2),
    ] {
        assert_eq!(
            refused_service(|s| s.load_balancing = Some(wrong)),
            unknown(field, value)
        );
    }
    let public: i32 = service::Visibility::Public.into();
    assert_eq!(public, 0);
}

#[test]
fn a_resource_must_bear_its_own_name() {
    let (_, address) = pod("w", "10.0.0.1").named();
    let mut store = Store::new("", None);
    assert!(matches!(
        store.upsert("another", address),
        Err(Rejection::OtherName { .. })
    ));
    assert_eq!(
        store.upsert("any", Address { r#type: None }),
        Err(Rejection::Empty)
    );
}

#[test]
fn a_refused_version_leaves_the_one_before() {
    let mut store = Store::new("", None);
    let (name, address) = pod("w", "10.0.0.1").named();
    store.upsert(&name, address).unwrap();
    let mut bad = pod("w", "10.0.0.2");
    bad.status = 9;
    assert!(store.upsert(&name, bad.named().1).is_err());
    assert!(
        store
            .snapshot()
            .workload("", [10, 0, 0, 1].into())
            .is_some()
    );
}

fn policy(one: Match, scope: Scope) -> Authorization {
    Authorization {
        name: "p".into(),
        namespace: "default".into(),
        scope: scope.into(),
        rules: vec![Rule {
            clauses: vec![Clause { matches: vec![one] }],
        }],
        ..Default::default()
    }
}

/// Values that another implementation drops quietly; dropped, each would widen what the policy matches.
fn widening() -> Vec<Match> {
    let nothing = StringMatch { match_type: None };
    let short = Range {
        address: Bytes::from_static(&[10, 0, 0]),
        length: 8,
    };
    let long = Range {
        address: Bytes::from_static(&[10, 0, 0, 0]),
        length: 33,
    };
    vec![
        Match {
            namespaces: vec![nothing.clone()],
            ..Default::default()
        },
        Match {
            principals: vec![nothing],
            ..Default::default()
        },
        Match {
            source_ips: vec![short],
            ..Default::default()
        },
        Match {
            destination_ips: vec![long],
            ..Default::default()
        },
        Match {
            destination_ports: vec![65536 + 80],
            ..Default::default()
        },
    ]
}

fn decision(store: &mut Store) -> Decision {
    let snapshot = store.snapshot();
    let workload = snapshot
        .workload_by_uid(&support::uid("w"))
        .expect("the workload is there");
    let connection = Connection {
        peer: None,
        source_ip: [10, 0, 0, 9].into(),
        destination: "10.0.0.1:80".parse().unwrap(),
    };
    decide(snapshot.policies_for(workload), &connection)
}

fn store_with_workload() -> Store {
    let mut store = Store::new("", None);
    let mut workload = pod("w", "10.0.0.1");
    workload.authorization_policies = vec!["default/selected".into()];
    let selected = Authorization {
        name: "selected".into(),
        namespace: "default".into(),
        scope: Scope::WorkloadSelector.into(),
        action: 1,
        ..Default::default()
    };
    let (name, address) = workload.named();
    store.upsert(&name, address).unwrap();
    store
        .upsert_authorization("default/selected", selected)
        .unwrap();
    store
}

#[test]
fn a_policy_that_cannot_be_read_closes_what_it_covers_until_it_can() {
    for scope in [Scope::Global, Scope::Namespace] {
        for one in widening() {
            let mut store = store_with_workload();
            assert!(decision(&mut store).is_allow());
            store
                .upsert_authorization("default/p", policy(one, scope))
                .expect_err("it must be refused");
            let denied = Decision::Deny {
                by: DenyReason::Unknown("default/p".into()),
            };
            assert_eq!(decision(&mut store), denied);

            let exact = string_match::MatchType::Exact("x".into());
            let good = Match {
                namespaces: vec![StringMatch {
                    match_type: Some(exact),
                }],
                ..Default::default()
            };
            let deny = Authorization {
                action: 1,
                ..policy(good, scope)
            };
            store.upsert_authorization("default/p", deny).unwrap();
            assert!(decision(&mut store).is_allow());
        }
    }
}

#[test]
fn a_policy_that_cannot_be_read_is_forgotten_when_it_is_removed() {
    let mut store = store_with_workload();
    let one = widening().remove(0);
    store
        .upsert_authorization("default/p", policy(one, Scope::Namespace))
        .unwrap_err();
    assert!(!decision(&mut store).is_allow());
    store.remove_authorization("default/p");
    assert!(decision(&mut store).is_allow());
}

#[test]
fn a_refused_version_of_a_policy_leaves_the_one_before() {
    let mut store = store_with_workload();
    let all = Authorization {
        rules: vec![Rule::default()],
        ..policy(Match::default(), Scope::Namespace)
    };
    store.upsert_authorization("default/p", all).unwrap();
    store
        .upsert_authorization("default/p", policy(widening().remove(0), Scope::Global))
        .unwrap_err();
    assert!(
        decision(&mut store).is_allow(),
        "the ALLOW of everything still stands"
    );
}

#[test]
fn a_scope_of_another_version_closes_the_namespace() {
    let mut store = store_with_workload();
    let strange = Authorization {
        scope: 3,
        ..policy(Match::default(), Scope::Global)
    };
    let rejection = store
        .upsert_authorization("default/p", strange)
        .unwrap_err();
    assert_eq!(
        rejection,
        Rejection::UnknownValue {
            field: "scope",
            value: 3
        }
    );
    assert!(!decision(&mut store).is_allow());
}

#[test]
fn a_policy_that_is_named_and_has_not_arrived_denies() {
    let mut store = store_with_workload();
    store.remove_authorization("default/selected");
    assert!(!decision(&mut store).is_allow());
}

#[test]
fn a_batch_takes_in_what_is_good_and_names_the_rest() {
    let (good_name, good) = pod("good", "10.0.0.1").named();
    let (bad_name, bad) = {
        let mut bad = pod("bad", "10.0.0.2");
        bad.status = 9;
        bad
    }
    .named();
    let mut store = Store::new("", None);
    let batch = Batch {
        upserts: vec![
            (bad_name.as_str().into(), bad.encode_to_vec().into()),
            ("garbage".into(), Bytes::from_static(&[0xff; 9])),
            (good_name.as_str().into(), good.encode_to_vec().into()),
        ],
        removals: vec!["never-there".into()],
        ..Batch::new(&resource_kinds::ADDRESS)
    };
    let refused: Vec<_> = store
        .apply(&batch)
        .into_iter()
        .map(|refused| refused.name.to_string())
        .collect();
    assert_eq!(refused, [bad_name, "garbage".to_owned()]);
    assert_eq!(store.snapshot().workloads().count(), 1);
}

#[test]
fn undecodable_bytes_of_a_policy_close_its_namespace() {
    let mut store = store_with_workload();
    let upserts = vec![("default/p".into(), Bytes::from_static(&[0xff; 9]))];
    let refused = store.apply(&Batch {
        upserts,
        ..Batch::new(&resource_kinds::AUTHORIZATION)
    });
    assert!(matches!(refused[0].reason, Rejection::Decode(_)));
    assert!(!decision(&mut store).is_allow());
}

/// An ALLOW of what a later version narrows by a field or an extension would be an ALLOW of more.
#[test]
fn a_policy_with_content_of_another_version_closes_its_namespace() {
    let whole = || Authorization {
        rules: vec![Rule::default()],
        ..policy(Match::default(), Scope::Namespace)
    };
    // A field that no version has yet, number 99, with the text "x": in the policy, and in the last match of its last rule.
    const FIELD: [u8; 4] = [0x9a, 0x06, 0x01, b'x'];
    let outside = [whole().encode_to_vec(), FIELD.to_vec()].concat();
    let inside = {
        let nested = |number: u8, content: &[u8]| {
            let length = u8::try_from(content.len()).expect("it is short");
            [&[number << 3 | 2, length], content].concat()
        };
        let matches = nested(2, &nested(2, &FIELD));
        let bare = Authorization {
            rules: vec![],
            ..whole()
        };
        [bare.encode_to_vec(), nested(5, &matches)].concat()
    };
    let mut extended = whole();
    extended.extensions.push(Extension::default());
    let mut narrowed = whole();
    narrowed.rules[0].clauses.push(Clause {
        matches: vec![Match {
            extensions: vec![Extension::default()],
            ..Match::default()
        }],
    });
    let decide_with = |bytes: Vec<u8>| {
        let mut store = store_with_workload();
        let refused = store.apply(&Batch {
            upserts: vec![("default/p".into(), bytes.into())],
            ..Batch::new(&resource_kinds::AUTHORIZATION)
        });
        let reasons: Vec<_> = refused.into_iter().map(|refused| refused.reason).collect();
        (reasons, decision(&mut store).is_allow())
    };
    assert_eq!(decide_with(whole().encode_to_vec()), (vec![], true));
    for bytes in [
        outside,
        inside,
        extended.encode_to_vec(),
        narrowed.encode_to_vec(),
    ] {
        Authorization::decode(bytes.as_slice()).expect("it decodes");
        assert_eq!(decide_with(bytes), (vec![Rejection::UnknownContent], false));
    }
}

proptest! {
    /// Arbitrary bytes, and good messages with some bytes changed: never a panic, and a refusal says something.
    #[test]
    fn no_bytes_panic(
        noise in prop::collection::vec(any::<u8>(), 0..200),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        which in 0..4usize,
    ) {
        let mut bytes = match which {
            0 => noise,
            1 => pod("w", "10.0.0.1").named().1.encode_to_vec(),
            2 => support::service("s", "10.96.0.1", &[(80, 8080)]).named().1.encode_to_vec(),
            _ => policy(widening().remove(2), Scope::Namespace).encode_to_vec(),
        };
        for (at, byte) in changes {
            if !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
        }
        for kind in [&resource_kinds::ADDRESS, &resource_kinds::AUTHORIZATION] {
            let mut store = Store::new("", None);
            let upserts = vec![("default/p".into(), bytes.clone().into())];
            for refused in store.apply(&Batch { upserts, ..Batch::new(kind) }) {
                prop_assert!(refused.to_string().starts_with("default/p: "));
            }
            store.snapshot();
        }
    }
}
