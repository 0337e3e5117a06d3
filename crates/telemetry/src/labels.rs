//! The label set of `istio_tcp_*`: Istio's standard metrics as ztunnel fills them.

use std::fmt::{self, Write as _};

use lateen_types::{Direction, Identity, Strng};
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue as _, LabelSetEncoder};

/// Which end of a connection reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reporter {
    /// The client's proxy.
    Source,
    /// The server's proxy.
    Destination,
}

impl From<Direction> for Reporter {
    fn from(direction: Direction) -> Self {
        match direction {
            Direction::Outbound => Self::Source,
            Direction::Inbound => Self::Destination,
        }
    }
}

impl Reporter {
    /// The label's value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Destination => "destination",
        }
    }

    /// The access log's word for it.
    pub fn direction(self) -> &'static str {
        match self {
            Self::Source => "outbound",
            Self::Destination => "inbound",
        }
    }
}

/// What cut a connection short; `None` for one that was served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ResponseFlags {
    /// Served.
    #[default]
    None,
    /// An authorization policy denied it.
    Denied,
    /// The upstream could not be reached or broke.
    ConnectionFailure,
    /// TLS with the peer failed.
    TlsFailure,
    /// The peer's certificate is revoked.
    CertificateRevoked,
    /// The peer does not speak HTTP/2 as a tunnel should.
    Http2Handshake,
    /// The tunnel's port did not answer: a NetworkPolicy may block it.
    NetworkPolicy,
    /// No certificate for the workload on this side.
    Identity,
}

impl ResponseFlags {
    /// The label's value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "-",
            Self::Denied => "DENY",
            Self::ConnectionFailure => "CONNECT",
            Self::TlsFailure => "TLS_FAILURE",
            Self::CertificateRevoked => "CERT_REVOKED",
            Self::Http2Handshake => "H2_HANDSHAKE_FAILURE",
            Self::NetworkPolicy => "NETWORK_POLICY",
            Self::Identity => "IDENTITY_ERROR",
        }
    }
}

/// What protects a connection between the two proxies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Security {
    /// Both ends proved who they are.
    MutualTls,
    /// Nothing that we know of.
    Unknown,
}

impl Security {
    fn as_str(self) -> &'static str {
        match self {
            Self::MutualTls => "mutual_tls",
            Self::Unknown => "unknown",
        }
    }
}

/// One end of a connection; what is not known is reported as `unknown`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Party {
    /// The workload that the pod belongs to, such as a Deployment.
    pub workload: Option<Strng>,
    /// Istio's canonical service.
    pub canonical_service: Option<Strng>,
    /// Its revision.
    pub canonical_revision: Option<Strng>,
    /// The namespace.
    pub namespace: Option<Strng>,
    /// The identity: of a source, only one that TLS proved.
    pub principal: Option<Identity>,
    /// The `app` label.
    pub app: Option<Strng>,
    /// The `version` label.
    pub version: Option<Strng>,
    /// The cluster.
    pub cluster: Option<Strng>,
    /// Region and zone; the labels are left out where neither end has a locality.
    pub locality: Option<(Option<Strng>, Option<Strng>)>,
}

/// The service that a connection was addressed to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Service {
    /// Its host name.
    pub hostname: Strng,
    /// Its name.
    pub name: Strng,
    /// Its namespace.
    pub namespace: Strng,
}

/// All labels of one series.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Labels {
    /// Which end reports.
    pub reporter: Reporter,
    /// The client.
    pub source: Party,
    /// The service, where one was addressed.
    pub service: Option<Service>,
    /// The server.
    pub destination: Party,
    /// How it ended.
    pub flags: ResponseFlags,
    /// What protects it.
    pub security: Security,
}

impl EncodeLabelSet for Labels {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> Result<(), fmt::Error> {
        let mut put = |name: &str, value: &str| -> fmt::Result {
            let mut label = encoder.encode_label();
            let mut key = label.encode_label_key()?;
            key.write_str(name)?;
            let mut encoded = key.encode_label_value()?;
            value.encode(&mut encoded)?;
            encoded.finish()
        };
        put("reporter", self.reporter.as_str())?;
        party(&mut put, "source", &self.source)?;
        let service = self.service.as_ref();
        put(
            "destination_service",
            or_unknown(service.map(|s| &s.hostname)),
        )?;
        put(
            "destination_service_namespace",
            or_unknown(service.map(|s| &s.namespace)),
        )?;
        put(
            "destination_service_name",
            or_unknown(service.map(|s| &s.name)),
        )?;
        party(&mut put, "destination", &self.destination)?;
        put("request_protocol", "tcp")?;
        put("response_flags", self.flags.as_str())?;
        put("connection_security_policy", self.security.as_str())?;
        if self.source.locality.is_some() || self.destination.locality.is_some() {
            for (side, party) in [("source", &self.source), ("destination", &self.destination)] {
                let (region, zone) = party
                    .locality
                    .as_ref()
                    .map_or((None, None), |(r, z)| (r.as_ref(), z.as_ref()));
                put(&format!("{side}_region"), or_unknown(region))?;
                put(&format!("{side}_zone"), or_unknown(zone))?;
            }
        }
        Ok(())
    }
}

fn party(
    put: &mut impl FnMut(&str, &str) -> fmt::Result,
    side: &str,
    party: &Party,
) -> fmt::Result {
    let principal = party.principal.as_ref().map(ToString::to_string);
    let mut name = String::with_capacity(40);
    for (label, value) in [
        ("workload", or_unknown(party.workload.as_ref())),
        (
            "canonical_service",
            or_unknown(party.canonical_service.as_ref()),
        ),
        (
            "canonical_revision",
            or_unknown(party.canonical_revision.as_ref()),
        ),
        ("workload_namespace", or_unknown(party.namespace.as_ref())),
        ("principal", principal.as_deref().unwrap_or("unknown")),
        ("app", or_unknown(party.app.as_ref())),
        ("version", or_unknown(party.version.as_ref())),
        ("cluster", or_unknown(party.cluster.as_ref())),
    ] {
        name.clear();
        write!(name, "{side}_{label}")?;
        put(&name, value)?;
    }
    Ok(())
}

/// Istio's word for what is not known, and for what is empty.
fn or_unknown(value: Option<&Strng>) -> &str {
    value
        .map(AsRef::as_ref)
        .filter(|text: &&str| !text.is_empty())
        .unwrap_or("unknown")
}
