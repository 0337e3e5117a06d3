//! The control thread, from the first pod to the last connection: it follows the configuration and the agent, serves the pages
//! for operators, and drains.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use lateen_accept::Acceptor;
use lateen_admin::{Admin, Both, MetricsPages, Readiness, ReadinessPages};
use lateen_config::{Store, resource_kinds};
use lateen_identity::Manager;
use lateen_listener_store::Event;
use lateen_listener_store::ListenerStore;
use lateen_netns::NamespaceThread;
use lateen_telemetry::Metrics;
use lateen_tls::Rules;
use lateen_xds::Asks;
use lateen_zds as zds;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};

use super::error::StartError;
use super::pages::{deadline as asked_deadline, page};
use super::process;
use super::source::{node_of, source};
use crate::certified;
use crate::connection_table::Cut;
use crate::connections::Connections;
use crate::current::Current;
use crate::dns::Dns;
use crate::dump::Sources;
use crate::node::{NodeHandle, Request};
use crate::notify::Starter;
use crate::pod::Door;
use crate::pods::{Pods, Table};
use crate::publish::{Publisher, Watcher};
use crate::settings::Settings;

/// How often the end looks whether the last connection is gone.
const DRAIN_LOOK: Duration = Duration::from_millis(50);

/// How often somebody looks whether the proxy is ready.
const READY_LOOK: Duration = Duration::from_millis(10);

/// How often pods' pools of sockets are looked at for what nobody needs.
const TIDY_LOOK: Duration = Duration::from_secs(60);

/// After the proxy is ready, and after a pod has joined: what was used for that is not used again soon.
const STARTED: Duration = Duration::from_secs(3);

/// What connections have to write their log lines once they are cut.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// What the control thread holds.
pub(super) struct Control {
    pub(super) settings: Settings,
    pub(super) namespaces: NamespaceThread,
    pub(super) descriptors: usize,
    pub(super) acceptor: Arc<Acceptor<Door>>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) manager: Manager,
    pub(super) rules: Rules,
    pub(super) workers: Vec<NodeHandle>,
    pub(super) current: Current,
    pub(super) dns: Dns,
    pub(super) readiness: Readiness,
    pub(super) table: Table,
    pub(super) listener_store: ListenerStore,
    pub(super) starter: Starter,
}

impl Control {
    pub(super) async fn run(
        self,
        mut events: mpsc::UnboundedReceiver<Event>,
        asks: Asks,
    ) -> Result<(), StartError> {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let (quit, mut asked) = watch::channel(None);
        let current = self.current.clone();
        let pages = self.open_pages(&current, quit);
        self.watch_certificates();

        let (synced, mut complete) = watch::channel(false);
        let mut xds = self.configuration(current.clone(), synced, asks)?;
        let joined = Arc::new(Notify::new());
        let serve_pods = async {
            // Pods come second: a connection that nothing is known about could only be refused.
            if complete.wait_for(|complete| *complete).await.is_ok() {
                zds::run(
                    &self.settings.zds_socket,
                    &mut self.pods(current, Arc::clone(&joined)),
                )
                .await;
            }
        };
        let hear = async {
            while let Some(event) = events.recv().await {
                Pods::hear(&self.table, &event);
            }
        };
        let announce = async {
            let ready = async {
                self.announce().await;
                release(&joined).await;
            };
            tokio::join!(ready, hear, self.tidy());
            // Nothing is left to tell or to hear, which is no reason to end.
            std::future::pending().await
        };
        tokio::select! {
            never = &mut xds => match never {},
            () = serve_pods => {}
            () = announce => {}
            _ = terminate.recv() => tracing::info!("SIGTERM: draining"),
            _ = interrupt.recv() => tracing::info!("SIGINT: draining"),
            _ = asked.changed() => tracing::info!("asked to quit: draining"),
        }
        let deadline = asked
            .borrow()
            .unwrap_or(self.settings.common.termination_deadline);
        let hurry = async {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        };
        // Connections that go on stay subject to what the control plane says.
        tokio::select! {
            never = &mut xds => match never {},
            () = self.drain(pages, deadline, hurry) => {}
        }
        Ok(())
    }

    /// Keeps the revocation lists up to date, and tells how it stands with certificates.
    fn watch_certificates(&self) {
        let workers = self.workers.clone();
        let cut = move || {
            let told = workers.iter();
            told.for_each(|worker| worker.tell(Request::CutRevoked));
        };
        process::watch_certificates(
            &self.settings.common,
            &self.manager,
            &self.rules,
            &self.metrics,
            &self.readiness,
            cut,
        );
    }

    /// Becomes ready, and tells whoever started this process, when it can do all that its predecessor does. Certificates come last: the pods
    /// are known by then.
    async fn announce(&self) {
        self.reached(&[certified::READY]).await;
        let pods = || {
            let pods = self.table.pods();
            pods.iter().map(|pod| pod.identity.clone()).collect()
        };
        certified::all(&self.manager, pods, |text| self.starter.status(text)).await;
        self.readiness.reached(certified::READY);
        // The agent may have gone meanwhile.
        self.reached(&[]).await;
        self.starter.ready();
    }

    /// Waits until every part of readiness is there but these.
    async fn reached(&self, but: &[&str]) {
        let mut said = Vec::new();
        loop {
            let mut pending = self.readiness.pending();
            pending.retain(|part| !but.contains(part));
            if pending.is_empty() {
                return;
            }
            if pending != said {
                self.starter
                    .status(&format!("waiting for {}", pending.join(", ")));
                said = pending;
            }
            sleep(READY_LOOK).await;
        }
    }

    /// Has pods give back, for ever, the sockets that nobody needs.
    async fn tidy(&self) {
        loop {
            sleep(TIDY_LOOK).await;
            let now = Instant::now();
            let closed: usize = self
                .table
                .pods()
                .iter()
                .map(|pod| pod.sockets.tidy(now.into_std()))
                .sum();
            if closed > 0 {
                tracing::debug!(sockets = closed, "sockets of idle pools were closed");
            }
        }
    }

    /// The pages for operators. A process that this one replaces still has their ports; so has a stranger, perhaps. No
    /// connection depends on them: they open when they can.
    fn open_pages(
        &self,
        current: &Current,
        quit: watch::Sender<Option<Duration>>,
    ) -> Vec<AbortHandle> {
        let sources = Arc::new(Sources {
            current: current.clone(),
            pods: self.table.clone(),
            certificates: self.manager.clone(),
            settings: self.settings.clone(),
            workers: self.workers.clone(),
        });
        let default = self.settings.common.termination_deadline;
        let admin = Admin::new(
            move || {
                let sources = Arc::clone(&sources);
                async move { sources.dump().await }
            },
            move |deadline| {
                quit.send_replace(Some(asked_deadline(deadline, default)?));
                Ok(())
            },
        );
        let connections = Arc::new(Connections::new(
            current.clone(),
            self.table.clone(),
            Arc::clone(&self.settings.common.network),
            self.workers.clone(),
        ));
        let asked = Arc::clone(&connections);
        let admin = admin.with_connections(move |question| Arc::clone(&asked).answer(question));
        let settings = &self.settings;
        let measured = Arc::clone(&self.metrics);
        let metrics = MetricsPages::new(Arc::clone(&self.metrics), move || {
            let (connections, metrics) = (Arc::clone(&connections), Arc::clone(&measured));
            async move { connections.measure(&metrics).await }
        });
        let (admin, metrics) = (Arc::new(admin), Arc::new(metrics));
        let readiness = Arc::new(ReadinessPages(self.readiness.clone()));
        let tcp = |address: SocketAddr| move || lateen_admin::bind(address);
        let socket = settings.admin_socket.clone();
        // Whoever asks here hears this proxy and nobody who has taken its ports while it was away.
        let everything = Both(
            Arc::clone(&admin),
            Both(Arc::clone(&metrics), Arc::clone(&readiness)),
        );
        let mut open = vec![
            tokio::spawn(page(tcp(settings.common.stats), metrics)),
            tokio::spawn(page(tcp(settings.common.readiness), readiness)),
            tokio::spawn(async move {
                page(|| lateen_admin::bind_private(&socket), everything).await;
            }),
        ];
        if let Some(address) = settings.admin {
            open.push(tokio::spawn(page(tcp(address), admin)));
        }
        open.iter().map(|task| task.abort_handle()).collect()
    }

    /// Takes configuration in for as long as it is polled: from a document, or from the control plane.
    fn configuration(
        &self,
        current: Current,
        synced: watch::Sender<bool>,
        asks: Asks,
    ) -> Result<Pin<Box<dyn Future<Output = Infallible>>>, StartError> {
        let settings = &self.settings;
        let mut store = Store::new(&settings.common.network, Some(&settings.common.node_name));
        if settings.xds_on_demand {
            store = store.on_demand();
        }
        let kinds = resource_kinds::mesh();
        let publisher = Publisher::new(store, kinds.unlisted(), self.workers.clone(), current);
        let watcher = Watcher {
            metrics: Arc::clone(&self.metrics),
            readiness: self.readiness.clone(),
            synced,
        };
        if let Some(source) = settings.local.clone() {
            let local = lateen_xds::Local::new(source, kinds, publisher, watcher);
            return Ok(Box::pin(local.run()));
        }
        let node = node_of(&settings.common, "ztunnel");
        let (channel, client) = source(&settings.common, node, kinds)?;
        let client = lateen_xds::Client::new(channel, client, publisher, watcher);
        Ok(match settings.xds_on_demand {
            true => Box::pin(client.on_demand(asks).run()),
            false => Box::pin(client.run()),
        })
    }

    fn pods(&self, current: Current, joined: Arc<Notify>) -> Pods {
        Pods {
            table: self.table.clone(),
            joined,
            listener_store: self.listener_store.clone(),
            namespaces: self.namespaces.clone(),
            acceptor: Arc::clone(&self.acceptor),
            options: self.settings.sockets.into(),
            descriptors: self.descriptors,
            certificates: self.manager.clone(),
            trust_domain: Arc::clone(&self.settings.common.trust_domain),
            current,
            workers: self.workers.clone(),
            dns: self.dns.clone(),
            metrics: Arc::clone(&self.metrics),
            readiness: self.readiness.clone(),
        }
    }

    /// Accepts nothing new, asks peers to go away and waits for connections to finish, up to the deadline or until
    /// `hurry` resolves. Listeners are left to the next process, and so are the ports of the pages.
    async fn drain(
        &self,
        pages: Vec<AbortHandle>,
        deadline: Duration,
        hurry: impl Future<Output = ()>,
    ) {
        self.starter.stopping();
        self.readiness.lost("draining");
        // While this process still accepts: what waits in its listeners when they close is moved only if the agent has them.
        self.listener_store.reach().await;
        self.table.clear();
        for page in pages {
            page.abort();
        }
        self.listener_store.drain().await;
        for worker in &self.workers {
            worker.drain();
        }
        let drained = async {
            while self.connections() > 0 {
                sleep(DRAIN_LOOK).await;
            }
            // Pods wait for replies to the questions that this process has taken from their sockets.
            self.dns.ended().await;
        };
        tokio::select! {
            () = drained => tracing::info!("drained"),
            () = sleep(deadline) => {
                self.cut_the_rest("the termination deadline is over").await;
            }
            () = hurry => self.cut_the_rest("asked to end a second time").await,
        }
    }

    fn connections(&self) -> usize {
        self.acceptor.loads().read().iter().sum()
    }

    /// Ends what is left. Each connection says so in its log line, which needs a moment of its worker.
    async fn cut_the_rest(&self, why: &str) {
        let mut cut = 0;
        for worker in &self.workers {
            let request = |answer| Request::Cut(Cut::Deadline, answer);
            cut += worker.ask(request).await.unwrap_or_default();
        }
        tracing::warn!(connections = cut, why, "connections are cut");
        let last = Instant::now() + LAST_WORDS;
        while self.connections() > 0 && Instant::now() < last {
            sleep(DRAIN_LOOK).await;
        }
    }
}

/// Lets go of the pages of the program that starting has mapped, and later those that joining pods have, once none has joined for a
/// while. What comes back is what serving uses.
async fn release(joined: &Notify) {
    loop {
        settled(joined).await;
        if let Err(error) = lateen_os::release_program() {
            tracing::debug!(%error, "the program's pages stay mapped");
            return;
        }
        joined.notified().await;
    }
}

/// Ends once no pod has joined for a while.
async fn settled(joined: &Notify) {
    while timeout(STARTED, joined.notified()).await.is_ok() {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn nothing_is_let_go_while_pods_join() {
        let (joined, begin) = (Notify::new(), Instant::now());
        let join = async {
            for _ in 0..3 {
                sleep(STARTED / 2).await;
                joined.notify_one();
            }
        };
        tokio::join!(settled(&joined), join);
        assert_eq!(begin.elapsed(), STARTED / 2 * 3 + STARTED);
    }
}
