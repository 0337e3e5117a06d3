//! Workloads, services and baggage in the words of telemetry.

use std::sync::Arc;

use lateen_config::{Service, Workload};
use lateen_hbone::Baggage;
use lateen_hbone::headers::WorkloadKind;
use lateen_telemetry::{self as telemetry, Party};
use lateen_types::{Identity, Strng};

/// A text that is not empty.
pub(crate) fn some(text: &Strng) -> Option<Strng> {
    (!text.is_empty()).then(|| Arc::clone(text))
}

/// A workload that the control plane described.
pub(crate) fn party(workload: &Workload, principal: Option<Identity>) -> Party {
    Party {
        workload: some(&workload.workload_name),
        canonical_service: some(&workload.canonical_name),
        canonical_revision: some(&workload.canonical_revision),
        namespace: some(&workload.namespace),
        principal,
        app: some(&workload.canonical_name),
        version: some(&workload.canonical_revision),
        cluster: some(&workload.cluster_id),
        locality: Some((
            some(&workload.locality.region),
            some(&workload.locality.zone),
        )),
    }
}

/// A source that only its own proxy described; the identity alone is proven.
pub(crate) fn claimed(baggage: Option<&Baggage>, principal: Option<Identity>) -> Party {
    let Some(baggage) = baggage else {
        return Party {
            principal,
            ..Party::default()
        };
    };
    Party {
        workload: baggage.workload.clone(),
        canonical_service: baggage.service.clone(),
        canonical_revision: baggage.revision.clone(),
        namespace: baggage.namespace.clone(),
        principal,
        app: baggage.workload.clone(),
        version: baggage.revision.clone(),
        cluster: baggage.cluster.clone(),
        locality: Some((baggage.region.clone(), baggage.zone.clone())),
    }
}

/// A workload's description of itself for its peers.
pub(crate) fn baggage(workload: &Workload) -> Baggage {
    Baggage {
        cluster: some(&workload.cluster_id),
        namespace: some(&workload.namespace),
        kind: match workload.workload_type {
            "deployment" => WorkloadKind::Deployment,
            "cronjob" => WorkloadKind::CronJob,
            "job" => WorkloadKind::Job,
            _ => WorkloadKind::Pod,
        },
        workload: some(&workload.workload_name),
        service: some(&workload.canonical_name),
        revision: some(&workload.canonical_revision),
        region: some(&workload.locality.region),
        zone: some(&workload.locality.zone),
    }
}

/// A service.
pub(crate) fn service(service: &Service) -> telemetry::Service {
    telemetry::Service {
        hostname: Arc::clone(&service.hostname),
        name: Arc::clone(&service.name),
        namespace: Arc::clone(&service.namespace),
    }
}
