//! TLS origination towards servers outside of the mesh: their roots, their server name and the alternative names that they must have.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{verify_tls12_signature, verify_tls13_signature};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use webpki::EndEntityCert;

use crate::alpn::Alpn;
use crate::control::Roots;
use crate::foreign_error::ForeignError;
use crate::provider::{algorithms, foreign, versions};
use crate::rules::Compliance;
use crate::stream::{ReadAhead, TlsStream};

/// A subject alternative name that a server's certificate must have (RFC 5280 §4.2.1.6).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AltName {
    /// A DNS name. A wildcard of the certificate may stand for its first label (RFC 9525 §6.3).
    Dns(String),
    /// A URI, compared byte by byte, such as a SPIFFE ID.
    Uri(String),
}

/// The servers of one upstream, as its configuration names them.
#[derive(Debug, Clone)]
pub struct UpstreamSettings {
    /// Authorities whose certificates are accepted; several are added up. With none every server is refused.
    pub roots: Vec<Roots>,
    /// Sent as server name (RFC 6066 §3). An IP address is verified and not sent.
    pub server_name: String,
    /// The certificate must have one of them. When empty, it must be for `server_name`.
    pub alt_names: Vec<AltName>,
    /// Protocols to offer, best first. When empty, ALPN is not sent.
    pub protocols: Vec<Alpn>,
    /// Which cryptography is allowed.
    pub compliance: Compliance,
}

/// Why settings cannot work.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamError {
    /// A bundle cannot be read or holds no certificate.
    #[error("upstream roots: {0}")]
    Roots(String),
    /// The server name, or an alternative name, is no DNS name or IP address.
    #[error("upstream name {0:?}: expected a DNS name or an IP address")]
    Name(String),
}

/// TLS towards one upstream. Cheap to clone.
#[derive(Debug, Clone)]
pub struct UpstreamTls {
    config: Arc<ClientConfig>,
    server_name: ServerName<'static>,
}

impl UpstreamTls {
    /// Reads the roots once. Roots that change need a new one.
    ///
    /// # Errors
    /// See [`UpstreamError`].
    pub fn new(settings: &UpstreamSettings) -> Result<Self, UpstreamError> {
        let mut roots = RootCertStore::empty();
        for one in &settings.roots {
            roots
                .roots
                .extend(one.load().map_err(UpstreamError::Roots)?.roots);
        }
        let name = |text: &str| {
            ServerName::try_from(text.to_owned()).map_err(|_| UpstreamError::Name(text.to_owned()))
        };
        let server_name = name(&settings.server_name)?;
        let expected = settings.alt_names.iter().map(|alt| match alt {
            AltName::Dns(dns) => Ok(Expected::Name(name(dns)?)),
            AltName::Uri(uri) => Ok(Expected::Uri(uri.clone())),
        });
        let check = UpstreamCheck {
            roots,
            expected: expected.collect::<Result<_, _>>()?,
        };
        let mut config = ClientConfig::builder_with_provider(foreign(settings.compliance))
            .with_protocol_versions(versions(settings.compliance))
            .expect("the provider has cipher suites of these versions")
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(check))
            .with_no_client_auth();
        config.alpn_protocols = Alpn::list(&settings.protocols);
        Ok(Self {
            config: Arc::new(config),
            server_name,
        })
    }

    /// Connects to a server over `io`. Bound it by a timeout. The protocol is `None` if the server negotiated none, which means
    /// HTTP/1.1.
    ///
    /// # Errors
    /// See [`ForeignError`].
    pub async fn connect<IO>(&self, io: IO) -> Result<(TlsStream<IO>, Option<Alpn>), ForeignError>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        let stream = TlsConnector::from(Arc::clone(&self.config))
            .connect(self.server_name.clone(), ReadAhead::new(io))
            .await
            .map_err(ForeignError::from_io)?;
        let protocol = Alpn::negotiated(stream.get_ref().1.alpn_protocol());
        Ok((TlsStream::new(stream.into()), protocol))
    }
}

/// A name that is accepted.
#[derive(Debug)]
enum Expected {
    Name(ServerName<'static>),
    Uri(String),
}

/// Verifies that a server's chain ends in the roots, and that its certificate has an expected name.
#[derive(Debug)]
struct UpstreamCheck {
    roots: RootCertStore,
    /// Empty: the name that the connection is for.
    expected: Vec<Expected>,
}

impl UpstreamCheck {
    fn has_name(
        &self,
        der: &CertificateDer<'_>,
        leaf: &ParsedCertificate<'_>,
        name: &ServerName<'_>,
    ) -> Result<(), rustls::Error> {
        if self.expected.is_empty() {
            return verify_server_name(leaf, name);
        }
        let bad = |_| rustls::Error::InvalidCertificate(CertificateError::BadEncoding);
        let certificate = EndEntityCert::try_from(der).map_err(bad)?;
        let found = self.expected.iter().any(|expected| match expected {
            Expected::Name(name) => verify_server_name(leaf, name).is_ok(),
            Expected::Uri(uri) => certificate.valid_uri_names().any(|one| one == uri),
        });
        match found {
            true => Ok(()),
            false => Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName,
            )),
        }
    }
}

impl ServerCertVerifier for UpstreamCheck {
    fn verify_server_cert(
        &self,
        der: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let leaf = ParsedCertificate::try_from(der)?;
        verify_server_cert_signed_by_trust_anchor(
            &leaf,
            &self.roots,
            intermediates,
            now,
            algorithms().all,
        )?;
        self.has_name(der, &leaf, name)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, signature, &algorithms())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, signature, &algorithms())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        algorithms().supported_schemes()
    }
}
