//! The store's side: what is attached to what, and which compiled rules are out of date.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use lateen_policy::request::{
    AppliedRequest, RequestPolicies, RequestPolicy, TokenPlaces, TrustDomains,
};
use lateen_types::{NamespacedName, Strng};

use super::rules::{RequestRules, RulesByService};
use super::target::Target;
use crate::ServiceKey;

/// The part of a resource that takes effect where it is attached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Content {
    Policy(Arc<RequestPolicy>),
    /// The places of an Authentication's rules.
    Tokens(TokenPlaces),
    /// It could not be read, and there was no version before it.
    Unreadable,
}

/// A resource's kind, by its type URL, and its xDS name.
type Key = (&'static str, Strng);

/// All attached resources.
#[derive(Debug, Default)]
pub(crate) struct Attachments {
    /// The Gateway of this proxy.
    gateway: Option<NamespacedName>,
    domains: TrustDomains,
    attached: BTreeMap<Key, Attached>,
    /// `None`: whatever this proxy takes.
    by_target: BTreeMap<Option<Target>, BTreeSet<Key>>,
    /// Services whose rules are out of date.
    stale: BTreeSet<ServiceKey>,
    /// All rules are.
    is_stale: bool,
}

#[derive(Debug, PartialEq, Eq)]
struct Attached {
    targets: Vec<Option<Target>>,
    content: Content,
}

impl Attachments {
    /// Says which Gateway's proxy this is.
    pub(crate) fn of_gateway(&mut self, gateway: NamespacedName) {
        self.gateway = Some(gateway);
        self.is_stale = true;
    }

    /// Attaches a resource, in place of its version before, and returns whether anything changed.
    pub(crate) fn attach(&mut self, key: Key, targets: Vec<Target>, content: Content) -> bool {
        let targets = targets.into_iter().map(Some).collect();
        self.put(key, Attached { targets, content })
    }

    /// Makes an unreadable resource refuse the requests for its targets, and without targets all requests. A readable version
    /// before it stays.
    pub(crate) fn attach_unreadable(&mut self, key: Key, targets: Option<Vec<Target>>) -> bool {
        let before = self.attached.get(&key);
        if before.is_some_and(|before| before.content != Content::Unreadable) {
            return false;
        }
        let targets = match targets {
            Some(targets) => targets.into_iter().map(Some).collect(),
            None => vec![None],
        };
        let content = Content::Unreadable;
        self.put(key, Attached { targets, content })
    }

    /// Removes a resource and returns whether it was there.
    pub(crate) fn detach(&mut self, key: &Key) -> bool {
        let Some(attached) = self.attached.remove(key) else {
            return false;
        };
        for target in &attached.targets {
            if let Some(keys) = self.by_target.get_mut(target) {
                keys.remove(key);
                if keys.is_empty() {
                    self.by_target.remove(target);
                }
            }
            self.spoil(target.as_ref());
        }
        true
    }

    /// Takes the trust domains of a Gateway's mesh and returns whether anything changed.
    pub(crate) fn set_domains(&mut self, gateway: &NamespacedName, domains: TrustDomains) -> bool {
        if self.gateway.as_ref() != Some(gateway) || self.domains == domains {
            return false;
        }
        self.domains = domains;
        self.is_stale = true;
        true
    }

    /// Compiles the rules that are out of date.
    pub(crate) fn renew(&mut self, rules: &mut RulesByService) {
        let mut stale = std::mem::take(&mut self.stale);
        if std::mem::take(&mut self.is_stale) {
            rules.gateway = Arc::new(self.compile(None));
            stale.extend(rules.services.keys().cloned());
            stale.extend(self.by_target.keys().filter_map(|target| match target {
                Some(Target::Service(service)) => Some(service.clone()),
                _ => None,
            }));
        }
        for service in stale {
            if self
                .by_target
                .contains_key(&Some(Target::Service(service.clone())))
            {
                let compiled = Arc::new(self.compile(Some(&service)));
                rules.services.insert_mut(service, compiled);
            } else {
                rules.services.remove_mut(&service);
            }
        }
    }

    fn put(&mut self, key: Key, attached: Attached) -> bool {
        if self.attached.get(&key) == Some(&attached) {
            return false;
        }
        self.detach(&key);
        for target in &attached.targets {
            let keys = self.by_target.entry(target.clone()).or_default();
            keys.insert(key.clone());
            self.spoil(target.as_ref());
        }
        self.attached.insert(key, attached);
        true
    }

    /// Marks the rules of a target as out of date.
    fn spoil(&mut self, target: Option<&Target>) {
        match target {
            None => self.is_stale = true,
            Some(Target::Gateway(gateway)) => {
                self.is_stale |= self.gateway.as_ref() == Some(gateway);
            }
            Some(Target::Service(service)) => {
                self.stale.insert(service.clone());
            }
        }
    }

    fn compile(&self, service: Option<&ServiceKey>) -> RequestRules {
        let gateway = self.gateway.clone().map(Target::Gateway);
        let service = service.cloned().map(Target::Service);
        let targets = [None]
            .into_iter()
            .chain(gateway.map(Some))
            .chain(service.map(Some));
        // One resource may be attached to the Gateway and to the service.
        let keys: BTreeSet<&Key> = targets
            .filter_map(|target| self.by_target.get(&target))
            .flatten()
            .collect();
        let mut policies = Vec::new();
        let mut tokens = TokenPlaces::none();
        for key in keys {
            match self.attached.get(key).map(|attached| &attached.content) {
                Some(Content::Policy(policy)) => {
                    policies.push(AppliedRequest::Policy(policy.clone()));
                }
                Some(Content::Tokens(places)) => tokens.extend(places),
                Some(Content::Unreadable) | None => {
                    policies.push(AppliedRequest::Unknown(key.1.clone()));
                }
            }
        }
        let refuses_tokens = !tokens.is_none();
        let streams = policies.iter().map(|applied| match applied {
            AppliedRequest::Policy(policy) => Arc::new(policy.for_streams()).into(),
            AppliedRequest::Unknown(name) => AppliedRequest::Unknown(name.clone()),
        });
        RequestRules {
            streams: RequestPolicies::compile(streams, &self.domains),
            policies: RequestPolicies::compile(policies, &self.domains),
            tokens: if refuses_tokens {
                tokens
            } else {
                TokenPlaces::default()
            },
            refuses_tokens,
        }
    }
}
