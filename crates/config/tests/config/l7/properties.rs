//! Any bytes as resources: refused or taken in; refused, they deny.

use lateen_config::l7::{AUTHENTICATION, AUTHORIZATION, BINDING, GATEWAY};
use lateen_proto::l7 as proto;
use proptest::prelude::*;
use prost::Message;

use super::support::*;

fn seeds() -> impl Strategy<Value = Vec<u8>> {
    let mut rich = policy(
        "p",
        proto::Action::Deny,
        vec![to_service("web"), to_gateway("shop/gateway")],
        "GET",
    );
    rich.rules[0].when = vec![proto::Condition {
        attribute: Some(proto::condition::Attribute::Header("x".into())),
        values: vec![proto::Value {
            value: Some(proto::value::Value::Text(exact("a"))),
        }],
        not_values: Vec::new(),
    }];
    let jwt = proto::Authentication {
        namespace: "shop".into(),
        name: "p".into(),
        targets: vec![to_service("web")],
        rules: vec![proto::TokenRule::default()],
        ..Default::default()
    };
    prop_oneof![
        Just(rich.encode_to_vec()),
        Just(jwt.encode_to_vec()),
        prop::collection::vec(any::<u8>(), 0..40),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn damaged_resources_are_never_half_read(
        bytes in seeds(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in prop::option::weighted(0.3, any::<prop::sample::Index>()),
    ) {
        let mut bytes = bytes;
        for (at, byte) in changes {
            if !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len() + 1));
        }
        for kind in [&AUTHORIZATION, &AUTHENTICATION, &GATEWAY, &BINDING] {
            let mut store = store();
            let refused = put(&mut store, kind, "shop/p", bytes.clone()).is_some();
            let attaches = std::ptr::eq(kind, &AUTHORIZATION) || std::ptr::eq(kind, &AUTHENTICATION);
            let snapshot = store.snapshot();
            if refused && attaches {
                // Whatever the damaged targets say, some request is refused, unless they name other Gateways or services.
                let targets = if std::ptr::eq(kind, &AUTHORIZATION) {
                    proto::Authorization::decode(&*bytes).map(|read| read.targets)
                } else {
                    proto::Authentication::decode(&*bytes).map(|read| read.targets)
                };
                let targets = targets.unwrap_or_default();
                let elsewhere = !targets.is_empty()
                    && targets.iter().all(|target| match &target.target {
                        Some(proto::target::Target::Gateway(name)) => name != "shop/gateway",
                        Some(proto::target::Target::Service(name)) => name != "shop/web",
                        None => false,
                    });
                prop_assert!(elsewhere || decision(&snapshot, "web", "GET") != "allow");
            }
            remove(&mut store, kind, "shop/p");
            prop_assert_eq!(decision(&store.snapshot(), "web", "GET"), "allow");
        }
    }
}
