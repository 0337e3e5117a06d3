//! A certificate authority that issues any certificate a test needs, invalid ones included.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use lateen_tls::{Credentials, KeyPair, Rules};
use lateen_types::Identity;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams,
    CertificateSigningRequestParams, CustomExtension, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyIdMethod, KeyUsagePurpose, RevokedCertParams, SanType, SerialNumber,
};

/// A root or an intermediate, and its key.
pub struct Ca {
    issuer: Issuer<'static, rcgen::KeyPair>,
    root: String,
    /// Of an intermediate: itself and those above it, without the root.
    above: Vec<String>,
    serial: u64,
}

/// Serial numbers given out in this process.
static SERIALS: AtomicU64 = AtomicU64::new(1);

/// A certificate in the form that an authority sends it.
#[derive(Debug, Clone)]
pub struct Bundle {
    /// PKCS #8, PEM.
    pub key: String,
    /// The leaf, intermediates if there are any, and the root; PEM.
    pub chain: Vec<String>,
    /// The leaf's serial number.
    pub serial: u64,
}

impl Bundle {
    /// As the credentials of a workload.
    pub fn credentials(&self) -> Arc<Credentials> {
        self.credentials_under(&Rules::default())
    }

    /// As the credentials of a workload whose proxy keeps to `rules`.
    pub fn credentials_under(&self, rules: &Rules) -> Arc<Credentials> {
        let key = KeyPair::from_pem(&self.key).expect("the key is one of ours");
        let credentials = Credentials::with_rules(key, &self.chain, rules);
        Arc::new(credentials.expect("the chain is one of ours"))
    }

    /// The same, trusting the roots of `bundle` in place of its own.
    #[must_use]
    pub fn trusting(mut self, bundle: &str) -> Self {
        *self.chain.last_mut().expect("there is a root") = bundle.to_owned();
        self
    }
}

impl Ca {
    /// A fresh authority.
    pub fn new() -> Self {
        Ca::named("test mesh")
    }

    /// A fresh authority of this name.
    pub fn named(name: &str) -> Self {
        let key = rcgen::KeyPair::generate().expect("the system gives randomness");
        let (params, serial) = authority(name);
        let root = params.self_signed(&key).expect("the root is complete");
        Ca {
            root: root.pem(),
            issuer: Issuer::new(params, key),
            above: Vec::new(),
            serial,
        }
    }

    /// An authority below this one.
    #[must_use]
    pub fn intermediate(&self, name: &str) -> Self {
        let key = rcgen::KeyPair::generate().expect("the system gives randomness");
        let (params, serial) = authority(name);
        let certificate = params
            .signed_by(&key, &self.issuer)
            .expect("the intermediate is complete");
        let mut above = vec![certificate.pem()];
        above.extend(self.above.iter().cloned());
        Ca {
            root: self.root.clone(),
            issuer: Issuer::new(params, key),
            above,
            serial,
        }
    }

    /// Its own serial number.
    pub fn serial(&self) -> u64 {
        self.serial
    }

    /// A list in PEM that takes back certificates of this authority; the next one is due at `next`.
    pub fn revoke(&self, serials: &[u64], next: SystemTime) -> String {
        let from = SystemTime::now() - Duration::from_secs(3600);
        let revoked = serials.iter().map(|serial| RevokedCertParams {
            serial_number: SerialNumber::from(*serial),
            revocation_time: from.into(),
            reason_code: None,
            invalidity_date: None,
        });
        let list = CertificateRevocationListParams {
            this_update: from.into(),
            next_update: next.into(),
            crl_number: SerialNumber::from(SERIALS.fetch_add(1, Ordering::Relaxed)),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let list = list.signed_by(&self.issuer).expect("the list is complete");
        list.pem().expect("a list can be written")
    }

    /// The root, PEM.
    pub fn root(&self) -> &str {
        &self.root
    }

    /// Credentials of a workload, valid for an hour around now.
    pub fn credentials(&self, identity: &Identity) -> Arc<Credentials> {
        self.leaf(identity).issue().credentials()
    }

    /// A certificate for `identity`, to be changed before it is issued.
    pub fn leaf(&self, identity: &Identity) -> Leaf<'_> {
        let now = SystemTime::now();
        let half = Duration::from_secs(1800);
        Leaf {
            ca: self,
            names: vec![SanType::URI(
                identity.uri().try_into().expect("identities are ASCII"),
            )],
            from: now - half,
            to: now + half,
            is_authority: false,
            usages: vec![KeyUsagePurpose::DigitalSignature],
            extensions: Vec::new(),
        }
    }

    /// Answers a certificate request as Istio's authority does: the leaf, then the root. The names
    /// are those of the request.
    ///
    /// # Errors
    /// The request does not parse or its signature is wrong.
    pub fn sign(
        &self,
        csr_pem: &str,
        from: SystemTime,
        to: SystemTime,
    ) -> Result<Vec<String>, String> {
        let mut request =
            CertificateSigningRequestParams::from_pem(csr_pem).map_err(|e| e.to_string())?;
        for_workloads(&mut request.params, from, to);
        let serial = SERIALS.fetch_add(1, Ordering::Relaxed);
        request.params.serial_number = Some(serial.into());
        let leaf = request.signed_by(&self.issuer).map_err(|e| e.to_string())?;
        Ok(self.chain(leaf.pem()))
    }

    fn chain(&self, leaf: String) -> Vec<String> {
        let mut chain = vec![leaf];
        chain.extend(self.above.iter().cloned());
        chain.push(self.root.clone());
        chain
    }
}

impl Default for Ca {
    fn default() -> Self {
        Ca::new()
    }
}

/// A certificate that is not issued yet.
pub struct Leaf<'a> {
    ca: &'a Ca,
    names: Vec<SanType>,
    from: SystemTime,
    to: SystemTime,
    is_authority: bool,
    usages: Vec<KeyUsagePurpose>,
    extensions: Vec<CustomExtension>,
}

impl Leaf<'_> {
    /// Valid from `from` to `to`, to the second.
    pub fn valid(mut self, from: SystemTime, to: SystemTime) -> Self {
        (self.from, self.to) = (from, to);
        self
    }

    /// With these URIs in place of the identity.
    pub fn uris(mut self, uris: &[&str]) -> Self {
        let uri = |uri: &&str| SanType::URI((*uri).try_into().expect("a test's URI is ASCII"));
        self.names = uris.iter().map(uri).collect();
        self
    }

    /// With a DNS name beside the rest, for servers of the control plane.
    pub fn dns(mut self, name: &str) -> Self {
        let name = name.try_into().expect("a test's name is ASCII");
        self.names.push(SanType::DnsName(name));
        self
    }

    /// With an address beside the rest.
    pub fn ip(mut self, ip: std::net::IpAddr) -> Self {
        self.names.push(SanType::IpAddress(ip));
        self
    }

    /// As an authority's: it may sign certificates itself.
    pub fn authority(mut self) -> Self {
        self.is_authority = true;
        self
    }

    /// Permits the key to sign certificates (key usage keyCertSign).
    pub fn signing_certificates(mut self) -> Self {
        self.usages.push(KeyUsagePurpose::KeyCertSign);
        self
    }

    /// Permits the key to sign revocation lists (key usage cRLSign).
    pub fn signing_lists(mut self) -> Self {
        self.usages.push(KeyUsagePurpose::CrlSign);
        self
    }

    /// With one more extension of names, of this DER.
    pub fn more_names(mut self, der: &[u8]) -> Self {
        let oid = [2, 5, 29, 17]; // id-ce-subjectAltName
        let extension = CustomExtension::from_oid_content(&oid, der.to_vec());
        self.extensions.push(extension);
        self
    }

    /// Signs it.
    pub fn issue(self) -> Bundle {
        let key = rcgen::KeyPair::generate().expect("the system gives randomness");
        let mut params = CertificateParams::default();
        params.subject_alt_names = self.names;
        for_workloads(&mut params, self.from, self.to);
        params.key_usages = self.usages;
        params.custom_extensions = self.extensions;
        if self.is_authority {
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        }
        let serial = SERIALS.fetch_add(1, Ordering::Relaxed);
        params.serial_number = Some(serial.into());
        let leaf = params
            .signed_by(&key, &self.ca.issuer)
            .expect("the leaf is complete");
        Bundle {
            key: key.serialize_pem(),
            chain: self.ca.chain(leaf.pem()),
            serial,
        }
    }
}

fn authority(name: &str) -> (CertificateParams, u64) {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
        .distinguished_name
        .push(DnType::OrganizationName, name);
    let serial = SERIALS.fetch_add(1, Ordering::Relaxed);
    params.serial_number = Some(serial.into());
    (params, serial)
}

fn for_workloads(params: &mut CertificateParams, from: SystemTime, to: SystemTime) {
    (params.not_before, params.not_after) = (from.into(), to.into());
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
    ];
}
