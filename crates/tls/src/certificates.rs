//! Server certificates by server name (RFC 6066 §3).

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, DnsName, PrivateKeyDer};

use crate::provider::foreign;
use crate::rules::Compliance;

/// A certificate chain of an operator and its private key, ready to sign. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ServerCertificate(Arc<CertifiedKey>);

/// Why a certificate cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ServerCertificateError {
    /// The chain is no PEM, or holds no certificate.
    #[error("certificate chain: {0}")]
    Chain(String),
    /// The key is no PEM, or of an unknown kind.
    #[error("private key: {0}; expected PKCS #8, PKCS #1 or SEC1 in PEM")]
    Key(String),
    /// The key does not belong to the certificate, or is of a kind that TLS does not use.
    #[error("the private key does not fit the certificate: {0}")]
    Mismatch(#[source] rustls::Error),
    /// A name is neither a DNS name nor `*.` before one.
    #[error("server name {0:?}: expected a DNS name, or \"*.\" before one")]
    Name(String),
}

impl ServerCertificate {
    /// Reads a chain, leaf first, and its key.
    ///
    /// # Errors
    /// See [`ServerCertificateError`]. Validity in time is not checked: clients judge it.
    pub fn from_pem(chain: &str, key: &str) -> Result<Self, ServerCertificateError> {
        let chain = CertificateDer::pem_slice_iter(chain.as_bytes())
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| ServerCertificateError::Chain(error.to_string()))?;
        if chain.is_empty() {
            return Err(ServerCertificateError::Chain("it is empty".to_owned()));
        }
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes())
            .map_err(|error| ServerCertificateError::Key(error.to_string()))?;
        // Every compliance policy signs with the same algorithms.
        let certified = CertifiedKey::from_der(chain, key, &foreign(Compliance::default()))
            .map_err(ServerCertificateError::Mismatch)?;
        Ok(Self(Arc::new(certified)))
    }
}

/// Certificates of one listener, by server name. An exact name goes before a wildcard, a longer wildcard before a shorter one.
#[derive(Debug, Clone, Default)]
pub struct Certificates {
    exact: HashMap<Box<str>, ServerCertificate>,
    /// By the name behind `*.`.
    wildcards: HashMap<Box<str>, ServerCertificate>,
    default: Option<ServerCertificate>,
}

impl Certificates {
    /// Serves `certificate` for `name`. `*.example.com` stands for every name that ends in `.example.com`, with one label or more
    /// before it, as a Gateway API hostname does. The last certificate of a name counts.
    ///
    /// # Errors
    /// [`ServerCertificateError::Name`]
    pub fn insert(
        &mut self,
        name: &str,
        certificate: ServerCertificate,
    ) -> Result<(), ServerCertificateError> {
        let (names, name) = match name.strip_prefix("*.") {
            Some(parent) => (&mut self.wildcards, parent),
            None => (&mut self.exact, name),
        };
        // RFC 6066 §3: no trailing dot, and ASCII without regard to case.
        if DnsName::try_from(name).is_err() || name.ends_with('.') {
            return Err(ServerCertificateError::Name(name.to_owned()));
        }
        names.insert(name.to_ascii_lowercase().into(), certificate);
        Ok(())
    }

    /// Serves `certificate` to clients that send no name, or one that no entry fits. Without it the handshake of such a client fails.
    pub fn set_default(&mut self, certificate: ServerCertificate) {
        self.default = Some(certificate);
    }

    /// The certificate for `name`, which is in lower case.
    fn find(&self, name: Option<&str>) -> Option<&ServerCertificate> {
        let by_name = name.and_then(|name| {
            self.exact.get(name).or_else(|| {
                let parents =
                    std::iter::successors(name.split_once('.'), |(_, rest)| rest.split_once('.'));
                parents
                    .filter_map(|(_, parent)| self.wildcards.get(parent))
                    .next()
            })
        });
        by_name.or(self.default.as_ref())
    }
}

/// The certificates that a listener's handshakes use now. A new snapshot takes effect with the next handshake.
#[derive(Debug, Default)]
pub struct CertificateStore(RwLock<Arc<Certificates>>);

impl CertificateStore {
    /// A store with these certificates.
    pub fn new(certificates: Certificates) -> Arc<Self> {
        Arc::new(Self(RwLock::new(Arc::new(certificates))))
    }

    /// Replaces all certificates. Connections that are open keep theirs.
    pub fn replace(&self, certificates: Certificates) {
        *self.0.write() = Arc::new(certificates);
    }
}

impl ResolvesServerCert for CertificateStore {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let certificates = Arc::clone(&self.0.read());
        // rustls gives the name in lower case.
        let found = certificates.find(hello.server_name())?;
        Some(Arc::clone(&found.0))
    }
}

#[cfg(test)]
mod tests {
    use lateen_testkit::{Ca, identity};

    use super::*;

    fn certificate() -> ServerCertificate {
        let bundle = Ca::new().leaf(&identity("web")).issue();
        ServerCertificate::from_pem(&bundle.chain[0], &bundle.key).unwrap()
    }

    #[test]
    fn exact_names_go_before_wildcards_and_longer_wildcards_before_shorter_ones() {
        let names = ["a.example.com", "*.example.com", "*.b.example.com"];
        let mut certificates = Certificates::default();
        let served = names.map(|name| {
            let certificate = certificate();
            certificates.insert(name, certificate.clone()).unwrap();
            certificate
        });
        let found = |name| {
            let found = certificates.find(Some(name))?;
            served.iter().position(|one| Arc::ptr_eq(&one.0, &found.0))
        };
        assert_eq!(found("a.example.com"), Some(0));
        assert_eq!(found("c.example.com"), Some(1));
        assert_eq!(found("d.c.example.com"), Some(1));
        assert_eq!(found("c.b.example.com"), Some(2));
        assert_eq!(found("b.example.com"), Some(1));
        for other in ["example.com", "com", "aexample.com", "a.example.org"] {
            assert_eq!(found(other), None, "{other}");
        }
        assert!(certificates.find(None).is_none());
        let fallback = certificate();
        certificates.set_default(fallback.clone());
        for name in [None, Some("example.com")] {
            let found = certificates.find(name).unwrap();
            assert!(Arc::ptr_eq(&found.0, &fallback.0));
        }
    }

    #[test]
    fn names_that_no_client_can_send_are_refused() {
        let mut certificates = Certificates::default();
        for name in ["", "*", "*.", "a.*.com", "*.*.com", "a b", "example.com."] {
            let refused = certificates.insert(name, certificate());
            assert!(
                matches!(refused, Err(ServerCertificateError::Name(_))),
                "{name}"
            );
        }
        certificates
            .insert("WWW.Example.COM", certificate())
            .unwrap();
        assert!(certificates.find(Some("www.example.com")).is_some());
    }

    #[test]
    fn a_chain_without_its_own_key_is_refused() {
        let ca = Ca::new();
        let [one, other] = ["a", "b"].map(|name| ca.leaf(&identity(name)).issue());
        let read = ServerCertificate::from_pem;
        assert!(matches!(
            read(&one.chain[0], &other.key),
            Err(ServerCertificateError::Mismatch(_))
        ));
        assert!(matches!(
            read("", &one.key),
            Err(ServerCertificateError::Chain(_))
        ));
        assert!(matches!(
            read(&one.chain[0], "no key"),
            Err(ServerCertificateError::Key(_))
        ));
    }
}
