//! Decisions about requests.

use std::fmt;

use lateen_types::NamespacedName;

use super::check::Request;
use super::compile::RequestPolicies;
use super::facts::{PeerFacts, RequestFacts};
use super::peer::PeerBits;
use super::policy::RequestAction;
use super::rules::{Judged, RuleSet};
use crate::decide::DryRun;

/// Whether a request may be served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestDecision<'a> {
    /// Serve it.
    Allow {
        /// The ALLOW policy that matched; `None` if there is no ALLOW policy.
        by: Option<&'a NamespacedName>,
    },
    /// Refuse it with 403.
    Deny {
        /// The reason.
        by: RequestDenial<'a>,
    },
}

impl RequestDecision<'_> {
    /// True if the request may be served.
    pub fn is_allow(&self) -> bool {
        matches!(self, RequestDecision::Allow { .. })
    }
}

/// The reason for which a request is refused. The text is that of the access log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestDenial<'a> {
    /// A CUSTOM policy matched. It comes before the check of tokens, which comes before all others.
    Custom(&'a NamespacedName),
    /// A DENY policy matched.
    Policy(&'a NamespacedName),
    /// A policy of this name applies and could not be read. It may be a DENY.
    Unknown(&'a str),
    /// There are ALLOW policies, and none matched.
    NoAllowMatched,
    /// Other policies judged the peer.
    OtherPeer,
}

impl fmt::Display for RequestDenial<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RequestDenial::Custom(name) => write!(
                f,
                "matched by the CUSTOM policy {name}, whose provider this proxy does not call"
            ),
            RequestDenial::Policy(name) => write!(f, "explicitly denied by: {name}"),
            RequestDenial::Unknown(name) => write!(
                f,
                "policy {name} applies but cannot be read here; see why the control plane's last update was refused"
            ),
            RequestDenial::NoAllowMatched => f.write_str("allow policies exist, but none allowed"),
            RequestDenial::OtherPeer => {
                f.write_str("the connection was judged by policies that are no longer in force")
            }
        }
    }
}

/// What policies say of a request that do not decide about it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reports<'a> {
    /// AUDIT policies that match, by name.
    pub audited: Vec<&'a NamespacedName>,
    /// The outcome of policies in dry run, by name.
    pub dry_run: Vec<DryRun>,
}

impl RequestPolicies {
    /// Judges a peer: once a connection, for all of its requests. The result is of use with these policies alone.
    pub fn peer(&self, facts: &PeerFacts<'_>) -> PeerBits {
        PeerBits {
            of: self.mark.clone(),
            enforced: self.enforced.judge(facts),
            reported: self.reported.judge(facts),
        }
    }

    /// Decides about a request of a peer that these policies judged. A CUSTOM policy that matches refuses; then a DENY policy, a
    /// policy that is unknown, and ALLOW policies none of which matches. A peer that other policies judged is refused.
    pub fn decide<'a, F: RequestFacts>(
        &'a self,
        peer: &PeerBits,
        facts: &F,
    ) -> RequestDecision<'a> {
        if !self.judged(peer) {
            let by = RequestDenial::OtherPeer;
            return RequestDecision::Deny { by };
        }
        let (mut custom, mut deny, mut allow) = (None, None, None);
        let request = Request::new(facts);
        self.enforced.matches(&peer.enforced, &request, |rule| {
            let first = match rule.action {
                RequestAction::Custom => &mut custom,
                RequestAction::Deny => &mut deny,
                RequestAction::Allow => &mut allow,
                RequestAction::Audit => return,
            };
            // The first by name, whatever the order in which rules are found.
            *first = Some(first.map_or(rule.policy, |known: u32| known.min(rule.policy)));
        });
        let name = |policy: u32| &self.enforced.policies[policy as usize].name;
        let by = match (custom, deny, &self.unknown) {
            (Some(policy), _, _) => RequestDenial::Custom(name(policy)),
            (None, Some(policy), _) => RequestDenial::Policy(name(policy)),
            (None, None, Some(unknown)) => RequestDenial::Unknown(unknown),
            (None, None, None) if self.has_allow && allow.is_none() => {
                RequestDenial::NoAllowMatched
            }
            (None, None, None) => {
                return RequestDecision::Allow {
                    by: allow.map(name),
                };
            }
        };
        RequestDecision::Deny { by }
    }

    /// The reports about a request. Without AUDIT policies and policies in dry run it does nothing.
    pub fn reports<'a, F: RequestFacts>(&'a self, peer: &PeerBits, facts: &F) -> Reports<'a> {
        let mut reports = Reports::default();
        if !self.has_reports() || !self.judged(peer) {
            return reports;
        }
        let mut dry_allow_matched = false;
        for policy in matching(&self.reported, &peer.reported, facts) {
            let head = &self.reported.policies[policy as usize];
            match head.action {
                RequestAction::Audit => reports.audited.push(&head.name),
                RequestAction::Allow => {
                    dry_allow_matched = true;
                    let would = DryRun::WouldAllow(head.name.clone());
                    reports.dry_run.push(would);
                }
                RequestAction::Deny | RequestAction::Custom => {
                    let would = DryRun::WouldDeny(head.name.clone());
                    reports.dry_run.push(would);
                }
            }
        }
        if self.has_dry_allow && !self.has_allow && !dry_allow_matched {
            reports.dry_run.push(DryRun::NoAllowWouldMatch);
        }
        reports
    }

    /// Names the enforced ALLOW policies, for a request that none of them matched; with `dry_run` those in dry run.
    pub fn allow_policies(&self, dry_run: bool) -> impl Iterator<Item = &NamespacedName> {
        let set = if dry_run {
            &self.reported
        } else {
            &self.enforced
        };
        let allows = set
            .policies
            .iter()
            .filter(|head| head.action == RequestAction::Allow);
        allows.map(|head| &head.name)
    }
}

/// The policies that match, each once, by name.
fn matching<F: RequestFacts>(set: &RuleSet, judged: &Judged, facts: &F) -> Vec<u32> {
    let mut policies = Vec::new();
    set.matches(judged, &Request::new(facts), |rule| {
        policies.push(rule.policy);
    });
    policies.sort_unstable();
    policies.dedup();
    policies
}
