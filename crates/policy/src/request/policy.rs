//! Parsed L7 policies. Their serialized form is the one of the dump.

use std::fmt;

use ipnet::IpNet;
use lateen_http::FieldName;
use lateen_types::{NamespacedName, Strng};
use serde::{Serialize, Serializer};

use super::path::PathPattern;
use crate::policy::{ServiceAccount, StringMatch};

/// One authorization policy of requests. It does not say what it is attached to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestPolicy {
    /// Namespace and name of the AuthorizationPolicy.
    pub name: NamespacedName,
    /// The consequence of a match.
    pub action: RequestAction,
    /// The policy is judged and reported, and enforces nothing.
    #[serde(skip_serializing_if = "is_false")]
    pub dry_run: bool,
    /// The extension provider of a CUSTOM policy; empty for other actions.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub provider: Strng,
    /// The policy matches if any rule does. Without rules it never matches.
    pub rules: Vec<RequestRule>,
}

/// The consequence of a match.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum RequestAction {
    /// Requests that match are served. If no ALLOW policy matches, none is.
    Allow,
    /// Requests that match are refused, whatever else allows them.
    Deny,
    /// Requests that match are reported.
    Audit,
    /// An extension provider decides about requests that match. No provider is called yet: they are refused.
    Custom,
}

/// Matches if one source (when there are any), one operation (when there are any) and every condition do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct RequestRule {
    /// Alternatives for the peer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub from: Vec<SourceMatch>,
    /// Alternatives for the request.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub to: Vec<OperationMatch>,
    /// Conditions, all of which must hold.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub when: Vec<ConditionMatch>,
}

/// The values of one attribute. One of `any` must match, unless there are none; none of `not` may match.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Values<T> {
    /// Alternatives.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub any: Vec<T>,
    /// Exceptions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not: Vec<T>,
}

impl<T> Default for Values<T> {
    fn default() -> Self {
        Self {
            any: Vec::new(),
            not: Vec::new(),
        }
    }
}

impl<T> Values<T> {
    /// True if the attribute is not mentioned.
    pub fn is_empty(&self) -> bool {
        self.any.is_empty() && self.not.is_empty()
    }

    /// True if the values admit an attribute, of which `is` says whether it matches one value.
    #[inline]
    pub(super) fn admit(&self, mut is: impl FnMut(&T) -> bool) -> bool {
        (self.any.is_empty() || self.any.iter().any(&mut is)) && !self.not.iter().any(is)
    }
}

/// Attributes of the peer and its tokens. Those that are mentioned must all match. A source that mentions none never matches.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SourceMatch {
    /// The peer's identity without `spiffe://`.
    #[serde(skip_serializing_if = "Values::is_empty")]
    pub principals: Values<StringMatch>,
    /// `issuer/subject` of a verified token.
    #[serde(skip_serializing_if = "Values::is_empty")]
    pub request_principals: Values<StringMatch>,
    /// The peer's namespace.
    #[serde(skip_serializing_if = "Values::is_empty")]
    pub namespaces: Values<StringMatch>,
    /// The peer's service account.
    #[serde(skip_serializing_if = "Values::is_empty")]
    pub service_accounts: Values<ServiceAccount>,
    /// The peer's trust domain, as its certificate has it.
    #[serde(skip_serializing_if = "Values::is_empty")]
    pub trust_domains: Values<StringMatch>,
    /// The direct peer's address.
    #[serde(skip_serializing_if = "Values::is_empty")]
    pub ip_blocks: Values<IpNet>,
    /// The client's address as far as header trust believes it.
    #[serde(skip_serializing_if = "Values::is_empty")]
    pub remote_ip_blocks: Values<IpNet>,
}

impl SourceMatch {
    /// True if it mentions no attribute.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Attributes of the request. Those that are mentioned must all match. An operation that mentions none never matches.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OperationMatch {
    /// `:authority` with its port, without regard to case. Presence matches every authority.
    #[serde(skip_serializing_if = "Values::is_empty")]
    pub hosts: Values<StringMatch>,
    /// The port that the CONNECT named.
    #[serde(skip_serializing_if = "Values::is_empty")]
    pub ports: Values<u16>,
    /// The method. Presence matches every method.
    #[serde(skip_serializing_if = "Values::is_empty")]
    pub methods: Values<StringMatch>,
    /// The canonical path without the query.
    #[serde(skip_serializing_if = "Values::is_empty")]
    pub paths: Values<PathPattern>,
}

impl OperationMatch {
    /// True if it mentions no attribute.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// One attribute of Istio's `when`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum ConditionMatch {
    /// `request.headers[name]`. Presence matches a field with an empty value too.
    Header(HeaderName, Values<StringMatch>),
    /// `source.ip`.
    SourceIp(Values<IpNet>),
    /// `remote.ip`.
    RemoteIp(Values<IpNet>),
    /// `source.namespace`.
    SourceNamespace(Values<StringMatch>),
    /// `source.principal`.
    SourcePrincipal(Values<StringMatch>),
    /// `source.serviceAccount`.
    SourceServiceAccount(Values<ServiceAccount>),
    /// `source.trustDomain`.
    SourceTrustDomain(Values<StringMatch>),
    /// `destination.ip`.
    DestinationIp(Values<IpNet>),
    /// `destination.port`.
    DestinationPort(Values<u16>),
    /// `connection.sni`.
    Sni(Values<StringMatch>),
    /// `request.auth.principal`.
    TokenPrincipal(Values<StringMatch>),
    /// `request.auth.audiences`.
    TokenAudiences(Values<StringMatch>),
    /// `request.auth.presenter`.
    TokenPresenter(Values<StringMatch>),
    /// `request.auth.claims[a][b]`, with the names from the outer to the inner.
    TokenClaim(Vec<Strng>, Values<StringMatch>),
}

/// The name of a field in `request.headers[name]`. Envoy's pseudo-header fields are names too, and `host` is `:authority`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum HeaderName {
    /// `:authority`, and `host`.
    Authority,
    /// `:method`.
    Method,
    /// `:path`: the target with its query.
    Target,
    /// `:scheme`.
    Scheme,
    /// A field.
    Field(FieldName),
}

impl HeaderName {
    /// The name of a field or of a pseudo-header field, in any case of letters.
    ///
    /// # Errors
    /// The text is neither.
    pub fn new(name: &str) -> Result<Self, HeaderNameError> {
        Ok(match &*name.to_ascii_lowercase() {
            ":authority" | "host" => HeaderName::Authority,
            ":method" => HeaderName::Method,
            ":path" => HeaderName::Target,
            ":scheme" => HeaderName::Scheme,
            lower => HeaderName::Field(FieldName::new(lower).ok_or_else(|| HeaderNameError {
                name: name.to_owned(),
            })?),
        })
    }

    /// The name in lower case.
    pub fn as_str(&self) -> &str {
        match self {
            HeaderName::Authority => ":authority",
            HeaderName::Method => ":method",
            HeaderName::Target => ":path",
            HeaderName::Scheme => ":scheme",
            HeaderName::Field(name) => name.as_str(),
        }
    }
}

impl fmt::Display for HeaderName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for HeaderName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// A text that is no name of a field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} is not the name of a field; use a token, :authority, :method, :path or :scheme")]
pub struct HeaderNameError {
    name: String,
}

fn is_false(value: &bool) -> bool {
    !value
}
