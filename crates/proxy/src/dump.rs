//! Page `/config_dump`: the configuration of this proxy, under the keys that Istio's tools look for.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use lateen_identity::{Manager, State};
use lateen_telemetry::rfc3339;
use lateen_tls::CertificateInfo;
use lateen_types::Direction;
use serde_json::{Value, json};

use crate::VERSION;
use crate::connection_table::Listed;
use crate::current::Current;
use crate::node::{NodeHandle, Request};
use crate::pod::Pod;
use crate::pods::Table;
use crate::settings::Settings;

/// What the dump is made of when somebody asks.
pub struct Sources {
    /// The configuration in force.
    pub current: Current,
    /// The pods in service.
    pub pods: Table,
    /// Certificates.
    pub certificates: Manager,
    /// What the environment asked for.
    pub settings: Settings,
    /// The workers, for their connections.
    pub workers: Vec<NodeHandle>,
}

impl Sources {
    /// The whole page.
    pub async fn dump(&self) -> Value {
        let mut page = configuration(&self.current);
        page["config"] = self.config();
        page["certificates"] = certificate_states(&self.certificates);
        page["workloadState"] = self.pod_states().await;
        page["ejectedEndpoints"] = self.ejected().await;
        page
    }

    /// What each worker leaves out because connections to it keep failing.
    async fn ejected(&self) -> Value {
        let mut endpoints = Vec::new();
        for (index, worker) in self.workers.iter().enumerate() {
            let out = worker.ask(Request::Ejected).await.unwrap_or_default();
            endpoints.extend(out.into_iter().map(|endpoint| {
                json!({
                    "worker": index,
                    "pod": endpoint.pod.to_string(),
                    "workload": endpoint.workload.to_string(),
                    "port": endpoint.port,
                    "secondsLeft": endpoint.left.as_secs_f64(),
                })
            }));
        }
        endpoints.into()
    }

    async fn pod_states(&self) -> Value {
        let mut connections = Vec::new();
        for worker in &self.workers {
            let listed = worker.ask(Request::Connections).await;
            connections.extend(listed.unwrap_or_default());
        }
        let of = |pod: &Pod, direction: Direction| -> Vec<Value> {
            connections
                .iter()
                .filter(|listed| listed.direction == direction && listed.pod.uid == pod.uid)
                .map(connection)
                .collect()
        };
        let states = self.pods.pods().into_iter().map(|pod| {
            let state = json!({
                "state": "Up",
                "connections": {
                    "inbound": of(&pod, Direction::Inbound),
                    "outbound": of(&pod, Direction::Outbound),
                },
                "info": {
                    "name": pod.info.name,
                    "namespace": pod.info.namespace,
                    "serviceAccount": pod.info.service_account,
                },
            });
            (pod.uid.to_string(), state)
        });
        states.collect::<serde_json::Map<_, _>>().into()
    }

    fn config(&self) -> Value {
        let settings = &self.settings;
        json!({
            "localNode": settings.common.node_name,
            "proxyMode": "Shared",
            "clusterId": settings.common.cluster_id,
            "network": settings.common.network,
            "trustDomain": settings.common.trust_domain,
            "trustDomainAliases": settings.common.trust_domain_aliases,
            "crlPath": settings.common.revocation_lists,
            "compliancePolicy": settings.common.compliance.as_str(),
            "xdsAddress": settings.common.xds.address,
            "xdsRootCert": settings.common.xds.roots,
            "caAddress": settings.common.ca.address,
            "caRootCert": settings.common.ca.roots,
            "inpodUds": settings.zds_socket,
            "numWorkerThreads": settings.common.workers,
            "packetMark": settings.sockets.mark,
            "ipv6Enabled": settings.sockets.ipv6,
            "poolMaxStreamsPerConn": settings.common.streams_per_tunnel,
            "windowSize": settings.common.stream_window,
            "connectionWindowSize": settings.common.tunnel_window,
            "frameSize": settings.common.frame_size,
            "adminAddr": settings.admin,
            "statsAddr": settings.common.stats,
            "readinessAddr": settings.common.readiness,
            "selfTerminationDeadline": format!("{:?}", settings.common.termination_deadline),
        })
    }
}

/// The configuration in force, with the version of this binary.
pub fn configuration(current: &Current) -> Value {
    let mut page = match current.get() {
        Some(snapshot) => serde_json::to_value(snapshot.dump()).expect("a snapshot can be written"),
        None => json!({"workloads": [], "services": [], "policies": [], "stagedServices": {}}),
    };
    page["appliedUpdates"] = json!(current.get().map(|snapshot| snapshot.generation()));
    page["version"] = json!({"version": VERSION, "gitTag": VERSION, "istioVersion": VERSION});
    page["staticConfig"] = json!({"workloads": [], "services": [], "policies": []});
    page
}

/// The certificates and how it stands with each.
pub fn certificate_states(manager: &Manager) -> Value {
    let mut states = manager.states();
    states.sort_by_key(|(identity, _)| identity.to_string());
    states
        .into_iter()
        .map(|(identity, state)| {
            let word = match &state {
                State::Fetching { .. } => "Initializing".to_owned(),
                State::Ready(_) => "Available".to_owned(),
                State::Failing { kept: Some(_), error, .. } => format!("Available, renewal fails: {error}"),
                State::Failing { kept: None, error, .. } => format!("Unavailable: {error}"),
            };
            let (chain, roots) = state
                .credentials()
                .map(|credentials| (certificates(credentials.chain()), certificates(credentials.roots())))
                .unwrap_or_default();
            json!({"identity": identity.to_string(), "state": word, "certChain": chain, "rootCerts": roots})
        })
        .collect()
}

fn certificates(chain: &[CertificateInfo]) -> Vec<Value> {
    chain
        .iter()
        .map(|certificate| {
            json!({
                "pem": STANDARD.encode(certificate.pem()),
                "serialNumber": certificate.serial,
                "validFrom": rfc3339(certificate.not_before),
                "expirationTime": rfc3339(certificate.not_after),
            })
        })
        .collect()
}

fn connection(listed: &Listed) -> Value {
    json!({
        "src": listed.source,
        "originalDst": listed.wanted,
        "actualDst": listed.destination,
        "protocol": if listed.tunnelled { "HBONE" } else { "TCP" },
        "peer": listed.peer.as_ref().map(ToString::to_string),
        "tunnel": listed.tunnel,
        "allowedBy": listed.judgement.allowed_by.as_ref().map(ToString::to_string),
        "state": listed.state.as_str(),
        "ageSeconds": listed.age.as_secs_f64(),
        "bytes": {"clientToServer": listed.to_server, "serverToClient": listed.to_client},
    })
}
