//! Decides whether a connection or a request may be served: Istio's authorization semantics, of L4 at the crate's root and of L7 in
//! [`request`], as pure functions over parsed policies. The crate does not know a policy's wire form. The caller says which
//! policies cover a workload.
#![forbid(unsafe_code)]

mod decide;
mod matching;
mod policy;
pub mod request;
mod written;

pub use decide::{Applied, Decision, DenyReason, DryRun, allow_policies, decide, dry_run};
pub use matching::Connection;
pub use policy::{Action, Clause, Match, Policy, Rule, Scope, ServiceAccount, StringMatch};
pub use written::written;
