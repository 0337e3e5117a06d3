//! TLS of the server: the certificate that it shows, and the demand for client certificates.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::ValueEnum;
use rustls::crypto::aws_lc_rs;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

use crate::tls::{TlsError, certificates, private_key, unfit};

/// What is asked of clients whose issuer is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ClientCert {
    /// A certificate, or the handshake fails.
    Require,
    /// A certificate if they have one. A wrong one fails all the same.
    Want,
}

/// What the user says about TLS.
#[derive(Debug, Clone)]
pub struct Options {
    /// The certificate and those between it and the root, in PEM.
    pub cert: PathBuf,
    /// Its key, in PEM.
    pub key: PathBuf,
    /// Who issues clients' certificates, in PEM, if any are asked for.
    pub client_ca: Option<PathBuf>,
    /// What is asked of clients then.
    pub client_cert: ClientCert,
}

impl Options {
    /// Reads the files. ALPN offers h2 and http/1.1.
    pub fn config(&self) -> Result<Arc<ServerConfig>, TlsError> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()?;
        let builder = match &self.client_ca {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots(path)?), provider);
                let verifier = match self.client_cert {
                    ClientCert::Require => verifier,
                    ClientCert::Want => verifier.allow_unauthenticated(),
                };
                let verifier = verifier.build().map_err(|error| bad(path, &error))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let mut config = builder
            .with_single_cert(certificates(&self.cert)?, private_key(&self.key)?)
            .map_err(|error| unfit("--tls-cert", "--tls-key", &error))?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

fn roots(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| bad(path, &error))?;
    }
    Ok(roots)
}

fn bad(path: &Path, reason: &dyn std::fmt::Display) -> TlsError {
    TlsError::File {
        path: path.display().to_string(),
        reason: reason.to_string(),
    }
}
