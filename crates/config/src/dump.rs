//! Dump of a snapshot for the admin page, with the keys and shapes of ztunnel's `/config_dump`.

use std::collections::BTreeMap;
use std::sync::Arc;

use lateen_policy::Policy;
use lateen_types::WorkloadUid;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::endpoints::{Endpoint, EndpointSet};
use crate::port_map::PortMap;
use crate::service::port_map;
use crate::workload::Health;
use crate::{Service, Snapshot, Workload};

/// The serializable view of a snapshot: `workloads`, `services` with their endpoints, `policies`, `stagedServices`, and
/// one map of resources by name for each further kind.
#[derive(Debug, Clone, Copy)]
pub struct Dump<'a>(&'a Snapshot);

impl Snapshot {
    /// The view that the admin endpoint serializes.
    pub fn dump(&self) -> Dump<'_> {
        Dump(self)
    }
}

impl<'a> Dump<'a> {
    /// Workloads by uid.
    pub fn workloads(&self) -> Vec<&'a Arc<Workload>> {
        self.0.workloads().collect()
    }

    /// Services by key, each with its endpoints.
    pub fn services(&self) -> Vec<impl Serialize + use<'a>> {
        let endpoints =
            |service: &Service| self.0.endpoints(&service.key).map(|set| EndpointsView(set));
        self.0
            .services()
            .map(|service| ServiceView {
                service,
                endpoints: endpoints(service).into(),
            })
            .collect()
    }

    /// Policies by xDS name.
    pub fn policies(&self) -> Vec<&'a Arc<Policy>> {
        self.0.policies().collect()
    }

    /// Endpoints of services that have not arrived.
    pub fn staged_services(&self) -> impl Serialize + use<'a> {
        StagedView(self.0)
    }
}

impl Serialize for Dump<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let typed = &self.0.typed;
        let mut map = serializer.serialize_map(Some(4 + typed.size()))?;
        map.serialize_entry("workloads", &self.workloads())?;
        map.serialize_entry("services", &self.services())?;
        map.serialize_entry("policies", &self.policies())?;
        map.serialize_entry("stagedServices", &self.staged_services())?;
        for (kind, table) in typed {
            let resources: BTreeMap<_, _> =
                table.iter().map(|(name, e)| (name, e.json())).collect();
            map.serialize_entry(kind.label, &resources)?;
        }
        map.end()
    }
}

#[derive(Serialize)]
struct ServiceView<'a> {
    #[serde(flatten)]
    service: &'a Service,
    endpoints: MaybeEndpoints<'a>,
}

struct EndpointsView<'a>(&'a EndpointSet);

impl Serialize for EndpointsView<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(
            self.0
                .iter()
                .map(|endpoint| (&endpoint.workload.uid, EndpointView::from(endpoint))),
        )
    }
}

/// No endpoints show as an empty map.
struct MaybeEndpoints<'a>(Option<EndpointsView<'a>>);

impl<'a> From<Option<EndpointsView<'a>>> for MaybeEndpoints<'a> {
    fn from(endpoints: Option<EndpointsView<'a>>) -> Self {
        Self(endpoints)
    }
}

impl Serialize for MaybeEndpoints<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Some(endpoints) => endpoints.serialize(serializer),
            None => serializer.serialize_map(Some(0))?.end(),
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct EndpointView<'a> {
    workload_uid: &'a WorkloadUid,
    #[serde(serialize_with = "port_map")]
    port: &'a [PortMap],
    status: Health,
}

impl<'a> From<&'a Endpoint> for EndpointView<'a> {
    fn from(endpoint: &'a Endpoint) -> Self {
        Self {
            workload_uid: &endpoint.workload.uid,
            port: &endpoint.ports,
            status: endpoint.workload.status,
        }
    }
}

struct StagedView<'a>(&'a Snapshot);

impl Serialize for StagedView<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let staged = self
            .0
            .endpoints
            .iter()
            .filter(|(key, _)| self.0.service_by_key(key).is_none());
        serializer.collect_map(staged.map(|(key, set)| (key, EndpointsView(set))))
    }
}
