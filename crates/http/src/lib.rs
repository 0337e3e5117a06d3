//! The HTTP message model (RFC 9110): fields, methods, hosts, paths, framing and header trust, the same for HTTP/1 and HTTP/2. It
//! owns no I/O, clock or randomness, and depends on no codec.
#![forbid(unsafe_code)]

mod authority;
mod fields;
mod known;
mod method;
mod name;
mod path;
mod refusal;
mod scan;
mod scheme;
mod status;
mod value;

pub use authority::{Authority, HostPattern};
pub use fields::{Field, Fields};
pub use known::Known;
pub use method::Method;
pub use name::FieldName;
pub use path::{Parameters, Path, PathLevel, PathRules};
pub use refusal::{Cause, Refusal};
pub use scheme::Scheme;
pub use status::Status;
pub use value::FieldValue;
