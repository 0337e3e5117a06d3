//! The endpoints of a service for a waypoint that sends them many requests. They are looked up once for a configuration, and one
//! is drawn for each request.

use std::net::SocketAddr;
use std::sync::Arc;

use lateen_balance::{Drawn, Table};

use super::Refusal;
use super::choose::{Asker, no_endpoint, pick, table_of};
use super::hop::Choice;
use super::outbound::{follow, to_picked};
use crate::Snapshot;
use crate::endpoints::EndpointSet;
use crate::service::Service;
use crate::workload::Workload;

/// The endpoints of a service that may serve a destination, by rank and weight.
#[derive(Debug, Clone)]
pub struct Candidates {
    service: Arc<Service>,
    destination: SocketAddr,
    endpoints: Arc<EndpointSet>,
    table: Arc<Table>,
}

impl Candidates {
    /// Looks them up. `destination` is that of [`super::outbound_to`], which has the answer where there is nothing to draw from: it
    /// goes to the client's own destination, or says why there is no endpoint.
    pub fn of(
        snapshot: &Snapshot,
        source: &Workload,
        service: &Arc<Service>,
        destination: SocketAddr,
    ) -> Option<Self> {
        if service.is_passthrough() {
            return None;
        }
        let (endpoints, table) = table_of(snapshot, source, service, destination.port())?;
        (!table.is_empty()).then(|| Self {
            service: Arc::clone(service),
            destination,
            endpoints,
            table,
        })
    }

    /// The candidates that `keep` admits, with their numbers. It gets each as a draw would give it.
    pub fn only(&self, mut keep: impl FnMut(&Drawn) -> bool) -> Self {
        Self {
            table: Arc::new(self.table.only(|drawn| keep(&drawn))),
            ..self.clone()
        }
    }

    /// Numbers of endpoints are below this one.
    pub fn bound(&self) -> usize {
        self.endpoints.len()
    }

    /// Draws the number of an endpoint. `avoid` and `random` are those of [`super::outbound`].
    #[inline]
    pub fn draw(
        &self,
        avoid: impl Fn(&Workload) -> bool,
        random: &mut dyn FnMut(u64) -> u64,
    ) -> Option<Drawn> {
        let list = self.endpoints.as_slice();
        let avoided = |item: u32| {
            let endpoint = list.get(item as usize);
            endpoint.is_some_and(|endpoint| avoid(&endpoint.workload))
        };
        self.table.draw(avoided, random)
    }

    /// The endpoint that was drawn.
    pub fn workload(&self, drawn: &Drawn) -> Option<&Arc<Workload>> {
        let endpoint = self.endpoints.as_slice().get(drawn.item as usize);
        endpoint.map(|endpoint| &endpoint.workload)
    }

    /// The way to an endpoint that was drawn, in the configuration in which the candidates were looked up. `source`, `avoid` and
    /// `random` are those of [`super::outbound`]. Where neither is asked, each draw of the endpoint leads the same way.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub fn reach(
        &self,
        snapshot: &Snapshot,
        source: &Workload,
        drawn: &Drawn,
        avoid: &dyn Fn(&Workload) -> bool,
        random: &mut dyn FnMut(u64) -> u64,
    ) -> Result<Choice, Refusal> {
        let Self {
            service,
            destination,
            endpoints,
            ..
        } = self;
        let port = destination.port();
        let picked = pick(service, endpoints, port, drawn);
        let picked =
            picked.ok_or_else(|| no_endpoint(source, service, port, Some(&**endpoints)))?;
        let mut asker = Asker::new(snapshot, source, avoid, random);
        let placed = to_picked(&mut asker, picked, service, *destination)?;
        follow(&mut asker, placed)
    }
}
