//! Credentials of a workload: its key and certificates, ready for handshakes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use lateen_types::{Identity, Strng};
use rustls::client::Resumption;
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use webpki::EndEntityCert;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::key::KeyPair;
use crate::provider::{ALPN, provider};
use crate::rules::{Compliance, Rules};
use crate::svid::{self, NotSvid};
use crate::verify::{Check, Trust};

/// A certificate's facts for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateInfo {
    /// The serial number, decimal.
    pub serial: String,
    /// First moment of validity.
    pub not_before: SystemTime,
    /// Last moment of validity.
    pub not_after: SystemTime,
    der: CertificateDer<'static>,
}

/// Why an issued certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// Not a leaf followed by a root bundle.
    #[error(
        "certificate authority sent {elements} certificates; expected a leaf and at least one root"
    )]
    Incomplete {
        /// Elements of the chain.
        elements: usize,
    },
    /// Text that is no PEM, or PEM that is no certificate.
    #[error("certificate authority sent a {what} that does not parse: {why}")]
    Malformed {
        /// Which part of the chain.
        what: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// The leaf names no workload.
    #[error("certificate authority sent a certificate without a workload identity")]
    NoIdentity,
    /// The leaf has not the form of a workload's; peers would refuse it.
    #[error("certificate authority sent a certificate that is no X.509-SVID: {0}")]
    NotSvid(#[source] NotSvid),
    /// The leaf is for another key, or of a kind that cannot be used.
    #[error("certificate authority sent a certificate that does not fit the requested key: {0}")]
    Key(#[source] rustls::Error),
}

impl CredentialsError {
    fn malformed(what: &'static str, why: impl ToString) -> Self {
        CredentialsError::Malformed {
            what,
            why: why.to_string(),
        }
    }
}

/// A workload's certificate, key and roots, and the TLS configurations made of them once. Immutable; shared by reference count.
#[derive(Debug)]
pub struct Credentials {
    identity: Identity,
    generation: u64,
    chain: Vec<CertificateInfo>,
    roots: Vec<CertificateInfo>,
    pub(crate) trust: Arc<Trust>,
    /// Copied for a connection, whose expected peers it then carries; the copy is a few reference counts.
    client: ClientConfig,
    server: Arc<ServerConfig>,
    clients: Arc<Check>,
}

impl Credentials {
    /// As [`Credentials::with_rules`], by the default rules.
    ///
    /// # Errors
    /// See [`CredentialsError`].
    pub fn from_issued(key: KeyPair, chain: &[String]) -> Result<Self, CredentialsError> {
        Credentials::with_rules(key, chain, &Rules::default())
    }

    /// From a CA's answer: the leaf, intermediates one each, and the root bundle as the last element.
    ///
    /// # Errors
    /// See [`CredentialsError`]. Validity in time is not checked here but where the credentials are used.
    pub fn with_rules(
        key: KeyPair,
        chain: &[String],
        rules: &Rules,
    ) -> Result<Self, CredentialsError> {
        /// Made so far in this process.
        static MADE: AtomicU64 = AtomicU64::new(1);

        let [certificates @ .., bundle] = chain else {
            return Err(CredentialsError::Incomplete { elements: 0 });
        };
        if certificates.is_empty() {
            return Err(CredentialsError::Incomplete { elements: 1 });
        }
        let mut ders = Vec::new();
        for pem in certificates {
            ders.extend(parse_pem(pem, "certificate")?);
        }
        let root_ders = parse_pem(bundle, "root certificate")?;
        let infos = |ders: &[CertificateDer<'static>]| {
            let infos = ders.iter().map(CertificateInfo::of);
            infos.collect::<Result<Vec<_>, _>>()
        };
        let (chain, root_infos) = (infos(&ders)?, infos(&root_ders)?);
        let identity = leaf_identity(&ders[0])?;

        let mut roots = RootCertStore::empty();
        for der in root_ders {
            roots
                .add(der)
                .map_err(|e| CredentialsError::malformed("root certificate", e))?;
        }
        let trust = Arc::new(Trust {
            roots,
            trust_domain: identity.trust_domain().clone(),
            aliases: Arc::clone(&rules.trust_domain_aliases),
            revocations: rules.revocations.clone(),
        });
        let compliance = rules.compliance;
        let certified = CertifiedKey::from_der(ders, key.into_der(), &provider(compliance))
            .map_err(CredentialsError::Key)?;
        let certified = Arc::new(certified);
        let clients = Arc::new(Check::of_clients(Arc::clone(&trust)));
        Ok(Credentials {
            client: client_config(compliance, &trust, &certified),
            server: Arc::new(server_config(compliance, &clients, &certified)),
            clients,
            identity,
            generation: MADE.fetch_add(1, Ordering::Relaxed),
            chain,
            roots: root_infos,
            trust,
        })
    }

    /// Whose they are.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// A number that no other credentials of this process have, and that grows.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The trust domain that peers must share.
    pub fn trust_domain(&self) -> &Strng {
        &self.trust.trust_domain
    }

    /// First moment of the leaf's validity.
    pub fn not_before(&self) -> SystemTime {
        self.chain[0].not_before
    }

    /// Last moment of the leaf's validity.
    pub fn not_after(&self) -> SystemTime {
        self.chain[0].not_after
    }

    /// True if the leaf is valid at `now`.
    pub fn valid_at(&self, now: SystemTime) -> bool {
        (self.not_before()..=self.not_after()).contains(&now)
    }

    /// The leaf's serial number, decimal.
    pub fn serial(&self) -> &str {
        &self.chain[0].serial
    }

    /// The leaf and its intermediates; never empty.
    pub fn chain(&self) -> &[CertificateInfo] {
        &self.chain
    }

    /// The roots that peers' chains must end in.
    pub fn roots(&self) -> &[CertificateInfo] {
        &self.roots
    }

    pub(crate) fn server_config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.server)
    }

    /// Whom the server's configuration accepts.
    pub(crate) fn clients(&self) -> &Check {
        &self.clients
    }

    /// The client's configuration for a connection that `check` watches over.
    pub(crate) fn client_config(&self, check: Arc<Check>) -> Arc<ClientConfig> {
        let mut config = self.client.clone();
        config.dangerous().set_certificate_verifier(check);
        Arc::new(config)
    }
}

fn client_config(
    compliance: Compliance,
    trust: &Arc<Trust>,
    certified: &Arc<CertifiedKey>,
) -> ClientConfig {
    let nobody = Arc::new(Check::of_server(Arc::clone(trust), &[]));
    let mut config = ClientConfig::builder_with_provider(provider(compliance))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("the provider has TLS 1.3 cipher suites")
        .dangerous()
        .with_custom_certificate_verifier(nobody)
        .with_client_cert_resolver(Arc::new(OnlyKey(Arc::clone(certified))));
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.enable_sni = false;
    config.resumption = Resumption::disabled();
    config
}

fn server_config(
    compliance: Compliance,
    clients: &Arc<Check>,
    certified: &Arc<CertifiedKey>,
) -> ServerConfig {
    let clients = Arc::clone(clients);
    let mut config = ServerConfig::builder_with_provider(provider(compliance))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("the provider has TLS 1.3 cipher suites")
        .with_client_cert_verifier(clients)
        .with_cert_resolver(Arc::new(OnlyKey(Arc::clone(certified))));
    config.alpn_protocols = vec![ALPN.to_vec()];
    // Clients of the mesh do not resume: tickets would be made for nobody.
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
    config
}

/// Presents the one certificate that there is, whatever the peer's hints.
#[derive(Debug)]
struct OnlyKey(Arc<CertifiedKey>);

impl rustls::client::ResolvesClientCert for OnlyKey {
    fn resolve(&self, _: &[&[u8]], _: &[rustls::SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }

    fn has_certs(&self) -> bool {
        true
    }
}

impl rustls::server::ResolvesServerCert for OnlyKey {
    fn resolve(&self, _: rustls::server::ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}

fn parse_pem(
    pem: &str,
    what: &'static str,
) -> Result<Vec<CertificateDer<'static>>, CredentialsError> {
    let ders = CertificateDer::pem_slice_iter(pem.as_bytes());
    let ders: Vec<_> = ders
        .collect::<Result<_, _>>()
        .map_err(|e| CredentialsError::malformed(what, e))?;
    if ders.is_empty() {
        return Err(CredentialsError::malformed(what, "no PEM block"));
    }
    Ok(ders)
}

fn leaf_identity(der: &CertificateDer<'_>) -> Result<Identity, CredentialsError> {
    EndEntityCert::try_from(der).map_err(|e| CredentialsError::malformed("certificate", e))?;
    match svid::identity(der) {
        Ok(identity) => identity.ok_or(CredentialsError::NoIdentity),
        Err(NotSvid::Unreadable(why)) => Err(CredentialsError::malformed("certificate", why)),
        Err(why) => Err(CredentialsError::NotSvid(why)),
    }
}

impl CertificateInfo {
    /// The certificate in PEM.
    pub fn pem(&self) -> String {
        // RFC 7468 §3: lines of 64 characters.
        let text = base64::engine::general_purpose::STANDARD.encode(&self.der);
        let mut pem = String::with_capacity(text.len() + text.len() / 64 + 64);
        pem.push_str("-----BEGIN CERTIFICATE-----\n");
        let mut rest = text.as_str();
        while !rest.is_empty() {
            // Base64 is ASCII: any index is a character's.
            let (line, tail) = rest.split_at(rest.len().min(64));
            pem.push_str(line);
            pem.push('\n');
            rest = tail;
        }
        pem.push_str("-----END CERTIFICATE-----\n");
        pem
    }

    fn of(der: &CertificateDer<'static>) -> Result<Self, CredentialsError> {
        let (_, cert) = X509Certificate::from_der(der)
            .map_err(|e| CredentialsError::malformed("certificate", e))?;
        Ok(CertificateInfo {
            serial: cert.tbs_certificate.serial.to_string(),
            not_before: time(cert.validity().not_before),
            not_after: time(cert.validity().not_after),
            der: der.clone(),
        })
    }
}

fn time(at: x509_parser::time::ASN1Time) -> SystemTime {
    let seconds = u64::try_from(at.timestamp()).unwrap_or(0);
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

/// Last moment of a certificate's validity.
pub(crate) fn not_after(der: &CertificateDer<'_>) -> Option<SystemTime> {
    let (_, cert) = X509Certificate::from_der(der).ok()?;
    Some(time(cert.validity().not_after))
}
