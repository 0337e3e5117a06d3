//! Who a peer is: its chain ends in the mesh's roots and its certificate names a workload.

use std::sync::{Arc, OnceLock};

use lateen_types::{Identity, Strng};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, RootCertStore,
    SignatureScheme,
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use webpki::{EndEntityCert, KeyUsage};

use crate::provider::algorithms;

/// Whom one workload trusts.
#[derive(Debug)]
pub(crate) struct Trust {
    pub(crate) roots: RootCertStore,
    /// Our own trust domain; peers that connect to us must be of the same.
    pub(crate) trust_domain: Strng,
}

/// A certificate that is genuine and yet not the right one.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum Mismatch {
    #[error("peer's certificate names no workload identity")]
    NoIdentity,
    #[error("peer is {presented}, of another trust domain than {ours}")]
    TrustDomain { presented: String, ours: Strng },
    #[error("peer is {presented}, expected {expected}")]
    Identity { presented: String, expected: String },
}

impl From<Mismatch> for Error {
    fn from(mismatch: Mismatch) -> Self {
        CertificateError::Other(OtherError(Arc::new(mismatch))).into()
    }
}

impl Trust {
    /// Checks the chain and gives the parsed certificate.
    fn verify_chain<'a>(
        &self,
        leaf: &'a CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
        usage: KeyUsage,
    ) -> Result<EndEntityCert<'a>, Error> {
        let cert = EndEntityCert::try_from(leaf).map_err(certificate_error)?;
        cert.verify_for_usage(
            algorithms().all,
            &self.roots.roots,
            intermediates,
            now,
            usage,
            None,
            None,
        )
        .map_err(certificate_error)?;
        Ok(cert)
    }
}

/// The identities that a certificate names. Other URIs are no identities and are passed over.
pub(crate) fn identities(cert: &EndEntityCert<'_>) -> impl Iterator<Item = Identity> {
    cert.valid_uri_names().filter_map(|uri| uri.parse().ok())
}

/// What the certificate says about its owner, for an error text.
fn presented(cert: &EndEntityCert<'_>) -> String {
    let uris: Vec<&str> = cert.valid_uri_names().collect();
    uris.join(", ")
}

/// The first identity of `cert` in `trust_domain`.
pub(crate) fn identity_of(
    cert: &EndEntityCert<'_>,
    trust_domain: &Strng,
) -> Result<Identity, Mismatch> {
    let mut any = false;
    for identity in identities(cert) {
        if identity.trust_domain() == trust_domain {
            return Ok(identity);
        }
        any = true;
    }
    Err(match any {
        true => Mismatch::TrustDomain {
            presented: presented(cert),
            ours: trust_domain.clone(),
        },
        false => Mismatch::NoIdentity,
    })
}

/// Webpki's verdicts as rustls spells them, so that the peer gets the fitting alert.
fn certificate_error(error: webpki::Error) -> Error {
    use webpki::Error as E;
    let error = match error {
        E::BadDer | E::BadDerTime | E::TrailingData(_) => CertificateError::BadEncoding,
        E::CertExpired { time, not_after } => CertificateError::ExpiredContext { time, not_after },
        E::CertNotValidYet { time, not_before } => {
            CertificateError::NotValidYetContext { time, not_before }
        }
        // Authorities of two meshes often have one name: then the key is what differs.
        E::UnknownIssuer | E::InvalidSignatureForPublicKey => CertificateError::UnknownIssuer,
        E::RequiredEkuNotFoundContext(_) => CertificateError::InvalidPurpose,
        other => CertificateError::Other(OtherError(Arc::new(other))),
    };
    error.into()
}

/// The client's check of one server: made for one connection, it also keeps who the server turned out to be.
#[derive(Debug)]
pub(crate) struct ServerCheck {
    trust: Arc<Trust>,
    expected: Box<[Identity]>,
    verified: OnceLock<Identity>,
}

impl ServerCheck {
    pub(crate) fn new(trust: Arc<Trust>, expected: &[Identity]) -> Self {
        ServerCheck {
            trust,
            expected: expected.into(),
            verified: OnceLock::new(),
        }
    }

    /// Who the server is; known after the handshake.
    pub(crate) fn verified(&self) -> Option<&Identity> {
        self.verified.get()
    }
}

impl ServerCertVerifier for ServerCheck {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let cert = self
            .trust
            .verify_chain(leaf, intermediates, now, KeyUsage::server_auth())?;
        let Some(identity) = identities(&cert).find(|id| self.expected.contains(id)) else {
            if identities(&cert).next().is_none() {
                return Err(Mismatch::NoIdentity.into());
            }
            let expected: Vec<String> = self.expected.iter().map(Identity::uri).collect();
            return Err(Mismatch::Identity {
                presented: presented(&cert),
                expected: expected.join(" or "),
            }
            .into());
        };
        self.verified.get_or_init(|| identity);
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(only_tls13())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls13_signature(message, cert, signature, &algorithms())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        algorithms().supported_schemes()
    }
}

/// The server's check of its clients; one for all connections.
#[derive(Debug)]
pub(crate) struct ClientCheck(pub(crate) Arc<Trust>);

impl ClientCertVerifier for ClientCheck {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        // A client of the mesh has one certificate: hints would only make the handshake longer.
        &[]
    }

    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let cert = self
            .0
            .verify_chain(leaf, intermediates, now, KeyUsage::client_auth())?;
        identity_of(&cert, &self.0.trust_domain)?;
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(only_tls13())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls13_signature(message, cert, signature, &algorithms())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        algorithms().supported_schemes()
    }
}

fn only_tls13() -> Error {
    Error::General("tls 1.2 is not spoken here".to_owned())
}
