//! A pod that this proxy serves: whose it is, where its sockets come from, and whether it was released.

use std::sync::Arc;

use lateen_capture::zds::PodInfo;
use lateen_capture::{Registration, Share, Stock};
use lateen_config::{Snapshot, Workload};
use lateen_types::{Identity, WorkloadUid};
use tokio::sync::watch;

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
    pub sockets: Arc<Stock>,
    /// The descriptors that its connections may hold.
    pub share: Arc<Share>,
    released: watch::Sender<bool>,
}

impl Pod {
    /// A pod in service whose connections may hold `descriptors`.
    pub fn new(
        uid: WorkloadUid,
        info: PodInfo,
        identity: Identity,
        sockets: Arc<Stock>,
        descriptors: usize,
    ) -> Self {
        Self {
            share: Share::new(format!("{}/{}", info.namespace, info.name), descriptors),
            uid,
            info,
            identity,
            sockets,
            released: watch::Sender::new(false),
        }
    }

    /// No new connections from now on; tunnels to the pod are told to go away.
    pub fn release(&self) {
        self.released.send_replace(true);
    }

    /// The workload that the control plane says this pod is; all three names must fit.
    pub fn workload<'a>(&self, snapshot: &'a Snapshot) -> Option<&'a Arc<Workload>> {
        let info = &self.info;
        snapshot.workload_of_pod(&info.namespace, &info.name, &info.service_account)
    }

    /// Resolves when the pod is released.
    pub async fn released(&self) {
        // The sender lives as long as `self`.
        let _ = self
            .released
            .subscribe()
            .wait_for(|released| *released)
            .await;
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
    /// itself alone, its requests count theirs.
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

/// A pod in service with its open listeners; dropping it closes them.
#[derive(Debug)]
pub struct Served {
    /// The pod.
    pub pod: Arc<Pod>,
    /// The three listeners.
    pub doors: [Registration<Door>; 3],
}
