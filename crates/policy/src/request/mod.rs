//! Istio's L7 AuthorizationPolicy: which requests the policies of one attachment point admit. Policies are compiled once,
//! peers are judged once a connection, and a request is compared only with rules that its peer has not ruled out.
//!
//! It owns neither the wire form of a policy nor the verification of tokens: see [`RequestFacts::token_present`].

mod atom;
mod bits;
mod check;
mod clause;
mod compile;
mod decide;
mod facts;
mod filing;
mod index;
mod path;
mod peer;
mod policy;
mod rules;
mod streams;
mod tokens;
mod trie;
mod trust_domains;

pub use compile::{AppliedRequest, RequestPolicies};
pub use decide::{Reports, RequestDecision, RequestDenial};
pub use facts::{PeerFacts, RequestFacts};
pub use path::{PathPattern, PathTemplate, TemplateError};
pub use peer::PeerBits;
pub use policy::{
    ConditionMatch, HeaderName, HeaderNameError, OperationMatch, RequestAction, RequestPolicy,
    RequestRule, SourceMatch, Values,
};
pub use tokens::{TokenField, TokenPlaces};
pub use trust_domains::TrustDomains;
