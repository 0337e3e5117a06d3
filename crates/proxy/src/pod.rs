//! A pod that this proxy serves: its workload, its source of sockets, and whether it is leaving.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use lateen_accept::FdQuota;
use lateen_config::{Snapshot, Workload};
use lateen_netns::SocketPool;
use lateen_types::{Identity, WorkloadUid};
use lateen_zds::PodInfo;
use tokio::sync::watch;

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
    leaving: watch::Sender<bool>,
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
            leaving: watch::Sender::new(false),
        }
    }

    /// Sends peers away from the pod's tunnels. The pod is being deleted, or it is released.
    pub fn leave(&self) {
        self.leaving.send_replace(true);
    }

    /// True once the pod is being deleted or was released.
    pub fn is_leaving(&self) -> bool {
        *self.leaving.borrow()
    }

    /// Resolves when the pod is being deleted, or is released.
    pub async fn leaving(&self) {
        // The sender lives as long as `self`.
        let _ = self.leaving.subscribe().wait_for(|is| *is).await;
    }

    /// The workload that the control plane says this pod is; all three names must fit.
    pub fn workload<'a>(&self, snapshot: &'a Snapshot) -> Option<&'a Arc<Workload>> {
        let info = &self.info;
        snapshot.workload_of_pod(&info.namespace, &info.name, &info.service_account)
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
