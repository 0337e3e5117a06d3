//! The compiler of policies: names in order, peers' comparisons interned, rules filed.

use std::ops::Range;
use std::sync::Arc;

use lateen_types::Strng;

use super::atom::{Interner, PeerAtom};
use super::check::Check;
use super::clause::{Clause, Head, PeerCheck, Rule};
use super::filing::Files;
use super::path::{PathPattern, PathValue, canonical_target};
use super::peer::PeerBits;
use super::policy::{
    ConditionMatch, HeaderName, OperationMatch, RequestAction, RequestPolicy, RequestRule,
    SourceMatch, Values,
};
use super::rules::RuleSet;
use super::trust_domains::TrustDomains;
use crate::policy::StringMatch;

/// A policy that covers an attachment point, as far as it is known here.
#[derive(Debug, Clone)]
pub enum AppliedRequest {
    /// It is known.
    Policy(Arc<RequestPolicy>),
    /// A policy of this name covers the attachment point and could not be read. It may be a DENY.
    Unknown(Strng),
}

impl From<Arc<RequestPolicy>> for AppliedRequest {
    fn from(policy: Arc<RequestPolicy>) -> Self {
        AppliedRequest::Policy(policy)
    }
}

/// The compiled policies of one attachment point.
#[derive(Debug, Default)]
pub struct RequestPolicies {
    /// The mark by which the bits of peers are known.
    pub(super) mark: Arc<()>,
    /// Those that decide.
    pub(super) enforced: RuleSet,
    /// AUDIT policies, and those in dry run.
    pub(super) reported: RuleSet,
    /// The first policy by name that could not be read.
    pub(super) unknown: Option<Strng>,
    /// There is an enforced ALLOW policy.
    pub(super) has_allow: bool,
    /// There is an ALLOW policy in dry run.
    pub(super) has_dry_allow: bool,
}

impl RequestPolicies {
    /// Compiles policies for a mesh of these trust domains. Their order does not matter.
    pub fn compile<I>(policies: I, domains: &TrustDomains) -> Self
    where
        I: IntoIterator,
        I::Item: Into<AppliedRequest>,
    {
        let mut compiled = Self::default();
        let mut known = Vec::new();
        for applied in policies {
            match applied.into() {
                AppliedRequest::Policy(policy) => known.push(policy),
                AppliedRequest::Unknown(name) => {
                    let unknown = &mut compiled.unknown;
                    if unknown.as_ref().is_none_or(|first| name < *first) {
                        *unknown = Some(name);
                    }
                }
            }
        }
        known.sort_by(|a, b| a.name.cmp(&b.name));
        let allows = |dry: bool| {
            let allows = |policy: &Arc<RequestPolicy>| {
                policy.action == RequestAction::Allow && policy.dry_run == dry
            };
            known.iter().any(allows)
        };
        compiled.has_allow = allows(false);
        compiled.has_dry_allow = allows(true);
        let (reported, enforced): (Vec<_>, Vec<_>) = known
            .into_iter()
            .partition(|policy| policy.dry_run || policy.action == RequestAction::Audit);
        compiled.enforced = rule_set(&enforced, domains);
        compiled.reported = rule_set(&reported, domains);
        compiled
    }

    /// True if every request is served and nothing is reported.
    pub fn is_empty(&self) -> bool {
        self.enforced.policies.is_empty()
            && self.reported.policies.is_empty()
            && self.unknown.is_none()
    }

    /// True if these policies judged the peer. After a change of policies a connection's peer is to be judged again.
    pub fn judged(&self, peer: &PeerBits) -> bool {
        Arc::ptr_eq(&self.mark, &peer.of)
    }

    /// True if there are AUDIT policies or policies in dry run.
    pub fn has_reports(&self) -> bool {
        !self.reported.policies.is_empty()
    }

    /// True if a rule compares the server name of TLS.
    pub fn reads_sni(&self) -> bool {
        self.decides_by_sni() || self.reported.reads_sni
    }

    /// True if such a rule decides, and does not only report.
    pub fn decides_by_sni(&self) -> bool {
        self.enforced.reads_sni
    }
}

fn rule_set(policies: &[Arc<RequestPolicy>], domains: &TrustDomains) -> RuleSet {
    let mut compiler = Compiler {
        domains,
        atoms: Interner::default(),
        clauses: Vec::new(),
    };
    let mut rules = Vec::new();
    for (policy, position) in policies.iter().zip(0..) {
        for rule in &policy.rules {
            rules.push(compiler.rule(rule, position, policy.action));
        }
    }
    let clauses = compiler.clauses;
    let atoms = compiler.atoms.finish();
    RuleSet {
        policies: policies.iter().map(|policy| head(policy)).collect(),
        files: Files::new(&rules, &clauses),
        rules: rules.into(),
        clauses: clauses.into(),
        reads_sni: atoms.iter().any(|atom| matches!(atom, PeerAtom::Sni(_))),
        atoms,
    }
}

fn head(policy: &RequestPolicy) -> Head {
    Head {
        name: policy.name.clone(),
        action: policy.action,
    }
}

/// The clauses and atoms of a set while it grows.
struct Compiler<'a> {
    domains: &'a TrustDomains,
    atoms: Interner,
    clauses: Vec<Clause>,
}

impl Compiler<'_> {
    fn rule(&mut self, rule: &RequestRule, policy: u32, action: RequestAction) -> Rule {
        let mut when = Clause::default();
        for condition in &rule.when {
            self.condition(condition, &mut when);
        }
        Rule {
            policy,
            action,
            from: self.clauses_of(&rule.from, Self::source),
            to: self.clauses_of(&rule.to, |compiler, operation| {
                compiler.operation(operation, action)
            }),
            when: self.push(when),
        }
    }

    fn clauses_of<T>(
        &mut self,
        matches: &[T],
        clause: impl Fn(&mut Self, &T) -> Clause,
    ) -> Range<u32> {
        let start = self.clauses.len() as u32;
        for one in matches {
            let clause = clause(self, one);
            self.push(clause);
        }
        start..self.clauses.len() as u32
    }

    fn push(&mut self, clause: Clause) -> u32 {
        self.clauses.push(clause);
        self.clauses.len() as u32 - 1
    }

    fn source(&mut self, source: &SourceMatch) -> Clause {
        let SourceMatch {
            principals,
            request_principals,
            namespaces,
            service_accounts,
            trust_domains,
            ip_blocks,
            remote_ip_blocks,
        } = source;
        let mut clause = Clause::default();
        if source.is_empty() {
            clause.peer.push(PeerCheck::never());
        }
        let principals = self.aliased(principals);
        self.peer(&mut clause, &principals, PeerAtom::Principal);
        self.peer(&mut clause, namespaces, PeerAtom::Namespace);
        self.peer(&mut clause, service_accounts, PeerAtom::ServiceAccount);
        self.peer(&mut clause, trust_domains, PeerAtom::TrustDomain);
        self.peer(&mut clause, ip_blocks, PeerAtom::SourceIp);
        token(&mut clause, request_principals);
        request(&mut clause, remote_ip_blocks, Check::RemoteIp);
        clause
    }

    fn operation(&mut self, operation: &OperationMatch, action: RequestAction) -> Clause {
        let OperationMatch {
            hosts,
            ports,
            methods,
            paths,
        } = operation;
        let mut clause = Clause::default();
        if operation.is_empty() {
            clause.peer.push(PeerCheck::never());
        }
        self.peer(&mut clause, ports, PeerAtom::DestinationPort);
        request(&mut clause, methods, Check::Method);
        request(&mut clause, &path_values(paths, action), Check::Path);
        request(&mut clause, &mapped(hosts, lower), Check::Host);
        clause
    }

    fn condition(&mut self, condition: &ConditionMatch, clause: &mut Clause) {
        match condition {
            ConditionMatch::Header(name, values) => {
                // Hosts of requests are in lower case.
                let values = match name {
                    HeaderName::Authority => &mapped(values, lower),
                    HeaderName::Target => &both(values, canonical_target),
                    _ => values,
                };
                request(clause, values, |values| Check::Header(name.clone(), values));
            }
            ConditionMatch::SourceIp(values) => self.peer(clause, values, PeerAtom::SourceIp),
            ConditionMatch::RemoteIp(values) => request(clause, values, Check::RemoteIp),
            ConditionMatch::SourceNamespace(values) => {
                self.peer(clause, values, PeerAtom::Namespace);
            }
            ConditionMatch::SourcePrincipal(values) => {
                let values = self.aliased(values);
                self.peer(clause, &values, PeerAtom::Principal);
            }
            ConditionMatch::SourceServiceAccount(values) => {
                self.peer(clause, values, PeerAtom::ServiceAccount);
            }
            ConditionMatch::SourceTrustDomain(values) => {
                self.peer(clause, values, PeerAtom::TrustDomain);
            }
            ConditionMatch::DestinationIp(values) => {
                self.peer(clause, values, PeerAtom::DestinationIp);
            }
            ConditionMatch::DestinationPort(values) => {
                self.peer(clause, values, PeerAtom::DestinationPort);
            }
            ConditionMatch::Sni(values) => self.peer(clause, values, PeerAtom::Sni),
            ConditionMatch::TokenPrincipal(values)
            | ConditionMatch::TokenAudiences(values)
            | ConditionMatch::TokenPresenter(values)
            | ConditionMatch::TokenClaim(_, values) => token(clause, values),
        }
    }

    /// Principals with those of aliased trust domains.
    fn aliased(&self, principals: &Values<StringMatch>) -> Values<StringMatch> {
        let expand = |list: &[StringMatch]| {
            let expanded = list.iter().flat_map(|one| self.domains.expand(one));
            expanded.collect()
        };
        Values {
            any: expand(&principals.any),
            not: expand(&principals.not),
        }
    }

    fn peer<T: Clone>(
        &mut self,
        clause: &mut Clause,
        values: &Values<T>,
        atom: impl Fn(T) -> PeerAtom,
    ) {
        if values.is_empty() {
            return;
        }
        let mut ids = |list: &[T]| {
            let ids = list.iter().map(|value| self.atoms.id(atom(value.clone())));
            ids.collect()
        };
        clause.peer.push(PeerCheck {
            any: ids(&values.any),
            not: ids(&values.not),
            never: false,
        });
    }
}

fn request<T: Clone + PartialEq>(
    clause: &mut Clause,
    values: &Values<T>,
    check: impl FnOnce(Values<T>) -> Check,
) {
    if !values.is_empty() {
        clause.request.push(check(values.clone()));
    }
}

fn token(clause: &mut Clause, values: &Values<StringMatch>) {
    if !values.is_empty() {
        let needs = !values.any.is_empty();
        clause.request.push(Check::Token { needs });
    }
}

fn mapped(
    values: &Values<StringMatch>,
    map: impl Fn(&StringMatch) -> StringMatch,
) -> Values<StringMatch> {
    Values {
        any: values.any.iter().map(&map).collect(),
        not: values.not.iter().map(&map).collect(),
    }
}

/// The values of paths in a rule of this action. What admits a request covers its canonical path alone, and what keeps one out also
/// covers what that path decodes to.
fn path_values(paths: &Values<PathPattern>, action: RequestAction) -> Values<PathValue> {
    let strict = |list: &[PathPattern]| list.iter().flat_map(PathValue::strict).collect();
    let wide = |list: &[PathPattern]| list.iter().flat_map(PathValue::wide).collect();
    match action {
        RequestAction::Allow => Values {
            any: strict(&paths.any),
            not: wide(&paths.not),
        },
        RequestAction::Deny | RequestAction::Audit | RequestAction::Custom => Values {
            any: wide(&paths.any),
            not: strict(&paths.not),
        },
    }
}

/// The values, and each that has another form once more in that form.
fn both<T: Clone>(values: &Values<T>, other: impl Fn(&T) -> Option<T>) -> Values<T> {
    let both = |list: &[T]| {
        let mut all = list.to_vec();
        all.extend(list.iter().filter_map(&other));
        all
    };
    Values {
        any: both(&values.any),
        not: both(&values.not),
    }
}

/// The pattern of a host in lower case.
fn lower(pattern: &StringMatch) -> StringMatch {
    let lower = |text: &Strng| text.to_ascii_lowercase().into();
    match pattern {
        StringMatch::Exact(text) => StringMatch::Exact(lower(text)),
        StringMatch::Prefix(text) => StringMatch::Prefix(lower(text)),
        StringMatch::Suffix(text) => StringMatch::Suffix(lower(text)),
        StringMatch::Presence => StringMatch::Presence,
    }
}
