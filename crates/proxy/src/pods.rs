//! Pods of this node, as the node agent names them over ZDS: added, kept, removed.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lateen_accept::{Acceptor, Registration};
use lateen_admin::Readiness;
use lateen_identity::Manager;
use lateen_listener_store::Event;
use lateen_listener_store::ListenerStore;
use lateen_netns::{Kind, Listeners, NamespaceThread, Netns, Options, SocketPool};
use lateen_telemetry::Metrics;
use lateen_types::{Identity, Strng, WorkloadUid};
use lateen_zds::{self as zds, PodInfo};
use tokio::sync::Notify;
use tokio::task::spawn_local;
use tokio::time::sleep;

use crate::current::Current;
use crate::dns::{Dns, Serving};
use crate::node::{NodeHandle, Request};
use crate::pod::{Door, Pod, Port};
use crate::takeover::{self, Outcome};

/// The readiness part that stands for a complete list of pods.
pub const READY: &str = "workload proxy manager";

/// How long connections of a pod that has ended may take to end in order. What was written before is on its way; what is left
/// then waits for somebody who is gone. Less than agents wait before the pod's network goes (`endedPatience`).
const LAST_WORDS: Duration = Duration::from_millis(500);

/// A pod in service with its open listeners; dropping it closes them.
#[derive(Debug)]
struct Served {
    /// The pod.
    pod: Arc<Pod>,
    /// Its listeners; none while a process that came before still serves them alone.
    doors: Vec<Registration<Door>>,
    /// What answers its DNS questions, if that is done.
    dns: Option<Serving>,
}

/// The largest number of pods that are not in service and that the table notes as being deleted. A node has fewer pods.
const MAX_TERMINATING: usize = 1024;

/// The content of a [`Table`].
#[derive(Debug, Default)]
struct Entries {
    /// Pods in service.
    served: HashMap<WorkloadUid, Served>,
    /// Pods that are being deleted and are not in service yet. The agent tells a process that starts of their deletion before it hands
    /// them over.
    terminating: HashSet<WorkloadUid>,
}

/// The table of pods; clones share it.
#[derive(Clone, Debug, Default)]
pub struct Table(Arc<Mutex<Entries>>);

impl Table {
    /// Every pod in service.
    pub fn pods(&self) -> Vec<Arc<Pod>> {
        self.lock()
            .served
            .values()
            .map(|served| Arc::clone(&served.pod))
            .collect()
    }

    /// Takes every pod out of service: listeners close, connections go on.
    pub fn clear(&self) -> Vec<Arc<Pod>> {
        let served = std::mem::take(&mut self.lock().served);
        served.into_values().map(|served| served.pod).collect()
    }

    /// Takes a pod into service.
    fn insert(&self, served: Served) {
        let mut entries = self.lock();
        let uid = served.pod.uid.clone();
        if entries.terminating.remove(&uid) {
            served.pod.leave();
        }
        entries.served.insert(uid, served);
    }

    /// True if this pod is in service, and not another one of its uid.
    fn holds(&self, pod: &Arc<Pod>) -> bool {
        let entries = self.lock();
        let served = entries.served.get(&pod.uid);
        served.is_some_and(|served| Arc::ptr_eq(&served.pod, pod))
    }

    /// Takes a pod out of service, if it is in service. Nothing else is known of it then.
    fn remove(&self, uid: &WorkloadUid) -> Option<Served> {
        let mut entries = self.lock();
        entries.terminating.remove(uid);
        entries.served.remove(uid)
    }

    /// The pods in service that the agent has not named.
    fn unnamed(&self, named: &HashSet<WorkloadUid>) -> Vec<WorkloadUid> {
        let mut entries = self.lock();
        entries.terminating.retain(|uid| named.contains(uid));
        let all = entries.served.keys();
        all.filter(|uid| !named.contains(*uid)).cloned().collect()
    }

    /// The pod is being deleted. It still has its network.
    fn terminate(&self, uid: &WorkloadUid) {
        let mut entries = self.lock();
        let Some(served) = entries.served.get(uid) else {
            if entries.terminating.len() < MAX_TERMINATING {
                entries.terminating.insert(uid.clone());
            }
            return;
        };
        tracing::info!(pod = %uid, "a pod is being deleted: its tunnels are told to go away");
        served.pod.leave();
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What serving a pod takes.
pub struct Pods {
    /// Where the result is kept.
    pub table: Table,
    /// Told when a pod has joined.
    pub joined: Arc<Notify>,
    /// Holds listeners beyond this process.
    pub listener_store: ListenerStore,
    /// Opens listeners and makes sockets.
    pub namespaces: NamespaceThread,
    /// Accepts for all pods.
    pub acceptor: Arc<Acceptor<Door>>,
    /// What sockets are set up with.
    pub options: Options,
    /// The descriptors that one pod's connections may hold.
    pub descriptors: usize,
    /// Fetches certificates before they are needed.
    pub certificates: Manager,
    /// The trust domain of pods that the control plane has not named yet.
    pub trust_domain: Strng,
    /// Says who a pod is.
    pub current: Current,
    /// Told when a pod is let go.
    pub workers: Vec<NodeHandle>,
    /// Answers pods' DNS questions.
    pub dns: Dns,
    /// Counts pods.
    pub metrics: Arc<Metrics>,
    /// Told when the list is complete, and when the agent is away.
    pub readiness: Readiness,
}

impl Pods {
    async fn serve(&mut self, uid: WorkloadUid, info: PodInfo, netns: Netns) -> Result<(), String> {
        let known = self
            .table
            .lock()
            .served
            .get(&uid)
            .map(|served| served.pod.sockets.netns().id());
        match known {
            Some(id) if id == netns.id() => return Ok(()),
            // The pod's sandbox was made anew.
            Some(_) => self.let_go(&uid),
            None => {}
        }
        let identity = self.identity(&info)?;
        let (mut listeners, served_before) =
            self.listeners(&uid, &netns).await.map_err(|error| {
                format!(
                    "open the listeners of pod {}/{}: {error}",
                    info.namespace, info.name
                )
            })?;
        let sockets = SocketPool::new(netns, self.options, self.namespaces.clone());
        sockets.prepare(Kind::Outbound);
        let pod = Arc::new(Pod::new(
            uid.clone(),
            info,
            identity,
            sockets,
            self.descriptors,
        ));
        let questions = std::mem::take(&mut listeners.dns);
        let (doors, unopened) = if served_before {
            // The process before may still accept: it has certificates, and this process is only fetching them.
            (Vec::new(), Some(listeners))
        } else {
            let opened = open(&self.acceptor, &pod, listeners).map_err(|error| {
                self.listener_store.release(&uid);
                error.to_string()
            })?;
            (opened, None)
        };
        self.certificates.want(&pod.identity);
        tracing::info!(pod = %pod.uid, name = %pod.info.name, namespace = %pod.info.namespace, "pod in service");
        self.metrics.pod_started();
        let dns = (!questions.udp.is_empty()).then(|| self.dns.serve(&pod, questions));
        let served = Arc::clone(&pod);
        self.table.insert(Served {
            pod: served,
            doors,
            dns,
        });
        if let Some(listeners) = unopened {
            self.open_when_able(&pod, listeners);
        }
        self.joined.notify_one();
        Ok(())
    }

    /// Who the pod is: by the control plane, or by its names alone as long as the control plane does not know it.
    fn identity(&self, info: &PodInfo) -> Result<Identity, String> {
        let snapshot = self.current.get();
        let known = snapshot.as_ref().and_then(|snapshot| {
            snapshot.workload_of_pod(&info.namespace, &info.name, &info.service_account)
        });
        match known {
            Some(workload) => Ok(workload.identity.clone()),
            None => Identity::new(&self.trust_domain, &info.namespace, &info.service_account)
                .map_err(|error| error.to_string()),
        }
    }

    /// The pod's listeners: those of the process before, or new ones. True if a process before may still accept the pod's connections.
    async fn listeners(&self, uid: &WorkloadUid, netns: &Netns) -> io::Result<(Listeners, bool)> {
        let held = self.listener_store.take(uid, netns).await;
        let (mut listeners, served_before) = match Listeners::adopt(held, &self.options) {
            Some(listeners) => (listeners, true),
            None => {
                let opened = self.namespaces.open_listeners(netns, self.options);
                let opened = opened.await?;
                let shared = opened.shared;
                (opened, shared)
            }
        };
        if listeners.lacks_dns(&self.options) {
            listeners.dns = self.namespaces.open_dns(netns, self.options).await?;
        }
        match listeners.duplicates() {
            Ok(duplicates) => self.listener_store.give(uid, netns, duplicates),
            Err(error) => {
                tracing::warn!(pod = %uid, %error, "a pod's listeners cannot be kept for the next process");
            }
        }
        Ok((listeners, served_before))
    }

    /// Accepts from listeners as soon as the pod's certificate is there. Until then the process before serves connections. If they wait
    /// in these listeners and nobody serves them, they are accepted nevertheless.
    fn open_when_able(&self, pod: &Arc<Pod>, listeners: Listeners) {
        let (certificates, acceptor) = (self.certificates.clone(), Arc::clone(&self.acceptor));
        let (table, pod) = (self.table.clone(), Arc::clone(pod));
        spawn_local(async move {
            let in_service = || table.holds(&pod);
            let waiting = || listeners.waiting();
            match takeover::may_accept(&certificates, &pod.identity, in_service, waiting).await {
                Outcome::Certified => {
                    if let Err(error) = listeners.take_share() {
                        tracing::warn!(pod = %pod.uid, %error, "new connections go to the process before until it ends");
                    }
                }
                // The process before may be there all the same, and goes on getting new connections then.
                Outcome::Unserved => {
                    tracing::warn!(pod = %pod.uid, "a pod taken over has no certificate yet, and nobody accepts its connections; they are accepted nevertheless");
                }
                Outcome::Released => return,
            }
            let mut table = table.lock();
            let Some(served) = table
                .served
                .get_mut(&pod.uid)
                .filter(|served| Arc::ptr_eq(&served.pod, &pod))
            else {
                // Let go meanwhile.
                return;
            };
            match open(&acceptor, &pod, listeners) {
                Ok(doors) => served.doors = doors,
                Err(error) => {
                    tracing::error!(pod = %pod.uid, %error, "a pod that was taken over cannot be served")
                }
            }
        });
    }

    /// An event of the listener store about a pod.
    pub fn hear(table: &Table, event: &Event) {
        let Event::Terminating(uid) = event;
        table.terminate(uid);
    }

    fn let_go(&mut self, uid: &WorkloadUid) {
        let Some(Served { pod, doors, dns }) = self.table.remove(uid) else {
            return;
        };
        drop((doors, dns));
        self.dns.forget(&pod);
        self.listener_store.release(uid);
        // The agent takes back what is being deleted when nothing runs in it any more.
        let ended = pod.is_leaving();
        pod.leave();
        self.metrics.pod_stopped();
        tracing::info!(pod = %pod.uid, name = %pod.info.name, namespace = %pod.info.namespace, "pod released");
        self.certificates.forget(&pod.identity);
        for worker in &self.workers {
            worker.tell(Request::Released(Arc::clone(&pod)));
        }
        if ended {
            let workers = self.workers.clone();
            spawn_local(async move {
                sleep(LAST_WORDS).await;
                for worker in workers {
                    worker.tell(Request::Gone(Arc::clone(&pod)));
                }
            });
        }
    }
}

/// Accepts for a pod.
fn open(
    acceptor: &Acceptor<Door>,
    pod: &Arc<Pod>,
    listeners: Listeners,
) -> io::Result<Vec<Registration<Door>>> {
    let listeners = [
        (listeners.outbound, Port::Outbound),
        (listeners.plaintext, Port::Plaintext),
        (listeners.hbone, Port::Hbone),
    ];
    let open = |(listener, port): (OwnedFd, Port)| {
        let door = Door {
            pod: Arc::clone(pod),
            port,
        };
        acceptor.register(listener, door, &pod.share, port.descriptors())
    };
    listeners.into_iter().map(open).collect()
}

impl zds::Pods for Pods {
    async fn add(&mut self, uid: WorkloadUid, info: PodInfo, netns: Netns) -> Result<(), String> {
        let outcome = self.serve(uid.clone(), info, netns).await;
        if let Err(error) = &outcome {
            tracing::warn!(pod = %uid, %error, "a pod cannot be served; the node agent will ask again");
        }
        outcome
    }

    fn keep(&mut self, uid: &WorkloadUid) -> Result<(), String> {
        if self.table.lock().served.contains_key(uid) {
            return Ok(());
        }
        Err(format!(
            "pod {uid} is not served by this proxy; add it with its network namespace"
        ))
    }

    fn delete(&mut self, uid: &WorkloadUid) {
        self.let_go(uid);
    }

    fn retain(&mut self, named: &HashSet<WorkloadUid>) {
        for uid in self.table.unnamed(named) {
            self.let_go(&uid);
        }
        self.readiness.reached(READY);
    }

    fn disconnected(&mut self) {
        self.readiness.lost(READY);
    }
}

#[cfg(test)]
mod tests;
