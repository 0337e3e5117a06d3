//! Decisions of policies about a connection, and the policies behind them.

use lateen_config::{Snapshot, Workload};
use lateen_policy::{DenyReason, DryRun, allow_policies};
use lateen_types::NamespacedName;
use serde::Serialize;

/// The policies that refuse a connection, named as their authors wrote them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Denial {
    /// Policies that refuse it on their own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub by: Vec<String>,
    /// ALLOW policies that refuse it because none of them matches.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub none_matched: Vec<String>,
    /// Policies that cover the workload and are not known to this proxy: each may be a DENY.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_known: Vec<String>,
}

impl Denial {
    /// Names the policies behind a decision about a connection to `workload`.
    pub fn new(reason: &DenyReason, snapshot: &Snapshot, workload: &Workload) -> Self {
        match reason {
            DenyReason::Policy(name) => Self {
                by: vec![name.to_string()],
                ..Self::default()
            },
            DenyReason::Unknown(name) => Self {
                not_known: vec![name.clone()],
                ..Self::default()
            },
            DenyReason::NoAllowMatched => Self {
                none_matched: allow_names(snapshot, workload, false),
                ..Self::default()
            },
        }
    }

    /// Names the policies in dry run that would refuse a connection to `workload`; `None` if none would.
    pub fn rehearsed(hits: &[DryRun], snapshot: &Snapshot, workload: &Workload) -> Option<Self> {
        let mut denial = Self::default();
        for hit in hits {
            match hit {
                DryRun::WouldDeny(name) => denial.by.push(name.to_string()),
                DryRun::WouldAllow(_) => {}
                DryRun::NoAllowWouldMatch => {
                    denial.none_matched = allow_names(snapshot, workload, true);
                }
            }
        }
        (denial != Self::default()).then_some(denial)
    }
}

fn allow_names(snapshot: &Snapshot, workload: &Workload, dry_run: bool) -> Vec<String> {
    let names = allow_policies(snapshot.policies_for(workload), dry_run);
    names.iter().map(ToString::to_string).collect()
}

/// Decisions of policies about one inbound connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judgement {
    /// The ALLOW policy that let it in; `None` if none had to.
    pub allowed_by: Option<NamespacedName>,
    /// Policies that refused it, or ended it later.
    pub denied: Option<Denial>,
    /// Policies in dry run that would refuse it.
    pub would_deny: Option<Denial>,
}
