//! Start and end of `lateen-proxy node`: first threads, then the control plane, then pods; the end in reverse.

mod control;
mod error;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use lateen_accept::{Acceptor, FdQuota};
use lateen_admin::Readiness;
use lateen_bpf_splice::Accelerator;
use lateen_identity::Manager;
use lateen_listener_store::{Ledger, ListenerStore};
use lateen_netns::NamespaceThread;
use lateen_runtime::{UnstartedWorker, WorkerConfig, WorkerHandle};
use lateen_telemetry::{Buffers, BuildInfo, Metrics};
use lateen_tls::{Roots, Rules};
use tokio::sync::oneshot;

use control::Control;
pub use error::StartError;

use crate::certificates;
use crate::current::Current;
use crate::dns::{self, Dns, Resolver};
use crate::meeting::Meeting;
use crate::node::{Node, NodeConfig, SameNode, Timeouts};
use crate::notify::Starter;
use crate::pods::{self, Table};
use crate::publish;
use crate::settings::{Acceleration, Settings};
use crate::{VERSION, revocations};

/// Serves the pods of this node until SIGTERM, SIGINT or `/quitquitquit`, and then lets connections finish.
///
/// # Errors
/// See [`StartError`]; once started, nothing but a signal or [`StartError::AcceptFailed`] ends it.
pub fn node(settings: Settings) -> Result<(), StartError> {
    let rules = rules(&settings)?;
    let files = lateen_os::raise_file_limit()?;
    tracing::debug!(files, "limit of open files");
    let namespaces = NamespaceThread::start()?;
    let unstarted: Vec<UnstartedWorker<Node>> = (0..settings.workers)
        .map(|_| UnstartedWorker::default())
        .collect();
    let handles: Vec<_> = unstarted.iter().map(UnstartedWorker::handle).collect();
    let (fail, failed) = oneshot::channel();
    let (acceptor, mut own, mut fail) = match &handles[..] {
        [_] => {
            let (acceptor, own) = Acceptor::without_thread()?;
            (acceptor, Some(own), Some(fail))
        }
        several => {
            let sinks = several.iter().map(WorkerHandle::sink).collect();
            (
                Acceptor::start(sinks, settings.worker_slice, tell(fail))?,
                None,
                None,
            )
        }
    };
    let acceptor = Arc::new(acceptor);
    let loads = Arc::clone(acceptor.loads());
    let build = BuildInfo {
        // The role's name among Istio's components, which its dashboards select by.
        component: "ztunnel",
        tag: VERSION,
    };
    let metrics = {
        let loads = Arc::clone(&loads);
        Arc::new(Metrics::with(&build, settings.series, move || loads.read()))
    };
    metrics.watch_shed(move || loads.shed());

    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let manager = {
        // gRPC channels start on the runtime that is current when they are made.
        let _runtime = runtime.enter();
        let authority = certificates::authority(&settings, &rules, &metrics)?;
        Manager::new(authority, runtime.handle().clone())
    };
    {
        let _runtime = runtime.enter();
        if let Some(sending) = reports(&settings, &metrics) {
            runtime.spawn(sending);
        }
    }
    let current = Current::default();
    let dns = Dns::start(dns_parts(&settings, &metrics, &current))?;
    let resolver: Arc<dyn Resolver> = Arc::new(dns.clone());
    let budgets = <(lateen_hbone::Budget, lateen_hbone::SendBudget)>::default();
    {
        let (receive, send) = budgets.clone();
        metrics.watch_buffers(move || {
            [
                Buffers {
                    direction: "receive",
                    lent: receive.lent(),
                    limit: receive.limit(),
                },
                Buffers {
                    direction: "send",
                    lent: send.lent(),
                    limit: send.limit(),
                },
            ]
        });
    }
    let beside = settings.keeper_socket.with_file_name("ledgers");
    let ledgers = unstarted
        .iter()
        .map(|_| Ledger::new(&beside))
        .collect::<io::Result<Vec<_>>>()?;
    let shared = ledgers.iter().map(Ledger::share).collect();
    let (lookups, asks) = lateen_xds::lookups();
    let meeting = Meeting::default();
    let accelerator = accelerator(&settings);
    let threads = unstarted
        .into_iter()
        .zip(ledgers)
        .enumerate()
        .map(|(index, (worker, ledger))| {
            let config = config(&settings, &metrics, &manager, &rules, &resolver, &budgets);
            let same_node = settings.same_node.then(|| SameNode {
                node: Arc::clone(&settings.node_name),
                meeting: meeting.clone(),
            });
            let ledger = Some(ledger);
            let lookups = settings.xds_on_demand.then(|| lookups.clone());
            let role = NodeConfig {
                accelerator: accelerator.clone(),
                ledger,
                lookups,
                same_node,
                ..config
            };
            worker.start(WorkerConfig {
                index,
                slice: settings.worker_slice,
                acceptor: own.take(),
                accept_failed: fail.take(),
                role,
            })
        })
        .collect::<Result<Vec<_>, _>>()?;
    let (keeper, events, keeping) = ListenerStore::new(settings.keeper_socket.clone(), shared);
    runtime.spawn(keeping);

    let control = Control {
        readiness: Readiness::waiting_for([publish::READY, pods::READY]),
        table: Table::default(),
        settings,
        namespaces,
        descriptors: FdQuota::of(files),
        acceptor,
        metrics,
        manager,
        rules,
        workers: handles.clone(),
        keeper,
        starter: Starter::new(crate::settings::notify_socket())?,
        current,
        dns,
    };
    let running = until_accept_fails(control.run(events, asks), failed);
    let outcome = tokio::task::LocalSet::new().block_on(&runtime, running);
    for worker in &handles {
        worker.stop();
    }
    for thread in threads {
        if thread.join().is_err() {
            tracing::error!("a worker ended with a panic");
        }
    }
    outcome
}

/// Runs until the end, or until connections are accepted no more: a process that goes on without would be taken for ready.
async fn until_accept_fails(
    running: impl Future<Output = Result<(), StartError>>,
    failed: oneshot::Receiver<io::Error>,
) -> Result<(), StartError> {
    let failed = async {
        match failed.await {
            Ok(error) => error,
            // The acceptor ends in order.
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        outcome = running => outcome,
        error = failed => Err(StartError::AcceptFailed(error)),
    }
}

/// Reports that the acceptor's thread can wait for connections no more.
fn tell(failed: oneshot::Sender<io::Error>) -> impl FnOnce(io::Error) + Send {
    move |error| {
        let what =
            format!("the acceptor cannot wait for connections: {error}; start the proxy again");
        // The process is about to end if nobody listens.
        let _ = failed.send(io::Error::new(error.kind(), what));
    }
}

/// Has connections joined in the kernel, if that is wanted and possible: it is not worth more than a line of the log.
fn accelerator(settings: &Settings) -> Option<Arc<Accelerator>> {
    match settings.accelerator {
        Acceleration::Off => return None,
        Acceleration::Splice if !settings.same_node => {
            tracing::warn!(
                "LATEEN_ACCELERATOR=splice joins connections between two pods of this node, which takes LATEEN_SAME_NODE=true"
            );
            return None;
        }
        Acceleration::Splice => {}
    }
    match Accelerator::open() {
        Ok(accelerator) => {
            tracing::info!("connections between two pods of this node are joined in the kernel");
            Some(accelerator)
        }
        Err(error) => {
            tracing::warn!(%error, "no accelerator on this node: bytes between its pods pass through the proxy");
            None
        }
    }
}

/// What handshakes keep to. Without the revocation lists that it was told to heed the proxy does not start.
fn rules(settings: &Settings) -> Result<Rules, StartError> {
    let rules = Rules {
        compliance: settings.compliance,
        trust_domain_aliases: settings.trust_domain_aliases.clone().into(),
        ..Rules::default()
    };
    if let Some(path) = &settings.revocation_lists {
        rules.revocations.replace(revocations::read(path)?);
    }
    Ok(rules)
}

/// Has connections reported to collectors, if there are any; what is returned sends.
fn reports(
    settings: &Settings,
    metrics: &Metrics,
) -> Option<impl Future<Output = ()> + Send + use<>> {
    let reports = &settings.reports;
    if reports.logs.is_none() && reports.traces.is_none() {
        return None;
    }
    let uri = |text: &Option<String>| text.as_ref().and_then(|text| text.parse().ok());
    let headers = reports.headers.iter().filter_map(|(name, value)| {
        let name = name.to_ascii_lowercase().parse::<http::HeaderName>().ok()?;
        Some((name, value.parse().ok()?))
    });
    let own = [
        ("service.name", "lateen-proxy"),
        ("service.version", VERSION),
        ("k8s.node.name", &*settings.node_name),
        ("k8s.cluster.name", &*settings.cluster_id),
        ("k8s.pod.name", &*settings.pod.0),
        ("k8s.namespace.name", &*settings.pod.1),
    ];
    let mut resource: BTreeMap<String, String> = own
        .into_iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect();
    resource.extend(reports.resource.iter().cloned());
    let (sent, dropped) = metrics.reports();
    let outcomes = lateen_otlp::Outcomes { sent, dropped };
    let wanted = lateen_otlp::Settings {
        logs: uri(&reports.logs),
        traces: uri(&reports.traces),
        headers: headers.collect(),
        resource: resource.into_iter().collect(),
        roots: match &reports.roots {
            Some(file) => Roots::File(file.clone()),
            None => Roots::System,
        },
    };
    let (exporter, sending) = lateen_otlp::Exporter::new(wanted, &outcomes);
    metrics.export_to(Box::new(exporter));
    Some(sending)
}

fn dns_parts(settings: &Settings, metrics: &Metrics, current: &Current) -> dns::Parts {
    dns::Parts {
        current: current.clone(),
        metrics: metrics.dns().clone(),
        naming: dns::Naming {
            domain: Arc::clone(&settings.cluster_domain),
            preferred: settings.preferred_namespace.clone(),
            network: Arc::clone(&settings.network),
            ipv6: settings.sockets.ipv6,
        },
        resolvers: settings.resolvers.clone(),
        slice: settings.worker_slice,
    }
}

fn config(
    settings: &Settings,
    metrics: &Arc<Metrics>,
    certificates: &Manager,
    rules: &Rules,
    resolver: &Arc<dyn Resolver>,
    budgets: &(lateen_hbone::Budget, lateen_hbone::SendBudget),
) -> NodeConfig {
    let tunnel = |defaults: lateen_hbone::Settings| lateen_hbone::Settings {
        // One of each for all workers and both directions: what is bounded is the process.
        budget: budgets.0.clone(),
        send_budget: budgets.1.clone(),
        stream_window: settings.stream_window,
        connection_window: settings.tunnel_window,
        max_frame: settings.frame_size,
        ..defaults
    };
    NodeConfig {
        certificates: certificates.clone(),
        metrics: Arc::clone(metrics),
        revocations: rules.revocations.clone(),
        network: Arc::clone(&settings.network),
        client: lateen_hbone::Settings {
            idle_timeout: Some(settings.idle_tunnel),
            ..tunnel(lateen_hbone::Settings::client())
        },
        server: tunnel(lateen_hbone::Settings::server()),
        streams_per_tunnel: settings.streams_per_tunnel,
        timeouts: Timeouts::default(),
        ledger: None,
        sampler: settings.reports.sampler,
        resolver: Arc::clone(resolver),
        limits: settings.limits,
        lookups: None,
        same_node: None,
        accelerator: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_proxy_that_can_accept_no_more_ends_with_the_reason() {
        let (fail, failed) = oneshot::channel();
        tell(fail)(io::Error::other("no memory"));
        let outcome = until_accept_fails(std::future::pending(), failed).await;
        let said = outcome.unwrap_err().to_string();
        assert_eq!(
            said,
            "the acceptor cannot wait for connections: no memory; start the proxy again"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_proxy_whose_acceptor_ends_in_order_goes_on() {
        let (fail, failed) = oneshot::channel();
        drop(fail);
        let running = async {
            tokio::time::sleep(std::time::Duration::from_secs(3600)).await;
            Ok(())
        };
        assert!(until_accept_fails(running, failed).await.is_ok());
    }
}
