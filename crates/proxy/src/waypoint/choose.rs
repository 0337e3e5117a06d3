//! The choice of an endpoint for each attempt: by health, locality and weight, and of two such the one with fewer requests
//! under way.

use std::net::IpAddr;

use lateen_config::next_hop::{self, Choice, NextHop, Resolve};
use lateen_config::{ServiceKey, Workload};
use lateen_exchange::Protocol;
use lateen_types::{Strng, WorkloadUid};

use super::destination::Target;
use super::endpoint::Endpoint;
use super::session::Session;
use super::view::View;
use crate::dns::ResolveError;

/// Why there is no endpoint.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoEndpoint {
    /// The service or workload is gone.
    #[error("{0} is not known any more")]
    Gone(String),
    /// No way leads there.
    #[error(transparent)]
    Route(#[from] next_hop::Refusal),
    /// The hostname of the endpoint, or the host that the client names, has no address.
    #[error(transparent)]
    Name(#[from] ResolveError),
    /// The client must name a host and does not.
    #[error(
        "the client names no host, and {0} has no address of its own; name one by Host or by the server name of TLS"
    )]
    NoHost(Strng),
    /// All were tried.
    #[error("no other endpoint is left")]
    Tried,
}

/// The endpoints that were tried for one request or connection.
#[derive(Debug, Default)]
pub(super) struct Tried {
    endpoints: Vec<WorkloadUid>,
    /// The client's own destination was: there is no other.
    is_over: bool,
}

impl Tried {
    /// Leaves an endpoint out from now on.
    pub(super) fn add(&mut self, endpoint: &Endpoint) {
        match &endpoint.uid {
            Some(uid) => self.endpoints.push(uid.clone()),
            None => self.is_over = true,
        }
    }

    fn has(&self, workload: &Workload) -> bool {
        self.endpoints.contains(&workload.uid)
    }
}

/// Chooses an endpoint that was not tried. Of two that are drawn, it is the one with fewer requests under way in `protocol`;
/// without one the first is taken. `host` is the host that the client names, in lower case.
///
/// # Errors
/// See [`NoEndpoint`].
pub(super) async fn choose(
    session: &Session,
    view: &View,
    tried: &Tried,
    protocol: Option<Protocol>,
    host: Option<&str>,
) -> Result<Endpoint, NoEndpoint> {
    let drawn = draw(session, view, tried)?;
    let first = settle(session, view, tried, drawn, host).await?;
    let Some(protocol) = protocol.filter(|_| !first.is_last) else {
        return Ok(first);
    };
    let second = draw(session, view, tried)?;
    if matches!(second.next_hop, NextHop::Resolve(_)) {
        return Ok(first);
    }
    let second = Endpoint::of(second.next_hop, false);
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
    match choice.avoided || tried.is_over {
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
    host: Option<&str>,
) -> Result<Endpoint, NoEndpoint> {
    let View { snapshot, own, .. } = view;
    let waypoint = &session.waypoint;
    let avoid = |workload: &Workload| tried.has(workload);
    loop {
        let is_last = choice.others <= tried.endpoints.len();
        let resolve = match choice.next_hop {
            NextHop::Resolve(resolve) => resolve,
            next_hop => return Ok(Endpoint::of(next_hop, is_last)),
        };
        // The addresses of one host are taken one at a time, and its connections are shared.
        let first = &mut |_| 0;
        if resolve.is_wildcard() {
            let host = host.ok_or_else(|| NoEndpoint::NoHost(resolve.hostname.clone()))?;
            resolve.admit(snapshot, host)?;
            let answers = waypoint.names.of_host(host).await?;
            let address = picked(&resolve, host, &answers, first)?;
            let choice = resolve.to_host(snapshot, own, (host, address), &avoid)?;
            return Ok(Endpoint::of(choice.next_hop, is_last).of_host(host.into()));
        }
        let service = resolve.service.as_ref();
        let is_round_robin = service.is_some_and(|service| service.is_round_robin);
        let hostname = &resolve.hostname;
        let answers = waypoint.names.of_endpoint(hostname).await?;
        let random = &mut |n| waypoint.worker.random_below(n);
        let address = match is_round_robin {
            true => picked(&resolve, hostname, &answers, first)?,
            false => picked(&resolve, hostname, &answers, random)?,
        };
        choice = resolve.at(snapshot, own, address, &avoid, random)?;
        if is_round_robin && matches!(choice.next_hop, NextHop::Plain { .. }) {
            let hostname = hostname.clone();
            return Ok(Endpoint::of(choice.next_hop, is_last).of_host(hostname));
        }
    }
}

/// One of the addresses of a name.
fn picked(
    resolve: &Resolve,
    name: &str,
    answers: &[IpAddr],
    random: &mut dyn FnMut(u64) -> u64,
) -> Result<IpAddr, ResolveError> {
    let none = || ResolveError::NoAddress {
        hostname: name.to_owned(),
    };
    resolve.pick(answers, random).ok_or_else(none)
}
