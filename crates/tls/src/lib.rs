//! Mutual TLS between mesh peers, and the TLS of connections to the control plane. It alone knows rustls and it alone
//! makes a `VerifiedPeer`; where certificates come from and when they are renewed is not its business.
#![forbid(unsafe_code)]

mod control;
mod credentials;
mod error;
mod handshake;
mod key;
mod provider;
mod stream;
mod verify;

pub use control::{ControlConnector, ControlError, ControlStream, Roots};
pub use credentials::{CertificateInfo, Credentials, CredentialsError};
pub use error::TlsError;
pub use handshake::{accept, connect};
pub use key::{KeyError, KeyPair};
pub use stream::TlsStream;
