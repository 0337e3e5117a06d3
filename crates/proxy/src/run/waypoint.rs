//! Starting and ending `lateen-proxy waypoint`: threads first, then the control plane, then the listener; and the other way
//! round.

use std::path::Path;
use std::sync::Arc;

use lateen_accept::Acceptor;
use lateen_admin::Readiness;
use lateen_identity::{Behalf, Manager};
use lateen_runtime::{UnstartedWorker, WorkerConfig, WorkerHandle};
use lateen_telemetry::{BuildInfo, Metrics};
use lateen_tls::Rules;
use tokio::sync::oneshot;

use super::error::StartError;
use super::process::{Budgets, reports, rules, tell, tunnel, until_accept_fails, watch_buffers};
use super::waypoint_control::{CERTIFICATE, Control};
use crate::current::Current;
use crate::dns::{File, Origin};
use crate::notify::Starter;
use crate::settings::WaypointSettings;
use crate::waypoint::{Accounts, Own, Sockets, Timeouts, TunnelQuotas, Waypoint, WaypointConfig};
use crate::{VERSION, certificates, publish};

/// The list of the pod's resolvers.
const RESOLVERS: &str = "/etc/resolv.conf";

/// Serves the services that are bound to a Gateway until SIGTERM, SIGINT or `/quitquitquit`, and then lets requests finish.
///
/// # Errors
/// See [`StartError`]; once started, nothing but a signal or [`StartError::AcceptFailed`] ends it.
pub fn waypoint(settings: WaypointSettings) -> Result<(), StartError> {
    let common = &settings.common;
    let rules = rules(common)?;
    let files = lateen_os::raise_file_limit()?;
    tracing::debug!(files, "limit of open files");
    let unstarted: Vec<UnstartedWorker<Waypoint>> = (0..common.workers)
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
            let acceptor = Acceptor::start(sinks, common.worker_slice, tell(fail))?;
            (acceptor, None, None)
        }
    };
    let build = BuildInfo {
        // The role's name among Istio's components, which its dashboards select by.
        component: "proxy",
        tag: VERSION,
    };
    let loads = Arc::clone(acceptor.loads());
    let metrics = {
        let loads = Arc::clone(&loads);
        Arc::new(Metrics::with(&build, common.series, move || loads.read()))
    };
    metrics.watch_shed(move || loads.shed());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let manager = {
        // gRPC channels start on the runtime that is current when they are made.
        let _runtime = runtime.enter();
        let authority = certificates::authority(common, Behalf::Itself, &rules, &metrics)?;
        if let Some(sending) = reports(common, &metrics) {
            runtime.spawn(sending);
        }
        Manager::new(authority, runtime.handle().clone())
    };
    let budgets = Budgets::default();
    watch_buffers(&metrics, &budgets);
    let accounts = Accounts::new(settings.http_buffers);
    {
        let accounts = accounts.clone();
        metrics.watch_http_buffers(move || accounts.buffers());
    }
    let limits = Limits {
        accounts,
        tunnels: TunnelQuotas::of(files),
    };
    let threads = unstarted
        .into_iter()
        .enumerate()
        .map(|(index, worker)| {
            worker.start(WorkerConfig {
                index,
                slice: common.worker_slice,
                acceptor: own.take(),
                accept_failed: fail.take(),
                role: config(&settings, &metrics, &manager, &rules, &budgets, &limits),
            })
        })
        .collect::<Result<Vec<_>, _>>()?;
    let control = Control {
        readiness: Readiness::waiting_for([publish::READY, CERTIFICATE]),
        settings,
        files,
        acceptor,
        metrics,
        manager,
        rules,
        workers: handles.clone(),
        starter: Starter::new(crate::settings::notify_socket())?,
        current: Current::default(),
    };
    let running = until_accept_fails(control.run(), failed);
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

/// Limits on clients, which the workers share.
struct Limits {
    accounts: Accounts,
    tunnels: TunnelQuotas,
}

fn config(
    settings: &WaypointSettings,
    metrics: &Arc<Metrics>,
    certificates: &Manager,
    rules: &Rules,
    budgets: &Budgets,
    limits: &Limits,
) -> WaypointConfig {
    let common = &settings.common;
    let tunnel = |defaults| tunnel(common, budgets, defaults);
    WaypointConfig {
        own: Own {
            gateway: settings.gateway.clone(),
            pod: common.pod.0.clone(),
            uid: settings.uid.clone(),
            identity: settings.identity.clone(),
        },
        certificates: certificates.clone(),
        metrics: Arc::clone(metrics),
        revocations: rules.revocations.clone(),
        network: Arc::clone(&common.network),
        client: lateen_hbone::Settings {
            idle_timeout: Some(common.idle_tunnel),
            ..tunnel(lateen_hbone::Settings::client())
        },
        server: tunnel(lateen_hbone::Settings::server()),
        accounts: limits.accounts.clone(),
        tunnel_quotas: limits.tunnels.clone(),
        streams_per_tunnel: common.streams_per_tunnel,
        resolvers: File::open(Path::new(RESOLVERS), Origin::Own),
        timeouts: Timeouts {
            idle: settings.http_idle,
            head: settings.http_head,
            ..Timeouts::default()
        },
        limits: common.limits,
        sockets: Sockets {
            keepalive: settings.keepalive,
            user_timeout: settings.user_timeout,
        },
    }
}
