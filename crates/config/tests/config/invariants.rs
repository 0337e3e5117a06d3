//! Whatever comes in whatever order, no index names what is gone.

use lateen_config::Store;
use lateen_proto::workload::{Address, NetworkAddress, NetworkMode};
use proptest::prelude::*;

use super::support::{self, Resource, at, key, pod, ports};

/// A workload or a service out of very few names and addresses, so that they meet.
fn resource() -> impl Strategy<Value = (String, Address)> {
    let address =
        || prop::sample::select(vec!["10.0.0.1", "10.0.0.2", "fd00::1", "::ffff:10.0.0.1"]);
    let name = || prop::sample::select(vec!["a", "b", "c"]);
    let network = || prop::sample::select(vec!["", "far"]);
    let workload = (
        name(),
        prop::collection::vec(address(), 0..3),
        network(),
        any::<[bool; 3]>(),
        prop::collection::vec(name(), 0..3),
    )
        .prop_map(
            |(name, addresses, network, [host, named, local], services)| {
                let mut workload = pod(name, "10.0.0.9");
                workload.addresses = addresses.into_iter().map(support::bytes).collect();
                workload.network = network.into();
                workload.network_mode = i32::from(host) * i32::from(NetworkMode::HostNetwork);
                workload.node = if local { "n1" } else { "n2" }.into();
                if named {
                    workload.hostname = "db.example".into();
                }
                for service in services {
                    workload.services.insert(key(service), Default::default());
                }
                workload.named()
            },
        );
    let service = (
        name(),
        prop::collection::btree_set(address(), 0..3),
        network(),
        any::<[bool; 2]>(),
        prop::sample::select(vec!["default", "de/fault", "", "/"]),
    )
        .prop_map(
            |(name, addresses, network, [ranged, canonical], namespace)| {
                let mut service = support::service(name, "10.0.0.9", &[]);
                service.namespace = namespace.into();
                service.ports = ports(&[(80, 0)]);
                service.addresses = addresses
                    .into_iter()
                    .map(|address| at(network, address))
                    .collect();
                if ranged {
                    let range = at(network, "10.0.0.0");
                    service.addresses.push(NetworkAddress {
                        length: Some(8),
                        ..range
                    });
                }
                service.canonical = canonical;
                service.named()
            },
        );
    prop_oneof![workload, service]
}

proptest! {
    #[test]
    fn every_index_agrees_with_the_resources(
        steps in prop::collection::vec((resource(), prop::bool::weighted(0.3)), 0..40)
    ) {
        let mut store = Store::new("", Some("n1"));
        let mut names = Vec::new();
        for ((name, address), remove) in steps {
            if remove {
                store.remove(&name);
            } else {
                // Some are refused (an address in both its forms, a slash in the namespace): the one before stays.
                let _ = store.upsert(&name, address);
            }
            names.push(name);
            prop_assert_eq!(store.snapshot().inconsistency(), None);
        }
        for name in names {
            store.remove(&name);
        }
        let empty = store.snapshot();
        prop_assert_eq!(empty.inconsistency(), None);
        prop_assert_eq!(empty.workloads().count() + empty.services().count(), 0);
    }
}
