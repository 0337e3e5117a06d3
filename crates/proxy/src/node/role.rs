//! The interface of the node role to a worker: connections by the listener that accepted them, configuration, requests, and the
//! retirement of tunnels.

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::pending;
use std::rc::Rc;
use std::time::SystemTime;

use lateen_accept::Accepted;
use lateen_config::Snapshot;
use lateen_hbone::PoolKey;
use lateen_runtime::{Role, Worker};
use lateen_telemetry::Reporter;
use lateen_types::{Identity, WorkloadUid};
use tokio::net::TcpStream;

use super::arrival::Arrival;
use super::request::{PodUse, Request};
use super::state::{Node, NodeConfig};
use super::{inbound, outbound, plaintext};
use crate::connection_table::Cut;
use crate::pod::{Door, Pod, Port};

impl Role for Node {
    type Config = NodeConfig;
    type Listener = Door;
    type GroupKey = WorkloadUid;
    type Request = Request;

    fn start(config: NodeConfig, worker: Rc<Worker<WorkloadUid>>) -> Self {
        Self::new(config, worker)
    }

    fn group_key(listener: &Door) -> &WorkloadUid {
        &listener.pod.uid
    }

    /// Gives a connection a task of its own, as large as its kind needs.
    fn serve(self: Rc<Self>, accepted: Accepted<Door>) {
        let Accepted {
            stream,
            peer,
            tag,
            load,
        } = accepted;
        let Door { pod, port } = tag;
        let reporter = match port {
            Port::Outbound => Reporter::Source,
            Port::Plaintext | Port::Hbone => Reporter::Destination,
        };
        let counted = Box::new((self.count_socket(reporter), load));
        let stream = match TcpStream::from_std(stream.into()) {
            Ok(stream) => stream,
            Err(error) => {
                tracing::error!(%error, "register an accepted connection with the runtime");
                return;
            }
        };
        let arrival = Arrival {
            pod,
            stream,
            peer,
            _counted: counted,
        };
        match port {
            Port::Outbound => lateen_executor::spawn_local(outbound::serve(self, arrival)),
            Port::Plaintext => lateen_executor::spawn_local(plaintext::serve(self, arrival)),
            Port::Hbone => lateen_executor::spawn_local(inbound::serve(self, arrival)),
        }
    }

    fn installed(&self, before: Option<&Snapshot>, now: &Snapshot) {
        let cut = self.connections.review(now);
        if cut > 0 {
            tracing::info!(connections = cut, "cut by a change of policy");
        }
        if let Some(before) = before {
            self.leave_the_gone(before, now);
        }
    }

    /// An answer is dropped if the one that asked has stopped waiting.
    fn handle(&self, request: Request) {
        match request {
            Request::Released(pod) => self.forget(&pod),
            Request::Gone(pod) => {
                let cut = self.connections.cut_pod(&pod, Cut::Gone);
                if cut > 0 {
                    tracing::info!(pod = %pod.uid, connections = cut, "cut with the pod that has ended");
                }
            }
            Request::Connections(answer) => {
                let _ = answer.send(self.connections.list());
            }
            Request::Ejected(answer) => {
                let _ = answer.send(self.ejections.list());
            }
            Request::Pods(answer) => {
                let _ = answer.send(self.pods());
            }
            Request::Watch(watcher) => self.connections.watch(watcher),
            Request::Cut(reason, answer) => {
                let _ = answer.send(self.connections.cut_all(reason));
            }
            // A connection that was handed over ends with the tunnel that it rests on.
            Request::CutRevoked => {
                self.tunnels.cut_revoked(&self.revocations);
            }
        }
    }

    /// Has tunnels take no more requests when their certificates are replaced or about to run out.
    async fn maintain(self: Rc<Self>) -> Infallible {
        let mut changes = self.certificates.changes();
        loop {
            let generation = |own: &Identity| self.certificates.generation(own);
            let (retired, next) = self.tunnels.retire(SystemTime::now(), generation);
            if !retired.is_empty() {
                self.pool.retire(|key| retired.contains(key));
                self.pairs.retire(|key| retired.contains(key));
            }
            let next = async {
                match next {
                    Some(next) => tokio::time::sleep(next).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                () = next => {}
                () = self.tunnels.opened() => {}
                changed = changes.changed() => {
                    changed.expect("the role itself holds the manager");
                }
            }
        }
    }
}

impl Node {
    fn pods(&self) -> HashMap<WorkloadUid, PodUse> {
        let times = self.worker.times_used();
        let mut pods: HashMap<_, PodUse> = times
            .into_iter()
            .map(|(uid, used)| {
                let totals = Default::default();
                (uid, PodUse { totals, used })
            })
            .collect();
        for (uid, totals) in self.connections.totals() {
            pods.entry(uid).or_default().totals = totals;
        }
        pods
    }

    /// Leaves the tunnels to addresses that belong to another workload now, or to none: the pod at the other end is gone,
    /// and the next owner of its address is a stranger. Connections on such a tunnel may wait for an answer that never
    /// comes, if the pod's network went before its last word. PINGs find out soon.
    fn leave_the_gone(&self, before: &Snapshot, now: &Snapshot) {
        let owner = |snapshot: &Snapshot, address| {
            let workload = snapshot.workload(&self.network, address)?;
            Some(workload.uid.clone())
        };
        let gone = |key: &PoolKey| {
            let address = key.address.ip();
            match owner(before, address) {
                Some(uid) => owner(now, address) != Some(uid),
                None => false,
            }
        };
        self.pairs.retire(gone);
        self.pairs.keep_probing(gone);
        self.pool.retire(gone);
        self.pool.keep_probing(gone);
    }

    /// Closes the tunnels of a pod that was let go, as soon as their streams end.
    fn forget(&self, pod: &Pod) {
        self.worker.forget_group(&pod.uid);
        self.connections.forget(&pod.uid);
        self.ejections.forget(&pod.uid);
        self.pool.retire(|key| key.pod == pod.uid);
        self.pairs.retire(|key| key.pod == pod.uid);
    }
}
