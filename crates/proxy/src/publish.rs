//! Publication of configuration: xDS responses go into one store, each makes one snapshot, and it is acknowledged when every
//! worker uses the snapshot.

use std::sync::Arc;

use lateen_admin::Readiness;
use lateen_config::{Batch, Refused, Store, Unlisted};
use lateen_runtime::{Role, WorkerHandle};
use lateen_telemetry::{Metrics, XdsTermination};
use lateen_xds::{Observer, Sink, Termination};
use tokio::sync::watch;

use crate::current::Current;

/// The readiness part that stands for a complete configuration.
pub const READY: &str = "state manager";

/// Takes responses in and puts them in force.
pub struct Publisher<R: Role> {
    store: Store,
    workers: Vec<WorkerHandle<R>>,
    current: Current,
    unlisted: Unlisted,
}

impl<R: Role> Publisher<R> {
    /// Publishes to `workers`, and to `current` for the admin pages, once every kind of `unlisted` was listed.
    pub fn new(
        store: Store,
        unlisted: Unlisted,
        workers: Vec<WorkerHandle<R>>,
        current: Current,
    ) -> Self {
        Self {
            store,
            workers,
            current,
            unlisted,
        }
    }
}

impl<R: Role> Sink for Publisher<R> {
    async fn apply(&mut self, batch: Batch) -> Vec<Refused> {
        let refused = self.store.apply(&batch);
        // Nor is a part of a first push: a policy or a workload may be in the rest.
        if !batch.more {
            self.unlisted.listed(batch.kind);
        }
        // Workloads without the policies that protect them, or policies without workloads, are not for use.
        if self.unlisted.is_empty() {
            let snapshot = self.store.snapshot();
            self.current.set(Arc::clone(&snapshot));
            let installing: Vec<_> = self
                .workers
                .iter()
                .map(|worker| worker.install(Arc::clone(&snapshot)))
                .collect();
            for installed in installing {
                // A worker that has ended decides nothing any more.
                let _ = installed.await;
            }
        }
        refused
    }
}

/// Counts what happens on the stream, and tells when the configuration is complete.
pub struct Watcher {
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// Told once.
    pub readiness: Readiness,
    /// Set once.
    pub synced: watch::Sender<bool>,
}

impl Observer for Watcher {
    fn message(&self, type_url: &str, bytes: u64) {
        self.metrics.xds_message(type_url, bytes);
    }

    fn terminated(&self, how: Termination) {
        self.metrics.xds_terminated(match how {
            Termination::ConnectionError => XdsTermination::ConnectionError,
            Termination::Error => XdsTermination::Error,
            Termination::Reconnect => XdsTermination::Reconnect,
            Termination::Complete => XdsTermination::Complete,
        });
    }

    fn synced(&self) {
        tracing::info!("the configuration is complete");
        self.readiness.reached(READY);
        self.synced.send_replace(true);
    }
}
