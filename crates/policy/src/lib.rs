//! Decides whether a connection may be served: Istio's L4 authorization semantics as a pure function over parsed policies. The
//! crate does not know a policy's wire form. The caller says which policies cover a workload.
#![forbid(unsafe_code)]

mod decide;
mod matching;
mod policy;
mod written;

pub use decide::{Applied, Decision, DenyReason, DryRun, allow_policies, decide, dry_run};
pub use matching::Connection;
pub use policy::{Action, Clause, Match, Policy, Rule, Scope, ServiceAccount, StringMatch};
pub use written::written;
