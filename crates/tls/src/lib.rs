//! Mutual TLS between mesh peers, TLS of connections to the control plane, and TLS of clients and servers outside of the mesh. It
//! alone knows rustls and it alone makes a `VerifiedPeer`; where certificates come from and when they are renewed is not its business.
#![forbid(unsafe_code)]

mod alpn;
mod certificates;
mod control;
mod credentials;
mod error;
mod handshake;
mod key;
mod listener;
mod provider;
mod revocation;
mod rules;
mod session;
mod stream;
mod svid;
mod upstream;
mod verify;

pub use alpn::Alpn;
pub use certificates::{CertificateStore, Certificates, ServerCertificate, ServerCertificateError};
pub use control::{Called, ControlConnector, ControlError, ControlStream, Roots};
pub use credentials::{CertificateInfo, Credentials, CredentialsError};
pub use error::TlsError;
pub use handshake::{accept, connect};
pub use key::{KeyError, KeyPair};
pub use listener::{ListenerSession, ListenerTls};
pub use revocation::{ListInfo, MAX_BYTES, RevocationError, RevocationLists, Revocations};
pub use rules::{Compliance, Rules, UnknownCompliance};
pub use session::{Binding, Session};
pub use stream::TlsStream;
pub use svid::NotSvid;
pub use upstream::{AltName, UpstreamError, UpstreamSettings, UpstreamTls};
