//! Who a peer is: its chain ends in the mesh's roots and its certificate names a workload.

use std::sync::Arc;

use lateen_types::{Identity, Strng};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, RootCertStore,
    SignatureScheme,
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use webpki::{
    EndEntityCert, ExpirationPolicy, KeyUsage, RevocationCheckDepth, RevocationOptionsBuilder,
    UnknownStatusPolicy,
};

use crate::provider::algorithms;
use crate::revocation::{Revocations, Serial};

/// Whom one workload trusts.
#[derive(Debug)]
pub(crate) struct Trust {
    pub(crate) roots: RootCertStore,
    /// Our own trust domain; peers that connect to us must be of it, or of an alias.
    pub(crate) trust_domain: Strng,
    pub(crate) aliases: Arc<[Strng]>,
    pub(crate) revocations: Revocations,
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
    /// Checks the chain, that nothing in it is revoked included, and gives the parsed certificate.
    fn verify_chain<'a>(
        &self,
        leaf: &'a CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
        usage: KeyUsage,
    ) -> Result<EndEntityCert<'a>, Error> {
        let cert = EndEntityCert::try_from(leaf).map_err(certificate_error)?;
        let lists = self.revocations.lists();
        let checked = lists.for_webpki();
        let revocation = RevocationOptionsBuilder::new(&checked).ok().map(|options| {
            options
                .with_depth(RevocationCheckDepth::Chain)
                // Most authorities have no list, and of a stale list what it says is still true.
                .with_status_policy(UnknownStatusPolicy::Allow)
                .with_expiration_policy(ExpirationPolicy::Ignore)
                .build()
        });
        cert.verify_for_usage(
            algorithms().all,
            &self.roots.roots,
            intermediates,
            now,
            usage,
            revocation,
            None,
        )
        .map_err(certificate_error)?;
        if !lists.infos().is_empty() {
            let presented = std::iter::once(leaf).chain(intermediates);
            let serials: Vec<Serial> = presented.filter_map(Serial::of).collect();
            if lists.names(&serials) {
                return Err(CertificateError::Revoked.into());
            }
        }
        Ok(cert)
    }

    fn accepts_domain(&self, identity: &Identity) -> bool {
        let domain = identity.trust_domain();
        *domain == self.trust_domain || self.aliases.contains(domain)
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
        E::CertRevoked => CertificateError::Revoked,
        E::RequiredEkuNotFoundContext(_) => CertificateError::InvalidPurpose,
        other => CertificateError::Other(OtherError(Arc::new(other))),
    };
    error.into()
}

/// Who is accepted, once its chain is good.
#[derive(Debug)]
enum Accepted {
    /// A server: one of those that it was dialled as.
    OneOf(Box<[Identity]>),
    /// A client: anybody of our trust domain and its aliases.
    Members,
}

/// The check of a peer, of either side.
#[derive(Debug)]
pub(crate) struct Check {
    trust: Arc<Trust>,
    accepted: Accepted,
}

impl Check {
    /// Of a server that must be one of `expected`; of nobody if there are none.
    pub(crate) fn of_server(trust: Arc<Trust>, expected: &[Identity]) -> Self {
        Check {
            trust,
            accepted: Accepted::OneOf(expected.into()),
        }
    }

    /// Of all clients.
    pub(crate) fn of_clients(trust: Arc<Trust>) -> Self {
        Check {
            trust,
            accepted: Accepted::Members,
        }
    }

    /// Who the bearer of a certificate is; nothing is said about its chain.
    pub(crate) fn identify(&self, leaf: &CertificateDer<'_>) -> Result<Identity, Error> {
        let cert = EndEntityCert::try_from(leaf).map_err(certificate_error)?;
        Ok(self.accept(&cert)?)
    }

    fn accept(&self, cert: &EndEntityCert<'_>) -> Result<Identity, Mismatch> {
        let found = identities(cert).find(|identity| match &self.accepted {
            Accepted::OneOf(expected) => expected.contains(identity),
            Accepted::Members => self.trust.accepts_domain(identity),
        });
        if let Some(identity) = found {
            return Ok(identity);
        }
        if identities(cert).next().is_none() {
            return Err(Mismatch::NoIdentity);
        }
        let presented = presented(cert);
        Err(match &self.accepted {
            Accepted::OneOf(expected) => {
                let expected: Vec<String> = expected.iter().map(Identity::uri).collect();
                Mismatch::Identity {
                    presented,
                    expected: expected.join(" or "),
                }
            }
            Accepted::Members => Mismatch::TrustDomain {
                presented,
                ours: self.trust.trust_domain.clone(),
            },
        })
    }

    fn verify(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
        usage: KeyUsage,
    ) -> Result<(), Error> {
        let cert = self.trust.verify_chain(leaf, intermediates, now, usage)?;
        self.accept(&cert)?;
        Ok(())
    }
}

impl ServerCertVerifier for Check {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.verify(leaf, intermediates, now, KeyUsage::server_auth())?;
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

impl ClientCertVerifier for Check {
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
        self.verify(leaf, intermediates, now, KeyUsage::client_auth())?;
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        ServerCertVerifier::verify_tls12_signature(self, message, cert, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        ServerCertVerifier::verify_tls13_signature(self, message, cert, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        ServerCertVerifier::supported_verify_schemes(self)
    }
}

fn only_tls13() -> Error {
    Error::General("tls 1.2 is not spoken here".to_owned())
}
