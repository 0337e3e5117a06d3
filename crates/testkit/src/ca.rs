//! A certificate authority that issues whatever a test needs, wrong certificates included.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use lateen_tls::{Credentials, KeyPair};
use lateen_types::Identity;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyUsagePurpose, SanType,
};

/// A root and its key.
pub struct Ca {
    issuer: Issuer<'static, rcgen::KeyPair>,
    root: String,
}

/// A certificate in the form that an authority sends it.
#[derive(Debug, Clone)]
pub struct Bundle {
    /// PKCS #8, PEM.
    pub key: String,
    /// The leaf and then the root, PEM.
    pub chain: Vec<String>,
}

impl Bundle {
    /// As the credentials of a workload.
    pub fn credentials(&self) -> Arc<Credentials> {
        let key = KeyPair::from_pem(&self.key).expect("the key is one of ours");
        let credentials = Credentials::from_issued(key, &self.chain);
        Arc::new(credentials.expect("the chain is one of ours"))
    }
}

impl Ca {
    /// A fresh authority.
    pub fn new() -> Self {
        let key = rcgen::KeyPair::generate().expect("the system gives randomness");
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params
            .distinguished_name
            .push(DnType::OrganizationName, "test mesh");
        let root = params.self_signed(&key).expect("the root is complete");
        Ca {
            root: root.pem(),
            issuer: Issuer::new(params, key),
        }
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
        let leaf = request.signed_by(&self.issuer).map_err(|e| e.to_string())?;
        Ok(vec![leaf.pem(), self.root.clone()])
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

    /// Signs it.
    pub fn issue(self) -> Bundle {
        let key = rcgen::KeyPair::generate().expect("the system gives randomness");
        let mut params = CertificateParams::default();
        params.subject_alt_names = self.names;
        for_workloads(&mut params, self.from, self.to);
        let leaf = params
            .signed_by(&key, &self.ca.issuer)
            .expect("the leaf is complete");
        Bundle {
            key: key.serialize_pem(),
            chain: vec![leaf.pem(), self.ca.root.clone()],
        }
    }
}

fn for_workloads(params: &mut CertificateParams, from: SystemTime, to: SystemTime) {
    (params.not_before, params.not_after) = (from.into(), to.into());
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
    ];
}
