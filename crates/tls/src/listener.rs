//! TLS termination of a listener for clients outside of the mesh: certificates by server name, application protocols by ALPN.

use std::sync::Arc;

use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;

use crate::alpn::Alpn;
use crate::certificates::CertificateStore;
use crate::foreign_error::ForeignError;
use crate::provider::{foreign, versions};
use crate::rules::Compliance;
use crate::stream::{ReadAhead, TlsStream};

/// TLS of one listener. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ListenerTls(Arc<ServerConfig>);

/// Facts that a handshake established.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenerSession {
    /// The server name that the client sent, in lower case (RFC 6066 §3).
    pub server_name: Option<String>,
    /// The negotiated protocol. `None`: the client offered none, which means HTTP/1.1.
    pub protocol: Option<Alpn>,
}

impl ListenerTls {
    /// TLS with the certificates that `certificates` has at each handshake. `protocols` is the listener's preference, best first.
    /// Clients without a certificate are accepted, with TLS 1.3 or TLS 1.2; `pqc` allows TLS 1.3 alone.
    pub fn new(
        certificates: &Arc<CertificateStore>,
        protocols: &[Alpn],
        compliance: Compliance,
    ) -> Self {
        let certificates = Arc::clone(certificates);
        let mut config = ServerConfig::builder_with_provider(foreign(compliance))
            .with_protocol_versions(versions(compliance))
            .expect("the provider has cipher suites of these versions")
            .with_no_client_auth()
            .with_cert_resolver(certificates);
        config.alpn_protocols = Alpn::list(protocols);
        Self(Arc::new(config))
    }

    /// Accepts a client. Bound it by a timeout.
    ///
    /// # Errors
    /// [`ForeignError::UnknownServerName`] if no certificate fits; [`ForeignError::Protocol`] if the client offers
    /// other protocols only (RFC 7301 §3.2). See [`ForeignError`] for others.
    pub async fn accept<IO>(&self, io: IO) -> Result<(TlsStream<IO>, ListenerSession), ForeignError>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        let stream = TlsAcceptor::from(Arc::clone(&self.0))
            .accept(ReadAhead::new(io))
            .await
            .map_err(ForeignError::from_io)?;
        let state = stream.get_ref().1;
        let accepted = ListenerSession {
            server_name: state.server_name().map(str::to_owned),
            protocol: Alpn::negotiated(state.alpn_protocol()),
        };
        Ok((TlsStream::new(stream.into()), accepted))
    }
}
