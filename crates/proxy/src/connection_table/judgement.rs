//! Decisions of policies about a connection, and the policies behind them.

use lateen_config::{Snapshot, Workload};
use lateen_policy::{DenyReason, DryRun, allow_policies};
use lateen_types::NamespacedName;
use serde::Serialize;

/// Policies that a connection's record names at most. A workload may be covered by thousands, and each of its open
/// connections keeps the names.
pub const NAMED: usize = 16;

/// The policies that refuse a connection, named as their authors wrote them; at most [`NAMED`] of them.
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
    /// Number of further policies that refuse it and are not named.
    #[serde(skip_serializing_if = "is_zero")]
    pub unnamed: usize,
}

// Serde passes a reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(count: &usize) -> bool {
    *count == 0
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
            DenyReason::NoAllowMatched => {
                let mut denial = Self::default();
                denial.name_allow_policies(snapshot, workload, false);
                denial
            }
        }
    }

    /// Names the policies in dry run that would refuse a connection to `workload`; `None` if none would.
    pub fn rehearsed(hits: &[DryRun], snapshot: &Snapshot, workload: &Workload) -> Option<Self> {
        let mut denial = Self::default();
        for hit in hits {
            match hit {
                DryRun::WouldDeny(name) if denial.has_room() => denial.by.push(name.to_string()),
                DryRun::WouldDeny(_) => denial.unnamed += 1,
                DryRun::WouldAllow(_) => {}
                DryRun::NoAllowWouldMatch => denial.name_allow_policies(snapshot, workload, true),
            }
        }
        (denial != Self::default()).then_some(denial)
    }

    fn name_allow_policies(&mut self, snapshot: &Snapshot, workload: &Workload, dry_run: bool) {
        for name in allow_policies(snapshot.policies_for(workload), dry_run) {
            if self.has_room() {
                self.none_matched.push(name.to_string());
            } else {
                self.unnamed += 1;
            }
        }
    }

    fn has_room(&self) -> bool {
        self.by.len() + self.none_matched.len() + self.not_known.len() < NAMED
    }
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
