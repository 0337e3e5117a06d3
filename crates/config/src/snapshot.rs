//! Snapshot of the mesh's configuration: immutable, shared by all workers, cheap to make from the one before.

use std::net::IpAddr;
use std::sync::Arc;

use lateen_policy::{Applied, Policy};
use lateen_types::Strng;
use rpds::{RedBlackTreeMapSync, RedBlackTreeSetSync};

use crate::attached::RulesByService;
use crate::endpoints::EndpointSet;
use crate::gateway::{GatewayAddress, GatewayDestination};
use crate::index::{Grouped, Index, Ranked};
use crate::resource::Table;
use crate::{Kind, Service, ServiceKey, Want, Workload};

/// A generation of the mesh's configuration.
#[derive(Debug, Clone)]
pub struct Snapshot {
    pub(crate) generation: u64,
    pub(crate) network: Strng,
    pub(crate) workloads: RedBlackTreeMapSync<Strng, Arc<Workload>>,
    /// By network and address.
    pub(crate) workloads_at: Grouped<IpAddr, Workload>,
    /// Pods on their node's network, by network and address: whose the node's addresses are.
    pub(crate) hosts_at: Grouped<IpAddr, Workload>,
    /// By namespace and name; only those on this node.
    pub(crate) pods: Grouped<Strng, Workload>,
    /// By namespace and hostname; only the few that have one.
    pub(crate) workloads_named: Grouped<Strng, Workload>,
    pub(crate) services: RedBlackTreeMapSync<ServiceKey, Arc<Service>>,
    /// By network and address.
    pub(crate) services_at: Grouped<IpAddr, Service>,
    /// By hostname.
    pub(crate) services_named: Index<Strng, Service>,
    /// The few services that have ranges of addresses.
    pub(crate) ranged: RedBlackTreeMapSync<ServiceKey, Arc<Service>>,
    /// Also of services that have not arrived.
    pub(crate) endpoints: RedBlackTreeMapSync<ServiceKey, Arc<EndpointSet>>,
    pub(crate) policies: RedBlackTreeMapSync<Strng, Arc<Policy>>,
    /// The names of the policies that cover a whole namespace, or everything (the empty namespace), including those
    /// that could not be read.
    pub(crate) scoped: RedBlackTreeMapSync<Strng, RedBlackTreeSetSync<Strng>>,
    /// By kind: the resources of kinds that are parsed into a type of another crate.
    pub(crate) typed: RedBlackTreeMapSync<&'static Kind, Table>,
    /// The compiled policies and token rules of requests.
    pub(crate) request_rules: RulesByService,
    /// Where resources are sent on demand: the names that were asked for and answered, whatever the answer. `None`:
    /// everything is sent, and what is not known does not exist.
    pub(crate) answered: Option<RedBlackTreeSetSync<Strng>>,
}

impl Snapshot {
    pub(crate) fn empty(network: &str) -> Self {
        Self {
            generation: 0,
            network: network.into(),
            workloads: RedBlackTreeMapSync::new_sync(),
            workloads_at: Grouped::default(),
            hosts_at: Grouped::default(),
            pods: Grouped::default(),
            workloads_named: Grouped::default(),
            services: RedBlackTreeMapSync::new_sync(),
            services_at: Grouped::default(),
            services_named: Index::default(),
            ranged: RedBlackTreeMapSync::new_sync(),
            endpoints: RedBlackTreeMapSync::new_sync(),
            policies: RedBlackTreeMapSync::new_sync(),
            scoped: RedBlackTreeMapSync::new_sync(),
            typed: RedBlackTreeMapSync::new_sync(),
            request_rules: RulesByService::default(),
            answered: None,
        }
    }

    /// Grows with every change.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// This node's network.
    pub fn network(&self) -> &Strng {
        &self.network
    }

    /// The workload with an address of its own; of several, a pod before others, a mesh workload before others. None at a
    /// Kubernetes Service's address, whatever a pod's status says; none but a pod at a node's, whatever an entry says.
    pub fn workload(&self, network: &str, address: IpAddr) -> Option<&Arc<Workload>> {
        let found = self.workloads_at.get(network, &address).first()?;
        let taken = self.is_cluster_ip(network, address)
            || !found.is_pod() && self.is_nodes(network, address);
        (!taken).then_some(found)
    }

    /// Returns whether a Kubernetes Service has the address. A kubelet writes its pods' and its node's addresses itself: if
    /// one of them were believed here, one hostile node could lead a Service's clients of the whole mesh past mutual TLS.
    pub fn is_cluster_ip(&self, network: &str, address: IpAddr) -> bool {
        let named = self.services_at.get(network, &address);
        named.first().is_some_and(|service| service.is_kubernetes)
    }

    /// Whether an address is that of a node with pods on its network.
    pub fn is_nodes(&self, network: &str, address: IpAddr) -> bool {
        !self.hosts_at.get(network, &address).is_empty() && !self.is_cluster_ip(network, address)
    }

    /// The services that list this very address, Kubernetes Services first. A pod's or a node's address is theirs whatever
    /// an entry says, so that only Kubernetes Services count there.
    fn services_at(&self, network: &str, address: IpAddr) -> &[Arc<Service>] {
        let named = self.services_at.get(network, &address);
        if named.last().is_none_or(|last| last.is_kubernetes) {
            return named;
        }
        let at = self.workloads_at.get(network, &address);
        let is_pods = at.first().is_some_and(|workload| workload.is_pod());
        if is_pods || !self.hosts_at.get(network, &address).is_empty() {
            return &named[..named.partition_point(|one| one.is_kubernetes)];
        }
        named
    }

    /// The workload of this uid.
    pub fn workload_by_uid(&self, uid: &str) -> Option<&Arc<Workload>> {
        self.workloads.get(uid)
    }

    /// The workload of this namespace and hostname.
    pub fn workload_by_host(&self, key: &ServiceKey) -> Option<&Arc<Workload>> {
        self.workloads_named.get(&key.namespace, &key.name).first()
    }

    /// What to ask the control plane for when nothing is known at an address; `None` if it sends everything, or has
    /// answered already.
    pub fn wants_address(&self, network: &Strng, address: IpAddr) -> Option<Want> {
        self.unanswered(|| Want::address(network, address))
    }

    /// The same for a hostname.
    pub fn wants_hostname(&self, key: &ServiceKey) -> Option<Want> {
        self.unanswered(|| Want::hostname(key))
    }

    fn unanswered(&self, want: impl FnOnce() -> Want) -> Option<Want> {
        let answered = self.answered.as_ref()?;
        Some(want()).filter(|want| !answered.contains(want.name()))
    }

    /// The workload of a pod on this node. All three names must fit: a pod whose service account is another than the
    /// control plane says has no workload.
    pub fn workload_of_pod(
        &self,
        namespace: &str,
        name: &str,
        service_account: &str,
    ) -> Option<&Arc<Workload>> {
        let pods = self.pods.get(namespace, name);
        pods.iter()
            .find(|workload| **workload.identity.service_account() == *service_account)
    }

    /// The service at a virtual address, as a client that belongs to no namespace sees it.
    pub fn service(&self, network: &str, address: IpAddr) -> Option<&Arc<Service>> {
        self.service_at(network, address, None)
    }

    /// The service at a virtual address, as a client of a namespace sees it: its own namespace's service before others,
    /// and none that it may not see. An exact address goes before a range.
    pub fn service_for(
        &self,
        namespace: &str,
        network: &str,
        address: IpAddr,
    ) -> Option<&Arc<Service>> {
        self.service_at(network, address, Some(namespace))
    }

    fn service_at(
        &self,
        network: &str,
        address: IpAddr,
        namespace: Option<&str>,
    ) -> Option<&Arc<Service>> {
        best(self.services_at(network, address), namespace)
            .or_else(|| self.service_in_range(network, address, namespace))
    }

    /// The service that lists this very address, as a client of a namespace sees it.
    pub fn service_exactly(
        &self,
        namespace: &str,
        network: &str,
        address: IpAddr,
    ) -> Option<&Arc<Service>> {
        best(self.services_at(network, address), Some(namespace))
    }

    /// The service that alone can be meant by this very address, wherever it is dialled from.
    pub(crate) fn virtual_service(
        &self,
        namespace: &str,
        network: &str,
        address: IpAddr,
    ) -> Option<&Arc<Service>> {
        let services = self.services_at(network, address);
        let meant = || {
            services
                .iter()
                .filter(|one| one.visible_to(namespace) && one.is_virtual_at(address))
        };
        meant()
            .find(|one| *one.namespace == *namespace)
            .or_else(|| meant().next())
    }

    /// A service of the client's namespace goes before a longer prefix, and that before age and ownership of the hostname:
    /// ztunnel's order, which knows no age.
    pub(crate) fn service_in_range(
        &self,
        network: &str,
        address: IpAddr,
        namespace: Option<&str>,
    ) -> Option<&Arc<Service>> {
        let visible = |service: &Service| namespace.is_none_or(|n| service.visible_to(n));
        let own = |service: &Service| namespace.is_some_and(|n| *service.namespace == *n);
        let holding = self
            .ranged
            .values()
            .filter(|service| visible(service))
            .flat_map(|service| {
                let ranges = service
                    .ranges
                    .iter()
                    .filter(|range| *range.network == *network);
                let holding = ranges.filter(|range| range.cidr.contains(&address));
                holding.map(move |range| (service, range.cidr.prefix_len()))
            });
        let best = holding.max_by(|(x, x_bits), (y, y_bits)| {
            let (x_own, y_own) = (own(x), own(y));
            (x_own, x_bits)
                .cmp(&(y_own, y_bits))
                .then_with(|| y.rank(x))
        });
        best.map(|(service, _)| service)
    }

    /// The service of this key.
    pub fn service_by_key(&self, key: &ServiceKey) -> Option<&Arc<Service>> {
        self.services.get(key)
    }

    /// Services and entries of a namespace, in the order of their hostnames.
    pub fn services_of(&self, namespace: &str) -> impl Iterator<Item = &Arc<Service>> {
        let first = ServiceKey::new(namespace, "");
        self.services
            .range(first.clone()..)
            .map(|(_, service)| service)
            .take_while(move |service| service.namespace == first.namespace)
    }

    /// The service of a hostname, as a client of a namespace sees it.
    pub fn service_by_host(&self, hostname: &str, namespace: &str) -> Option<&Arc<Service>> {
        best(self.services_named.get(hostname), Some(namespace))
    }

    /// Every service of a hostname, Services first, then by age, then by namespace.
    pub fn services_by_host(&self, hostname: &str) -> &[Arc<Service>] {
        self.services_named.get(hostname)
    }

    /// The endpoints of a service, whether or not the service itself has arrived.
    pub fn endpoints(&self, service: &ServiceKey) -> Option<&Arc<EndpointSet>> {
        self.endpoints.get(service)
    }

    /// The policies that cover a workload: those of the mesh, of its namespace, and those that it names. One that is
    /// not known here is said to be so, for the decision to fail closed.
    pub fn policies_for<'a>(&'a self, workload: &'a Workload) -> impl Iterator<Item = Applied<'a>> {
        let scope = |namespace: &str| self.scoped.get(namespace).into_iter().flatten();
        // A workload of the empty namespace would otherwise see the mesh's policies twice.
        let own = (!workload.namespace.is_empty())
            .then(|| scope(&workload.namespace))
            .into_iter()
            .flatten();
        scope("")
            .chain(own)
            .chain(&workload.authorization_policies)
            .map(|name| match self.policies.get(name) {
                Some(policy) => Applied::Policy(policy),
                None => Applied::Unknown(name),
            })
    }

    /// All workloads, by uid.
    pub fn workloads(&self) -> impl Iterator<Item = &Arc<Workload>> {
        self.workloads.values()
    }

    /// The workloads on this node, in no order.
    pub fn local_workloads(&self) -> impl Iterator<Item = &Arc<Workload>> {
        self.pods.values()
    }

    /// All services, by key.
    pub fn services(&self) -> impl Iterator<Item = &Arc<Service>> {
        self.services.values()
    }

    /// All policies, by xDS name.
    pub fn policies(&self) -> impl Iterator<Item = &Arc<Policy>> {
        self.policies.values()
    }

    /// Whether a workload is (one of) what a gateway reference leads to.
    pub fn serves(&self, gateway: &GatewayAddress, workload: &Workload) -> bool {
        let service = match &gateway.destination {
            GatewayDestination::Address(at) => {
                if let Some(found) = self.workload(&at.network, at.address) {
                    return found.uid == workload.uid;
                }
                self.service(&at.network, at.address)
            }
            GatewayDestination::Hostname(key) => match self.service_by_key(key) {
                Some(service) => Some(service),
                None => {
                    let found = self.workload_by_host(key);
                    return found.is_some_and(|found| found.uid == workload.uid);
                }
            },
        };
        service
            .and_then(|service| self.endpoints(&service.key))
            .is_some_and(|endpoints| endpoints.get(workload.uid.as_str()).is_some())
    }
}

/// Of services that share a key: the client's namespace's own, else the first that it may see.
fn best<'a>(services: &'a [Arc<Service>], namespace: Option<&str>) -> Option<&'a Arc<Service>> {
    let Some(namespace) = namespace else {
        return services.first();
    };
    services
        .iter()
        .find(|service| *service.namespace == *namespace)
        .or_else(|| {
            services
                .iter()
                .find(|service| service.visible_to(namespace))
        })
}
