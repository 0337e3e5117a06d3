//! Gateways and the settings of the mesh that their proxies obey.

use std::time::Duration;

use bytes::Bytes;
use lateen_policy::request::TrustDomains;
use lateen_proto::l7 as proto;
use lateen_types::{NamespacedName, Strng};
use serde::Serialize;

use super::message;
use crate::resource::Resource;
use crate::{Rejection, wire};

/// A Gateway.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Gateway {
    /// Its name.
    pub name: NamespacedName,
    /// Its GatewayClass.
    pub class: Strng,
    /// Namespace and service account of its proxies.
    pub identity: NamespacedName,
    /// The destinations whose traffic it takes.
    pub traffic: Traffic,
    /// The settings of the mesh.
    pub settings: MeshSettings,
}

/// The destinations whose traffic a Gateway takes: Istio's label `istio.io/waypoint-for`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Traffic {
    /// Services.
    Service,
    /// Workloads.
    Workload,
    /// Both.
    All,
    /// Neither.
    None,
}

/// The part of Istio's MeshConfig that proxies obey.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MeshSettings {
    /// The one form of paths.
    pub path_normalization: PathNormalization,
    /// The access log.
    pub access_log: AccessLog,
    /// The trust domain of the mesh.
    pub trust_domain: Strng,
    /// Trust domains that count as the mesh's own in principals of policies.
    pub trust_domain_aliases: Vec<Strng>,
    /// How long a connection may take.
    pub connect_timeout: Duration,
    /// The default of retries; `None`: Istio's.
    pub retry: Option<Retry>,
    /// What happens to requests for destinations that the mesh does not know.
    pub outbound_policy: OutboundPolicy,
}

/// MeshConfig.pathNormalization.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum PathNormalization {
    /// RFC 3986, and `\` becomes `/`.
    Base,
    /// None.
    None,
    /// Base, and `//` becomes `/`.
    MergeSlashes,
    /// The same after the decoding of escaped slashes.
    DecodeAndMergeSlashes,
}

/// The access log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AccessLog {
    /// There is one.
    pub enabled: bool,
    /// Envoy's format; empty: Istio's default of the encoding.
    pub format: Strng,
    /// The form of a line.
    pub encoding: Encoding,
}

/// The form of a line of the access log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Encoding {
    /// Text by a format.
    Text,
    /// A JSON object.
    Json,
}

/// MeshConfig.defaultHttpRetryPolicy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Retry {
    /// Further attempts, at most.
    pub attempts: u32,
    /// Conditions of Envoy's `x-envoy-retry-on`, and status codes.
    pub on: Vec<Strng>,
    /// How long one attempt may take.
    pub per_try_timeout: Option<Duration>,
}

/// MeshConfig.outboundTrafficPolicy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum OutboundPolicy {
    /// They pass.
    AllowAny,
    /// They are refused.
    RegistryOnly,
}

/// The time limit of connections where the mesh sets none.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

impl Resource for Gateway {
    fn parse(name: &str, bytes: Bytes) -> Result<Self, Rejection> {
        let wire: proto::Gateway = message::whole(&bytes, |_| {})?;
        let identity = wire
            .identity
            .parse()
            .map_err(|error| Rejection::Invalid(format!("identity: {error}")))?;
        let settings = wire
            .settings
            .ok_or(Rejection::Missing { field: "settings" })?;
        Ok(Self {
            name: message::named(name, &wire.namespace, &wire.name)?,
            class: wire.class.into(),
            identity,
            traffic: match wire::known("traffic", wire.traffic)? {
                proto::Traffic::Service => Traffic::Service,
                proto::Traffic::Workload => Traffic::Workload,
                proto::Traffic::All => Traffic::All,
                proto::Traffic::None => Traffic::None,
            },
            settings: MeshSettings::parse(settings)?,
        })
    }
}

impl MeshSettings {
    fn parse(wire: proto::MeshSettings) -> Result<Self, Rejection> {
        use proto::PathNormalization as Wire;
        let texts = |list: Vec<String>| list.into_iter().map(Strng::from).collect();
        Ok(Self {
            path_normalization: match wire::known("path_normalization", wire.path_normalization)? {
                Wire::Base => PathNormalization::Base,
                Wire::NoNormalization => PathNormalization::None,
                Wire::MergeSlashes => PathNormalization::MergeSlashes,
                Wire::DecodeAndMergeSlashes => PathNormalization::DecodeAndMergeSlashes,
            },
            access_log: AccessLog::parse(wire.access_log.unwrap_or_default())?,
            trust_domain: match wire.trust_domain.as_str() {
                "" => {
                    return Err(Rejection::Missing {
                        field: "trust_domain",
                    });
                }
                domain => domain.into(),
            },
            trust_domain_aliases: texts(wire.trust_domain_aliases),
            connect_timeout: milliseconds(wire.connect_timeout_ms).unwrap_or(CONNECT_TIMEOUT),
            retry: wire.retry.map(|retry| Retry {
                attempts: retry.attempts,
                on: texts(retry.on),
                per_try_timeout: milliseconds(retry.per_try_timeout_ms),
            }),
            outbound_policy: match wire::known("outbound_policy", wire.outbound_policy)? {
                proto::OutboundPolicy::AllowAny => OutboundPolicy::AllowAny,
                proto::OutboundPolicy::RegistryOnly => OutboundPolicy::RegistryOnly,
            },
        })
    }

    /// The trust domains by which principals of policies are understood.
    pub fn trust_domains(&self) -> TrustDomains {
        let aliases = self.trust_domain_aliases.iter().cloned();
        TrustDomains::new(self.trust_domain.clone(), aliases)
    }
}

impl AccessLog {
    fn parse(wire: proto::AccessLog) -> Result<Self, Rejection> {
        Ok(Self {
            enabled: wire.enabled,
            format: wire.format.into(),
            encoding: match wire::known("encoding", wire.encoding)? {
                proto::access_log::Encoding::Text => Encoding::Text,
                proto::access_log::Encoding::Json => Encoding::Json,
            },
        })
    }
}

/// A duration; 0 is none.
fn milliseconds(number: u32) -> Option<Duration> {
    (number != 0).then(|| Duration::from_millis(number.into()))
}
