//! Handshake errors of peers outside of the mesh. The words are those of TLS: such a peer has no mesh identity.

use std::io;
use std::time::SystemTime;

use rustls::{AlertDescription, CertificateError, Error as Rustls, PeerIncompatible};

use crate::error::{ago, system_time};

/// A failed handshake with a client or server outside of the mesh.
#[derive(Debug, thiserror::Error)]
pub enum ForeignError {
    /// No certificate of the listener fits the server name of the client (RFC 6066 §3).
    #[error(
        "the client asks for a server name without a certificate; add one for the name, or a default"
    )]
    UnknownServerName,
    /// The peers have no application protocol in common (RFC 7301 §3.2).
    #[error("the peer offers none of the configured application protocols (ALPN)")]
    Protocol,
    /// The peers have no version of TLS in common.
    #[error("the peer offers no version of TLS that is allowed here")]
    Version,
    /// The peers have no key exchange or cipher suite in common.
    #[error("the peer offers no key exchange or cipher suite that is allowed here")]
    KeyExchange,
    /// The server's certificate has expired.
    #[error("the server's certificate expired {} ago; renew it, or correct a clock", ago(*.not_after))]
    Expired {
        /// Last moment of its validity.
        not_after: SystemTime,
    },
    /// The server's certificate is not valid yet.
    #[error("the server's certificate is not valid yet; correct a clock")]
    NotYetValid,
    /// The server's chain ends in none of the configured roots.
    #[error(
        "the server's certificate is signed by an unknown authority; add its root to the configured ones"
    )]
    UnknownAuthority,
    /// The server's certificate has none of the expected names.
    #[error("the server's certificate has none of the expected names: {0}")]
    WrongName(String),
    /// The server's certificate or signature is invalid in another way.
    #[error("the server's certificate is not acceptable: {0}")]
    BadCertificate(String),
    /// The bytes of the peer are no TLS.
    #[error("the peer does not speak TLS")]
    NotTls,
    /// The peer ended the handshake with an alert.
    #[error("the peer refused the handshake: {}", alert_name(*.alert))]
    Refused {
        /// The alert's number (RFC 8446 §6).
        alert: u8,
    },
    /// The connection broke.
    #[error("connection lost during the handshake: {0}")]
    Io(#[source] io::Error),
    /// Any other error of TLS.
    #[error("tls: {0}")]
    Other(String),
}

fn alert_name(alert: u8) -> String {
    match AlertDescription::from(alert) {
        AlertDescription::Unknown(_) => format!("alert {alert}"),
        known => format!("alert {alert} ({known:?})"),
    }
}

impl ForeignError {
    /// Reads the error that tokio-rustls reports.
    pub(crate) fn from_io(error: io::Error) -> Self {
        match error.get_ref().and_then(|e| e.downcast_ref::<Rustls>()) {
            Some(source) => Self::from_rustls(source),
            None => Self::Io(error),
        }
    }

    fn from_rustls(error: &Rustls) -> Self {
        match error {
            Rustls::InvalidCertificate(certificate) => Self::from_certificate(certificate),
            Rustls::AlertReceived(alert) => Self::Refused {
                alert: u8::from(*alert),
            },
            Rustls::NoApplicationProtocol => Self::Protocol,
            Rustls::PeerIncompatible(why) => match why {
                PeerIncompatible::SupportedVersionsExtensionRequired
                | PeerIncompatible::Tls12NotOffered
                | PeerIncompatible::Tls12NotOfferedOrEnabled
                | PeerIncompatible::ServerDoesNotSupportTls12Or13
                | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig => Self::Version,
                PeerIncompatible::NoKxGroupsInCommon
                | PeerIncompatible::NoCipherSuitesInCommon
                | PeerIncompatible::NamedGroupsExtensionRequired => Self::KeyExchange,
                _ => Self::Other(error.to_string()),
            },
            Rustls::InvalidMessage(_) => Self::NotTls,
            // rustls has no variant for a resolver without an answer; a test of this crate watches the text.
            Rustls::General(why) if why == "no server certificate chain resolved" => {
                Self::UnknownServerName
            }
            other => Self::Other(other.to_string()),
        }
    }

    fn from_certificate(error: &CertificateError) -> Self {
        match error {
            CertificateError::ExpiredContext { not_after, .. } => Self::Expired {
                not_after: system_time(*not_after),
            },
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                Self::NotYetValid
            }
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                Self::UnknownAuthority
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                Self::WrongName(error.to_string())
            }
            other => Self::BadCertificate(other.to_string()),
        }
    }
}
