//! The choice of an endpoint for each attempt: by health, locality and weight, and of two such the one with fewer requests
//! under way.

use std::cell::Cell;
use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::{Duration, Instant};

use lateen_config::next_hop::{self, NextHop, Resolve};
use lateen_config::{ServiceKey, Workload};
use lateen_exchange::Protocol;
use lateen_types::{Strng, WorkloadUid};

use super::destination::Target;
use super::endpoint::Endpoint;
use super::hop::AddressSource;
use super::service_view::{Drawn, Excluded, KnownEndpoint, NotDrawn, Way};
use super::session::Session;
use super::strict::{self, PlainTextForbidden};
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
    /// No way leads to an endpoint: its address belongs to a service without endpoints, or its hostname has no address that the
    /// waypoint dials and that leads further.
    #[error("{refusal}")]
    RefusedBehind {
        endpoint: WorkloadUid,
        refusal: next_hop::Refusal,
    },
    /// An endpoint's addresses, or the services and pods that they lead to, were all tried.
    #[error("no other endpoint is left")]
    TriedBehind { endpoint: WorkloadUid },
    /// The hostname of the endpoint has no address.
    #[error("{error}")]
    EndpointName {
        endpoint: WorkloadUid,
        error: ResolveError,
    },
    /// The host that the client names has no address.
    #[error(transparent)]
    Name(#[from] ResolveError),
    /// The client must name a host and does not.
    #[error(
        "the client names no host, and {0} has no address of its own; name one by Host or by the server name of TLS"
    )]
    NoHost(Strng),
    /// The endpoints may not be sent plain text, and speak no tunnel.
    #[error(transparent)]
    Forbidden(#[from] PlainTextForbidden),
    /// All were tried.
    #[error("no other endpoint is left")]
    Tried,
}

impl From<NotDrawn> for NoEndpoint {
    fn from(why: NotDrawn) -> Self {
        match why {
            NotDrawn::Avoided => Self::Tried,
            NotDrawn::AvoidedBehind(endpoint) => Self::TriedBehind { endpoint },
            NotDrawn::Refused(endpoint, refusal) => Self::RefusedBehind { endpoint, refusal },
        }
    }
}

/// The endpoints that were tried for one request or connection.
#[derive(Debug, Default)]
pub(super) struct Tried {
    endpoints: HashSet<WorkloadUid>,
    /// Addresses of endpoints' hostnames, and of hosts that clients name, each with its endpoint.
    addresses: Vec<(WorkloadUid, IpAddr)>,
    /// Addresses of this kind that have refused the request unprocessed: others are tried first.
    refusing: Vec<(WorkloadUid, IpAddr)>,
    /// The endpoints among those above that may be tried again: they may have addresses left, or have refused the request unprocessed.
    /// Other endpoints are tried first.
    set_aside: Vec<WorkloadUid>,
    /// The time of the first lookup of a hostname.
    looked_up: Cell<Option<Instant>>,
    /// The address that the client dialled was tried: there is no other.
    is_over: bool,
}

impl Tried {
    /// Leaves an endpoint out from now on. One that is known by hostname is left out while there are others, and this address of it
    /// for good.
    pub(super) fn add(&mut self, endpoint: &Endpoint) {
        self.add_at(endpoint, None);
    }

    /// The same for a connection that may lead to another address, since requests for a host share those to all its addresses.
    pub(super) fn add_at(&mut self, endpoint: &Endpoint, address: Option<SocketAddr>) {
        let Endpoint { hop, uid, .. } = endpoint;
        if let Some(uid) = uid
            && (hop.source == AddressSource::Found || hop.host.is_some())
        {
            let address = address.unwrap_or(hop.address).ip().to_canonical();
            self.addresses.push((uid.clone(), address));
            self.set_aside.push(uid.clone());
        }
        self.add_all_of(endpoint);
    }

    /// Leaves an endpoint out while there are others, and this address of it while it has others. It has refused the request unprocessed,
    /// and may take it the next time.
    pub(super) fn put_last(&mut self, endpoint: &Endpoint, address: Option<SocketAddr>) {
        let Endpoint { hop, uid, .. } = endpoint;
        if let Some(uid) = uid {
            if hop.source == AddressSource::Found || hop.host.is_some() {
                let address = address.unwrap_or(hop.address).ip().to_canonical();
                self.refusing.push((uid.clone(), address));
            }
            self.endpoints.insert(uid.clone());
            self.set_aside.push(uid.clone());
        }
    }

    /// Leaves out all addresses of an endpoint.
    fn add_all_of(&mut self, endpoint: &Endpoint) {
        match &endpoint.uid {
            Some(uid) => _ = self.endpoints.insert(uid.clone()),
            None => self.is_over = true,
        }
    }

    /// Leaves out an endpoint that cannot be reached, or behind which all was tried.
    fn pass_by(&mut self, endpoint: &WorkloadUid) {
        if !self.set_aside.is_empty() {
            // It may lead to one of these.
            self.set_aside.push(endpoint.clone());
        }
        self.endpoints.insert(endpoint.clone());
    }

    /// Admits the endpoints again that may be tried again. False if there is none.
    fn take_up(&mut self) -> bool {
        let has_any = !self.set_aside.is_empty();
        for endpoint in self.set_aside.drain(..) {
            self.endpoints.remove(&endpoint);
        }
        has_any
    }

    /// Removes the addresses of a workload's hostname that were tried, and those that have refused the request, if others are left.
    ///
    /// # Errors
    /// All were tried.
    fn leave_untried(&self, of: &Workload, answers: &mut Vec<IpAddr>) -> Result<(), NoEndpoint> {
        let is_of = |list: &[(WorkloadUid, IpAddr)], answer: &IpAddr| {
            let answer = answer.to_canonical();
            list.iter()
                .any(|(uid, address)| *uid == of.uid && *address == answer)
        };
        answers.retain(|answer| !is_of(&self.addresses, answer));
        if answers.is_empty() {
            return Err(NoEndpoint::TriedBehind {
                endpoint: of.uid.clone(),
            });
        }
        if !answers.iter().all(|answer| is_of(&self.refusing, answer)) {
            answers.retain(|answer| !is_of(&self.refusing, answer));
        }
        Ok(())
    }

    fn look_up(&self) {
        if self.looked_up.get().is_none() {
            self.looked_up.set(Some(Instant::now()));
        }
    }

    /// True while another endpoint may be looked for.
    fn may_search(&self) -> bool {
        let looked_up = self.looked_up.get();
        looked_up.is_none_or(|since| since.elapsed() < SEARCH)
    }

    fn has(&self, workload: &Workload) -> bool {
        self.endpoints.contains(&workload.uid)
    }
}

impl NoEndpoint {
    /// The endpoint that alone is to blame: another one may do better.
    fn blamed(&self) -> Option<&WorkloadUid> {
        match self {
            Self::RefusedBehind { endpoint, .. } | Self::TriedBehind { endpoint } => Some(endpoint),
            Self::EndpointName { endpoint, error } if error.blames_name() => Some(endpoint),
            _ => None,
        }
    }
}

/// The time in which a request looks for another endpoint, from its first lookup of a hostname. A service may have thousands of endpoints,
/// and each lookup waits for a silent resolver.
const SEARCH: Duration = Duration::from_secs(10);

/// Chooses an endpoint that was not tried and may be sent what it speaks. The waypoint must know its address, and dial such addresses.
/// Endpoints that are passed by count as tried, and those that no request can use are looked at once a view. Of two that are drawn, the
/// one with fewer requests under way in `protocol` is taken; without a protocol the first is. `host` gives the host that the client names, in lower case.
///
/// # Errors
/// See [`NoEndpoint`].
pub(super) async fn choose<'h>(
    session: &Session,
    view: &View,
    tried: &mut Tried,
    protocol: Option<Protocol>,
    host: impl Fn() -> Option<&'h str>,
) -> Result<Rc<KnownEndpoint>, NoEndpoint> {
    let mut forbidden = None;
    loop {
        let known = match one(session, view, tried, protocol, &host).await {
            Ok(known) => known,
            Err(NoEndpoint::Tried) if tried.take_up() => continue,
            Err(why) => {
                let Some(endpoint) = why.blamed().filter(|_| tried.may_search()) else {
                    let forbidden = forbidden.or_else(|| match why {
                        NoEndpoint::Tried => excluded(session, view),
                        _ => None,
                    });
                    return Err(forbidden.unwrap_or(why));
                };
                tried.pass_by(endpoint);
                if let NoEndpoint::RefusedBehind { .. } = why {
                    exclude(session, view);
                }
                forbidden.get_or_insert(why);
                tokio::task::consume_budget().await;
                continue;
            }
        };
        let endpoint = &known.endpoint;
        let Some(why) = forbids(session, view, endpoint) else {
            return Ok(known);
        };
        tried.add_all_of(&known.endpoint);
        exclude(session, view);
        forbidden.get_or_insert(why);
        // A service may have thousands of them.
        tokio::task::consume_budget().await;
    }
}

/// The reason for which an endpoint may not be sent what it speaks, if there is one.
fn forbids(session: &Session, view: &View, endpoint: &Endpoint) -> Option<NoEndpoint> {
    let why = strict::forbidden(view, endpoint).map(NoEndpoint::from);
    why.or_else(|| on_own_machine(session, view, endpoint))
}

/// Leaves the endpoints out of further draws that no request can use in this view.
fn exclude(session: &Session, view: &View) {
    if let Some(service) = session.service_view(view) {
        service.exclude(view, |endpoint| forbids(session, view, endpoint).is_some());
    }
}

/// The reason for which one of those endpoints cannot be used.
fn excluded(session: &Session, view: &View) -> Option<NoEndpoint> {
    let service = session.service_view(view)?;
    match service.excluded()? {
        Excluded::Forbidden(endpoint) => forbids(session, view, endpoint),
        Excluded::Unreachable(endpoint, refusal) => Some(NoEndpoint::RefusedBehind {
            endpoint: endpoint.clone(),
            refusal: refusal.clone(),
        }),
    }
}

/// The refusal of an endpoint in plain text whose address leads the waypoint to its own machine, whoever has written it.
fn on_own_machine(session: &Session, view: &View, endpoint: &Endpoint) -> Option<NoEndpoint> {
    let Endpoint { hop, uid, .. } = endpoint;
    if hop.tunnel.is_some() {
        return None;
    }
    let address = hop.address.ip();
    let what = next_hop::own_machine(&view.own, address)?;
    let refusal = next_hop::Refusal::ReservedEndpoint {
        target: match &session.destination.target {
            Target::Service(service) => format!("service {}", service.key),
            Target::Workload(workload) => format!("workload {}", workload.uid),
        },
        endpoint: match uid {
            Some(uid) => uid.to_string(),
            None => "that the client dialled".to_owned(),
        },
        address,
        what,
    };
    Some(refusal.into())
}

/// Chooses an endpoint that was not tried.
async fn one<'h>(
    session: &Session,
    view: &View,
    tried: &Tried,
    protocol: Option<Protocol>,
    host: impl Fn() -> Option<&'h str>,
) -> Result<Rc<KnownEndpoint>, NoEndpoint> {
    let Drawn { way, others, .. } = draw(session, view, tried)?;
    let (first, others) = match way {
        Way::Known(known) => (known, others),
        Way::Chosen(next_hop) => {
            let (endpoint, others) =
                settle(session, view, tried, *next_hop, others, host()).await?;
            (Rc::new(endpoint.into()), others)
        }
    };
    let is_last = others <= tried.endpoints.len();
    let Some(protocol) = protocol.filter(|_| !is_last) else {
        return Ok(first);
    };
    let second = match draw(session, view, tried).map(|drawn| drawn.way) {
        Ok(Way::Known(known)) => known,
        Ok(Way::Chosen(next_hop)) if !matches!(*next_hop, NextHop::Resolve(_)) => {
            Rc::new(Endpoint::of(*next_hop).into())
        }
        // The one that is reached takes the request.
        Ok(Way::Chosen(_)) | Err(_) => return Ok(first),
    };
    let outstanding = |known: &KnownEndpoint| {
        let upstream = session.waypoint.upstream(known, protocol);
        upstream.outstanding()
    };
    Ok(match outstanding(&second) < outstanding(&first) {
        true => second,
        false => first,
    })
}

/// Draws one of the endpoints.
fn draw(session: &Session, view: &View, tried: &Tried) -> Result<Drawn, NoEndpoint> {
    let worker = &session.waypoint.worker;
    let of_service = session.service_view(view);
    let avoid = |workload: &Workload| tried.has(workload);
    let random = |below| worker.random_below(below);
    if tried.is_over {
        return Err(NoEndpoint::Tried);
    }
    match of_service.and_then(|service| service.draw(view, avoid, random)) {
        Some(drawn) => Ok(drawn?),
        None => look_up(session, view, tried),
    }
}

/// Draws an endpoint of a destination that is looked up for each request: a workload, and a service without endpoints.
fn look_up(session: &Session, view: &View, tried: &Tried) -> Result<Drawn, NoEndpoint> {
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
        false => Ok(choice.into()),
    }
}

/// Finds the address of an endpoint that is known by hostname; it may lead to a service whose endpoint is, too. `others` is the number
/// of other endpoints, which is returned for those of the service at the end.
async fn settle(
    session: &Session,
    view: &View,
    tried: &Tried,
    mut next_hop: NextHop,
    mut others: usize,
    host: Option<&str>,
) -> Result<(Endpoint, usize), NoEndpoint> {
    let View { snapshot, own, .. } = view;
    let waypoint = &session.waypoint;
    let avoid = |workload: &Workload| tried.has(workload);
    // The addresses of the last name that are still to be tried.
    let mut answers: Vec<IpAddr> = Vec::new();
    loop {
        let resolve = match next_hop {
            NextHop::Resolve(resolve) => resolve,
            next_hop => return Ok((Endpoint::of(next_hop).found_among(&answers), others)),
        };
        // The addresses of one host are taken one at a time, and its connections are shared.
        let first = &mut |_| 0;
        if resolve.is_wildcard() {
            let host = host.ok_or_else(|| NoEndpoint::NoHost(resolve.hostname.clone()))?;
            resolve.admit(snapshot, host)?;
            let client = session.tunnel.peer.identity();
            let mut answers = waypoint.names.of_host(client, host).await?;
            tried.leave_untried(&resolve.workload, &mut answers)?;
            let address = picked(&resolve, host, &answers, first)?;
            let choice = resolve.to_host(snapshot, own, (host, address), &avoid)?;
            let endpoint = Endpoint::of(choice.next_hop).of_host(host.into());
            return Ok((endpoint, others));
        }
        let service = resolve.service.as_ref();
        let is_round_robin = service.is_some_and(|service| service.is_round_robin);
        let hostname = &resolve.hostname;
        let nameless = |error| NoEndpoint::EndpointName {
            endpoint: resolve.workload.uid.clone(),
            error,
        };
        tried.look_up();
        answers = waypoint
            .names
            .of_endpoint(hostname)
            .await
            .map_err(nameless)?;
        let refused = |refusal| NoEndpoint::RefusedBehind {
            endpoint: resolve.workload.uid.clone(),
            refusal,
        };
        admit(&resolve, own, &mut answers).map_err(refused)?;
        tried.leave_untried(&resolve.workload, &mut answers)?;
        let random = &mut |n| waypoint.worker.random_below(n);
        let mut why = None;
        let choice = loop {
            let address = match is_round_robin {
                true => picked(&resolve, hostname, &answers, first),
                false => picked(&resolve, hostname, &answers, random),
            }
            .map_err(nameless)?;
            match resolve.at(snapshot, own, address, &avoid, random) {
                Ok(choice) if !choice.avoided => break choice,
                Ok(_) => {}
                Err(refusal) => _ = why.get_or_insert(refusal),
            }
            answers.retain(|answer| answer.to_canonical() != address);
            if answers.is_empty() {
                let tried = || NoEndpoint::TriedBehind {
                    endpoint: resolve.workload.uid.clone(),
                };
                return Err(why.map_or_else(tried, refused));
            }
        };
        if is_round_robin && matches!(choice.next_hop, NextHop::Plain { .. }) {
            let endpoint = Endpoint::of(choice.next_hop).of_host(hostname.clone());
            return Ok((endpoint, others));
        }
        (next_hop, others) = (choice.next_hop, choice.others);
    }
}

/// Leaves out the addresses of a name that the waypoint does not dial.
///
/// # Errors
/// It dials none of them.
fn admit(
    resolve: &Resolve,
    own: &Workload,
    answers: &mut Vec<IpAddr>,
) -> Result<(), next_hop::Refusal> {
    let mut refused = None;
    answers.retain(|address| match resolve.admit_address(own, *address) {
        Ok(()) => true,
        Err(refusal) => {
            refused = Some(refusal);
            false
        }
    });
    match refused {
        Some(refusal) if answers.is_empty() => Err(refusal),
        _ => Ok(()),
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
