//! Revoked certificates: revocation lists, and the set in force.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::RwLock;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer};
use webpki::{CertRevocationList, EndEntityCert, OwnedCertRevocationList};
use x509_parser::prelude::{CertificateRevocationList, FromDer as _, ParsedExtension};

/// Largest file of lists, in bytes: about a million revoked certificates.
pub const MAX_BYTES: usize = 64 << 20;

/// Why bytes are no revocation lists.
#[derive(Debug, thiserror::Error)]
pub enum RevocationError {
    /// More than [`MAX_BYTES`].
    #[error(
        "{0} bytes are more than {MAX_BYTES}; leave out lists of authorities that the mesh does not use"
    )]
    TooLarge(usize),
    /// Text that is not PEM.
    #[error("not PEM: {0}")]
    Pem(String),
    /// PEM, and no list in it.
    #[error("it holds no X509 CRL block; an empty file says that nothing is revoked")]
    NoList,
    /// A list that cannot be read, or has parts that are not understood and must not be passed over.
    #[error("list {number} cannot be used: {why}")]
    List {
        /// Its place in the file, from 1.
        number: usize,
        /// What is wrong with it.
        why: String,
    },
}

/// One list, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListInfo {
    /// The authority's name.
    pub issuer: String,
    /// When it was made.
    pub this_update: SystemTime,
    /// When the next one was due: past that it is stale. It goes on being used, for what was revoked stays revoked.
    pub next_update: SystemTime,
    /// Certificates on it.
    pub revoked: usize,
    /// The authority's key (RFC 5280 §5.2.1), if the list says which.
    key: Option<Box<[u8]>>,
}

impl ListInfo {
    /// True if a newer list should have come by `now`.
    pub fn stale_at(&self, now: SystemTime) -> bool {
        now >= self.next_update
    }
}

/// What was revoked, read whole. Immutable.
#[derive(Debug, Default)]
pub struct RevocationLists {
    lists: Vec<Arc<CertRevocationList<'static>>>,
    infos: Vec<ListInfo>,
    /// Lists whose authority's name no other list has; webpki checks these itself, signature included. Of several lists
    /// with one name it would look at the first alone, and refuse everybody whose authority made another one.
    unambiguous: Vec<usize>,
}

impl RevocationLists {
    /// From PEM (blocks of other kinds are passed over) or a single list in DER (RFC 5280 §5). No bytes: nothing is revoked.
    ///
    /// # Errors
    /// See [`RevocationError`]; one bad list makes all of them unusable.
    pub fn parse(bytes: &[u8]) -> Result<Self, RevocationError> {
        if bytes.len() > MAX_BYTES {
            return Err(RevocationError::TooLarge(bytes.len()));
        }
        if bytes.trim_ascii().is_empty() {
            return Ok(Self::default());
        }
        // A SEQUENCE cannot be mistaken for text.
        let ders: Vec<CertificateRevocationListDer<'static>> = if bytes[0] == 0x30 {
            vec![bytes.to_vec().into()]
        } else {
            CertificateRevocationListDer::pem_slice_iter(bytes)
                .collect::<Result<_, _>>()
                .map_err(|e| RevocationError::Pem(e.to_string()))?
        };
        if ders.is_empty() {
            return Err(RevocationError::NoList);
        }
        let mut lists = Vec::with_capacity(ders.len());
        let mut infos = Vec::with_capacity(ders.len());
        for (index, der) in ders.iter().enumerate() {
            let bad = |why: String| RevocationError::List {
                number: index + 1,
                why,
            };
            infos.push(info(der).map_err(bad)?);
            let list = OwnedCertRevocationList::from_der(der).map_err(|e| bad(format!("{e:?}")))?;
            lists.push(Arc::new(CertRevocationList::from(list)));
        }
        Ok(Self::of(lists, infos))
    }

    fn of(lists: Vec<Arc<CertRevocationList<'static>>>, infos: Vec<ListInfo>) -> Self {
        let alone = |list: &CertRevocationList<'_>| {
            let same = lists.iter().filter(|other| other.issuer() == list.issuer());
            same.count() == 1
        };
        let unambiguous = (0..lists.len()).filter(|i| alone(&lists[*i])).collect();
        Self {
            lists,
            infos,
            unambiguous,
        }
    }

    /// These lists, and of those before the ones of authorities that have none among these; their names come along. An
    /// authority takes a revocation back by its next list, be it one with nothing on it, and not by having none.
    pub fn after(mut self, before: &Self) -> (Self, Vec<String>) {
        let mut missing = Vec::new();
        let news = self.lists.len();
        for at in 0..before.lists.len() {
            if !(0..news).any(|new| self.succeeds(new, before, at)) {
                self.lists.push(Arc::clone(&before.lists[at]));
                self.infos.push(before.infos[at].clone());
                missing.push(before.infos[at].issuer.clone());
            }
        }
        (Self::of(self.lists, self.infos), missing)
    }

    /// Whether a list is of the same authority as one before. Authorities of one name are told apart by their keys.
    fn succeeds(&self, new: usize, before: &Self, old: usize) -> bool {
        let keys = (&self.infos[new].key, &before.infos[old].key);
        let other_key = matches!(keys, (Some(one), Some(other)) if one != other);
        self.lists[new].issuer() == before.lists[old].issuer() && !other_key
    }

    /// The lists.
    pub fn infos(&self) -> &[ListInfo] {
        &self.infos
    }

    /// Certificates on all lists.
    pub fn revoked(&self) -> usize {
        self.infos.iter().map(|info| info.revoked).sum()
    }

    /// True if one of `certificates` is on a list of its issuer.
    pub(crate) fn names(&self, certificates: &[Serial]) -> bool {
        let on_list = |list: &CertRevocationList<'_>, certificate: &Serial| {
            // An entry that does not parse cannot be told from one that names the certificate.
            list.issuer() == &*certificate.issuer
                && !matches!(list.find_serial(&certificate.serial), Ok(None))
        };
        self.lists
            .iter()
            .any(|list| certificates.iter().any(|one| on_list(list, one)))
    }

    /// What webpki is to check.
    pub(crate) fn for_webpki(&self) -> Vec<&CertRevocationList<'static>> {
        self.unambiguous.iter().map(|i| &*self.lists[*i]).collect()
    }
}

fn info(der: &CertificateRevocationListDer<'_>) -> Result<ListInfo, String> {
    let (_, list) = CertificateRevocationList::from_der(der).map_err(|e| e.to_string())?;
    let time = |at: x509_parser::time::ASN1Time| {
        SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(at.timestamp()).unwrap_or(0))
    };
    // What openssl makes without being told otherwise.
    if list.version().is_none() || list.extensions().is_empty() {
        return Err(
            "it has no extensions; have it made with a number and its authority's key (RFC 5280 §5.2; crl_extensions of openssl)"
                .into(),
        );
    }
    let key = list
        .extensions()
        .iter()
        .find_map(|extension| match extension.parsed_extension() {
            ParsedExtension::AuthorityKeyIdentifier(authority) => {
                Some(authority.key_identifier.as_ref()?.0.into())
            }
            _ => None,
        });
    Ok(ListInfo {
        issuer: list.issuer().to_string(),
        this_update: time(list.last_update()),
        next_update: time(list.next_update().ok_or("it has no nextUpdate")?),
        revoked: list.iter_revoked_certificates().count(),
        key,
    })
}

/// A certificate as revocation lists name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Serial {
    issuer: Box<[u8]>,
    serial: Box<[u8]>,
}

impl Serial {
    /// `None` for bytes that are no certificate: no handshake with them succeeds.
    pub(crate) fn of(der: &CertificateDer<'_>) -> Option<Self> {
        let certificate = EndEntityCert::try_from(der).ok()?;
        Some(Serial {
            issuer: certificate.issuer().into(),
            serial: certificate.serial().into(),
        })
    }
}

/// The lists in force. Clones share them; a handshake uses those that are in force when it happens.
#[derive(Debug, Clone, Default)]
pub struct Revocations(Arc<RwLock<Arc<RevocationLists>>>);

impl Revocations {
    /// Replaces the lists, for all clones. Connections that are open already: see [`crate::Session::revoked`].
    pub fn replace(&self, lists: RevocationLists) {
        *self.0.write() = Arc::new(lists);
    }

    /// The lists as they are now.
    pub fn lists(&self) -> Arc<RevocationLists> {
        Arc::clone(&self.0.read())
    }
}
