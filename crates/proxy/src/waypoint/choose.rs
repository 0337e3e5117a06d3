//! The choice of an endpoint for each attempt: by health, locality and weight, and of two such the one with fewer requests
//! under way.

use std::io;
use std::sync::Arc;

use lateen_config::next_hop::{self, Choice, NextHop};
use lateen_config::{ServiceKey, Workload};
use lateen_exchange::Protocol;
use lateen_types::{Strng, WorkloadUid};

use super::destination::Target;
use super::endpoint::Endpoint;
use super::session::Session;
use super::upstream::UpstreamError;
use super::view::View;

/// Why there is no endpoint.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoEndpoint {
    /// The service or workload is gone.
    #[error("{0} is not known any more")]
    Gone(String),
    /// No way leads there.
    #[error(transparent)]
    Route(#[from] next_hop::Refusal),
    /// The endpoint's hostname has no address.
    #[error("resolve {hostname}: {source}")]
    Name {
        /// The hostname.
        hostname: Strng,
        /// What the resolver said.
        source: io::Error,
    },
    /// All were tried.
    #[error("no other endpoint is left")]
    Tried,
    /// The endpoint cannot be reached from here.
    #[error(transparent)]
    Unreachable(#[from] UpstreamError),
}

/// The endpoints that were tried for one request or connection.
#[derive(Debug, Default)]
pub(super) struct Tried(Vec<WorkloadUid>);

impl Tried {
    /// Leaves an endpoint out from now on.
    pub(super) fn add(&mut self, endpoint: &Endpoint) {
        if let Some(workload) = &endpoint.workload {
            self.0.push(workload.uid.clone());
        }
    }

    fn has(&self, workload: &Workload) -> bool {
        self.0.contains(&workload.uid)
    }
}

/// Chooses an endpoint that was not tried. Of two that are drawn, it is the one with fewer requests under way in `protocol`;
/// without one the first is taken.
///
/// # Errors
/// See [`NoEndpoint`].
pub(super) async fn choose(
    session: &Session,
    view: &View,
    tried: &Tried,
    protocol: Option<Protocol>,
) -> Result<Endpoint, NoEndpoint> {
    let first = settle(session, view, tried, draw(session, view, tried)?).await?;
    let Some(protocol) = protocol.filter(|_| !first.is_last) else {
        return Ok(first);
    };
    let second = draw(session, view, tried)?;
    if matches!(second.next_hop, NextHop::Resolve(_)) {
        return Ok(first);
    }
    let second = Endpoint::of(second.next_hop, false)?;
    let outstanding = |endpoint: &Endpoint| {
        let upstreams = &session.waypoint.upstreams;
        upstreams.outstanding(&endpoint.hop, protocol)
    };
    Ok(match outstanding(&second) < outstanding(&first) {
        true => second,
        false => first,
    })
}

/// Draws one of the endpoints.
fn draw(session: &Session, view: &View, tried: &Tried) -> Result<Choice, NoEndpoint> {
    let View { snapshot, own, .. } = view;
    let address = session.destination.address;
    let avoid = |workload: &Workload| tried.has(workload);
    let random = &mut |n| session.waypoint.worker.random_below(n);
    let choice = match &session.destination.target {
        Target::Service(service) => {
            let gone = |key: &ServiceKey| NoEndpoint::Gone(format!("service {key}"));
            let now = snapshot.service_by_key(&service.key);
            let now = now.ok_or_else(|| gone(&service.key))?;
            next_hop::outbound_to(snapshot, own, now, address, &avoid, random)?
        }
        Target::Workload(workload) => {
            let there = snapshot.workload(&own.network, address.ip());
            // The address may be another's by now, whom other policies protect.
            let there = there.filter(|there| there.uid == workload.uid);
            let gone = || NoEndpoint::Gone(format!("workload {}", workload.uid));
            let there = there.ok_or_else(gone)?;
            next_hop::outbound_to_workload(snapshot, own, there, address, &avoid, random)?
        }
    };
    match choice.avoided {
        true => Err(NoEndpoint::Tried),
        false => Ok(choice),
    }
}

/// Finds the address of an endpoint that is known by hostname; it may lead to a service whose endpoint is, too.
async fn settle(
    session: &Session,
    view: &View,
    tried: &Tried,
    mut choice: Choice,
) -> Result<Endpoint, NoEndpoint> {
    let waypoint = &session.waypoint;
    loop {
        let is_last = choice.others <= tried.0.len();
        let resolve = match choice.next_hop {
            NextHop::Resolve(resolve) => resolve,
            next_hop => return Ok(Endpoint::of(next_hop, is_last)?),
        };
        let unresolved = |source| NoEndpoint::Name {
            hostname: Arc::clone(&resolve.hostname),
            source,
        };
        let answers = waypoint
            .names
            .resolve(&resolve.hostname)
            .await
            .map_err(unresolved)?;
        let random = &mut |n| waypoint.worker.random_below(n);
        let address = resolve
            .pick(&answers, random)
            .ok_or_else(|| unresolved(io::ErrorKind::AddrNotAvailable.into()))?;
        let avoid = |workload: &Workload| tried.has(workload);
        choice = resolve.at(&view.snapshot, &view.own, address, &avoid, random)?;
    }
}
