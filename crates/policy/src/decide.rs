//! Decision about a connection, with its explanation, from the policies that cover a workload.

use std::fmt;

use lateen_types::NamespacedName;

use crate::matching::{Connection, Subject};
use crate::policy::{Action, Policy};
use crate::written::{written, written_name};

/// A policy that covers a workload, as far as it is known here.
#[derive(Debug, Clone, Copy)]
pub enum Applied<'a> {
    /// It is known.
    Policy(&'a Policy),
    /// Something says that this policy applies, but it has not arrived or could not be read. It may be a DENY.
    Unknown(&'a str),
}

impl<'a> From<&'a Policy> for Applied<'a> {
    fn from(policy: &'a Policy) -> Self {
        Applied::Policy(policy)
    }
}

/// Whether a connection may be served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Serve it.
    Allow {
        /// The ALLOW policy that matched; `None` if no ALLOW policy covers the workload.
        by: Option<NamespacedName>,
    },
    /// Refuse it.
    Deny {
        /// Why.
        by: DenyReason,
    },
}

impl Decision {
    /// Whether the connection may be served.
    pub fn is_allow(&self) -> bool {
        matches!(self, Decision::Allow { .. })
    }
}

/// Why a connection is refused, with policies named as their authors wrote them. The text is what the access log shows; the first two read as ztunnel's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DenyReason {
    /// A DENY policy matched.
    Policy(NamespacedName),
    /// ALLOW policies cover the workload, and none matched.
    NoAllowMatched,
    /// A policy that covers the workload is not known here; it may be a DENY.
    Unknown(String),
}

impl fmt::Display for DenyReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DenyReason::Policy(name) => write!(f, "explicitly denied by: {name}"),
            DenyReason::NoAllowMatched => f.write_str("allow policies exist, but none allowed"),
            DenyReason::Unknown(name) => {
                write!(
                    f,
                    "policy {name} applies but is not known here; see why the control plane's last update was refused"
                )
            }
        }
    }
}

/// Decides. Any enforced DENY that matches refuses; so does a policy that is not known; so do ALLOW policies of which
/// none matches. Policies in dry run decide nothing: see [`dry_run`].
pub fn decide<'a, I>(policies: I, connection: &Connection<'_>) -> Decision
where
    I: IntoIterator,
    I::Item: Into<Applied<'a>>,
{
    let subject = Subject::of(connection);
    let (mut unknown, mut allow_exists, mut allowed_by) = (None, false, None);
    for applied in policies {
        match applied.into() {
            Applied::Unknown(name) => unknown = unknown.or(Some(name)),
            Applied::Policy(policy) if policy.dry_run => {}
            Applied::Policy(policy) if policy.action == Action::Deny => {
                if policy.matches_subject(&subject) {
                    return Decision::Deny {
                        by: DenyReason::Policy(written_name(&policy.name)),
                    };
                }
            }
            Applied::Policy(policy) => {
                allow_exists = true;
                if allowed_by.is_none() && policy.matches_subject(&subject) {
                    allowed_by = Some(&policy.name);
                }
            }
        }
    }
    match (unknown, allow_exists, allowed_by) {
        (Some(name), _, _) => Decision::Deny {
            by: DenyReason::Unknown(written(name).to_owned()),
        },
        (None, true, None) => Decision::Deny {
            by: DenyReason::NoAllowMatched,
        },
        (None, _, by) => Decision::Allow {
            by: by.map(written_name),
        },
    }
}

/// Names, as their authors wrote them, the ALLOW policies among `policies`: the enforced ones, or with `dry_run` those in
/// dry run. A refusal because none of them matched names no policy; these are the ones to look at.
pub fn allow_policies<'a, I>(policies: I, dry_run: bool) -> impl Iterator<Item = NamespacedName>
where
    I: IntoIterator,
    I::Item: Into<Applied<'a>>,
{
    let known = policies
        .into_iter()
        .filter_map(|applied| match applied.into() {
            Applied::Policy(policy) => Some(policy),
            Applied::Unknown(_) => None,
        });
    known
        .filter(move |policy| policy.action == Action::Allow && policy.dry_run == dry_run)
        .map(|policy| written_name(&policy.name))
}

/// What a policy in dry run would do to a connection; for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DryRun {
    /// It would refuse it.
    WouldDeny(NamespacedName),
    /// It matches as ALLOW.
    WouldAllow(NamespacedName),
    /// Only ALLOW policies in dry run cover the workload, and none matches: enforced, they would refuse it.
    NoAllowWouldMatch,
}

impl fmt::Display for DryRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DryRun::WouldDeny(name) => write!(f, "dry run: {name} would deny"),
            DryRun::WouldAllow(name) => write!(f, "dry run: {name} would allow"),
            DryRun::NoAllowWouldMatch => f.write_str("dry run: no allow policy would match"),
        }
    }
}

/// What the policies in dry run would do, in the order given.
pub fn dry_run<'a, I>(policies: I, connection: &Connection<'_>) -> Vec<DryRun>
where
    I: IntoIterator,
    I::Item: Into<Applied<'a>>,
{
    let subject = Subject::of(connection);
    let mut reports = Vec::new();
    let (mut enforced_allow, mut dry_allow, mut dry_allow_matched) = (false, false, false);
    for applied in policies {
        let Applied::Policy(policy) = applied.into() else {
            continue;
        };
        match (policy.action, policy.dry_run) {
            (Action::Allow, false) => enforced_allow = true,
            (Action::Deny, false) => {}
            (Action::Deny, true) => {
                if policy.matches_subject(&subject) {
                    reports.push(DryRun::WouldDeny(written_name(&policy.name)));
                }
            }
            (Action::Allow, true) => {
                dry_allow = true;
                if policy.matches_subject(&subject) {
                    dry_allow_matched = true;
                    reports.push(DryRun::WouldAllow(written_name(&policy.name)));
                }
            }
        }
    }
    if dry_allow && !enforced_allow && !dry_allow_matched {
        reports.push(DryRun::NoAllowWouldMatch);
    }
    reports
}
