//! What the control thread of a waypoint does from the first configuration to the last request: it follows the control plane,
//! opens the listener, serves the pages for operators, and drains.

use std::convert::Infallible;
use std::net::TcpListener;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use lateen_accept::{Acceptor, FdQuota, Registration};
use lateen_admin::{Admin, MetricsPages, Readiness, ReadinessPages};
use lateen_config::{Store, l7};
use lateen_identity::Manager;
use lateen_telemetry::Metrics;
use lateen_tls::Rules;
use serde_json::{Value, json};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep};

use super::error::StartError;
use super::pages::{deadline as asked_deadline, page};
use super::process;
use super::source::{node_of, source};
use crate::connections::WaypointConnections;
use crate::current::Current;
use crate::dump;
use crate::notify::Starter;
use crate::publish::{Publisher, Watcher};
use crate::settings::WaypointSettings;
use crate::waypoint::{Entrance, Request, WaypointHandle};

/// The readiness part that stands for the proxy's own certificate.
pub(super) const CERTIFICATE: &str = "certificate";

/// Between two questions after a certificate that the authority does not give.
const CERTIFICATE_LOOK: Duration = Duration::from_millis(200);

/// How often the end looks whether the last tunnel is gone.
const DRAIN_LOOK: Duration = Duration::from_millis(50);

/// How long a proxy that drains still accepts tunnels: node proxies may not have heard yet that it ends.
const UNHEARD: Duration = Duration::from_secs(2);

/// What requests have to write their log lines once they are cut.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// What the control thread holds.
pub(super) struct Control {
    pub(super) settings: WaypointSettings,
    /// The limit of open files.
    pub(super) files: u64,
    pub(super) acceptor: Acceptor<Entrance>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) manager: Manager,
    pub(super) rules: Rules,
    pub(super) workers: Vec<WaypointHandle>,
    pub(super) current: Current,
    pub(super) readiness: Readiness,
    pub(super) starter: Starter,
}

impl Control {
    pub(super) async fn run(self) -> Result<(), StartError> {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let (quit, mut asked) = watch::channel(None);
        let pages = self.open_pages(quit);
        // While no tunnel comes it is renewed as well. Otherwise it would be dropped half an hour later, and the next tunnel would need
        // the authority.
        self.manager.want(&self.settings.identity);
        self.watch_certificates();
        let (synced, complete) = watch::channel(false);
        let mut xds = self.configuration(synced)?;
        let mut listener = None;
        {
            let mut opening = pin!(self.open(complete));
            loop {
                tokio::select! {
                    never = &mut xds => match never {},
                    opened = &mut opening, if listener.is_none() => {
                        listener = Some(opened?);
                        continue;
                    }
                    _ = terminate.recv() => tracing::info!("SIGTERM: draining"),
                    _ = interrupt.recv() => tracing::info!("SIGINT: draining"),
                    _ = asked.changed() => tracing::info!("asked to quit: draining"),
                }
                break;
            }
        }
        let deadline = asked
            .borrow()
            .unwrap_or(self.settings.common.termination_deadline);
        // What goes on stays subject to what the control plane says.
        tokio::select! {
            never = &mut xds => match never {},
            () = self.drain(pages, listener, deadline, again(&mut terminate, &mut interrupt)) => {}
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

    /// Opens the listener once the configuration is complete and the certificate is there: a tunnel before that could only be
    /// refused.
    async fn open(
        &self,
        mut complete: watch::Receiver<bool>,
    ) -> Result<Registration<Entrance>, StartError> {
        self.starter.status("waiting for the control plane");
        if complete.wait_for(|complete| *complete).await.is_err() {
            // The source of configuration is gone, and with it the process.
            std::future::pending::<()>().await;
        }
        self.starter.status("waiting for the certificate");
        while let Err(error) = self.manager.get(&self.settings.identity).await {
            tracing::warn!(%error, "there is no certificate for this proxy yet");
            sleep(CERTIFICATE_LOOK).await;
        }
        let listener = TcpListener::bind(self.settings.hbone)?;
        listener.set_nonblocking(true)?;
        let files = usize::try_from(self.files).unwrap_or(usize::MAX);
        let quota = FdQuota::new("waypoint".to_owned(), files);
        let opened = self
            .acceptor
            .register(listener.into(), Entrance::default(), &quota, 1)?;
        tracing::info!(address = %self.settings.hbone, "serving");
        self.readiness.reached(CERTIFICATE);
        self.starter.ready();
        Ok(opened)
    }

    /// The pages for operators.
    fn open_pages(&self, quit: watch::Sender<Option<Duration>>) -> Vec<AbortHandle> {
        let (current, manager) = (self.current.clone(), self.manager.clone());
        let settings = Arc::new(self.settings.clone());
        let default = self.settings.common.termination_deadline;
        let admin = Admin::new(
            move || {
                let page = dump_of(&current, &manager, &settings);
                async move { page }
            },
            move |deadline| {
                quit.send_replace(Some(asked_deadline(deadline, default)?));
                Ok(())
            },
        );
        let connections = Arc::new(WaypointConnections::new(self.workers.clone()));
        let admin = admin.with_connections(move |asked| Arc::clone(&connections).answer(asked));
        let metrics = MetricsPages::new(Arc::clone(&self.metrics), || async {});
        let readiness = ReadinessPages(self.readiness.clone());
        let tcp = |address| move || lateen_admin::bind(address);
        let common = &self.settings.common;
        let open = [
            tokio::spawn(page(tcp(common.stats), Arc::new(metrics))),
            tokio::spawn(page(tcp(common.readiness), Arc::new(readiness))),
            tokio::spawn(page(tcp(self.settings.admin), Arc::new(admin))),
        ];
        open.iter().map(|task| task.abort_handle()).collect()
    }

    /// Takes configuration in for as long as it is polled.
    fn configuration(
        &self,
        synced: watch::Sender<bool>,
    ) -> Result<Pin<Box<dyn Future<Output = Infallible>>>, StartError> {
        let common = &self.settings.common;
        // Of the workloads that are indexed by pod, the proxy needs its own.
        let node = Some(&*common.node_name).filter(|node| !node.is_empty());
        let store = Store::new(&common.network, node).of_gateway(self.settings.gateway.clone());
        let kinds = l7::waypoint();
        let publisher = Publisher::new(
            store,
            kinds.unlisted(),
            self.workers.clone(),
            self.current.clone(),
        );
        let watcher = Watcher {
            metrics: Arc::clone(&self.metrics),
            readiness: self.readiness.clone(),
            synced,
        };
        let (channel, client) = source(common, node_of(common, "waypoint"), kinds)?;
        let gateway = self.settings.gateway.to_string();
        let own = [
            &l7::AUTHORIZATION,
            &l7::AUTHENTICATION,
            &l7::GATEWAY,
            &l7::BINDING,
        ];
        let client = lateen_xds::Client::new(channel, client, publisher, watcher);
        let client = client.children_of(&gateway, own);
        Ok(Box::pin(client.run()))
    }

    /// Asks peers to go away and waits for requests to finish, up to the deadline or until `hurry` resolves.
    async fn drain(
        &self,
        pages: Vec<AbortHandle>,
        listener: Option<Registration<Entrance>>,
        deadline: Duration,
        hurry: impl Future<Output = ()>,
    ) {
        self.starter.stopping();
        self.readiness.lost("draining");
        for worker in &self.workers {
            worker.drain();
        }
        let drained = async {
            sleep(UNHEARD.min(deadline / 2)).await;
            drop(listener);
            while self.tunnels() > 0 {
                sleep(DRAIN_LOOK).await;
            }
        };
        tokio::select! {
            () = drained => tracing::info!("drained"),
            () = sleep(deadline) => self.cut_the_rest("the termination deadline is over").await,
            () = hurry => self.cut_the_rest("asked to end a second time").await,
        }
        for page in pages {
            page.abort();
        }
    }

    fn tunnels(&self) -> usize {
        self.acceptor.loads().read().iter().sum()
    }

    /// Ends what is left. Each request says so in its log line, which needs a moment of its worker.
    async fn cut_the_rest(&self, why: &str) {
        tracing::warn!(tunnels = self.tunnels(), why, "tunnels are cut");
        for worker in &self.workers {
            worker.ask(Request::Cut).await;
        }
        let last = Instant::now() + LAST_WORDS;
        while self.tunnels() > 0 && Instant::now() < last {
            sleep(DRAIN_LOOK).await;
        }
    }
}

/// Resolves with the next signal.
async fn again(terminate: &mut Signal, interrupt: &mut Signal) {
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

/// `/config_dump` of a waypoint.
fn dump_of(current: &Current, manager: &Manager, settings: &WaypointSettings) -> Value {
    let common = &settings.common;
    let mut page = dump::configuration(current);
    page["config"] = json!({
        "gateway": settings.gateway.to_string(),
        "identity": settings.identity.to_string(),
        "pod": settings.uid.to_string(),
        "clusterId": common.cluster_id,
        "network": common.network,
        "trustDomain": common.trust_domain,
        "trustDomainAliases": common.trust_domain_aliases,
        "crlPath": common.revocation_lists,
        "compliancePolicy": common.compliance.as_str(),
        "xdsAddress": common.xds.address,
        "caAddress": common.ca.address,
        "numWorkerThreads": common.workers,
        "poolMaxStreamsPerConn": common.streams_per_tunnel,
        "hboneAddr": settings.hbone,
        "adminAddr": settings.admin,
        "statsAddr": common.stats,
        "readinessAddr": common.readiness,
        "selfTerminationDeadline": format!("{:?}", common.termination_deadline),
    });
    page["certificates"] = dump::certificate_states(manager);
    page
}
