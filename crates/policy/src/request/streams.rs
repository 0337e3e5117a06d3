//! The part of a policy that holds for connections whose requests nobody reads: Istio's TCP.
//!
//! Attributes of requests are unknown there. An ALLOW rule that needs one matches nothing. A rule of any other action does
//! without the attribute, so it matches more: Istio denies all connections that a DENY of some requests might be about.

use super::policy::{
    ConditionMatch, OperationMatch, RequestAction, RequestPolicy, RequestRule, SourceMatch, Values,
};

impl RequestPolicy {
    /// The policy for connections whose requests nobody reads.
    pub fn for_streams(&self) -> Self {
        let needs_all = self.action == RequestAction::Allow;
        let rules = self.rules.iter();
        Self {
            rules: rules
                .filter(|rule| !needs_all || !rule.reads_requests())
                .map(RequestRule::without_requests)
                .collect(),
            ..self.clone()
        }
    }
}

impl RequestRule {
    /// True if the rule mentions an attribute of requests.
    fn reads_requests(&self) -> bool {
        self.from.iter().any(SourceMatch::reads_requests)
            || self.to.iter().any(OperationMatch::reads_requests)
            || self.when.iter().any(ConditionMatch::reads_requests)
    }

    /// The rule without attributes of requests. An alternative that mentions nothing else matches, and so do all.
    fn without_requests(&self) -> Self {
        let mut rule = self.clone();
        for source in &mut rule.from {
            source.request_principals = Values::default();
        }
        for operation in &mut rule.to {
            operation.hosts = Values::default();
            operation.methods = Values::default();
            operation.paths = Values::default();
        }
        if pairs(&self.from, &rule.from, SourceMatch::is_empty) {
            rule.from.clear();
        }
        if pairs(&self.to, &rule.to, OperationMatch::is_empty) {
            rule.to.clear();
        }
        rule.when.retain(|condition| !condition.reads_requests());
        rule
    }
}

/// True if one of the alternatives mentioned something, and mentions nothing now.
fn pairs<T>(before: &[T], now: &[T], is_empty: impl Fn(&T) -> bool) -> bool {
    let mut pairs = before.iter().zip(now);
    pairs.any(|(before, now)| !is_empty(before) && is_empty(now))
}

impl SourceMatch {
    fn reads_requests(&self) -> bool {
        !self.request_principals.is_empty()
    }
}

impl OperationMatch {
    fn reads_requests(&self) -> bool {
        !(self.hosts.is_empty() && self.methods.is_empty() && self.paths.is_empty())
    }
}

impl ConditionMatch {
    fn reads_requests(&self) -> bool {
        match self {
            Self::Header(..)
            | Self::TokenPrincipal(_)
            | Self::TokenAudiences(_)
            | Self::TokenPresenter(_)
            | Self::TokenClaim(..) => true,
            Self::SourceIp(_)
            | Self::RemoteIp(_)
            | Self::SourceNamespace(_)
            | Self::SourcePrincipal(_)
            | Self::SourceServiceAccount(_)
            | Self::SourceTrustDomain(_)
            | Self::DestinationIp(_)
            | Self::DestinationPort(_)
            | Self::Sni(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use lateen_types::NamespacedName;

    use super::*;
    use crate::policy::StringMatch;

    fn policy(action: RequestAction, rule: RequestRule) -> RequestPolicy {
        RequestPolicy {
            name: NamespacedName::new("default", "one"),
            action,
            dry_run: false,
            provider: "".into(),
            rules: vec![rule],
        }
    }

    fn exactly(text: &str) -> Values<StringMatch> {
        Values {
            any: vec![StringMatch::Exact(text.into())],
            not: Vec::new(),
        }
    }

    #[test]
    fn an_allow_of_some_requests_allows_no_connection() {
        let operation = OperationMatch {
            methods: exactly("GET"),
            ..OperationMatch::default()
        };
        let rule = RequestRule {
            to: vec![operation],
            ..RequestRule::default()
        };
        let streams = policy(RequestAction::Allow, rule).for_streams();
        assert!(streams.rules.is_empty());
    }

    #[test]
    fn a_deny_of_some_requests_denies_the_connections_of_its_peers() {
        let operation = OperationMatch {
            methods: exactly("DELETE"),
            ..OperationMatch::default()
        };
        let on_port = OperationMatch {
            ports: Values {
                any: vec![80],
                not: Vec::new(),
            },
            ..OperationMatch::default()
        };
        let source = SourceMatch {
            namespaces: exactly("shop"),
            request_principals: exactly("a/b"),
            ..SourceMatch::default()
        };
        let rule = RequestRule {
            from: vec![source],
            to: vec![operation, on_port],
            when: vec![
                ConditionMatch::TokenPresenter(exactly("x")),
                ConditionMatch::Sni(exactly("y")),
            ],
        };
        for action in [
            RequestAction::Deny,
            RequestAction::Audit,
            RequestAction::Custom,
        ] {
            let streams = policy(action, rule.clone()).for_streams();
            let [rule] = &streams.rules[..] else {
                panic!("{streams:?}")
            };
            let kept = SourceMatch {
                namespaces: exactly("shop"),
                ..SourceMatch::default()
            };
            assert_eq!(rule.from, [kept]);
            assert!(rule.to.is_empty());
            assert_eq!(rule.when, [ConditionMatch::Sni(exactly("y"))]);
        }
    }

    #[test]
    fn an_alternative_that_never_matched_still_matches_nothing() {
        let rule = RequestRule {
            from: vec![SourceMatch::default()],
            ..RequestRule::default()
        };
        let streams = policy(RequestAction::Deny, rule.clone()).for_streams();
        assert_eq!(streams.rules, [rule]);
    }
}
