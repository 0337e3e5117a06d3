//! X.509-SVID: the rules by which a certificate names a workload (SPIFFE X.509-SVID §2, §4 and §5.2).
//!
//! webpki checks the chain and does not know this profile. A certificate with two names would pass as either of them. A client
//! that dialled one of the names and a policy that reads the other would both accept it.

use lateen_types::Identity;
use rustls_pki_types::CertificateDer;
use x509_parser::prelude::{FromDer as _, GeneralName, ParsedExtension, X509Certificate};

/// Why a certificate is no X.509-SVID.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotSvid {
    /// Exactly one URI says who the bearer is.
    #[error("it has {uris} URI names; an X.509-SVID has exactly one")]
    SeveralUris {
        /// The number of URI names.
        uris: usize,
    },
    /// The bearer of a signing certificate could name itself whatever it likes.
    #[error("it is a certificate authority's; those identify no workload")]
    Authority,
    /// The same, said by the key's usage.
    #[error("its key may sign certificates or revocation lists; a workload's may not")]
    Signs,
    /// The URI is none that SPIFFE allows.
    #[error(
        "its name {uri:?} is no SPIFFE ID: a segment is empty, '.' or '..', holds something else than letters, digits, '.', '-' and '_', or the whole is longer than 2048 bytes"
    )]
    Id {
        /// The name.
        uri: String,
    },
    /// It cannot be read.
    #[error("it cannot be read: {0}")]
    Unreadable(String),
}

/// The longest SPIFFE ID, in bytes (SPIFFE-ID §2.3).
const LONGEST: usize = 2048;

/// The workload that a certificate names. `None` if it names nothing of SPIFFE, or something else than a workload of a mesh.
pub(crate) fn identity(der: &CertificateDer<'_>) -> Result<Option<Identity>, NotSvid> {
    let unreadable = |error: &dyn ToString| NotSvid::Unreadable(error.to_string());
    let (_, cert) = X509Certificate::from_der(der).map_err(|e| unreadable(&e))?;
    if cert.is_ca() {
        return Err(NotSvid::Authority);
    }
    let usage = cert.key_usage().map_err(|e| unreadable(&e))?;
    if usage.is_some_and(|usage| usage.value.key_cert_sign() || usage.value.crl_sign()) {
        return Err(NotSvid::Signs);
    }
    let names = cert
        .extensions()
        .iter()
        .filter_map(|one| match one.parsed_extension() {
            ParsedExtension::SubjectAlternativeName(names) => Some(&names.general_names),
            _ => None,
        });
    let uris: Vec<&GeneralName<'_>> = names.flatten().filter(|name| is_uri(name)).collect();
    match uris[..] {
        [] => Ok(None),
        [GeneralName::URI(uri)] => parse(uri),
        [_] => Err(NotSvid::Unreadable("its URI name is not ASCII".to_owned())),
        _ => Err(NotSvid::SeveralUris { uris: uris.len() }),
    }
}

/// A URI that is no text counts as well.
fn is_uri(name: &GeneralName<'_>) -> bool {
    // RFC 5280 §4.2.1.6: uniformResourceIdentifier is the choice with tag 6.
    matches!(name, GeneralName::URI(_))
        || matches!(name, GeneralName::Invalid(tag, _) if tag.0 == 6)
}

fn parse(uri: &str) -> Result<Option<Identity>, NotSvid> {
    let Some(rest) = uri.strip_prefix("spiffe://") else {
        return Ok(None);
    };
    let is_allowed = |segment: &str| {
        let known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        !matches!(segment, "" | "." | "..") && segment.chars().all(known)
    };
    if uri.len() > LONGEST || !rest.split('/').all(is_allowed) {
        let uri = uri.chars().take(256).collect();
        return Err(NotSvid::Id { uri });
    }
    Ok(uri.parse().ok())
}
