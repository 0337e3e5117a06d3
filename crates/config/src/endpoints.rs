//! Endpoints of a service: its workloads, each with the ports on which it serves the service.

use std::sync::{Arc, OnceLock};

use lateen_balance::Table;
use lateen_types::Strng;

use crate::port_map::PortMap;
use crate::workload::{Workload, target_port};

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
pub struct EndpointSet {
    list: Vec<Endpoint>,
    /// Each table is boxed, since most services of a mesh have no client here.
    tables: [OnceLock<Box<Kept>>; TABLES],
}

/// Tables that a set keeps. Clients of one node are of one place, and few services have more ports.
const TABLES: usize = 8;

/// A table that a set keeps.
#[derive(Debug, Clone)]
struct Kept {
    key: TableKey,
    table: Arc<Table>,
}

/// What the choice among a service's endpoints depends on, besides the service and its endpoints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TableKey {
    pub(crate) port: u16,
    /// It is looked for as a waypoint, which need not list its port.
    pub(crate) waypoint: bool,
    /// The client's place, most distinct part first: node, network, cluster, subzone, zone, region.
    pub(crate) place: [Strng; 6],
}

impl TableKey {
    fn is(&self, port: u16, waypoint: bool, client: &Workload) -> bool {
        let place = place_of(client);
        self.port == port
            && self.waypoint == waypoint
            && self
                .place
                .iter()
                .zip(place)
                .all(|(known, part)| *known == *part)
    }
}

fn place_of(client: &Workload) -> [&Strng; 6] {
    let at = &client.locality;
    [
        &client.node,
        &client.network,
        &client.cluster_id,
        &at.subzone,
        &at.zone,
        &at.region,
    ]
}

impl EndpointSet {
    pub(crate) fn new(list: Vec<Endpoint>) -> Self {
        Self {
            list,
            tables: Default::default(),
        }
    }

    /// All of them, whatever their health.
    pub fn iter(&self) -> std::slice::Iter<'_, Endpoint> {
        self.list.iter()
    }

    /// What `draw` makes of the table for a client and a port: made by `make` at the first call, then kept as long as
    /// neither the service nor its endpoints change. A client of a ninth place or port has one made each time.
    pub(crate) fn with_table<T>(
        &self,
        (port, waypoint, client): (u16, bool, &Workload),
        make: impl FnOnce() -> Table,
        draw: impl FnOnce(&Arc<Table>) -> T,
    ) -> T {
        let mut free = None;
        for slot in &self.tables {
            match slot.get() {
                Some(kept) if kept.key.is(port, waypoint, client) => return draw(&kept.table),
                Some(_) => {}
                None => {
                    free = Some(slot);
                    break;
                }
            }
        }
        let table = Arc::new(make());
        let drawn = draw(&table);
        if let Some(slot) = free {
            let key = TableKey {
                port,
                waypoint,
                place: place_of(client).map(Strng::clone),
            };
            // Another worker may have been faster; then the next client makes one more, which goes into the next slot.
            let _ = slot.set(Box::new(Kept { key, table }));
        }
        drawn
    }

    pub(crate) fn as_slice(&self) -> &[Endpoint] {
        &self.list
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The endpoint with this workload.
    pub fn get(&self, uid: &str) -> Option<&Endpoint> {
        let at = self
            .list
            .binary_search_by(|endpoint| endpoint.workload.uid.as_str().cmp(uid))
            .ok()?;
        self.list.get(at)
    }
}

impl<'a> IntoIterator for &'a EndpointSet {
    type Item = &'a Endpoint;
    type IntoIter = std::slice::Iter<'a, Endpoint>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
