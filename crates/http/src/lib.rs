//! The HTTP message model (RFC 9110): fields, methods, hosts, paths, framing and header trust, the same for HTTP/1 and HTTP/2. It
//! owns no I/O, clock or randomness, and depends on no codec.
#![forbid(unsafe_code)]

mod authority;
mod canonical;
mod connect;
mod detect;
mod downstream;
mod fields;
mod framing;
mod hop;
mod known;
mod line;
mod method;
mod name;
mod path;
mod pseudo;
mod raw;
mod refusal;
mod request;
mod response;
mod scan;
mod scheme;
pub mod search;
mod status;
mod trailers;
mod trust;
mod value;
mod websocket;

pub use authority::{Authority, HostPattern};
pub use canonical::{Canonical, Rules};
pub use connect::ConnectHead;
pub use detect::{Detected, Detector, detect, detect_version};
pub use downstream::{ClientCertificate, Downstream, PeerKind};
pub use fields::{Field, Fields, Line, Lines};
pub use framing::{Asked, FramedRequest, FramedResponse, Length};
pub use known::Known;
pub use line::FieldLine;
pub use method::Method;
pub use name::FieldName;
pub use path::{Parameters, Path, PathLevel, PathRules};
pub use pseudo::PseudoField;
pub use raw::{Limits, RawRequest, RawResponse, RawTrailers, Version};
pub use refusal::{Cause, Refusal};
pub use request::{RequestHead, Upgrade};
pub use response::{ResponseHead, can_have_trailers};
pub use scheme::Scheme;
pub use status::Status;
pub use trailers::Trailers;
pub use trust::{CertDetails, ForwardClientCert, ForwardedFor, Trust, Underscores};
pub use value::FieldValue;
pub use websocket::WebSocketKey;
