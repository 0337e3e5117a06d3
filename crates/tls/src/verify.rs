//! Verification of a peer: its chain ends in the mesh's roots, and its certificate names a workload.

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
use crate::svid::{self, NotSvid};

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
    #[error("peer's certificate is no X.509-SVID: {0}")]
    Svid(#[from] NotSvid),
}

impl From<Mismatch> for Error {
    fn from(mismatch: Mismatch) -> Self {
        CertificateError::Other(OtherError(Arc::new(mismatch))).into()
    }
}

impl Trust {
    /// Checks the chain, that nothing in it is revoked included.
    fn verify_chain(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
        usage: KeyUsage,
    ) -> Result<(), Error> {
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
        Ok(())
    }

    fn accepts_domain(&self, identity: &Identity) -> bool {
        let domain = identity.trust_domain();
        *domain == self.trust_domain || self.aliases.contains(domain)
    }
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
        E::CaUsedAsEndEntity => return Mismatch::from(NotSvid::Authority).into(),
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
        Ok(self.accept(leaf)?)
    }

    fn accept(&self, leaf: &CertificateDer<'_>) -> Result<Identity, Mismatch> {
        let identity = svid::identity(leaf)?.ok_or(Mismatch::NoIdentity)?;
        let presented = || identity.uri();
        match &self.accepted {
            Accepted::OneOf(expected) if !expected.contains(&identity) => {
                let expected: Vec<String> = expected.iter().map(Identity::uri).collect();
                Err(Mismatch::Identity {
                    presented: presented(),
                    expected: expected.join(" or "),
                })
            }
            Accepted::Members if !self.trust.accepts_domain(&identity) => {
                Err(Mismatch::TrustDomain {
                    presented: presented(),
                    ours: self.trust.trust_domain.clone(),
                })
            }
            Accepted::OneOf(_) | Accepted::Members => Ok(identity),
        }
    }

    fn verify(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
        usage: KeyUsage,
    ) -> Result<(), Error> {
        self.trust.verify_chain(leaf, intermediates, now, usage)?;
        self.accept(leaf)?;
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
