//! Invariants of every snapshot, checked over the whole snapshot, for tests and fuzzing.

use std::sync::Arc;

use crate::workload::NetworkMode;
use crate::{Service, Snapshot, Workload};

impl Snapshot {
    /// The first index that disagrees with the resources, in words; `None` if all agree. No index may name what is gone
    /// or an earlier version of it, and none may lack what is there. It looks at everything: not for the hot path.
    pub fn inconsistency(&self) -> Option<String> {
        self.dangling().or_else(|| self.missing())
    }

    fn dangling(&self) -> Option<String> {
        let workload = |index: &str, found: &Arc<Workload>| {
            let known = self.workloads.get(found.uid.as_str());
            (!known.is_some_and(|known| Arc::ptr_eq(known, found))).then(|| {
                format!(
                    "{index} names the workload {}, which is gone or changed",
                    found.uid
                )
            })
        };
        let service = |index: &str, found: &Arc<Service>| {
            let known = self.services.get(&found.key);
            (!known.is_some_and(|known| Arc::ptr_eq(known, found))).then(|| {
                format!(
                    "{index} names the service {}, which is gone or changed",
                    found.key
                )
            })
        };
        let workloads = [
            (
                "workloads_at",
                &self.workloads_at.values().collect::<Vec<_>>(),
            ),
            ("hosts_at", &self.hosts_at.values().collect()),
            ("pods", &self.pods.values().collect()),
            ("workloads_named", &self.workloads_named.values().collect()),
        ]
        .iter()
        .find_map(|(index, found)| found.iter().find_map(|found| workload(index, found)));
        let services = || {
            self.services_at
                .values()
                .find_map(|found| service("services_at", found))
                .or_else(|| {
                    let named = self.services_named.values();
                    named
                        .into_iter()
                        .find_map(|found| service("services_named", found))
                })
                .or_else(|| {
                    self.ranged
                        .values()
                        .find_map(|found| service("ranged", found))
                })
        };
        let endpoints = || {
            self.endpoints.iter().find_map(|(key, set)| {
                set.iter().find_map(|endpoint| {
                    let serves = endpoint.workload.services.contains_key(key);
                    workload("endpoints", &endpoint.workload).or_else(|| {
                        (!serves).then(|| format!("{} does not serve {key}", endpoint.workload.uid))
                    })
                })
            })
        };
        workloads.or_else(services).or_else(endpoints)
    }

    fn missing(&self) -> Option<String> {
        let lacks = |index: &str, name: String| Some(format!("{index} lacks {name}"));
        for workload in self.workloads.values() {
            let found = |list: &[Arc<Workload>]| list.iter().any(|known| known.uid == workload.uid);
            let index = match workload.network_mode {
                NetworkMode::Standard => Some(("workloads_at", &self.workloads_at)),
                NetworkMode::HostNetwork => {
                    workload.is_pod().then_some(("hosts_at", &self.hosts_at))
                }
            };
            if let Some((name, index)) = index {
                for address in &workload.addresses {
                    if !found(index.get(&workload.network, address)) {
                        return lacks(name, workload.uid.to_string());
                    }
                }
            }
            for key in workload.services.keys() {
                let set = self.endpoints.get(key);
                if set.is_none_or(|set| set.get(workload.uid.as_str()).is_none()) {
                    return lacks("endpoints", workload.uid.to_string());
                }
            }
        }
        for service in self.services.values() {
            let found = |list: &[Arc<Service>]| list.iter().any(|known| known.key == service.key);
            if !found(self.services_named.get(&service.hostname)) {
                return lacks("services_named", service.key.to_string());
            }
            for at in &service.addresses {
                if !found(self.services_at.get(&at.network, &at.address)) {
                    return lacks("services_at", service.key.to_string());
                }
            }
        }
        None
    }
}
