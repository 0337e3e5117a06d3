//! Connections to the control plane and to other servers of the operator: one-sided TLS, the caller authenticates with a
//! token.

use std::fmt;
use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_util::rt::TokioIo;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::error::TlsError;
use crate::provider::{ALPN, provider};
use crate::rules::Compliance;
use crate::stream::{ReadAhead, TlsStream};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Who is called, for errors that name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Called {
    /// Where configuration comes from.
    #[default]
    ControlPlane,
    /// Where certificates come from.
    Authority,
    /// Where reports go to.
    Collector,
}

impl Called {
    /// The variable that names its roots.
    fn roots(self) -> &'static str {
        match self {
            Called::ControlPlane => "XDS_ROOT_CA",
            Called::Authority => "CA_ROOT_CA",
            Called::Collector => "OTEL_EXPORTER_OTLP_CERTIFICATE",
        }
    }
}

impl fmt::Display for Called {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Called::ControlPlane => "control plane",
            Called::Authority => "certificate authority",
            Called::Collector => "OpenTelemetry collector",
        })
    }
}

/// Whom to believe that it is the one who is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Roots {
    /// A PEM file, read anew for every connection so that rotated roots take effect.
    File(PathBuf),
    /// PEM text.
    Pem(String),
    /// The machine's own roots.
    System,
}

impl Roots {
    /// As ztunnel reads `XDS_ROOT_CA` and `CA_ROOT_CA`: `SYSTEM`, PEM text, or a path.
    pub fn parse(text: &str) -> Self {
        if text == "SYSTEM" {
            Roots::System
        } else if text.contains("-----BEGIN CERTIFICATE-----") {
            Roots::Pem(text.to_owned())
        } else {
            Roots::File(text.into())
        }
    }

    pub(crate) fn load(&self) -> Result<RootCertStore, String> {
        let certificates: Vec<CertificateDer<'static>> = match self {
            Roots::File(path) => {
                let pem =
                    std::fs::read(path).map_err(|e| format!("read {}: {e}", path.display()))?;
                parse(&pem).map_err(|e| format!("{}: {e}", path.display()))?
            }
            Roots::Pem(pem) => parse(pem.as_bytes()).map_err(|e| format!("inline: {e}"))?,
            Roots::System => rustls_native_certs::load_native_certs().certs,
        };
        let mut store = RootCertStore::empty();
        let (added, _) = store.add_parsable_certificates(certificates);
        if added == 0 {
            return Err(format!("{self:?} holds no certificate"));
        }
        Ok(store)
    }
}

fn parse(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, rustls_pki_types::pem::Error> {
    CertificateDer::pem_slice_iter(pem).collect()
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The address is not `https://HOST:PORT`.
    #[error("{called} address {address}: expected https://HOST:PORT")]
    Address {
        /// Whose it is.
        called: Called,
        /// As given.
        address: String,
    },
    /// The roots cannot be used.
    #[error("{called} roots: {why}; check {}", .called.roots())]
    Roots {
        /// Who is to prove itself by them.
        called: Called,
        /// What is wrong with them.
        why: String,
    },
    /// No TCP connection.
    #[error("connect to {called} {authority}: {source}")]
    Connect {
        /// Who did not answer, or not as it should.
        called: Called,
        /// Where to.
        authority: String,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// No TLS.
    #[error("tls to {called} {authority}: {source}")]
    Tls {
        /// Who did not answer, or not as it should.
        called: Called,
        /// Where to.
        authority: String,
        /// What went wrong.
        #[source]
        source: TlsError,
    },
}

/// Makes connections for a gRPC channel.
#[derive(Debug, Clone)]
pub struct ControlConnector {
    roots: Roots,
    alternative_name: Option<Arc<str>>,
    compliance: Compliance,
    called: Called,
}

/// A connection in the form that hyper and tonic take.
pub type ControlStream = TokioIo<TlsStream<TcpStream>>;

impl ControlConnector {
    /// `alternative_name` is accepted in the server's certificate beside the address's own host
    /// (ztunnel's `ALT_XDS_HOSTNAME`).
    pub fn new(roots: Roots, alternative_name: Option<&str>) -> Self {
        ControlConnector {
            roots,
            alternative_name: alternative_name.map(Arc::from),
            compliance: Compliance::default(),
            called: Called::default(),
        }
    }

    /// The same connections to somebody else than the control plane.
    #[must_use]
    pub fn to(self, called: Called) -> Self {
        ControlConnector { called, ..self }
    }

    /// The same connections by another policy: who is called must keep to it too.
    #[must_use]
    pub fn complying(self, compliance: Compliance) -> Self {
        ControlConnector { compliance, ..self }
    }

    async fn connect(self, uri: Uri) -> Result<ControlStream, ControlError> {
        let called = self.called;
        let address = || ControlError::Address {
            called,
            address: uri.to_string(),
        };
        if uri.scheme_str() != Some("https") {
            return Err(address());
        }
        let host = uri.host().ok_or_else(address)?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let name = ServerName::try_from(host.to_owned()).map_err(|_| address())?;
        let port = uri.port_u16().unwrap_or(443);
        let config = self.config()?;

        let authority = format!("{host}:{port}");
        let tcp = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect((host, port)))
            .await
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
            .and_then(|tcp| tcp.set_nodelay(true).map(|()| tcp))
            .map_err(|source| ControlError::Connect {
                called,
                authority: authority.clone(),
                source,
            })?;
        let connector = TlsConnector::from(Arc::new(config));
        let handshake = connector.connect(name, ReadAhead::new(tcp));
        let stream = tokio::time::timeout(CONNECT_TIMEOUT, handshake)
            .await
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
            .map_err(|e| ControlError::Tls {
                called,
                authority,
                source: TlsError::from_io(e),
            })?;
        Ok(TokioIo::new(TlsStream::new(stream.into())))
    }

    fn config(&self) -> Result<ClientConfig, ControlError> {
        let called = self.called;
        let unusable = |why| ControlError::Roots { called, why };
        let roots = Arc::new(self.roots.load().map_err(unusable)?);
        let usual = WebPkiServerVerifier::builder_with_provider(roots, provider(self.compliance))
            .build()
            .map_err(|e| unusable(e.to_string()))?;
        let alternative =
            match self.alternative_name.as_deref() {
                None => None,
                Some(name) => Some(ServerName::try_from(name.to_owned()).map_err(|_| {
                    ControlError::Address {
                        called,
                        address: name.to_owned(),
                    }
                })?),
            };
        let mut config = ClientConfig::builder_with_provider(provider(self.compliance))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("the provider has TLS 1.3 cipher suites")
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(ControlCheck { usual, alternative }))
            .with_no_client_auth();
        config.alpn_protocols = vec![ALPN.to_vec()];
        Ok(config)
    }
}

impl tower_service::Service<Uri> for ControlConnector {
    type Response = ControlStream;
    type Error = ControlError;
    type Future = Pin<Box<dyn Future<Output = Result<ControlStream, ControlError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ControlError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        Box::pin(self.clone().connect(uri))
    }
}

/// The usual verification, with a second name to try.
#[derive(Debug)]
struct ControlCheck {
    usual: Arc<WebPkiServerVerifier>,
    alternative: Option<ServerName<'static>>,
}

impl ServerCertVerifier for ControlCheck {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let verify = |name| {
            self.usual
                .verify_server_cert(leaf, intermediates, name, ocsp, now)
        };
        verify(name).or_else(|error| match &self.alternative {
            Some(alternative) => verify(alternative),
            None => Err(error),
        })
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.usual.verify_tls12_signature(message, cert, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.usual.verify_tls13_signature(message, cert, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.usual.supported_verify_schemes()
    }
}
