//! The resources of proxies that read requests: Gateways with their settings, Bindings, and the policies and token rules of requests.
//!
//! Content that this proxy cannot read fails closed: an Authorization or Authentication without a good version before it refuses the
//! requests that it names, and those of the whole Gateway where even that cannot be read.

mod authentication;
mod authorization;
mod binding;
mod conditions;
mod gateway;
mod kinds;
mod lookup;
mod message;
mod target;
mod values;

pub use crate::attached::{RequestRules, Target};
pub use authentication::Authentication;
pub use authorization::Authorization;
pub use binding::{Binding, Bound, Parent};
pub use gateway::{
    AccessLog, Encoding, Gateway, MeshSettings, OutboundPolicy, PathNormalization, Retry, Traffic,
};
pub use kinds::{AUTHENTICATION, AUTHORIZATION, BINDING, GATEWAY, waypoint};
pub use lookup::Standing;
