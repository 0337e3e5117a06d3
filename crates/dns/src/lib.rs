//! DNS messages. The crate reads a pod's question, and answers it from the mesh's configuration or says that a resolver must.
//! It also reads the replies of resolvers.
//!
//! It opens no socket and keeps no time. The caller chooses the resolver, the number of attempts and the time-outs.
#![forbid(unsafe_code)]

mod answer;
mod found;
mod names;
mod query;
mod reply;

pub use answer::{Answer, TTL, View, answer};
pub use found::{Family, Found, find, question};
pub use query::{Query, Transport, Unusable, read};
pub use reply::{Code, fit, matches, serv_fail, set_id, truncated};

/// The longest message: RFC 1035 §4.2.2 gives a length 16 bits.
pub const LONGEST: usize = u16::MAX as usize;
