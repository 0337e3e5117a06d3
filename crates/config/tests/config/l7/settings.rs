//! Gateways, Bindings, the registry and the dump.

use std::time::Duration;

use lateen_config::Store;
use lateen_config::l7::{
    self, BINDING, Bound, Encoding, GATEWAY, OutboundPolicy, PathNormalization, Standing, Traffic,
};
use lateen_proto::l7 as proto;
use lateen_types::NamespacedName;
use prost::Message;

use super::support::*;

#[test]
fn the_kinds_of_a_waypoint_come_in_order_and_go_backwards() {
    let kinds = l7::waypoint();
    let labels: Vec<_> = kinds.all().iter().map(|kind| kind.label).collect();
    assert_eq!(
        labels,
        [
            "Authorization",
            "requestAuthentications",
            "requestAuthorizations",
            "gateways",
            "bindings",
            "Address",
        ]
    );
    let sequence = kinds.sequence(lateen_config::Batch::new);
    let gone: Vec<_> = sequence
        .iter()
        .skip(6)
        .map(|batch| batch.kind.label)
        .collect();
    assert_eq!(
        gone,
        [
            "bindings",
            "requestAuthorizations",
            "requestAuthentications",
            "Authorization",
        ]
    );
}

#[test]
fn a_gateway_brings_the_settings_of_the_mesh() {
    let mut store = store();
    let name = NamespacedName::new("shop", "gateway");
    assert!(store.snapshot().gateway(&name).is_none());
    let wire = proto::Gateway {
        namespace: "shop".into(),
        name: "gateway".into(),
        class: "lateen-waypoint".into(),
        identity: "shop/gateway".into(),
        traffic: proto::Traffic::All.into(),
        settings: Some(proto::MeshSettings {
            path_normalization: proto::PathNormalization::MergeSlashes.into(),
            access_log: Some(proto::AccessLog {
                enabled: true,
                format: "%REQ%".into(),
                encoding: proto::access_log::Encoding::Json.into(),
            }),
            trust_domain_aliases: vec!["old".into()],
            trust_domain: "new".into(),
            connect_timeout_ms: 1500,
            retry: Some(proto::Retry {
                attempts: 3,
                on: vec!["503".into()],
                per_try_timeout_ms: 0,
            }),
            outbound_policy: proto::OutboundPolicy::RegistryOnly.into(),
        }),
    };
    assert_eq!(
        put(&mut store, &GATEWAY, "shop/gateway", wire.encode_to_vec()),
        None
    );
    let snapshot = store.snapshot();
    let gateway = snapshot.gateway(&name).expect("it was taken in");
    assert_eq!(
        (&*gateway.class, gateway.traffic),
        ("lateen-waypoint", Traffic::All)
    );
    let settings = &gateway.settings;
    assert_eq!(settings.path_normalization, PathNormalization::MergeSlashes);
    assert!(settings.access_log.enabled && settings.access_log.encoding == Encoding::Json);
    assert_eq!(settings.connect_timeout, Duration::from_millis(1500));
    let retry = settings.retry.as_ref().expect("a retry policy");
    assert_eq!((retry.attempts, retry.per_try_timeout), (3, None));
    assert_eq!(settings.outbound_policy, OutboundPolicy::RegistryOnly);

    let bare = proto::Gateway {
        settings: Some(proto::MeshSettings {
            trust_domain: "new".into(),
            ..Default::default()
        }),
        ..wire
    };
    assert_eq!(
        put(&mut store, &GATEWAY, "shop/gateway", bare.encode_to_vec()),
        None
    );
    let snapshot = store.snapshot();
    let settings = &snapshot.gateway(&name).expect("it was taken in").settings;
    assert_eq!(settings.path_normalization, PathNormalization::Base);
    assert_eq!(settings.connect_timeout, Duration::from_secs(10));
    assert!(settings.retry.is_none() && !settings.access_log.enabled);
}

fn binding(destination: proto::binding::Destination, gateway: &str) -> Vec<u8> {
    proto::Binding {
        parents: vec![proto::Parent {
            gateway: gateway.into(),
            identity: "shop/gateway".into(),
        }],
        destination: Some(destination),
        leaving: Vec::new(),
    }
    .encode_to_vec()
}

#[test]
fn a_binding_leads_a_destination_to_its_gateways() {
    use proto::binding::Destination::{Service, Workload};
    let mut store = store();
    let gateway = NamespacedName::new("shop", "gateway");
    for (name, destination, parent) in [
        ("shop/web", Service("shop/web".into()), "shop/gateway"),
        (
            "c//Pod/shop/web",
            Workload("c//Pod/shop/web".into()),
            "shop/gateway",
        ),
        ("shop/db", Service("shop/db".into()), "shop/other"),
    ] {
        assert_eq!(
            put(&mut store, &BINDING, name, binding(destination, parent)),
            None
        );
    }
    let snapshot = store.snapshot();
    for (destination, expected) in [
        ("shop/web", Standing::Bound),
        ("c//Pod/shop/web", Standing::Bound),
        ("shop/db", Standing::Unbound),
        ("shop/none", Standing::Unbound),
    ] {
        assert_eq!(
            snapshot.standing(destination, &gateway),
            expected,
            "{destination}"
        );
    }
    let web = snapshot
        .resource::<l7::Binding>(&BINDING, "shop/web")
        .expect("it is there");
    assert_eq!(
        web.destination,
        Bound::Service(NamespacedName::new("shop", "web"))
    );
    let standing = |store: &mut Store| store.snapshot().standing("shop/web", &gateway);
    for (leaving, expected) in [
        (vec!["shop/gateway".to_owned()], Standing::Leaving),
        (vec!["shop/other".to_owned()], Standing::Bound),
    ] {
        let mut wire =
            proto::Binding::decode(&*binding(Service("shop/web".into()), "shop/gateway"));
        wire.as_mut().unwrap().leaving = leaving;
        let bytes = wire.unwrap().encode_to_vec();
        assert_eq!(put(&mut store, &BINDING, "shop/web", bytes), None);
        assert_eq!(standing(&mut store), expected);
    }
    remove(&mut store, &BINDING, "shop/web");
    assert_eq!(standing(&mut store), Standing::Unbound);
}

#[test]
fn the_dump_shows_every_kind_by_name() {
    let mut store = store();
    put_policy(
        &mut store,
        &policy("p", proto::Action::Deny, vec![to_service("web")], "GET"),
    );
    let dump = serde_json::to_value(store.snapshot().dump()).expect("it is JSON");
    assert_eq!(
        dump["requestAuthorizations"]["shop/p"],
        serde_json::json!({
            "name": "shop/p",
            "targets": [{"service": "shop/web"}],
            "action": "Deny",
            "rules": [{"to": [{"methods": {"any": [{"Exact": "GET"}]}}]}],
        })
    );
}
