//! The store against a model that keeps messages in one map and answers every question by looking at all of them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use lateen_config::{ServiceKey, Snapshot, Store};
use lateen_proto::workload::{Address, NetworkMode, PortList, Service, Workload, address, service};
use proptest::prelude::*;

use super::support::{self, Resource, at, bytes, pod};

/// Few names and few addresses, so that they meet.
const ADDRESSES: [&str; 4] = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.9.0.1"];
const NETWORKS: [&str; 2] = ["", "net"];
const NAMESPACES: [&str; 2] = ["default", "other"];
const HOSTS: [&str; 3] = ["a.example", "b.example", "c.example"];

#[derive(Debug, Clone)]
enum Step {
    Upsert(String, Box<Address>),
    Remove(String),
    Publish,
}

fn pick<T: Clone + std::fmt::Debug + 'static>(of: &[T]) -> impl Strategy<Value = T> + use<T> {
    prop::sample::select(of.to_vec())
}

fn service_key() -> impl Strategy<Value = String> {
    (pick(&NAMESPACES), pick(&HOSTS)).prop_map(|(namespace, host)| format!("{namespace}/{host}"))
}

fn workload_uid() -> impl Strategy<Value = String> {
    // Some are pods by their uid, some are not: pods win.
    pick(&["c//Pod/default/1", "c//Pod/default/2", "c//Entry/default/3"]).prop_map(str::to_owned)
}

fn a_workload() -> impl Strategy<Value = Workload> {
    let addresses = prop::collection::vec(pick(&ADDRESSES), 0..3);
    let services = prop::collection::btree_set(service_key(), 0..3);
    (
        workload_uid(),
        pick(&NETWORKS),
        addresses,
        services,
        any::<bool>(),
        any::<bool>(),
        pick(&["n1", "n2"]),
    )
        .prop_map(
            |(uid, network, addresses, services, hbone, host_network, node)| Workload {
                uid,
                network: network.into(),
                addresses: addresses.into_iter().map(bytes).collect(),
                services: services
                    .into_iter()
                    .map(|key| (key, Default::default()))
                    .collect(),
                tunnel_protocol: hbone.into(),
                network_mode: host_network.into(),
                node: node.into(),
                ..pod("w", "10.0.0.1")
            },
        )
}

fn a_service() -> impl Strategy<Value = Service> {
    let addresses = prop::collection::btree_set((pick(&NETWORKS), pick(&ADDRESSES)), 0..3);
    let range = prop::option::of((pick(&NETWORKS), prop::sample::select(vec![8u32, 16, 31])));
    (
        pick(&NAMESPACES),
        pick(&HOSTS),
        addresses,
        range,
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(|(namespace, host, addresses, range, canonical, private)| {
            let exact = addresses
                .into_iter()
                .map(|(network, address)| at(network, address));
            let range = range.map(|(network, length)| lateen_proto::workload::NetworkAddress {
                length: Some(length),
                ..at(network, "10.0.0.0")
            });
            Service {
                namespace: namespace.into(),
                hostname: host.into(),
                addresses: exact.chain(range).collect(),
                canonical,
                visibility: private.into(),
                ..support::service("s", "10.0.0.1", &[])
            }
        })
}

fn a_step() -> impl Strategy<Value = Step> {
    let upsert = |(name, address)| Step::Upsert(name, Box::new(address));
    prop_oneof![
        3 => a_workload().prop_map(move |w| upsert(w.named())),
        3 => a_service().prop_map(move |s| upsert(s.named())),
        2 => prop_oneof![workload_uid(), service_key()].prop_map(Step::Remove),
        1 => Just(Step::Publish),
    ]
}

/// The model.
#[derive(Default)]
struct All(BTreeMap<String, Address>);

impl All {
    fn workloads(&self) -> impl Iterator<Item = &Workload> {
        self.0.values().filter_map(|address| match &address.r#type {
            Some(address::Type::Workload(workload)) => Some(workload),
            _ => None,
        })
    }

    fn services(&self) -> impl Iterator<Item = &Service> {
        self.0.values().filter_map(|address| match &address.r#type {
            Some(address::Type::Service(service)) => Some(service),
            _ => None,
        })
    }

    fn pods(&self, network: &str, ip: &str) -> impl Iterator<Item = &Workload> {
        self.workloads()
            .filter(move |w| w.network == network && w.addresses.contains(&bytes(ip)))
            .filter(|w| w.uid.contains("//Pod/"))
    }

    /// Pods first, then mesh workloads, then the smallest uid; pods alone at a node's address.
    fn workload(&self, network: &str, ip: &str) -> Option<String> {
        let nodes = self
            .pods(network, ip)
            .any(|w| w.network_mode() == NetworkMode::HostNetwork);
        let mut found: Vec<_> = self
            .workloads()
            .filter(|w| w.network == network && w.addresses.contains(&bytes(ip)))
            .filter(|w| w.network_mode() != NetworkMode::HostNetwork)
            .filter(|w| !nodes || w.uid.contains("//Pod/"))
            .collect();
        found.sort_by_key(|w| {
            (
                !w.uid.contains("//Pod/"),
                w.tunnel_protocol == 0,
                w.uid.clone(),
            )
        });
        found.first().map(|w| w.uid.clone())
    }

    /// None by a pod's or node's very address; exact before range; the client's namespace's; the longest prefix; the canonical one; the smallest key.
    fn service(&self, network: &str, ip: &str, namespace: &str) -> Option<String> {
        let key = |s: &Service| format!("{}/{}", s.namespace, s.hostname);
        let mut found = Vec::new();
        for s in self.services() {
            if s.visibility() == service::Visibility::Namespace && s.namespace != namespace {
                continue;
            }
            for at in s.addresses.iter().filter(|at| at.network == network) {
                let own = s.namespace == namespace;
                match at.length {
                    None if self.pods(network, ip).next().is_some() => {}
                    None if at.address == bytes(ip) => {
                        found.push((false, !own, 0, !s.canonical, key(s)))
                    }
                    Some(length) if covers(length, ip) => {
                        found.push((true, !own, -i64::from(length), !s.canonical, key(s)));
                    }
                    _ => {}
                }
            }
        }
        found.sort();
        found.first().map(|found| found.4.clone())
    }

    fn endpoints(&self, key: &str) -> BTreeSet<String> {
        self.workloads()
            .filter(|w| w.services.contains_key(key))
            .map(|w| w.uid.clone())
            .collect()
    }

    fn by_host(&self, host: &str, namespace: &str) -> Option<String> {
        let visible = |s: &&Service| {
            s.visibility() == service::Visibility::Public || s.namespace == namespace
        };
        let mut found: Vec<_> = self
            .services()
            .filter(|s| s.hostname == host)
            .filter(visible)
            .map(|s| {
                (
                    s.namespace != namespace,
                    !s.canonical,
                    format!("{}/{}", s.namespace, s.hostname),
                )
            })
            .collect();
        found.sort();
        found.first().map(|found| found.2.clone())
    }
}

/// Whether 10.0.0.0 with this length holds an address.
fn covers(length: u32, ip: &str) -> bool {
    let Ok(IpAddr::V4(ip)) = ip.parse() else {
        return false;
    };
    let network = u32::from_be_bytes([10, 0, 0, 0]);
    (u32::from(ip) ^ network) >> (32 - length) == 0
}

fn compare(snapshot: &Snapshot, all: &All) -> Result<(), TestCaseError> {
    let uids: Vec<_> = snapshot.workloads().map(|w| w.uid.to_string()).collect();
    let expected: Vec<_> = all.workloads().map(|w| w.uid.clone()).collect();
    prop_assert_eq!(uids, expected);
    prop_assert_eq!(snapshot.services().count(), all.services().count());
    for network in NETWORKS {
        for text in ADDRESSES {
            let ip: IpAddr = text.parse().unwrap();
            let found = snapshot.workload(network, ip).map(|w| w.uid.to_string());
            prop_assert_eq!(
                found,
                all.workload(network, text),
                "workload at {}/{}",
                network,
                text
            );
            for namespace in NAMESPACES {
                let found = snapshot
                    .service_for(namespace, network, ip)
                    .map(|s| s.key.to_string());
                prop_assert_eq!(
                    found,
                    all.service(network, text, namespace),
                    "service at {}/{}",
                    network,
                    text
                );
            }
        }
    }
    for namespace in NAMESPACES {
        for host in HOSTS {
            let key = format!("{namespace}/{host}");
            let parsed = key.parse().unwrap();
            let found: BTreeSet<_> = snapshot
                .endpoints(&parsed)
                .into_iter()
                .flat_map(|set| set.iter())
                .map(|endpoint| endpoint.workload.uid.to_string())
                .collect();
            prop_assert_eq!(&found, &all.endpoints(&key), "endpoints of {}", key);
            for uid in &found {
                prop_assert!(snapshot.endpoints(&parsed).unwrap().get(uid).is_some());
            }
            let by_host = snapshot
                .service_by_host(host, namespace)
                .map(|s| s.key.to_string());
            prop_assert_eq!(by_host, all.by_host(host, namespace));
            prop_assert_eq!(
                snapshot.service_by_key(&parsed).is_some(),
                all.0.contains_key(&key)
            );
        }
    }
    let local: BTreeSet<_> = snapshot
        .local_workloads()
        .map(|w| w.uid.to_string())
        .collect();
    let expected: BTreeSet<_> = all
        .workloads()
        .filter(|w| w.node == "n1")
        .map(|w| w.uid.clone())
        .collect();
    prop_assert_eq!(local, expected);
    Ok(())
}

proptest! {
    #[test]
    fn answers_as_the_model_does(steps in prop::collection::vec(a_step(), 0..40)) {
        let mut store = Store::new("", Some("n1"));
        let mut all = All::default();
        for step in steps {
            match step {
                Step::Upsert(name, address) => {
                    store.upsert(&name, (*address).clone()).unwrap();
                    all.0.insert(name, *address);
                }
                Step::Remove(name) => {
                    store.remove(&name);
                    all.0.remove(&name);
                }
                Step::Publish => compare(&store.snapshot(), &all)?,
            }
        }
        compare(&store.snapshot(), &all)?;
        for name in all.0.keys() {
            store.remove(name);
        }
        compare(&store.snapshot(), &All::default())?;
    }
}

#[test]
fn a_snapshot_does_not_change_once_it_is_published() {
    let mut store = Store::new("", None);
    let (name, address) = support::endpoint("w", "10.0.0.1", "web", &[]).named();
    store.upsert(&name, address).unwrap();
    let before = store.snapshot();
    store.remove(&name);
    let after = store.snapshot();
    assert!(before.workload("", [10, 0, 0, 1].into()).is_some());
    assert_eq!(
        before
            .endpoints(&support::key("web").parse().unwrap())
            .unwrap()
            .len(),
        1
    );
    assert!(after.workload("", [10, 0, 0, 1].into()).is_none());
    assert!(
        after
            .endpoints(&support::key("web").parse().unwrap())
            .is_none()
    );
    assert!(after.generation() > before.generation());
}

#[test]
fn without_a_change_the_snapshot_is_the_same() {
    let mut store = Store::new("", None);
    let (name, address) = pod("w", "10.0.0.1").named();
    store.upsert(&name, address).unwrap();
    let first = store.snapshot();
    store.remove("never-there");
    assert!(std::sync::Arc::ptr_eq(&first, &store.snapshot()));
}

#[test]
fn a_pod_is_found_only_with_its_own_service_account_and_on_its_own_node() {
    let mut store = Store::new("", Some("n1"));
    let elsewhere = Workload {
        node: "n2".into(),
        ..pod("far", "10.0.0.2")
    };
    for (name, address) in [pod("web", "10.0.0.1").named(), elsewhere.named()] {
        store.upsert(&name, address).unwrap();
    }
    let snapshot = store.snapshot();
    assert!(snapshot.workload_of_pod("default", "web", "web").is_some());
    assert!(
        snapshot
            .workload_of_pod("default", "web", "other")
            .is_none()
    );
    assert!(snapshot.workload_of_pod("other", "web", "web").is_none());
    assert!(snapshot.workload_of_pod("default", "far", "far").is_none());
}

#[test]
fn services_whose_keys_and_names_differ_in_order_are_found() {
    let mut store = Store::new("", None);
    let mut workload = pod("w", "10.0.0.1");
    for (key, port) in [("a-b/x", 81), ("a/x", 80)] {
        let ports = support::ports(&[(port, port)]);
        workload.services.insert(key.into(), PortList { ports });
    }
    let (name, address) = workload.named();
    store.upsert(&name, address).unwrap();
    let snapshot = store.snapshot();
    let found = snapshot.workload("", [10, 0, 0, 1].into()).unwrap();
    let keys: Vec<_> = found.services.keys().map(ToString::to_string).collect();
    assert_eq!(keys, ["a/x", "a-b/x"]);
    for (namespace, port) in [("a", 80), ("a-b", 81)] {
        let key = ServiceKey::new(namespace, "x");
        assert_eq!(found.target_port(&key, port), Some(port));
    }
    assert!(!found.services.contains_key(&ServiceKey::new("b", "x")));
}
