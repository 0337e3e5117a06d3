//! Starting and ending `lateen-proxy node`: threads first, then the control plane, then pods; and the other way round.

use std::io;
use std::sync::Arc;

use lateen_accept::{Acceptor, FdQuota};
use lateen_admin::Readiness;
use lateen_bpf_splice::Accelerator;
use lateen_identity::{Behalf, Manager};
use lateen_listener_store::{Ledger, ListenerStore};
use lateen_netns::NamespaceThread;
use lateen_runtime::{UnstartedWorker, WorkerConfig, WorkerHandle};
use lateen_telemetry::{BuildInfo, Metrics};
use lateen_tls::Rules;
use tokio::sync::oneshot;

use super::control::Control;
use super::error::StartError;
use super::process::{Budgets, reports, rules, tell, tunnel, until_accept_fails, watch_buffers};
use crate::current::Current;
use crate::dns::{self, Dns, Resolver};
use crate::local_tunnels::LocalTunnels;
use crate::node::{Node, NodeConfig, SameNode, Timeouts};
use crate::notify::Starter;
use crate::pods::{self, Table};
use crate::settings::{Acceleration, Settings};
use crate::{VERSION, certificates, certified, publish};

/// Serves the pods of this node until SIGTERM, SIGINT or `/quitquitquit`, and then lets connections finish.
///
/// # Errors
/// See [`StartError`]; once started, nothing but a signal or [`StartError::AcceptFailed`] ends it.
pub fn node(settings: Settings) -> Result<(), StartError> {
    let rules = rules(&settings.common)?;
    let files = lateen_os::raise_file_limit()?;
    tracing::debug!(files, "limit of open files");
    let namespaces = NamespaceThread::start()?;
    let unstarted: Vec<UnstartedWorker<Node>> = (0..settings.common.workers)
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
                Acceptor::start(sinks, settings.common.worker_slice, tell(fail))?,
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
        Arc::new(Metrics::with(&build, settings.common.series, move || {
            loads.read()
        }))
    };
    metrics.watch_shed(move || loads.shed());

    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let manager = {
        // gRPC channels start on the runtime that is current when they are made.
        let _runtime = runtime.enter();
        let authority =
            certificates::authority(&settings.common, Behalf::Workloads, &rules, &metrics)?;
        Manager::new(authority, runtime.handle().clone())
    };
    {
        let _runtime = runtime.enter();
        if let Some(sending) = reports(&settings.common, &metrics) {
            runtime.spawn(sending);
        }
    }
    let current = Current::default();
    let dns = Dns::start(dns_parts(&settings, &metrics, &current))?;
    let resolver: Arc<dyn Resolver> = Arc::new(dns.clone());
    let budgets = Budgets::default();
    watch_buffers(&metrics, &budgets);
    let beside = settings.listener_store_socket.with_file_name("ledgers");
    let ledgers = unstarted
        .iter()
        .map(|_| Ledger::new(&beside))
        .collect::<io::Result<Vec<_>>>()?;
    let shared = ledgers.iter().map(Ledger::share).collect();
    let (lookups, asks) = lateen_xds::lookups();
    let local_tunnels = LocalTunnels::default();
    let accelerator = accelerator(&settings);
    let threads = unstarted
        .into_iter()
        .zip(ledgers)
        .enumerate()
        .map(|(index, (worker, ledger))| {
            let config = config(&settings, &metrics, &manager, &rules, &resolver, &budgets);
            let same_node = settings.same_node.then(|| SameNode {
                node: Arc::clone(&settings.common.node_name),
                local_tunnels: local_tunnels.clone(),
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
                slice: settings.common.worker_slice,
                acceptor: own.take(),
                accept_failed: fail.take(),
                role,
            })
        })
        .collect::<Result<Vec<_>, _>>()?;
    let (listener_store, events, serving) =
        ListenerStore::new(settings.listener_store_socket.clone(), shared);
    runtime.spawn(serving);

    let control = Control {
        readiness: Readiness::waiting_for([publish::READY, pods::READY, certified::READY]),
        table: Table::default(),
        settings,
        namespaces,
        descriptors: FdQuota::of(files),
        acceptor,
        metrics,
        manager,
        rules,
        workers: handles.clone(),
        listener_store,
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

fn dns_parts(settings: &Settings, metrics: &Metrics, current: &Current) -> dns::Parts {
    dns::Parts {
        current: current.clone(),
        metrics: metrics.dns().clone(),
        naming: dns::Naming {
            domain: Arc::clone(&settings.cluster_domain),
            preferred: settings.preferred_namespace.clone(),
            network: Arc::clone(&settings.common.network),
            ipv6: settings.sockets.ipv6,
        },
        resolvers: settings.resolvers.clone(),
        slice: settings.common.worker_slice,
    }
}

fn config(
    settings: &Settings,
    metrics: &Arc<Metrics>,
    certificates: &Manager,
    rules: &Rules,
    resolver: &Arc<dyn Resolver>,
    budgets: &Budgets,
) -> NodeConfig {
    let tunnel = |defaults| tunnel(&settings.common, budgets, defaults);
    NodeConfig {
        certificates: certificates.clone(),
        metrics: Arc::clone(metrics),
        revocations: rules.revocations.clone(),
        network: Arc::clone(&settings.common.network),
        client: lateen_hbone::Settings {
            idle_timeout: Some(settings.common.idle_tunnel),
            ..tunnel(lateen_hbone::Settings::client())
        },
        server: tunnel(lateen_hbone::Settings::server()),
        streams_per_tunnel: settings.common.streams_per_tunnel,
        timeouts: Timeouts::default(),
        ledger: None,
        sampler: settings.common.reports.sampler,
        resolver: Arc::clone(resolver),
        limits: settings.common.limits,
        lookups: None,
        same_node: None,
        accelerator: None,
    }
}
