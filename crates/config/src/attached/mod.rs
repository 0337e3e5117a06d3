//! Policies and token rules by what they are attached to, and their compiled form. A change recompiles the sets that it is part of.

mod attachments;
mod rules;
mod target;

pub(crate) use attachments::{Attachments, Content};
pub use rules::RequestRules;
pub(crate) use rules::RulesByService;
pub use target::Target;
