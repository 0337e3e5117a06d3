//! Store of the control thread: takes resources in, one batch at a time, and makes snapshots.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use lateen_policy::request::TrustDomains;
use lateen_policy::{Policy, Scope};
use lateen_proto::workload::address::Type;
use lateen_proto::{security, workload as proto};
use lateen_types::{NamespacedName, Strng, WorkloadUid};
use rpds::RedBlackTreeSetSync;

use crate::attached::{Attachments, Content, Target};
use crate::endpoints::{Endpoint, EndpointSet};
use crate::kind::Resources;
use crate::resource::Entry;
use crate::siblings::Siblings;
use crate::workload::NetworkMode;
use crate::{
    Batch, Kind, Refused, Rejection, Service, ServiceKey, Snapshot, Workload, authorization,
};

/// All resources, mutable. One thread owns it and publishes snapshots.
#[derive(Debug)]
pub struct Store {
    next: Snapshot,
    published: Arc<Snapshot>,
    changed: bool,
    /// This node: its pods are indexed. `None`: every workload is.
    node: Option<Strng>,
    /// The workloads of each service, from which endpoint sets are made.
    members: HashMap<ServiceKey, BTreeMap<WorkloadUid, Arc<Workload>>>,
    /// Services whose endpoint set is out of date: made anew once per snapshot, not once per workload.
    stale: HashSet<ServiceKey>,
    /// Policies that could not be read and have no earlier version, with the namespace that they cover.
    unreadable: HashMap<Strng, Strng>,
    /// Policies and token rules of requests.
    attachments: Attachments,
}

impl Store {
    /// An empty store of a proxy in this network, on this node; without a node every workload counts as local.
    pub fn new(network: &str, node: Option<&str>) -> Self {
        let next = Snapshot::empty(network);
        Self {
            published: Arc::new(next.clone()),
            next,
            changed: false,
            node: node.map(Strng::from),
            members: HashMap::new(),
            stale: HashSet::new(),
            unreadable: HashMap::new(),
            attachments: Attachments::default(),
        }
    }

    /// The same, for a proxy of this Gateway: its policies of requests are those that are attached to the Gateway or to a service.
    pub fn of_gateway(mut self, gateway: NamespacedName) -> Self {
        self.attachments.of_gateway(gateway);
        self
    }

    /// The same, for a control plane that is asked for each resource when it is needed: what is not known may exist.
    pub fn on_demand(mut self) -> Self {
        self.next.answered = Some(RedBlackTreeSetSync::new_sync());
        self.published = Arc::new(self.next.clone());
        self
    }

    /// Notes that the control plane has answered for a name, be it that there is nothing.
    fn answered(&mut self, name: &str) {
        if let Some(answered) = &mut self.next.answered
            && !answered.contains(name)
        {
            answered.insert_mut(name.into());
            self.changed = true;
        }
    }

    /// Forgets an answer: whoever needs the name asks again.
    fn forget(&mut self, name: &str) {
        if let Some(answered) = &mut self.next.answered
            && answered.contains(name)
        {
            answered.remove_mut(name);
            self.changed = true;
        }
    }

    /// Takes a response in: first what is gone, then what is new. What is refused is returned; the rest is in.
    pub fn apply(&mut self, batch: &Batch) -> Vec<Refused> {
        let kind = batch.kind;
        for name in &batch.removals {
            (kind.parser.remove)(self, kind, name);
        }
        for name in &batch.forgotten {
            self.forget(name);
        }
        for name in &batch.answered {
            self.answered(name);
        }
        let mut refused = Vec::new();
        for (name, bytes) in &batch.upserts {
            if let Err(reason) = (kind.parser.upsert)(self, kind, name, bytes) {
                refused.push(Refused {
                    name: name.clone(),
                    reason,
                });
            }
        }
        refused
    }

    /// Takes in a workload or a service; refused, the version before stays.
    pub fn upsert(&mut self, name: &str, address: proto::Address) -> Result<(), Rejection> {
        self.insert_address(&name.into(), address)
    }

    fn insert_address(&mut self, name: &Strng, address: proto::Address) -> Result<(), Rejection> {
        match address.r#type.ok_or(Rejection::Empty)? {
            Type::Workload(wire) => {
                let siblings = self.siblings(&wire);
                let workload = Workload::parse(name, wire, &siblings)?;
                self.remove(name);
                self.insert_workload(Arc::new(workload));
            }
            Type::Service(wire) => {
                let service = Service::parse(wire)?;
                if service.key.to_string() != **name {
                    return Err(Rejection::OtherName {
                        inner: service.key.to_string(),
                    });
                }
                self.remove(name);
                self.insert_service(Arc::new(service));
            }
        }
        self.changed = true;
        Ok(())
    }

    /// Returns workloads that serve a service which this one serves.
    fn siblings(&self, wire: &proto::Workload) -> Siblings {
        let keys = wire.services.keys();
        keys.filter_map(|key| self.members.get(&key.parse::<ServiceKey>().ok()?))
            .find(|members| !members.is_empty())
            .map(|members| Siblings::of(members.values()))
            .unwrap_or_default()
    }

    /// Forgets a workload or a service.
    pub fn remove(&mut self, name: &str) {
        if let Some(workload) = self.next.workloads.get(name).cloned() {
            self.next.workloads.remove_mut(name);
            self.unindex_workload(&workload);
            self.changed = true;
        } else if let Ok(key) = name.parse::<ServiceKey>()
            && let Some(service) = self.next.services.get(&key).cloned()
        {
            self.next.services.remove_mut(&key);
            self.unindex_service(&service);
            self.changed = true;
        }
    }

    /// Takes in a policy. Refused, the version before stays; if there is none, the policy counts as unknown to
    /// whatever it covers, which then refuses connections: it may be a DENY.
    pub fn upsert_authorization(
        &mut self,
        name: &str,
        wire: security::Authorization,
    ) -> Result<(), Rejection> {
        let scope = security::Scope::try_from(wire.scope).ok();
        match authorization::parse(wire) {
            Ok(policy) if policy.name.to_string() == name => {
                self.insert_policy(name, policy);
                Ok(())
            }
            Ok(policy) => {
                self.fail_closed(name, scope);
                Err(Rejection::OtherName {
                    inner: policy.name.to_string(),
                })
            }
            Err(reason) => {
                self.fail_closed(name, scope);
                Err(reason)
            }
        }
    }

    /// Forgets a policy.
    pub fn remove_authorization(&mut self, name: &str) {
        if let Some(policy) = self.next.policies.get(name).cloned() {
            self.next.policies.remove_mut(name);
            if let Some(namespace) = covered_namespace(&policy) {
                self.unscope(&namespace, name);
            }
            self.changed = true;
        }
        if let Some(namespace) = self.unreadable.remove(name) {
            self.unscope(&namespace, name);
            self.changed = true;
        }
    }

    /// The present state. Costs what changed since the last one, not what there is; the same snapshot if nothing did.
    pub fn snapshot(&mut self) -> Arc<Snapshot> {
        if self.changed {
            self.changed = false;
            for key in std::mem::take(&mut self.stale) {
                self.renew_endpoints(key);
            }
            self.attachments.renew(&mut self.next.request_rules);
            self.next.generation += 1;
            self.published = Arc::new(self.next.clone());
        }
        self.published.clone()
    }

    fn insert_workload(&mut self, workload: Arc<Workload>) {
        let index = match workload.network_mode {
            NetworkMode::Standard => Some(&mut self.next.workloads_at),
            NetworkMode::HostNetwork if workload.is_pod() => Some(&mut self.next.hosts_at),
            NetworkMode::HostNetwork => None,
        };
        if let Some(index) = index {
            for address in &workload.addresses {
                index.insert(&workload.network, *address, workload.clone());
            }
        }
        if self.is_local(&workload) {
            self.next
                .pods
                .insert(&workload.namespace, workload.name.clone(), workload.clone());
        }
        if !workload.hostname.is_empty() {
            self.next.workloads_named.insert(
                &workload.namespace,
                workload.hostname.clone(),
                workload.clone(),
            );
        }
        for key in workload.services.keys() {
            self.members
                .entry(key.clone())
                .or_default()
                .insert(workload.uid.clone(), workload.clone());
            self.stale.insert(key.clone());
        }
        self.next
            .workloads
            .insert_mut(workload.uid.0.clone(), workload);
    }

    fn unindex_workload(&mut self, workload: &Workload) {
        for address in &workload.addresses {
            for index in [&mut self.next.workloads_at, &mut self.next.hosts_at] {
                index.remove(&workload.network, address, workload);
            }
        }
        self.next
            .pods
            .remove(&workload.namespace, &workload.name, workload);
        self.next
            .workloads_named
            .remove(&workload.namespace, &workload.hostname, workload);
        for key in workload.services.keys() {
            if let Some(members) = self.members.get_mut(key) {
                members.remove(&workload.uid);
            }
            self.stale.insert(key.clone());
        }
    }

    fn insert_service(&mut self, service: Arc<Service>) {
        // Which of its endpoints are chosen depends on the service.
        self.stale.insert(service.key.clone());
        for at in &service.addresses {
            self.next
                .services_at
                .insert(&at.network, at.address, service.clone());
        }
        if !service.ranges.is_empty() {
            self.next
                .ranged
                .insert_mut(service.key.clone(), service.clone());
        }
        self.next
            .services_named
            .insert(service.hostname.clone(), service.clone());
        self.next.services.insert_mut(service.key.clone(), service);
    }

    fn unindex_service(&mut self, service: &Service) {
        self.stale.insert(service.key.clone());
        for at in &service.addresses {
            self.next
                .services_at
                .remove(&at.network, &at.address, service);
        }
        self.next.ranged.remove_mut(&service.key);
        self.next.services_named.remove(&service.hostname, service);
    }

    fn insert_policy(&mut self, name: &str, policy: Policy) {
        self.remove_authorization(name);
        if let Some(namespace) = covered_namespace(&policy) {
            self.scope(namespace, name);
        }
        self.next.policies.insert_mut(name.into(), Arc::new(policy));
        self.changed = true;
    }

    /// Makes whatever an unreadable policy covers treat it as unknown. If even its scope cannot be read, that is taken
    /// to be its namespace. A workload that names it needs nothing more.
    fn fail_closed(&mut self, name: &str, scope: Option<security::Scope>) {
        if self.next.policies.contains_key(name) {
            return;
        }
        let namespace: Strng = match scope {
            Some(security::Scope::WorkloadSelector) => return,
            Some(security::Scope::Global) => "".into(),
            Some(security::Scope::Namespace) | None => {
                name.split('/').next().unwrap_or_default().into()
            }
        };
        self.remove_authorization(name);
        self.scope(namespace.clone(), name);
        self.unreadable.insert(name.into(), namespace);
        self.changed = true;
    }

    fn scope(&mut self, namespace: Strng, name: &str) {
        let known = self.next.scoped.get(&namespace).cloned();
        let mut names = known.unwrap_or_else(RedBlackTreeSetSync::new_sync);
        names.insert_mut(name.into());
        self.next.scoped.insert_mut(namespace, names);
    }

    fn unscope(&mut self, namespace: &Strng, name: &str) {
        if let Some(names) = self.next.scoped.get_mut(namespace) {
            names.remove_mut(name);
            if names.is_empty() {
                self.next.scoped.remove_mut(namespace);
            }
        }
    }

    fn renew_endpoints(&mut self, key: ServiceKey) {
        match self.members.get(&key) {
            Some(members) if !members.is_empty() => {
                let mut endpoints = Vec::with_capacity(members.len());
                endpoints.extend(members.values().filter_map(|workload| {
                    let ports = workload.services.get(&key)?.clone();
                    Some(Endpoint {
                        workload: workload.clone(),
                        ports,
                    })
                }));
                self.next
                    .endpoints
                    .insert_mut(key, Arc::new(EndpointSet::new(endpoints)));
            }
            _ => {
                self.members.remove(&key);
                self.next.endpoints.remove_mut(&key);
            }
        }
    }

    fn is_local(&self, workload: &Workload) -> bool {
        self.node.as_ref().is_none_or(|node| *node == workload.node)
    }
}

impl Resources for Store {
    fn put_address(&mut self, name: &Strng, address: proto::Address) -> Result<(), Rejection> {
        self.insert_address(name, address)
    }

    fn remove_address(&mut self, name: &str) {
        Store::remove(self, name);
    }

    fn put_authorization(
        &mut self,
        name: &str,
        policy: security::Authorization,
    ) -> Result<(), Rejection> {
        self.upsert_authorization(name, policy)
    }

    fn fail_closed(&mut self, name: &str, scope: Option<security::Scope>) {
        Store::fail_closed(self, name, scope);
    }

    fn remove_authorization(&mut self, name: &str) {
        Store::remove_authorization(self, name);
    }

    fn put(&mut self, kind: &'static Kind, name: &Strng, entry: Entry) {
        let mut table = self.next.typed.get(kind).cloned().unwrap_or_default();
        table.insert_mut(name.clone(), entry);
        self.next.typed.insert_mut(kind, table);
        self.changed = true;
    }

    fn remove(&mut self, kind: &'static Kind, name: &str) {
        let table = self.next.typed.get_mut(kind);
        self.changed |= table.is_some_and(|table| table.remove_mut(name));
    }

    fn attach(
        &mut self,
        kind: &'static Kind,
        name: &Strng,
        targets: Vec<Target>,
        content: Content,
    ) {
        let key = (kind.type_url, name.clone());
        self.changed |= self.attachments.attach(key, targets, content);
    }

    fn attach_unreadable(
        &mut self,
        kind: &'static Kind,
        name: &Strng,
        targets: Option<Vec<Target>>,
    ) {
        let key = (kind.type_url, name.clone());
        self.changed |= self.attachments.attach_unreadable(key, targets);
    }

    fn detach(&mut self, kind: &'static Kind, name: &str) {
        self.changed |= self.attachments.detach(&(kind.type_url, name.into()));
    }

    fn set_domains(&mut self, gateway: &NamespacedName, domains: TrustDomains) {
        self.changed |= self.attachments.set_domains(gateway, domains);
    }
}

/// The namespace whose workloads a policy covers without being named; the empty one means all.
fn covered_namespace(policy: &Policy) -> Option<Strng> {
    match policy.scope {
        Scope::Global => Some("".into()),
        Scope::Namespace => Some(policy.name.namespace.clone()),
        Scope::WorkloadSelector => None,
    }
}
