//! Mutual TLS between mesh peers, and the TLS of connections to the control plane. It alone knows rustls and it alone
//! makes a `VerifiedPeer`; where certificates come from and when they are renewed is not its business.
#![forbid(unsafe_code)]

mod control;
mod credentials;
mod error;
mod handshake;
mod key;
mod provider;
mod revocation;
mod rules;
mod session;
mod stream;
mod svid;
mod verify;

pub use control::{Called, ControlConnector, ControlError, ControlStream, Roots};
pub use credentials::{CertificateInfo, Credentials, CredentialsError};
pub use error::TlsError;
pub use handshake::{accept, connect};
pub use key::{KeyError, KeyPair};
pub use revocation::{ListInfo, MAX_BYTES, RevocationError, RevocationLists, Revocations};
pub use rules::{Compliance, Rules, UnknownCompliance};
pub use session::{Binding, Session};
pub use stream::TlsStream;
pub use svid::NotSvid;
