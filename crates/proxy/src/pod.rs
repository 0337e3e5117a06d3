//! A pod that this proxy serves: its workload, its source of sockets, and whether it was released.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use lateen_accept::FdQuota;
use lateen_config::{Snapshot, Workload};
use lateen_netns::SocketPool;
use lateen_types::{Identity, WorkloadUid};
use lateen_zds::PodInfo;
use tokio::sync::watch;

/// How far a pod is with its life here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Serving,
    Terminating,
    Released,
}

/// The DNS resolver that answered a pod last: a resolver that is down is not waited for again and again. Each pod has its own,
/// since one pod's network policy may forbid a resolver that another pod reaches.
#[derive(Clone, Debug, Default)]
pub struct LastResolver(Arc<Mutex<Option<SocketAddr>>>);

impl LastResolver {
    /// `None` if no resolver has answered yet.
    pub fn get(&self) -> Option<SocketAddr> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the resolver that has answered.
    pub fn set(&self, server: SocketAddr) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(server);
    }
}

/// One captured pod. Connections keep it alive beyond its release.
#[derive(Debug)]
pub struct Pod {
    /// What the node agent calls it.
    pub uid: WorkloadUid,
    /// Name, namespace and service account.
    pub info: PodInfo,
    /// The identity that these names make; its certificate is fetched before it is needed.
    pub identity: Identity,
    /// Prepared sockets in its network namespace.
    pub sockets: Arc<SocketPool>,
    /// The descriptors that its connections may hold.
    pub share: Arc<FdQuota>,
    /// The resolver that answered it last.
    pub last_resolver: LastResolver,
    stage: watch::Sender<Stage>,
}

impl Pod {
    /// A pod in service whose connections may hold `descriptors`.
    pub fn new(
        uid: WorkloadUid,
        info: PodInfo,
        identity: Identity,
        sockets: Arc<SocketPool>,
        descriptors: usize,
    ) -> Self {
        Self {
            share: FdQuota::new(format!("{}/{}", info.namespace, info.name), descriptors),
            uid,
            info,
            identity,
            sockets,
            last_resolver: LastResolver::default(),
            stage: watch::Sender::new(Stage::Serving),
        }
    }

    /// No new connections from now on; tunnels to the pod are told to go away.
    pub fn release(&self) {
        self.stage.send_replace(Stage::Released);
    }

    /// The pod is being deleted: peers are to leave its tunnels before its network is gone. It is served until then.
    pub fn terminate(&self) {
        self.stage.send_if_modified(|stage| {
            std::mem::replace(stage, (*stage).max(Stage::Terminating)) != *stage
        });
    }

    /// Whether the pod is being deleted, or is gone.
    pub fn is_leaving(&self) -> bool {
        *self.stage.borrow() != Stage::Serving
    }

    /// Resolves when the pod is being deleted, or is released.
    pub async fn leaving(&self) {
        self.reached(Stage::Terminating).await;
    }

    /// The workload that the control plane says this pod is; all three names must fit.
    pub fn workload<'a>(&self, snapshot: &'a Snapshot) -> Option<&'a Arc<Workload>> {
        let info = &self.info;
        snapshot.workload_of_pod(&info.namespace, &info.name, &info.service_account)
    }

    /// Resolves when the pod is released.
    pub async fn released(&self) {
        self.reached(Stage::Released).await;
    }

    async fn reached(&self, stage: Stage) {
        // The sender lives as long as `self`.
        let _ = self.stage.subscribe().wait_for(|now| *now >= stage).await;
    }
}

/// Through which of a pod's three listeners a connection came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    /// 15001.
    Outbound,
    /// 15006.
    Plaintext,
    /// 15008.
    Hbone,
}

impl Port {
    /// Descriptors that a connection through this listener needs: its own and that of the next hop. A tunnel counts
    /// itself alone, its requests count theirs; one that we open counts when it is dialled.
    pub fn descriptors(self) -> u32 {
        match self {
            Self::Outbound | Self::Plaintext => 2,
            Self::Hbone => 1,
        }
    }
}

/// A listener, as the acceptor labels the connections that came through it.
#[derive(Clone, Debug)]
pub struct Door {
    /// Whose listener it is.
    pub pod: Arc<Pod>,
    /// Which one.
    pub port: Port,
}
