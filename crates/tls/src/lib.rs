//! TLS of mesh peers, of connections to the control plane, and of clients and servers outside of the mesh. This crate alone uses
//! rustls, and it alone makes a `VerifiedPeer`. It does not request or renew certificates.
//!
//! | peers | module | verified by |
//! |---|---|---|
//! | mesh peers | `handshake` | SPIFFE identity, both sides |
//! | the control plane | `control` | roots and DNS name |
//! | clients of a gateway | `listener` | nothing: clients have no certificate |
//! | servers outside of the mesh | `upstream` | roots, and names of the certificate |
//!
//! `client_hello` reads the server name of a client that is relayed; nobody is verified there.
#![forbid(unsafe_code)]

mod alpn;
mod certificates;
mod client_hello;
mod control;
mod credentials;
mod error;
mod foreign_error;
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
pub use client_hello::{Hello, HelloReader, LONGEST_HELLO};
pub use control::{Called, ControlConnector, ControlError, ControlStream, Roots};
pub use credentials::{CertificateInfo, Credentials, CredentialsError};
pub use error::TlsError;
pub use foreign_error::ForeignError;
pub use handshake::{accept, connect};
pub use key::{KeyError, KeyPair};
pub use listener::{ListenerSession, ListenerTls};
pub use revocation::{ListInfo, MAX_BYTES, RevocationError, RevocationLists, Revocations};
pub use rules::{Compliance, Rules, UnknownCompliance};
pub use session::{Binding, Session};
pub use stream::TlsStream;
pub use svid::NotSvid;
pub use upstream::{AltName, UpstreamError, UpstreamSettings, UpstreamTls};
