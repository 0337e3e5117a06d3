//! List of a proxy's telemetry for readers: every metric as its own registry renders it, and the fields of the access log.

use std::collections::BTreeSet;
use std::time::Duration;

use lateen_types::{Identity, Strng};

use crate::dns::{DnsLabels, OnDemandDnsLabels};
pub use crate::fields::{FIELDS, Field, REQUEST_FIELDS};
use crate::labels::{Labels, Party, Reporter, ResponseFlags, Security};
use crate::metrics::{Buffers, BuildInfo, HttpAccounts, HttpBuffers, Metrics, XdsTermination};
use crate::request::{Finished, GrpcStatus, Protocol, RequestFlags};

/// One metric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Family {
    /// Its name, as it is queried.
    pub name: String,
    /// `counter`, `gauge` or `histogram`.
    pub kind: String,
    /// What it counts.
    pub help: String,
    /// Its labels, in their order.
    pub labels: Vec<String>,
}

/// Every metric of a proxy.
#[must_use]
pub fn families() -> Vec<Family> {
    let build = BuildInfo {
        component: "ztunnel",
        tag: "0",
    };
    let metrics = Metrics::new(&build, || vec![0]);
    give_each_metric_a_series(&metrics);
    parse(&metrics.render())
}

/// A metric with labels is not rendered before it has a series; a new one gets its first here.
fn give_each_metric_a_series(metrics: &Metrics) {
    metrics.watch_shed(|| 0);
    metrics.watch_buffers(|| {
        ["receive", "send"].map(|direction| Buffers {
            direction,
            granted: 0,
            limit: 0,
        })
    });
    metrics.watch_http_buffers(|| HttpBuffers {
        accounts: ["process", "namespace", "identity"].map(|scope| HttpAccounts {
            scope,
            accounts: 0,
            largest: 0,
            limit: 0,
        }),
        waiting: 0,
    });
    let party = Party {
        workload: Some(Strng::from("w")),
        principal: Identity::new("t", "n", "s").ok(),
        locality: Some((None, None)),
        ..Party::default()
    };
    let labels = Labels {
        reporter: Reporter::Source,
        source: party.clone(),
        service: None,
        destination: party,
        flags: ResponseFlags::None,
        security: Security::Unknown,
    };
    metrics.requests().cell(labels.clone()).finish(&Finished {
        protocol: Protocol::Grpc,
        code: 200,
        grpc_status: Some(GrpcStatus::new(0)),
        flags: RequestFlags::None,
        duration: Duration::ZERO,
        request_bytes: 0,
        response_bytes: 0,
        request_messages: 1,
        response_messages: 1,
    });
    let (_, series) = metrics.traffic().series(labels);
    series.add_opened();
    series.add_closed(ResponseFlags::None);
    series.add_failed(ResponseFlags::None);
    metrics.open_sockets(Reporter::Source);
    metrics.pods_used(vec![("n".into(), "p".into(), Duration::ZERO)]);
    metrics.xds_message("type", 1);
    metrics.xds_terminated(XdsTermination::Complete);
    metrics.tunnel_opened(Reporter::Source);
    metrics.tunnel_closed(Reporter::Source, "done");
    metrics.certificate_requested(true);
    metrics.certificates_held("held", 0);
    metrics.connection_cut("reason");
    metrics.revocation_lists_read(true);
    metrics.dry_run("policy", "allow");
    let dns = DnsLabels {
        request_query_type: String::new(),
        request_protocol: "udp",
        source_canonical_service: String::new(),
        source_canonical_revision: String::new(),
    };
    metrics.dns().asked(&dns);
    metrics.dns().forwarded(&dns, Duration::ZERO, false);
    metrics.dns().on_demand(&OnDemandDnsLabels {
        source_workload: String::new(),
        source_canonical_service: String::new(),
        source_canonical_revision: String::new(),
        source_workload_namespace: String::new(),
        source_principal: String::new(),
        source_app: String::new(),
        source_version: String::new(),
        source_cluster: String::new(),
        hostname: String::new(),
    });
}

/// Reads a page of our own rendering; no label of it holds a quotation mark.
fn parse(page: &str) -> Vec<Family> {
    let mut families: Vec<Family> = Vec::new();
    let mut seen = BTreeSet::new();
    for line in page.lines() {
        if let Some((name, help)) = line
            .strip_prefix("# HELP ")
            .and_then(|rest| rest.split_once(' '))
        {
            families.push(Family {
                name: name.to_owned(),
                kind: String::new(),
                // The encoder ends each with a full stop of its own.
                help: help.strip_suffix('.').unwrap_or(help).to_owned(),
                labels: Vec::new(),
            });
        } else if let Some((_, kind)) = line
            .strip_prefix("# TYPE ")
            .and_then(|rest| rest.split_once(' '))
        {
            let family = families.last_mut().expect("HELP goes before TYPE");
            kind.clone_into(&mut family.kind);
            if kind == "counter" {
                family.name.push_str("_total");
            }
        } else if !line.starts_with('#')
            && let Some(labels) = line
                .split_once('{')
                .and_then(|(_, rest)| rest.rsplit_once('}'))
        {
            let family = families.last_mut().expect("HELP goes before series");
            for label in labels.0.split("\",") {
                let name = label.split('=').next().unwrap_or_default();
                if name != "le" && seen.insert((family.name.clone(), name.to_owned())) {
                    family.labels.push(name.to_owned());
                }
            }
        }
    }
    families
}

#[cfg(test)]
mod tests {
    use super::*;

    fn without_series(page: &str) -> Vec<&str> {
        let mut names = Vec::new();
        let mut last = "";
        for line in page.lines() {
            if !line.starts_with('#') {
                last = "";
            } else if let Some(rest) = line.strip_prefix("# HELP ") {
                names.extend(Some(last).filter(|last| !last.is_empty()));
                last = rest.split(' ').next().unwrap_or_default();
            }
            if line == "# EOF" && !last.is_empty() {
                names.push(last);
            }
        }
        names
    }

    /// A collector renders its name even if it has no series, and then nobody learns its labels.
    #[test]
    fn every_metric_has_a_series_to_show_its_labels() {
        let build = BuildInfo {
            component: "ztunnel",
            tag: "0",
        };
        let metrics = Metrics::new(&build, || vec![0]);
        assert!(without_series(&metrics.render()).contains(&"istio_tcp_connections_opened"));
        give_each_metric_a_series(&metrics);
        let missing = without_series(&metrics.render()).join(", ");
        assert_eq!(
            missing, "",
            "give it one in give_each_metric_a_series of crates/telemetry/src/reference.rs"
        );
    }

    #[test]
    fn a_metric_is_listed_as_it_is_queried() {
        let families = families();
        let find = |name: &str| {
            families
                .iter()
                .find(|family| family.name == name)
                .unwrap_or_else(|| panic!("{name} is not in {families:#?}"))
        };
        let tunnels = find("lateen_tunnels_closed_total");
        assert_eq!(tunnels.kind, "counter");
        assert_eq!(tunnels.labels, ["reporter", "reason"]);
        let opened = find("istio_tcp_connections_opened_total");
        assert!(
            opened
                .labels
                .contains(&"connection_security_policy".to_owned())
        );
        assert!(opened.labels.contains(&"source_zone".to_owned()));
        let took = find("istio_dns_upstream_request_duration_seconds");
        assert_eq!(took.kind, "histogram");
        assert!(!took.labels.contains(&"le".to_owned()));
        assert!(find("lateen_revoked_certificates").labels.is_empty());
        assert!(families.iter().all(|family| !family.help.is_empty()));
    }
}
