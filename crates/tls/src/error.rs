//! Handshake errors between mesh peers, in words that name the peer and the likely fix.

use std::io;
use std::time::{Duration, SystemTime};

use rustls::{AlertDescription, CertificateError, Error as Rustls, PeerIncompatible};
use rustls_pki_types::UnixTime;

use crate::svid::NotSvid;
use crate::verify::Mismatch;

/// A handshake that failed, or a connection that the peer ended with an alert.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The peer's certificate is past its time.
    #[error("peer's certificate expired {} ago; its proxy cannot renew it or a clock is wrong", ago(*.not_after))]
    Expired {
        /// Its last moment of validity.
        not_after: SystemTime,
    },
    /// The peer's certificate is from the future.
    #[error("peer's certificate is not valid yet; a clock is wrong")]
    NotYetValid,
    /// Our own certificate is past its time.
    #[error("own certificate expired {} ago; check the connection to the certificate authority", ago(*.not_after))]
    OwnExpired {
        /// Its last moment of validity.
        not_after: SystemTime,
    },
    /// The chain of the peer ends elsewhere.
    #[error(
        "peer's certificate is signed by an unknown authority; it belongs to another mesh, or roots were rotated without overlap"
    )]
    UnknownCa,
    /// The peer is of another trust domain.
    #[error(
        "peer is {presented}, of another trust domain than {ours}; peers of other meshes are not accepted"
    )]
    WrongTrustDomain {
        /// What its certificate names.
        presented: String,
        /// Ours.
        ours: String,
    },
    /// The peer is a workload, and another one than expected.
    #[error(
        "peer is {presented}, expected {expected}; its address may have passed to another workload"
    )]
    WrongIdentity {
        /// What its certificate names.
        presented: String,
        /// Who would have been accepted.
        expected: String,
    },
    /// The peer's certificate names no workload.
    #[error("peer's certificate names no workload identity; it was not issued for a mesh workload")]
    NoIdentity,
    /// The peer's certificate has not the form of a workload's.
    #[error("peer's certificate is no X.509-SVID: {0}")]
    NotSvid(NotSvid),
    /// The peer sent no certificate.
    #[error("peer sent no certificate; only mesh workloads may connect to this port")]
    NoCertificate,
    /// The peer's certificate, or one between it and the root, was taken back.
    #[error(
        "peer's certificate is revoked by a list of CRL_PATH; have the workload's certificate issued anew"
    )]
    Revoked,
    /// The peer allows no key exchange that we allow.
    #[error(
        "peer offers no key exchange that is allowed here; COMPLIANCE_POLICY must be the same on both sides"
    )]
    KeyExchange,
    /// The peer's certificate or signature is wrong in another way.
    #[error("peer's certificate is not acceptable: {0}")]
    BadCertificate(String),
    /// The peer does not offer TLS 1.3.
    #[error("peer does not speak TLS 1.3; it may be no mesh proxy")]
    Version,
    /// The peer does not offer HTTP/2.
    #[error("peer does not offer application protocol h2; it may be no mesh proxy")]
    Protocol,
    /// What the peer sends is no TLS.
    #[error("peer does not speak TLS; it may not be captured by the mesh")]
    NotTls,
    /// The peer refused us.
    #[error("peer refused the handshake: {}", refusal(*.alert))]
    Refused {
        /// The alert's number, RFC 8446 §6.
        alert: u8,
    },
    /// The connection broke.
    #[error("connection lost during the handshake: {0}")]
    Io(#[source] io::Error),
    /// Anything else that TLS knows.
    #[error("tls: {0}")]
    Other(String),
}

pub(crate) fn ago(then: SystemTime) -> String {
    let seconds = SystemTime::now()
        .duration_since(then)
        .unwrap_or_default()
        .as_secs();
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7199 => format!("{} min", seconds / 60),
        _ => format!("{} h", seconds / 3600),
    }
}

fn refusal(alert: u8) -> String {
    let meaning = match AlertDescription::from(alert) {
        AlertDescription::CertificateExpired => {
            "it finds our certificate expired; check the clocks and the renewal"
        }
        AlertDescription::UnknownCA => {
            "it does not know the authority of our certificate; roots may differ"
        }
        AlertDescription::CertificateRevoked => "our certificate is revoked",
        AlertDescription::CertificateRequired => "it requires a certificate",
        AlertDescription::CertificateUnknown => {
            "it does not accept our identity, which may be of another trust domain"
        }
        AlertDescription::BadCertificate | AlertDescription::UnsupportedCertificate => {
            "it cannot use our certificate"
        }
        AlertDescription::ProtocolVersion => "it does not speak TLS 1.3",
        AlertDescription::NoApplicationProtocol => "it does not speak HTTP/2 here",
        AlertDescription::HandshakeFailure => {
            "there is no key exchange or cipher suite that both sides allow; COMPLIANCE_POLICY may differ"
        }
        other => return format!("alert {alert} ({other:?})"),
    };
    meaning.to_owned()
}

impl TlsError {
    /// The error inside what tokio-rustls reports.
    pub(crate) fn from_io(error: io::Error) -> Self {
        let source = error.get_ref().and_then(|e| e.downcast_ref::<Rustls>());
        match source {
            Some(source) => TlsError::from_rustls(source),
            None => TlsError::Io(error),
        }
    }

    pub(crate) fn from_rustls(error: &Rustls) -> Self {
        match error {
            Rustls::InvalidCertificate(certificate) => TlsError::from_certificate(certificate),
            Rustls::NoCertificatesPresented => TlsError::NoCertificate,
            Rustls::AlertReceived(alert) => TlsError::Refused {
                alert: u8::from(*alert),
            },
            Rustls::NoApplicationProtocol => TlsError::Protocol,
            Rustls::PeerIncompatible(
                PeerIncompatible::SupportedVersionsExtensionRequired
                | PeerIncompatible::Tls12NotOffered
                | PeerIncompatible::Tls12NotOfferedOrEnabled
                | PeerIncompatible::ServerDoesNotSupportTls12Or13
                | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig,
            ) => TlsError::Version,
            Rustls::PeerIncompatible(
                PeerIncompatible::NoKxGroupsInCommon
                | PeerIncompatible::NamedGroupsExtensionRequired,
            ) => TlsError::KeyExchange,
            Rustls::InvalidMessage(_) => TlsError::NotTls,
            other => TlsError::Other(other.to_string()),
        }
    }

    fn from_certificate(error: &CertificateError) -> Self {
        match error {
            CertificateError::ExpiredContext { not_after, .. } => TlsError::Expired {
                not_after: system_time(*not_after),
            },
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                TlsError::NotYetValid
            }
            CertificateError::Revoked => TlsError::Revoked,
            CertificateError::UnknownIssuer | CertificateError::BadSignature => TlsError::UnknownCa,
            CertificateError::Other(other) => match other.0.downcast_ref::<Mismatch>() {
                Some(Mismatch::NoIdentity) => TlsError::NoIdentity,
                Some(Mismatch::Svid(why)) => TlsError::NotSvid(why.clone()),
                Some(Mismatch::TrustDomain { presented, ours }) => TlsError::WrongTrustDomain {
                    presented: presented.clone(),
                    ours: ours.to_string(),
                },
                Some(Mismatch::Identity {
                    presented,
                    expected,
                }) => TlsError::WrongIdentity {
                    presented: presented.clone(),
                    expected: expected.clone(),
                },
                None => TlsError::BadCertificate(other.to_string()),
            },
            other => TlsError::BadCertificate(other.to_string()),
        }
    }
}

pub(crate) fn system_time(time: UnixTime) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(time.as_secs())
}
