//! The endpoints of a service: its workloads, each with the ports that it serves it on.

use std::sync::Arc;

use crate::workload::{PortMap, Workload, target_port};

/// One workload of a service.
#[derive(Debug, Clone)]
pub struct Endpoint {
    /// The workload.
    pub workload: Arc<Workload>,
    /// The ports that it says it serves the service on.
    pub ports: Arc<[PortMap]>,
}

impl Endpoint {
    /// The port on which it serves a service's port, if it says so. A mapping without target means the same port.
    pub fn target_port(&self, port: u16) -> Option<u16> {
        target_port(&self.ports, port)
    }
}

/// The endpoints of a service, in the order of their workloads' uids.
#[derive(Debug, Clone, Default)]
pub struct EndpointSet(pub(crate) Vec<Endpoint>);

impl EndpointSet {
    /// All of them, whatever their health.
    pub fn iter(&self) -> std::slice::Iter<'_, Endpoint> {
        self.0.iter()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The endpoint with this workload.
    pub fn get(&self, uid: &str) -> Option<&Endpoint> {
        let at = self
            .0
            .binary_search_by(|endpoint| endpoint.workload.uid.as_str().cmp(uid))
            .ok()?;
        self.0.get(at)
    }
}

impl<'a> IntoIterator for &'a EndpointSet {
    type Item = &'a Endpoint;
    type IntoIter = std::slice::Iter<'a, Endpoint>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
