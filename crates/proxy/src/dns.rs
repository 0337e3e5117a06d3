//! DNS proxy: one thread of its own for the questions of all pods. Neither the bytes of connections nor the control plane ever
//! wait for a resolver. `lateen-dns` decides what a name means.

mod cache;
mod lookups;
mod own;
mod resolver;
mod resolvers;
mod server;
mod upstream;

#[cfg(test)]
mod tests;

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use lateen_config::Workload;
use lateen_netns::DnsSockets;
use lateen_telemetry::{DnsMetrics, OnDemandDnsLabels, known};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::task::{JoinSet, LocalSet};

pub use own::OwnNames;
pub use resolver::{ResolveError, Resolver};
#[cfg(test)]
pub use resolvers::Resolvers;
pub use resolvers::{File, Origin};
pub use server::Naming;
pub use upstream::Upstream;

use crate::current::Current;
use crate::pod::Pod;
use cache::Cache;
use lookups::{Lookup, Lookups, lock, some};
use server::Common;
use upstream::From;

/// What the thread needs.
#[derive(Debug)]
pub struct Parts {
    /// What is known of the mesh.
    pub current: Current,
    /// Counters.
    pub metrics: DnsMetrics,
    /// How names are understood.
    pub naming: Naming,
    /// The list of resolvers.
    pub resolvers: PathBuf,
    /// The scheduler's slice of the thread; `None` leaves it to the system.
    pub slice: Option<Duration>,
}

enum Message {
    Serve(Arc<Pod>, DnsSockets, server::Stopped),
    Ended(oneshot::Sender<()>),
    Resolve(Lookup),
}

/// The way to the thread; clones share it, and it ends with the last of them.
#[derive(Clone, Debug)]
pub struct Dns {
    inbox: mpsc::UnboundedSender<Message>,
    cache: Arc<Mutex<Cache>>,
    current: Current,
    metrics: DnsMetrics,
}

/// A pod's DNS service. When this is dropped it reads no further question, and ends once all that it has read are answered.
#[derive(Debug)]
pub struct Serving {
    _stop: watch::Sender<()>,
}

impl Dns {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system has no thread or descriptor to give.
    pub fn start(parts: Parts) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (inbox, messages) = mpsc::unbounded_channel();
        let dns = Self {
            inbox,
            cache: Arc::default(),
            current: parts.current.clone(),
            metrics: parts.metrics.clone(),
        };
        let cache = Arc::clone(&dns.cache);
        std::thread::Builder::new()
            .name("dns".to_owned())
            .spawn(move || {
                lateen_os::set_slice(parts.slice);
                LocalSet::new().block_on(&runtime, run(parts, cache, messages));
            })?;
        Ok(dns)
    }

    /// Answers what a pod asks on these sockets.
    pub fn serve(&self, pod: &Arc<Pod>, sockets: DnsSockets) -> Serving {
        let (stop, stopped) = watch::channel(());
        // The thread ends only with the last handle.
        let _ = self
            .inbox
            .send(Message::Serve(Arc::clone(pod), sockets, stopped));
        Serving { _stop: stop }
    }

    /// Resolves once no pod is served any more. Every [`Serving`] must have been dropped.
    pub async fn ended(&self) {
        let (ended, end) = oneshot::channel();
        let _ = self.inbox.send(Message::Ended(ended));
        // The sender is dropped, also by a thread that is no more.
        let _ = end.await;
    }

    /// Forgets what a pod was told.
    pub fn forget(&self, pod: &Pod) {
        self.cache().forget(&pod.uid);
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        lock(&self.cache)
    }
}

#[async_trait]
impl Resolver for Dns {
    async fn resolve(&self, pod: &Pod, hostname: &str) -> Result<Vec<IpAddr>, ResolveError> {
        let hostname = hostname.trim_end_matches('.').to_ascii_lowercase();
        let snapshot = self.current.get();
        let workload = snapshot.as_ref().and_then(|all| pod.workload(all));
        self.metrics.on_demand(&labels(workload, &hostname));
        drop(snapshot);
        let known = self.cache().fresh(&pod.uid, &hostname, Instant::now());
        if let Some(addresses) = known {
            return some(addresses, &hostname);
        }
        let (answer, found) = oneshot::channel();
        let lookup = Lookup {
            from: From::pod(pod),
            pod: pod.uid.clone(),
            hostname: hostname.clone(),
            answer,
        };
        let _ = self.inbox.send(Message::Resolve(lookup));
        found.await.unwrap_or_else(|_| {
            Err(ResolveError::NotAsked {
                hostname,
                reason: "the proxy is stopping".to_owned(),
            })
        })
    }
}

fn labels(workload: Option<&Arc<Workload>>, hostname: &str) -> OnDemandDnsLabels {
    let of = |read: fn(&Workload) -> &str| known(workload.map_or("", |own| read(own)));
    OnDemandDnsLabels {
        source_workload: of(|own| &own.workload_name),
        source_canonical_service: of(|own| &own.canonical_name),
        source_canonical_revision: of(|own| &own.canonical_revision),
        source_workload_namespace: of(|own| &own.namespace),
        source_principal: known(&workload.map_or(String::new(), |own| own.identity.to_string())),
        source_app: of(|own| &own.canonical_name),
        source_version: of(|own| &own.canonical_revision),
        source_cluster: of(|own| &own.cluster_id),
        hostname: known(hostname),
    }
}

async fn run(
    parts: Parts,
    cache: Arc<Mutex<Cache>>,
    mut messages: mpsc::UnboundedReceiver<Message>,
) {
    let ipv6 = parts.naming.ipv6;
    let common = Rc::new(Common {
        current: parts.current,
        upstream: Rc::new(Upstream::new(File::open(&parts.resolvers, Origin::Pods))),
        metrics: parts.metrics,
        questions: Arc::new(Semaphore::new(server::ALL_QUESTIONS)),
        naming: parts.naming,
    });
    let lookups = Rc::new(Lookups {
        upstream: Rc::clone(&common.upstream),
        cache,
        metrics: common.metrics.clone(),
        ipv6,
        waiting: std::cell::RefCell::default(),
    });
    let mut servers = JoinSet::new();
    let mut awaiting_end = Vec::new();
    loop {
        if servers.is_empty() {
            awaiting_end.clear();
        }
        let message = tokio::select! {
            message = messages.recv() => message,
            Some(_) = servers.join_next() => continue,
        };
        match message {
            None => return,
            Some(Message::Serve(pod, sockets, stopped)) => {
                let common = Rc::clone(&common);
                servers.spawn_local(async move {
                    let uid = pod.uid.clone();
                    if let Err(error) = server::serve(pod, sockets, common, stopped).await {
                        tracing::error!(pod = %uid, %error, "serve the pod's DNS questions");
                    }
                });
            }
            Some(Message::Ended(ended)) => awaiting_end.push(ended),
            Some(Message::Resolve(lookup)) => lookups.begin(lookup),
        }
    }
}
