//! Attempts to reach a next hop for one connection: choose an endpoint, connect, and choose another one if the endpoint is at
//! fault. No byte of the application has left this proxy yet, so none can arrive twice.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use lateen_config::next_hop::{self, Choice, NextHop, Via};
use lateen_config::{Snapshot, Workload};
use lateen_hbone::{RetryBudget, Stream};
use lateen_telemetry::{Connection, Metrics, Opening, Trace};
use lateen_types::WorkloadUid;
use tokio::net::TcpStream;

use super::arrival::{Arrival, ending};
use super::describe::{Outbound, claimed};
use super::dial::dial;
use super::ejection::Census;
use super::refusal::Refusal;
use super::relaying::Records;
use super::same_node::handover::{self, Near};
use super::state::Node;
use super::tunnel::{self, Opened};
use crate::connection_table::{Ending, Fault, Outgoing, Tracked};
use crate::pod::Pod;
use std::net::SocketAddr;

/// Endpoints that are tried for one connection.
const ATTEMPTS: usize = 3;

/// Names that are asked for on behalf of one connection.
const LOOKUPS: usize = 8;

/// A connection whose source is known.
pub(super) struct Wanted {
    pub(super) start: Instant,
    pub(super) destination: SocketAddr,
    pub(super) snapshot: Arc<Snapshot>,
    pub(super) source: Arc<Workload>,
}

/// The next hop, ready for bytes.
pub(super) enum Next {
    Tunnel(Stream),
    Plain(TcpStream),
    /// The application itself, in a pod of this process.
    Near(Box<Near>),
}

/// How it went.
pub(super) enum Reached {
    /// Somebody is there.
    Yes(Next, Records),
    /// There is a way, and nobody at its end.
    No(Refusal, Records),
    /// There is no way.
    Nowhere(Refusal),
}

/// Goes to a next hop; to others, as long as an endpoint is at fault, another one is there, and there is time.
pub(super) async fn reach(node: &Rc<Node>, arrival: &Arrival, mut wanted: Wanted) -> Reached {
    // A dial, a handshake and the peer's own dial, each bounded; a peer that answers nothing else bounds none of them.
    let deadline = Instant::now() + 3 * node.timeouts.peer;
    let mut tried: Vec<Tried> = Vec::new();
    let mut attempts = 0;
    let retry_budget = RetryBudget::default();
    let mut choice = match first(node, arrival, &mut wanted).await {
        Ok(choice) => choice,
        Err(why) => return Reached::Nowhere(why),
    };
    loop {
        attempts += 1;
        // The endpoint that was picked of what the client addressed.
        let picked = choice.behind.clone().or_else(|| hop_of(&choice));
        let resolved = settle(node, arrival, &mut wanted, &mut choice, &tried).await;
        let hop = hop_of(&choice);
        let behind = picked.filter(|picked| hop.as_ref() != Some(picked));
        let others = choice.others;
        let limits = (&retry_budget, deadline);
        let (outcome, underway) =
            go(node, arrival, &wanted, choice.next_hop, resolved, limits).await;
        let port = wanted.destination.port();
        let refusal = match outcome {
            Ok(next) => {
                for reached in hop.iter().chain(&behind) {
                    node.ejections.succeeded(&arrival.pod, reached, port);
                }
                return Reached::Yes(next, underway.open());
            }
            Err(refusal) => refusal,
        };
        let Some(hop) = hop.filter(|_| refusal.blames_endpoint()) else {
            return Reached::No(refusal.after(attempts), underway.open());
        };
        if let Some(failed) = note(&mut tried, hop, behind, others) {
            let census = census(node, &arrival.pod, &wanted);
            node.ejections.failed(&arrival.pod, &failed, port, &census);
        }
        let next = (attempts < ATTEMPTS && retry_budget.may_repeat() && Instant::now() < deadline)
            .then(|| choose(node, &arrival.pod, &wanted, &tried).ok())
            .flatten()
            .filter(|next| !next.avoided);
        match next {
            Some(next) => choice = next,
            None => return Reached::No(refusal.after(attempts), underway.open()),
        }
        tracing::debug!(%refusal, tried = attempts, "trying another endpoint");
        node.metrics.connect_retried();
        underway.forget(&refusal);
    }
}

/// A workload that failed.
struct Tried {
    workload: WorkloadUid,
    /// The endpoint that led to it, where that is another.
    behind: Option<WorkloadUid>,
}

fn was_tried(tried: &[Tried], workload: &Workload) -> bool {
    tried.iter().any(|one| one.workload == workload.uid)
}

/// Notes a next hop that failed, and the endpoint that led to it where that is another. Returns the endpoint that failed by
/// it: one that is a service fails when all that it leads to have, `others` and this one. What else was tried, such as its
/// siblings, is of no account.
fn note(
    tried: &mut Vec<Tried>,
    hop: WorkloadUid,
    behind: Option<WorkloadUid>,
    others: usize,
) -> Option<WorkloadUid> {
    tried.push(Tried {
        workload: hop.clone(),
        behind: behind.clone(),
    });
    let Some(behind) = behind else {
        return Some(hop);
    };
    let led = tried
        .iter()
        .filter(|one| one.behind.as_ref() == Some(&behind));
    if led.count() <= others {
        return None;
    }
    tried.push(Tried {
        workload: behind.clone(),
        behind: None,
    });
    Some(behind)
}

fn hop_of(choice: &Choice) -> Option<WorkloadUid> {
    choice
        .next_hop
        .workload()
        .map(|workload| workload.uid.clone())
}

/// The first choice. What is not known yet is asked for where resources are sent on demand, and waited for: nothing may
/// be concluded before the answer is there.
async fn first(node: &Node, arrival: &Arrival, wanted: &mut Wanted) -> Result<Choice, Refusal> {
    // A service, its waypoint, its gateway: each is known by the one before.
    for _ in 0..LOOKUPS {
        match (choose(node, &arrival.pod, wanted, &[]), &node.lookups) {
            (Err(next_hop::Refusal::Unknown(want)), Some(lookups)) => {
                lookups.ask(&arrival.pod.uid, &want).await?;
                (wanted.snapshot, wanted.source) = node.workload_of(&arrival.pod).await?;
            }
            (choice, _) => return Ok(choice?),
        }
    }
    Ok(choose(node, &arrival.pod, wanted, &[])?)
}

/// The next hop: none that was tried, and none that is left out as long as there are others. At least half of the
/// endpoints are always there to be chosen.
fn choose(
    node: &Node,
    pod: &Pod,
    wanted: &Wanted,
    tried: &[Tried],
) -> Result<Choice, next_hop::Refusal> {
    let port = wanted.destination.port();
    let was_tried = |workload: &Workload| was_tried(tried, workload);
    if node.ejections.any(pod) {
        let census = census(node, pod, wanted);
        if census.out() * 2 <= census.total() {
            let choice = outbound(node, wanted, &|workload| {
                was_tried(workload) || node.ejections.is_out(pod, workload, port)
            })?;
            if !choice.avoided {
                return Ok(choice);
            }
        }
    }
    outbound(node, wanted, &was_tried)
}

/// Who could be chosen, and who of them is left out.
fn census(node: &Node, pod: &Pod, wanted: &Wanted) -> Census {
    let census = Census::default();
    let port = wanted.destination.port();
    // Everybody is avoided, so that everybody is looked at. What is chosen does not matter.
    let _ = outbound(node, wanted, &|workload| {
        census.note(workload, node.ejections.is_out(pod, workload, port));
        true
    });
    census
}

fn outbound(
    node: &Node,
    wanted: &Wanted,
    avoid: &dyn Fn(&Workload) -> bool,
) -> Result<Choice, next_hop::Refusal> {
    let Wanted {
        destination,
        snapshot,
        source,
        ..
    } = wanted;
    next_hop::outbound(snapshot, source, *destination, avoid, &mut |n| {
        node.worker.random_below(n)
    })
}

/// An attempt's place in tables, and how it will be counted if it is the last one.
struct Underway {
    opening: Option<Box<Opening>>,
    metrics: Arc<Metrics>,
    tracked: Option<Tracked>,
}

impl Underway {
    fn open(mut self) -> Records {
        let opening = self.opening.take().expect("an attempt is opened once");
        Records {
            connection: Box::new(Connection::open(&self.metrics, *opening)),
            tracked: self.tracked.take().expect("an attempt is opened once"),
        }
    }

    /// Another endpoint is tried. Watchers hear that this attempt did not end well; no counter does.
    fn forget(mut self, why: &Refusal) {
        self.opening = None;
        let ending = || Ending {
            fault: Fault::Retried,
            ..ending(why)
        };
        if let Some(tracked) = self.tracked.take() {
            tracked.leave(Some((Fault::Retried, ending)));
        }
    }
}

impl Drop for Underway {
    fn drop(&mut self) {
        // Ended with its node: the connection reports itself as cut.
        if let Some(opening) = self.opening.take() {
            drop(Connection::open(&self.metrics, *opening));
        }
    }
}

/// Goes to one next hop, before the deadline.
async fn go(
    node: &Rc<Node>,
    arrival: &Arrival,
    wanted: &Wanted,
    next_hop: NextHop,
    resolved: Result<(), Refusal>,
    (retry_budget, deadline): (&RetryBudget, Instant),
) -> (Result<Next, Refusal>, Underway) {
    let (context, trace) = node.sampler.begin();
    let mut underway = begin(node, arrival, wanted, &next_hop, trace);
    if let Err(why) = resolved {
        return (Err(why), underway);
    }
    let outcome = match next_hop {
        NextHop::Tunnel(tunnel) => {
            match handover::open(node, arrival, &wanted.source, &tunnel, context, deadline).await {
                Ok(Some(near)) => {
                    if let Some(tracked) = &underway.tracked {
                        tracked.through(near.number());
                    }
                    return (Ok(Next::Near(near)), underway);
                }
                Ok(None) => {}
                Err(refusal) => return (Err(refusal), underway),
            }
            let waypoint = match &tunnel.via {
                Via::Waypoint(reference) => Some(reference.clone()),
                Via::Direct | Via::Gateway(_) => None,
            };
            let asked = tunnel::Asked {
                tunnel,
                context,
                retry_budget,
            };
            match tunnel::open(node, arrival, &wanted.source, asked, deadline).await {
                Ok(Opened {
                    stream,
                    tunnel,
                    far_end,
                }) => {
                    if let Some(tracked) = &underway.tracked {
                        tracked.through(tunnel);
                    }
                    if let (Some(far_end), Some(opening)) = (far_end, &mut underway.opening) {
                        let baggage = far_end.baggage.as_ref();
                        let party = claimed(baggage, Some(far_end.identity));
                        opening.labels.destination = node.metrics.claims().admit(party);
                        opening.destination_name = opening.labels.destination.workload.clone();
                    }
                    Ok(Next::Tunnel(stream))
                }
                Err(refusal) => Err(refusal.on_the_way(waypoint)),
            }
        }
        NextHop::Plain { target, .. } | NextHop::Passthrough { target, .. } => {
            let limit = deadline
                .saturating_duration_since(Instant::now())
                .min(node.timeouts.peer);
            match dial(&arrival.pod.sockets, None, target, limit).await {
                Ok(stream) => Ok(Next::Plain(stream)),
                Err(error) => Err(error.into()),
            }
        }
        NextHop::Resolve(resolve) => Err(Refusal::NoAddress(resolve.hostname)),
    };
    (outcome, underway)
}

/// Finds where a next hop is that is known by hostname; that may be a service whose endpoint is known by hostname in its
/// turn, and so on. On an error the choice is left at the hostname that leads nowhere.
async fn settle(
    node: &Node,
    arrival: &Arrival,
    wanted: &mut Wanted,
    choice: &mut Choice,
    tried: &[Tried],
) -> Result<(), Refusal> {
    let port = wanted.destination.port();
    // Routing ends circles and long chains of names; each name may need something of the control plane.
    while let NextHop::Resolve(resolve) = &choice.next_hop {
        let answers = node
            .resolver
            .resolve(&arrival.pod, &resolve.hostname)
            .await?;
        let address = resolve
            .pick(&answers, &mut |n| node.worker.random_below(n))
            .ok_or_else(|| Refusal::NoAddress(Arc::clone(&resolve.hostname)))?;
        let mut lookups = 0;
        let found = loop {
            let avoid = |workload: &Workload| {
                was_tried(tried, workload) || node.ejections.is_out(&arrival.pod, workload, port)
            };
            let random = &mut |n| node.worker.random_below(n);
            let found = resolve.at(&wanted.snapshot, &wanted.source, address, &avoid, random);
            match (found, &node.lookups) {
                (Err(next_hop::Refusal::Unknown(want)), Some(asked)) if lookups < LOOKUPS => {
                    lookups += 1;
                    asked.ask(&arrival.pod.uid, &want).await?;
                    (wanted.snapshot, wanted.source) = node.workload_of(&arrival.pod).await?;
                }
                (found, _) => break found?,
            }
        };
        *choice = found;
    }
    Ok(())
}

/// Enters an attempt into the tables.
fn begin(
    node: &Node,
    arrival: &Arrival,
    wanted: &Wanted,
    next_hop: &NextHop,
    trace: Trace,
) -> Underway {
    let (address, hbone) = match next_hop {
        NextHop::Tunnel(tunnel) => (tunnel.hbone, Some(tunnel.authority.to_string())),
        NextHop::Plain { target, .. } | NextHop::Passthrough { target, .. } => (*target, None),
        NextHop::Resolve(_) => (wanted.destination, None),
    };
    let outgoing = Outgoing {
        pod: Arc::clone(&arrival.pod),
        source: arrival.peer,
        wanted: wanted.destination,
        hop: address,
        tunnelled: hbone.is_some(),
    };
    // The request carries the span's number: the peer's proxy lists the connection under it, too.
    let pair = if hbone.is_some() { trace.span } else { 0 };
    let tracked = node.connections.depart(outgoing, pair);
    let opening = Outbound {
        start: wanted.start,
        client: arrival.peer,
        source: &wanted.source,
        destination: next_hop.workload().map(AsRef::as_ref),
        service: next_hop.service().map(AsRef::as_ref),
        address,
        hbone,
        trace: Some(trace),
    }
    .opening();
    Underway {
        opening: Some(Box::new(opening)),
        metrics: Arc::clone(&node.metrics),
        tracked: Some(tracked),
    }
}

#[cfg(test)]
mod tests {
    use lateen_types::WorkloadUid;

    use super::note;

    #[test]
    fn an_endpoint_fails_when_all_that_it_leads_to_have_whatever_became_of_its_siblings() {
        let uid = |name: &str| WorkloadUid(name.into());
        let mut tried = Vec::new();
        // Two dead siblings come first, one a pod of the mesh by its address; the third is a service of three.
        for (workload, behind, others, failed) in [
            ("a", None, 2, Some("a")),
            ("pod", Some("b"), 0, Some("b")),
            ("c1", Some("c"), 2, None),
            ("c2", Some("c"), 2, None),
            ("c3", Some("c"), 2, Some("c")),
        ] {
            let got = note(&mut tried, uid(workload), behind.map(uid), others);
            assert_eq!(got, failed.map(uid), "{workload}");
        }
    }
}
