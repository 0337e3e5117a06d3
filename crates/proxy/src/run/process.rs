//! The parts of a process that every role has: rules of handshakes, reports to collectors, memory of tunnels, and the end of
//! a process that can accept no more.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use lateen_admin::Readiness;
use lateen_identity::Manager;
use lateen_telemetry::{Buffers, Metrics};
use lateen_tls::{Roots, Rules};
use tokio::sync::oneshot;

use super::error::StartError;
use crate::settings::Common;
use crate::{VERSION, certificates, revocations};

/// The memory that all tunnels of a process share: of what they receive, and of what they send.
pub(super) type Budgets = (lateen_hbone::Budget, lateen_hbone::SendBudget);

/// Has the metrics show the memory of tunnels.
pub(super) fn watch_buffers(metrics: &Metrics, budgets: &Budgets) {
    let (receive, send) = budgets.clone();
    metrics.watch_buffers(move || {
        [
            Buffers {
                direction: "receive",
                granted: receive.granted(),
                limit: receive.limit(),
            },
            Buffers {
                direction: "send",
                granted: send.granted(),
                limit: send.limit(),
            },
        ]
    });
}

/// Settings of tunnels that use these budgets.
pub(super) fn tunnel(
    settings: &Common,
    budgets: &Budgets,
    defaults: lateen_hbone::Settings,
) -> lateen_hbone::Settings {
    lateen_hbone::Settings {
        // One of each for all workers and both directions: what is bounded is the process.
        budget: budgets.0.clone(),
        send_budget: budgets.1.clone(),
        stream_window: settings.stream_window,
        connection_window: settings.tunnel_window,
        max_frame: settings.frame_size,
        ..defaults
    }
}

/// Runs until the end, or until connections are accepted no more: a process that goes on without would be taken for ready.
pub(super) async fn until_accept_fails(
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
pub(super) fn tell(failed: oneshot::Sender<io::Error>) -> impl FnOnce(io::Error) + Send {
    move |error| {
        let what =
            format!("the acceptor cannot wait for connections: {error}; start the proxy again");
        // The process is about to end if nobody listens.
        let _ = failed.send(io::Error::new(error.kind(), what));
    }
}

/// What handshakes keep to. Without the revocation lists that it was told to heed the proxy does not start.
pub(super) fn rules(settings: &Common) -> Result<Rules, StartError> {
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

/// Has the certificates reported, and has the file of revocation lists read again when it changes. `cut` ends the tunnels whose
/// peer is revoked by then.
pub(super) fn watch_certificates(
    settings: &Common,
    manager: &Manager,
    rules: &Rules,
    metrics: &Arc<Metrics>,
    readiness: &Readiness,
    cut: impl Fn() + Send + Sync + 'static,
) {
    tokio::spawn(certificates::report(
        manager.clone(),
        Arc::clone(metrics),
        readiness.clone(),
    ));
    if let Some(path) = &settings.revocation_lists {
        let reloader = revocations::Reloader {
            path: path.clone(),
            revocations: rules.revocations.clone(),
            cut: Box::new(cut),
            metrics: Arc::clone(metrics),
            readiness: readiness.clone(),
        };
        tokio::spawn(reloader.run());
    }
}

/// Has connections reported to collectors, if there are any; what is returned sends.
pub(super) fn reports(
    settings: &Common,
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
