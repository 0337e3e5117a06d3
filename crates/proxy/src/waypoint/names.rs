//! Addresses of endpoints that are known by hostname, and of hosts that clients name. Each worker asks the resolvers of the proxy's
//! own pod.
//!
//! The two are kept apart: however many hosts clients think of, the addresses of endpoints are not displaced by them. Clients are
//! kept apart as well: the lookups of one leave room to those of others.

use std::net::IpAddr;
use std::rc::Rc;

use lateen_telemetry::DnsMetrics;
use lateen_types::{Identity, WorkloadUid};

use crate::dns::{File, OwnNames, ResolveError, Upstream};

/// Questions about endpoints that wait for a resolver at a time; a name has two, one for each family.
const OF_ENDPOINTS: usize = 1024;

/// Questions about hosts that clients name.
const OF_HOSTS: usize = 256;

/// The names that were resolved on this worker.
pub(super) struct Names {
    endpoints: OwnNames,
    hosts: OwnNames,
}

impl Names {
    /// Names on behalf of the workload `uid`, that is this proxy.
    pub(super) fn new(resolvers: File, uid: &WorkloadUid, metrics: &DnsMetrics) -> Self {
        let upstream = Rc::new(Upstream::new(resolvers));
        let names = |most| OwnNames::new(&upstream, uid.clone(), metrics.clone(), most);
        Self {
            endpoints: names(OF_ENDPOINTS),
            hosts: names(OF_HOSTS),
        }
    }

    /// The addresses of an endpoint's hostname.
    ///
    /// # Errors
    /// See [`ResolveError`].
    pub(super) async fn of_endpoint(&self, hostname: &str) -> Result<Vec<IpAddr>, ResolveError> {
        Box::pin(self.endpoints.resolve(hostname)).await
    }

    /// The addresses of a host that a client names.
    ///
    /// # Errors
    /// See [`ResolveError`].
    pub(super) async fn of_host(
        &self,
        client: &Identity,
        host: &str,
    ) -> Result<Vec<IpAddr>, ResolveError> {
        Box::pin(self.hosts.resolve_for(Some(client), host)).await
    }
}
