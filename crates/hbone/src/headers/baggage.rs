//! `baggage`: the description of a workload that one side of a tunnel sends for the other side's telemetry.
//!
//! The keys are those of Istio's proxies. Nothing in it is proven: it labels metrics and decides nothing.

use std::fmt;

use lateen_types::Strng;

/// The kind of object that runs a workload; part of the key of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum WorkloadKind {
    /// `k8s.deployment.name`
    #[default]
    Deployment,
    /// `k8s.cronjob.name`
    CronJob,
    /// `k8s.pod.name`
    Pod,
    /// `k8s.job.name`
    Job,
}

impl WorkloadKind {
    fn key(self) -> &'static str {
        match self {
            WorkloadKind::Deployment => "k8s.deployment.name",
            WorkloadKind::CronJob => "k8s.cronjob.name",
            WorkloadKind::Pod => "k8s.pod.name",
            WorkloadKind::Job => "k8s.job.name",
        }
    }

    const ALL: [WorkloadKind; 4] = [
        WorkloadKind::Deployment,
        WorkloadKind::CronJob,
        WorkloadKind::Pod,
        WorkloadKind::Job,
    ];
}

/// A workload's description of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Baggage {
    /// `k8s.cluster.name`
    pub cluster: Option<Strng>,
    /// `k8s.namespace.name`
    pub namespace: Option<Strng>,
    /// The kind of [`Baggage::workload`].
    pub kind: WorkloadKind,
    /// `k8s.<kind>.name`
    pub workload: Option<Strng>,
    /// `service.name`: the canonical service.
    pub service: Option<Strng>,
    /// `service.version`: the canonical revision.
    pub revision: Option<Strng>,
    /// `cloud.region`
    pub region: Option<Strng>,
    /// `cloud.availability_zone`
    pub zone: Option<Strng>,
}

impl Baggage {
    /// Bytes that the header of a request or an answer may have, in all its lines. A longer one counts as missing. A stream may keep what
    /// it says for as long as it lives, and HPACK repeats it for one byte. Proxies of the mesh send about 300 bytes.
    pub const LONGEST: usize = 4096;

    /// Reads a header value. What is not understood is left out; there are no errors.
    pub fn parse(header: &str) -> Self {
        let mut baggage = Baggage::default();
        baggage.read(header);
        baggage
    }

    /// Reads one more header value: a list header may come in several lines (RFC 9110 §5.3).
    pub fn read(&mut self, header: &str) {
        for member in header.split(',') {
            // W3C baggage §3.3.1: properties may follow the value.
            let member = member.split(';').next().unwrap_or_default();
            let Some((key, value)) = member.split_once('=') else {
                continue;
            };
            let value = value.trim();
            let value = || (!value.is_empty()).then(|| Strng::from(value));
            match key.trim() {
                "k8s.cluster.name" => self.cluster = value(),
                "k8s.namespace.name" => self.namespace = value(),
                "service.name" => self.service = value(),
                "service.version" => self.revision = value(),
                "cloud.region" => self.region = value(),
                "cloud.availability_zone" => self.zone = value(),
                key => {
                    if let Some(kind) = WorkloadKind::ALL.into_iter().find(|k| k.key() == key) {
                        self.kind = kind;
                        self.workload = value();
                    }
                }
            }
        }
    }
}

impl fmt::Display for Baggage {
    /// The header value. Empty members are left out, and so are values that the header cannot carry.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let members = [
            ("k8s.cluster.name", &self.cluster),
            ("k8s.namespace.name", &self.namespace),
            (self.kind.key(), &self.workload),
            ("service.name", &self.service),
            ("service.version", &self.revision),
            ("cloud.region", &self.region),
            ("cloud.availability_zone", &self.zone),
        ];
        let mut separator = "";
        for (key, value) in members {
            let Some(value) = value.as_deref().filter(|value| is_plain(value)) else {
                continue;
            };
            write!(f, "{separator}{key}={value}")?;
            separator = ",";
        }
        Ok(())
    }
}

/// The characters of a baggage value, W3C baggage §3.3.1: no quoting exists, so others cannot be sent.
fn is_plain(value: &str) -> bool {
    !value.is_empty()
        && value
            .bytes()
            .all(|b| b.is_ascii_graphic() && !matches!(b, b'"' | b',' | b';' | b'\\'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::option;
    use proptest::prelude::*;

    fn value() -> impl Strategy<Value = Option<Strng>> {
        option::of("[a-zA-Z0-9./_=-]{1,16}".prop_map(Strng::from))
    }

    fn baggage() -> impl Strategy<Value = Baggage> {
        let kind = prop::sample::select(WorkloadKind::ALL.to_vec());
        (
            value(),
            value(),
            kind,
            value(),
            value(),
            value(),
            value(),
            value(),
        )
            .prop_map(
                |(cluster, namespace, kind, workload, service, revision, region, zone)| Baggage {
                    cluster,
                    namespace,
                    kind: if workload.is_some() {
                        kind
                    } else {
                        WorkloadKind::default()
                    },
                    workload,
                    service,
                    revision,
                    region,
                    zone,
                },
            )
    }

    #[test]
    fn spells_the_keys_of_the_mesh() {
        let full = Baggage {
            cluster: Some("K1".into()),
            namespace: Some("NS1".into()),
            kind: WorkloadKind::Deployment,
            workload: Some("W1".into()),
            service: Some("S1".into()),
            revision: Some("V1".into()),
            region: Some("R1".into()),
            zone: Some("Z1".into()),
        };
        assert_eq!(
            full.to_string(),
            "k8s.cluster.name=K1,k8s.namespace.name=NS1,k8s.deployment.name=W1,service.name=S1,\
             service.version=V1,cloud.region=R1,cloud.availability_zone=Z1"
        );
    }

    #[test]
    fn reads_empty_values_and_spaces_and_properties() {
        let read =
            Baggage::parse("k8s.cluster.name=, service.name = web ;x=y,unknown=1,service.version");
        assert_eq!(read.cluster, None);
        assert_eq!(read.service.as_deref(), Some("web"));
        assert_eq!(read.revision, None);
    }

    #[test]
    fn a_value_cannot_smuggle_a_member() {
        let evil = Baggage {
            service: Some("web,k8s.namespace.name=kube-system".into()),
            ..Default::default()
        };
        assert_eq!(evil.to_string(), "");
    }

    proptest! {
        #[test]
        fn round_trips(baggage in baggage()) {
            prop_assert_eq!(Baggage::parse(&baggage.to_string()), baggage);
        }

        #[test]
        fn never_panics(text in "\\PC{0,80}|([a-z0-9.]{0,20}[=,;]){0,8}") {
            let read = Baggage::parse(&text);
            prop_assert!(http::HeaderValue::from_str(&read.to_string()).is_ok());
        }
    }
}
