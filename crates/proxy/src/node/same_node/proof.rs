//! The tunnel that proves a pair of pods of this process. It is opened for the first connection between them and watched while
//! it is of use. When it breaks, the connections that rest on it end.

use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use lateen_hbone::client::{self, Driver};
use lateen_hbone::{self as hbone, Budget, CloseReason, PoolKey, TunnelError};
use lateen_telemetry::Reporter;
use lateen_tls::Session;
use tokio::time::{sleep, timeout};

use crate::counted::Counted;
use crate::local_tunnels::AcceptedEnd;
use crate::node::pairs::{Failure, Look, Pair, Proof, Use};
use crate::node::refusal::Refusal;
use crate::node::state::Node;
use crate::node::tunnel::{Proven, dial_tunnel};
use crate::pod::Pod;

/// Tunnels that are opened for one connection, if each takes no more as soon as it is open.
const ATTEMPTS: usize = 2;

/// Wait between two looks at whether a tunnel is of use, at most.
const LOOK: Duration = Duration::from_secs(30);

/// The pod at the other end of a tunnel of this key, if this process is there; `None` if another one is. Opens the tunnel
/// if there is none; those who want the same wait for one.
///
/// # Errors
/// There is no tunnel, and one for connections would not be there either.
pub(in crate::node) async fn find(
    node: &Rc<Node>,
    pod: &Arc<Pod>,
    key: &PoolKey,
) -> Result<Option<Use>, Refusal> {
    for _ in 0..=ATTEMPTS {
        let proof = match node.pairs.look(key) {
            // What has not been proven lately is asked for again: the network may let the one pod reach the other no more.
            Look::Here(found) => match found.answers().await {
                true => return Ok(Some(found)),
                false => continue,
            },
            Look::Elsewhere => return Ok(None),
            Look::Wait(proof) => proof,
            Look::Open(proof) => {
                let (node, pod) = (Rc::clone(node), Arc::clone(pod));
                let proving = prove(node, pod, key.clone(), Rc::clone(&proof));
                lateen_executor::spawn_local(proving);
                proof
            }
        };
        proof.outcome().await?;
    }
    Ok(None)
}

/// Opens a tunnel, sees where it ends, and keeps it for as long as it is of use.
async fn prove(node: Rc<Node>, pod: Arc<Pod>, key: PoolKey, proof: Rc<Proof>) {
    let pairs = &node.pairs;
    let fail = |failure| pairs.failed(&key, &proof, failure);
    let io = match dial_tunnel(&node, &pod, &key).await {
        Ok(io) => io,
        Err(error) => return fail(Failure::Dial(error)),
    };
    let counted = Counted::already_opened(&node.metrics, Reporter::Source);
    let (tunnel, driver, accepted_end, proven) = match begin(&node, io).await {
        Ok(begun) => begun,
        Err(error) => {
            counted.ended(error.close_reason());
            return fail(Failure::Tunnel(Rc::new(error)));
        }
    };
    let Some(accepted_end) = accepted_end else {
        pairs.elsewhere(&key, &proof);
        tracing::debug!(peer = %key.address, "the far end is another process's; connections go through tunnels");
        drop(tunnel);
        counted.ended(CloseReason::of(&driver.await));
        return;
    };
    let number = node.connections.number_tunnel();
    let pair = Rc::new(Pair::new(key.clone(), accepted_end, proven, number, tunnel));
    if !pairs.found(&proof, &pair) {
        pair.retire();
    }
    let ended = keep(&node, &pair, driver).await;
    let reason = CloseReason::of(&ended);
    counted.ended(reason);
    if let Err(error) = ended {
        tracing::debug!(peer = %key.address, %error, reason = reason.as_str(), "tunnel between two pods of this process ended");
    }
    pairs.remove(&pair);
    pair.lost(&node.revocations, &node.connections);
}

type Begun = (
    hbone::Tunnel,
    Driver<<Proven as hbone::Dialled>::Io>,
    Option<Arc<AcceptedEnd>>,
    Arc<Session>,
);

/// HTTP/2, and the first word of the far end: if that is in this process it is to be met from then on.
async fn begin(node: &Node, io: Proven) -> Result<Begun, TunnelError> {
    let hbone::Budgeted { io, budget, below } = io;
    let (proven, first_word) = (Arc::clone(io.session()), io.first_word());
    let settings = proving(&node.inner, budget);
    let (tunnel, mut driver) = client::handshake(io, settings).await?;
    driver.ask(below);
    let heard = async {
        tokio::select! {
            biased;
            () = first_word.heard() => Ok(()),
            ended = &mut driver => Err(ended.err().unwrap_or_else(gone)),
        }
    };
    match timeout(node.timeouts.peer, heard).await {
        Ok(heard) => heard?,
        Err(_) => {
            return Err(TunnelError::Io(std::io::Error::new(
                std::io::ErrorKind::TimedOut,
                "the far end says nothing",
            )));
        }
    }
    let same_node = node.same_node.as_ref();
    let accepted_end = same_node.and_then(|same_node| same_node.local_tunnels.other_end(&proven));
    Ok((tunnel, driver, accepted_end, proven))
}

/// What a tunnel is opened with that carries nothing.
fn proving(carrying: &hbone::Settings, budget: Budget) -> hbone::Settings {
    hbone::Settings {
        budget,
        // It is of use without any stream; whether it is, is looked at here.
        idle_timeout: None,
        // What rests on it does not cross the network: that the network is cut shows by PINGs alone.
        ping_interval: carrying.probe_after,
        ping_timeout: carrying.ping_timeout / 2,
        ..carrying.clone()
    }
}

fn gone() -> TunnelError {
    TunnelError::Io(std::io::Error::new(
        std::io::ErrorKind::ConnectionAborted,
        "peer closes every new tunnel; it may be shutting down",
    ))
}

/// Drives a tunnel to its end; that comes soon when it has not been of use for long.
async fn keep(
    node: &Node,
    pair: &Pair,
    driver: Driver<<Proven as hbone::Dialled>::Io>,
) -> Result<(), TunnelError> {
    let most = node.pool_idle();
    let mut driver = pin!(driver);
    loop {
        tokio::select! {
            ended = &mut driver => return ended,
            () = sleep((most / 4).clamp(Duration::from_millis(10), LOOK)) => {
                if pair.is_idle(most) {
                    pair.retire();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tunnel_that_carries_nothing_is_asked_more_often_and_waited_for_less_long() {
        let carrying = hbone::Settings::client();
        let proving = proving(&carrying, Budget::default());
        assert_eq!(proving.ping_interval, Duration::from_secs(5));
        assert_eq!(proving.ping_timeout, Duration::from_secs(10));
        assert!(proving.ping_interval < carrying.ping_interval);
        assert!(proving.ping_timeout < carrying.ping_timeout);
        assert_eq!(proving.idle_timeout, None);
    }
}
