//! Hand-over of a connection between two pods of this process. It takes the steps of a tunnel's far end at once, in the same
//! order, and gives their result to the near end.

use std::rc::Rc;
use std::time::Instant;

use lateen_accept::Held;
use lateen_config::Workload;
use lateen_config::next_hop::{Authority, Tunnel, Via};
use lateen_hbone::{ConnectError, Status, TraceParent};
use lateen_relay::Socket;
use lateen_types::ports;
use tokio::net::TcpStream;
use tokio::time::timeout_at;

use super::proof::find;
use crate::node::arrival::{Arrival, finish};
use crate::node::describe::baggage;
use crate::node::dial::DialError;
use crate::node::inbound::{self, Request};
use crate::node::pairs::Use;
use crate::node::refusal::Refusal;
use crate::node::relaying::Records;
use crate::node::state::Node;
use crate::node::tunnel::key;

/// A connection that has arrived at the other pod.
pub(in crate::node) struct Near {
    application: TcpStream,
    /// As its destination knows it.
    records: Records,
    stay: Stay,
}

/// What such a connection holds of its destination, for as long as it lives.
pub(in crate::node) struct Stay {
    _held: Held,
    /// The pair counts this connection as open until it ends.
    pair: Use,
}

impl Near {
    /// The number of the tunnel that it did not take.
    pub(in crate::node) fn number(&self) -> u64 {
        self.stay.pair.number()
    }

    pub(in crate::node) fn parts(self) -> (Socket, Records, Stay) {
        (Socket::from(self.application), self.records, self.stay)
    }
}

impl Stay {
    /// The end, as the destination sees it.
    pub(in crate::node) fn finish(
        self,
        node: &Node,
        records: Records,
        outcome: Result<(), Refusal>,
    ) {
        finish(node, records, outcome);
    }
}

/// Whether the far end of a tunnel may be here. What says so is the control plane, which may be late, or know a pod that
/// another process serves: it decides whether it is worth a try, and a tunnel proves it.
fn may_be_here(tunnel: &Tunnel, source: &Workload, node: &str) -> bool {
    let Tunnel {
        workload,
        hbone,
        authority,
        via,
        ..
    } = tunnel;
    let to_itself = match authority {
        Authority::Address(address) => address.ip() == hbone.ip(),
        Authority::Host { .. } => false,
    };
    // What is in between decides about more than this proxy does.
    matches!(via, Via::Direct)
        && to_itself
        && hbone.port() == ports::HBONE
        && !node.is_empty()
        && *workload.node == *node
        && workload.network == source.network
        && !workload.native_tunnel
}

/// Takes a connection to the other pod, before the deadline; `None` if it has to go through a tunnel.
///
/// # Errors
/// The destination's side refuses it, in the words that it would use across a tunnel; or there is no tunnel.
pub(in crate::node) async fn open(
    node: &Rc<Node>,
    arrival: &Arrival,
    source: &Workload,
    tunnel: &Tunnel,
    context: TraceParent,
    deadline: Instant,
) -> Result<Option<Box<Near>>, Refusal> {
    let Some(same_node) = &node.same_node else {
        return Ok(None);
    };
    if !may_be_here(tunnel, source, &same_node.node) {
        return Ok(None);
    }
    let late = |_| Refusal::Dial(DialError::Timeout(tunnel.hbone));
    let key = key(
        &arrival.pod,
        source,
        tunnel.identities.clone(),
        tunnel.hbone,
    );
    let found = Box::pin(find(node, &arrival.pod, &key));
    let Some(pair) = timeout_at(deadline.into(), found).await.map_err(late)?? else {
        return Ok(None);
    };
    let baggage = baggage(source);
    let request = Request {
        authority: tunnel.authority.to_string(),
        baggage: Some(&baggage),
        service: tunnel.service.as_ref().map(|service| &*service.hostname),
        trace: Some(&context),
        network: None,
    };
    let (ends, number) = (pair.ends(), pair.number());
    let known = match Box::pin(inbound::recognise(node, ends, number, request)).await {
        Ok(known) => known,
        Err(status) => return Err(answered(status)),
    };
    let reach = Box::pin(inbound::reach(node, ends, &known));
    let reached = timeout_at(deadline.into(), reach).await;
    let outcome = match pair.ended(&node.revocations) {
        // While it was looked at, before it could be cut.
        Some(reason) => Ok(Err(Refusal::Cut(reason))),
        None => reached,
    };
    let (outcome, told) = match outcome {
        Ok(Ok(application)) => (Ok(application), None),
        Ok(Err(refusal)) => {
            let status = inbound::answer(&refusal);
            (Err(refusal), Some(answered(status)))
        }
        Err(elapsed) => (Err(Refusal::Cancelled), Some(late(elapsed))),
    };
    let (records, stay) = (
        known.records,
        Stay {
            _held: known.held,
            pair,
        },
    );
    match outcome {
        Ok(application) => {
            node.metrics.handed_over();
            Ok(Some(Box::new(Near {
                application,
                records,
                stay,
            })))
        }
        Err(refusal) => {
            stay.finish(node, records, Err(refusal));
            Err(told.expect("a refusal has an answer"))
        }
    }
}

/// What the source makes of an answer that is no 200.
fn answered(status: Status) -> Refusal {
    Refusal::Connect(Rc::new(ConnectError::Refused {
        status: status.code(),
    }))
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::Arc;

    use lateen_config::Store;
    use lateen_config::next_hop::{NextHop, outbound};
    use lateen_testkit::wds;

    use super::*;

    /// The way from a client on node n1 to a server on it, and its source.
    fn way() -> (Tunnel, Arc<Workload>) {
        let ip = |last| [10, 0, 0, last].into();
        let mut store = Store::new("", Some("n1"));
        for (name, last) in [("client", 1), ("server", 2)] {
            let workload = wds::workload(name, "n1", ip(last));
            let uid = workload.uid.clone();
            let resource = wds::workload_resource(workload);
            store.upsert(&uid, resource).expect("it is ours");
        }
        let snapshot = store.snapshot();
        let source = snapshot.workload("", ip(1)).expect("it is there").clone();
        let to = SocketAddr::new(ip(2), 8080);
        let choice = outbound(&snapshot, &source, to, &|_| false, &mut |_| 0);
        match choice.expect("there is a way").next_hop {
            NextHop::Tunnel(tunnel) => (tunnel, source),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_tunnel_is_tried_only_where_its_end_may_be_here() {
        type Change = fn(&mut Tunnel);
        fn workload(tunnel: &mut Tunnel) -> &mut Workload {
            Arc::make_mut(&mut tunnel.workload)
        }
        let cases: [(&str, &str, Change, bool); 9] = [
            ("two pods of this node", "n1", |_| {}, true),
            ("this is another node", "n2", |_| {}, false),
            ("nobody knows which node this is", "", |_| {}, false),
            (
                "nobody knows where the pod is",
                "",
                |tunnel| workload(tunnel).node = "".into(),
                false,
            ),
            (
                "the pod is on another node",
                "n1",
                |tunnel| workload(tunnel).node = "n2".into(),
                false,
            ),
            (
                "the pod is on another network",
                "n1",
                |tunnel| workload(tunnel).network = "far".into(),
                false,
            ),
            (
                "a waypoint is in between",
                "n1",
                |tunnel| tunnel.via = Via::Waypoint("default/waypoint".into()),
                false,
            ),
            (
                "it asks for another address than it goes to",
                "n1",
                |tunnel| tunnel.authority = SocketAddr::from(([10, 96, 0, 1], 80)).into(),
                false,
            ),
            (
                "the pod ends its tunnels itself",
                "n1",
                |tunnel| workload(tunnel).native_tunnel = true,
                false,
            ),
        ];
        for (what, node, change, expected) in cases {
            let (mut tunnel, source) = way();
            change(&mut tunnel);
            assert_eq!(may_be_here(&tunnel, &source, node), expected, "{what}");
        }
        let (mut tunnel, source) = way();
        tunnel.hbone.set_port(15010);
        assert!(!may_be_here(&tunnel, &source, "n1"), "another tunnel port");
        let (mut tunnel, source) = way();
        tunnel.authority = Authority::Host {
            hostname: "server.default".into(),
            port: 80,
        };
        assert!(!may_be_here(&tunnel, &source, "n1"), "a name");
    }
}
