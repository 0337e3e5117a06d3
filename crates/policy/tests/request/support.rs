//! Short ways to write policies, peers and requests.

use std::net::IpAddr;
use std::sync::Arc;

use lateen_http::FieldName;
use lateen_policy::StringMatch;
use lateen_policy::request::{
    AppliedRequest, ConditionMatch, HeaderName, OperationMatch, PathPattern, PathTemplate,
    PeerFacts, RequestAction, RequestFacts, RequestPolicies, RequestPolicy, RequestRule,
    SourceMatch, TrustDomains, Values,
};
use lateen_types::{Identity, NamespacedName, VerifiedPeer};

/// A request whose parts are given as text.
#[derive(Debug, Clone)]
pub struct Request {
    pub authority: Vec<u8>,
    pub method: Vec<u8>,
    pub target: Vec<u8>,
    pub fields: Vec<(String, Vec<u8>)>,
    pub remote: IpAddr,
    pub token: bool,
}

impl Default for Request {
    fn default() -> Self {
        Self {
            authority: b"web.shop.svc.cluster.local:8080".to_vec(),
            method: b"GET".to_vec(),
            target: b"/".to_vec(),
            fields: Vec::new(),
            remote: [203, 0, 113, 9].into(),
            token: false,
        }
    }
}

impl Request {
    pub fn get(target: impl AsRef<[u8]>) -> Self {
        Self {
            target: target.as_ref().to_vec(),
            ..Self::default()
        }
    }

    pub fn for_host(authority: &str) -> Self {
        Self {
            authority: authority.into(),
            ..Self::default()
        }
    }

    pub fn with(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.fields.push((name.into(), value.as_ref().to_vec()));
        self
    }
}

impl RequestFacts for Request {
    fn authority(&self) -> &[u8] {
        &self.authority
    }

    fn method(&self) -> &[u8] {
        &self.method
    }

    fn path(&self) -> &[u8] {
        let query = self.target.iter().position(|&byte| byte == b'?');
        &self.target[..query.unwrap_or(self.target.len())]
    }

    fn target(&self) -> &[u8] {
        &self.target
    }

    fn scheme(&self) -> &[u8] {
        b"http"
    }

    fn fields<'a>(&'a self, name: &'a FieldName) -> impl Iterator<Item = &'a [u8]> {
        let named = self
            .fields
            .iter()
            .filter(|(known, _)| known.eq_ignore_ascii_case(name.as_str()));
        named.map(|(_, value)| &value[..])
    }

    fn remote_ip(&self) -> IpAddr {
        self.remote
    }

    fn token_present(&self) -> bool {
        self.token
    }
}

pub fn peer(namespace: &str, account: &str) -> VerifiedPeer {
    VerifiedPeer::by_certificate(Identity::new("cluster.local", namespace, account).unwrap())
}

/// The facts of a connection from 10.0.0.1 to 10.96.0.1:8080.
pub fn facts(peer: Option<&VerifiedPeer>) -> PeerFacts<'_> {
    PeerFacts {
        peer,
        source_ip: [10, 0, 0, 1].into(),
        destination: "10.96.0.1:8080".parse().unwrap(),
        sni: None,
    }
}

/// A pattern in Istio's notation.
pub fn text(pattern: &str) -> StringMatch {
    match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
        (Some(""), _) => StringMatch::Presence,
        (Some(end), _) => StringMatch::Suffix(end.into()),
        (_, Some(start)) => StringMatch::Prefix(start.into()),
        _ => StringMatch::Exact(pattern.into()),
    }
}

pub fn path(pattern: &str) -> PathPattern {
    if pattern.contains('{') {
        PathPattern::Template(PathTemplate::new(pattern).expect("a template"))
    } else {
        PathPattern::Text(text(pattern))
    }
}

pub fn any<T>(list: &[&str], parse: impl Fn(&str) -> T) -> Values<T> {
    Values {
        any: list.iter().map(|one| parse(one)).collect(),
        not: Vec::new(),
    }
}

pub fn not<T>(list: &[&str], parse: impl Fn(&str) -> T) -> Values<T> {
    Values {
        any: Vec::new(),
        not: list.iter().map(|one| parse(one)).collect(),
    }
}

pub fn policy(name: &str, action: RequestAction, rules: Vec<RequestRule>) -> RequestPolicy {
    RequestPolicy {
        name: NamespacedName::new("shop", name),
        action,
        dry_run: false,
        provider: "".into(),
        rules,
    }
}

pub fn from(source: SourceMatch) -> RequestRule {
    RequestRule {
        from: vec![source],
        ..RequestRule::default()
    }
}

pub fn to(operation: OperationMatch) -> RequestRule {
    RequestRule {
        to: vec![operation],
        ..RequestRule::default()
    }
}

pub fn when(condition: ConditionMatch) -> RequestRule {
    RequestRule {
        when: vec![condition],
        ..RequestRule::default()
    }
}

pub fn to_paths(paths: &[&str]) -> RequestRule {
    to(OperationMatch {
        paths: any(paths, path),
        ..OperationMatch::default()
    })
}

pub fn header(name: &str, values: Values<StringMatch>) -> RequestRule {
    let name = HeaderName::new(name).expect("a name");
    when(ConditionMatch::Header(name, values))
}

pub fn compiled(policies: impl IntoIterator<Item = RequestPolicy>) -> RequestPolicies {
    let policies = policies.into_iter().map(Arc::new);
    RequestPolicies::compile(policies, &TrustDomains::default())
}

pub fn with_unknown(policies: Vec<RequestPolicy>, names: &[&str]) -> RequestPolicies {
    let known = policies
        .into_iter()
        .map(|policy| AppliedRequest::Policy(policy.into()));
    let unknown = names
        .iter()
        .map(|name| AppliedRequest::Unknown((*name).into()));
    RequestPolicies::compile(known.chain(unknown), &TrustDomains::default())
}

/// Whether a rule matches: it must admit as an ALLOW and refuse as a DENY. A rule about tokens differs.
pub fn matches(rule: RequestRule, connection: &PeerFacts<'_>, request: &Request) -> bool {
    let decide = |action| {
        let policies = compiled([policy("p", action, vec![rule.clone()])]);
        policies
            .decide(&policies.peer(connection), request)
            .is_allow()
    };
    let (allowed, denied) = (decide(RequestAction::Allow), !decide(RequestAction::Deny));
    assert_eq!(allowed, denied, "{rule:?} of {request:?}");
    allowed
}
