//! Metrics of the DNS proxy, under ztunnel's names and labels, and of looking up workloads that have a hostname.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

/// Upper bounds in seconds, ztunnel's.
const BUCKETS: [f64; 6] = [0.0005, 0.001, 0.01, 0.1, 1.0, 5.0];
/// What a label says when nothing is known.
const UNKNOWN: &str = "unknown";

/// One kind of question of one kind of client.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct DnsLabels {
    /// The type of record asked for, in lower case.
    pub request_query_type: String,
    /// `udp` or `tcp`.
    pub request_protocol: &'static str,
    /// The client's service.
    pub source_canonical_service: String,
    /// The revision of that service.
    pub source_canonical_revision: String,
}

/// Who connects to a workload that has a hostname.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct OnDemandDnsLabels {
    /// The name of what runs the client.
    pub source_workload: String,
    /// The client's service.
    pub source_canonical_service: String,
    /// The revision of that service.
    pub source_canonical_revision: String,
    /// The client's namespace.
    pub source_workload_namespace: String,
    /// The client's identity.
    pub source_principal: String,
    /// As `source_canonical_service`.
    pub source_app: String,
    /// As `source_canonical_revision`.
    pub source_version: String,
    /// The client's cluster.
    pub source_cluster: String,
    /// The workload's hostname.
    pub hostname: String,
}

/// Why a question or a connection for DNS is turned away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DnsShed {
    /// Too many questions of the pod, or of all pods, wait for a resolver.
    Questions,
    /// The pod has too many connections open.
    Connections,
    /// The pod holds its share of the proxy's descriptors.
    Descriptors,
}

impl DnsShed {
    const ALL: [Self; 3] = [Self::Questions, Self::Connections, Self::Descriptors];

    /// The label's value.
    fn as_str(self) -> &'static str {
        match self {
            Self::Questions => "questions",
            Self::Connections => "connections",
            Self::Descriptors => "descriptors",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ShedLabels {
    reason: &'static str,
}

/// A label's value; what is empty is unknown.
pub fn known(value: &str) -> String {
    if value.is_empty() { UNKNOWN } else { value }.to_owned()
}

/// Counters of the DNS proxy.
#[derive(Clone, Debug)]
pub struct DnsMetrics {
    requests: Family<DnsLabels, Counter>,
    upstream: Family<DnsLabels, Counter>,
    failures: Family<DnsLabels, Counter>,
    duration: Family<DnsLabels, Histogram, fn() -> Histogram>,
    on_demand: Family<OnDemandDnsLabels, Counter>,
    shed: Family<ShedLabels, Counter>,
}

impl DnsMetrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            requests: Family::default(),
            upstream: Family::default(),
            failures: Family::default(),
            duration: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            on_demand: Family::default(),
            shed: Family::default(),
        };
        // All are there from the beginning: a counter that appears with its first event hides that event from a rate.
        for reason in DnsShed::ALL {
            let _ = metrics.shed.get_or_create(&ShedLabels {
                reason: reason.as_str(),
            });
        }
        registry.register(
            "lateen_dns_shed",
            "Questions and connections for DNS that were turned away because their pod or the proxy had too many, by what there was too much of",
            metrics.shed.clone(),
        );
        let istio = registry.sub_registry_with_prefix("istio");
        istio.register(
            "dns_requests",
            "Total number of DNS requests (unstable)",
            metrics.requests.clone(),
        );
        istio.register(
            "dns_upstream_requests",
            "Total number of DNS requests forwarded to upstream (unstable)",
            metrics.upstream.clone(),
        );
        istio.register(
            "dns_upstream_failures",
            "Total number of DNS requests that upstream did not answer (unstable)",
            metrics.failures.clone(),
        );
        istio.register_with_unit(
            "dns_upstream_request_duration",
            "Time that upstream took to answer a DNS request (unstable)",
            Unit::Seconds,
            metrics.duration.clone(),
        );
        istio.register(
            "on_demand_dns",
            "Total number of connections to a workload that has a hostname (unstable)",
            metrics.on_demand.clone(),
        );
        metrics
    }

    /// Counts a question.
    pub fn asked(&self, labels: &DnsLabels) {
        self.requests.get_or_create(labels).inc();
    }

    /// Counts a question that was forwarded, and how that ended.
    pub fn forwarded(&self, labels: &DnsLabels, took: Duration, answered: bool) {
        self.upstream.get_or_create(labels).inc();
        self.duration
            .get_or_create(labels)
            .observe(took.as_secs_f64());
        if !answered {
            self.failures.get_or_create(labels).inc();
        }
    }

    /// Counts a connection to a workload that has a hostname.
    pub fn on_demand(&self, labels: &OnDemandDnsLabels) {
        self.on_demand.get_or_create(labels).inc();
    }

    /// Counts a question or a connection that was turned away.
    pub fn shed(&self, reason: DnsShed) {
        let reason = reason.as_str();
        self.shed.get_or_create(&ShedLabels { reason }).inc();
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text;

    use super::*;

    #[test]
    fn the_names_are_ztunnels() {
        let mut registry = Registry::default();
        let metrics = DnsMetrics::register(&mut registry);
        let labels = DnsLabels {
            request_query_type: "aaaa".to_owned(),
            request_protocol: "udp",
            source_canonical_service: known("web"),
            source_canonical_revision: known(""),
        };
        metrics.asked(&labels);
        metrics.forwarded(&labels, Duration::from_millis(2), false);
        metrics.shed(DnsShed::Descriptors);
        let mut page = String::new();
        text::encode(&mut page, &registry).unwrap();
        let set = r#"{request_query_type="aaaa",request_protocol="udp",source_canonical_service="web",source_canonical_revision="unknown"}"#;
        for line in [
            format!("istio_dns_requests_total{set} 1"),
            format!("istio_dns_upstream_requests_total{set} 1"),
            format!("istio_dns_upstream_failures_total{set} 1"),
            format!("istio_dns_upstream_request_duration_seconds_count{set} 1"),
            r#"lateen_dns_shed_total{reason="descriptors"} 1"#.to_owned(),
            r#"lateen_dns_shed_total{reason="questions"} 0"#.to_owned(),
        ] {
            assert!(page.lines().any(|had| had == line), "{line}\n{page}");
        }
    }
}
