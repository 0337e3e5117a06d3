//! A parsed policy. The serialized form is the one that ztunnel dumps and `istioctl ztunnel-config` reads.

use ipnet::IpNet;
use lateen_types::{NamespacedName, Strng};
use serde::{Serialize, Serializer};

/// One authorization policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Policy {
    /// Name and namespace, as on the wire; serialized as its author wrote it.
    #[serde(flatten, with = "name_beside_namespace")]
    pub name: NamespacedName,
    /// Whom it covers.
    pub scope: Scope,
    /// What a match means.
    pub action: Action,
    /// It matches if any rule does; without rules it never matches.
    pub rules: Vec<Rule>,
    /// Report what it would do, do not do it.
    pub dry_run: bool,
}

/// Matches if every clause does.
pub type Rule = Vec<Clause>;

/// Matches if any match does, and always if there is none.
pub type Clause = Vec<Match>;

/// Which workloads a policy covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Scope {
    /// Every workload.
    Global,
    /// The workloads of the policy's namespace.
    Namespace,
    /// The workloads that name the policy.
    WorkloadSelector,
}

/// What a match means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Action {
    /// Connections that match are served; if no ALLOW policy matches, none is.
    Allow,
    /// Connections that match are refused, whatever else allows them.
    Deny,
}

/// Attributes of a connection: those that are given must all match, and the values of one are alternatives. A match
/// that gives none never matches.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Match {
    /// The peer's namespace; empty text for a peer without identity.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<StringMatch>,
    /// None of these.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_namespaces: Vec<StringMatch>,
    /// The peer's service account.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub service_accounts: Vec<ServiceAccount>,
    /// None of these.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_service_accounts: Vec<ServiceAccount>,
    /// The peer's identity without `spiffe://`; a peer without identity matches no value.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub principals: Vec<StringMatch>,
    /// None of these.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_principals: Vec<StringMatch>,
    /// Where the connection comes from.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub source_ips: Vec<IpNet>,
    /// None of these.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_source_ips: Vec<IpNet>,
    /// The workload's address.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub destination_ips: Vec<IpNet>,
    /// None of these.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_destination_ips: Vec<IpNet>,
    /// The port that the application listens on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub destination_ports: Vec<u16>,
    /// None of these.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_destination_ports: Vec<u16>,
}

/// A pattern over a text.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum StringMatch {
    /// The whole text.
    Exact(Strng),
    /// How it begins.
    Prefix(Strng),
    /// How it ends.
    Suffix(Strng),
    /// Anything but the empty text.
    Presence,
}

/// A service account of any trust domain.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceAccount {
    /// Its namespace.
    pub namespace: Strng,
    /// Its name.
    #[serde(rename = "serviceAccount")]
    pub name: Strng,
}

impl Serialize for StringMatch {
    /// Externally tagged; presence carries an empty list, because readers expect an object.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        const ENUM: &str = "StringMatch";
        match self {
            StringMatch::Prefix(text) => {
                serializer.serialize_newtype_variant(ENUM, 0, "Prefix", &**text)
            }
            StringMatch::Suffix(text) => {
                serializer.serialize_newtype_variant(ENUM, 1, "Suffix", &**text)
            }
            StringMatch::Exact(text) => {
                serializer.serialize_newtype_variant(ENUM, 2, "Exact", &**text)
            }
            StringMatch::Presence => {
                serializer.serialize_newtype_variant::<[(); 0]>(ENUM, 3, "Presence", &[])
            }
        }
    }
}

mod name_beside_namespace {
    use super::{NamespacedName, Serializer};
    use serde::ser::SerializeMap;

    pub fn serialize<S: Serializer>(
        name: &NamespacedName,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(2))?;
        map.serialize_entry("name", crate::written(&name.name))?;
        map.serialize_entry("namespace", &*name.namespace)?;
        map.end()
    }
}
