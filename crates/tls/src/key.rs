//! Private keys and the requests to certify them.

use lateen_types::Identity;
use rcgen::{CertificateParams, DistinguishedName, SanType};
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

/// A P-256 key that never leaves the process.
pub struct KeyPair(rcgen::KeyPair);

impl std::fmt::Debug for KeyPair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeyPair(..)")
    }
}

/// A key that could not be made, read or put into a request.
#[derive(Debug, thiserror::Error)]
#[error("private key: {0}")]
pub struct KeyError(#[from] rcgen::Error);

impl KeyPair {
    /// A fresh key.
    ///
    /// # Errors
    /// The system gives no randomness.
    pub fn generate() -> Result<Self, KeyError> {
        Ok(KeyPair(rcgen::KeyPair::generate_for(
            &rcgen::PKCS_ECDSA_P256_SHA256,
        )?))
    }

    /// Reads a PKCS #8 key in PEM, for certificates that somebody else issued.
    ///
    /// # Errors
    /// The text holds no key of a known kind.
    pub fn from_pem(pem: &str) -> Result<Self, KeyError> {
        Ok(KeyPair(rcgen::KeyPair::from_pem(pem)?))
    }

    /// A certificate request in PEM: an empty subject and the identity as the only alternative name, as Istio's CA expects.
    ///
    /// # Errors
    /// The identity holds characters that no certificate can carry.
    pub fn csr_pem(&self, identity: &Identity) -> Result<String, KeyError> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.subject_alt_names = vec![SanType::URI(identity.uri().try_into()?)];
        Ok(params.serialize_request(&self.0)?.pem()?)
    }

    pub(crate) fn into_der(self) -> PrivateKeyDer<'static> {
        PrivatePkcs8KeyDer::from(self.0.serialize_der()).into()
    }
}
