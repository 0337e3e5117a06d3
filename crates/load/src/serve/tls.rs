//! TLS of the server: the certificate that it shows, and the demand for client certificates.

use std::path::PathBuf;
use std::sync::Arc;

use clap::ValueEnum;
use rustls::ServerConfig;
use rustls::server::WebPkiClientVerifier;

use crate::tls::{TlsError, certificates, private_key, roots, unfit, unusable};

/// The demand for certificates of clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ClientCert {
    /// A certificate, or the handshake fails.
    Require,
    /// A certificate if they have one. A wrong one fails all the same.
    Want,
}

/// The user's options of TLS.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Speak TLS on the ports for HTTP, with this certificate and those between it and the root, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The key of that certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Ask clients for certificates from these issuers, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    client_ca: Option<PathBuf>,
    /// Whether a client may come without one
    #[arg(long, value_enum, default_value_t = ClientCert::Require, requires = "client_ca")]
    client_cert: ClientCert,
}

impl Options {
    /// Reads the files; none where no TLS is spoken. ALPN offers h2 and http/1.1.
    pub fn config(&self) -> Result<Option<Arc<ServerConfig>>, TlsError> {
        let (Some(cert), Some(key)) = (&self.tls_cert, &self.tls_key) else {
            return Ok(None);
        };
        let builder = ServerConfig::builder();
        let builder = match &self.client_ca {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let verifier = WebPkiClientVerifier::builder(Arc::new(roots(path)?));
                let verifier = match self.client_cert {
                    ClientCert::Require => verifier,
                    ClientCert::Want => verifier.allow_unauthenticated(),
                };
                let unfit = |error| unusable(path, &error, "certificates of issuers in PEM");
                builder.with_client_cert_verifier(verifier.build().map_err(unfit)?)
            }
        };
        let mut config = builder
            .with_single_cert(certificates(cert)?, private_key(key)?)
            .map_err(|error| unfit("--tls-cert", "--tls-key", &error))?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Some(Arc::new(config)))
    }
}
