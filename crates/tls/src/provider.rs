//! The cryptography in use, the same for every connection of a process.

use std::sync::{Arc, LazyLock};

use rustls::SupportedProtocolVersion;
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, aws_lc_rs};
use rustls::version::{TLS12, TLS13};

use crate::rules::Compliance;

/// Application protocol of tunnels (RFC 9113 §3.2).
pub(crate) const ALPN: &[u8] = b"h2";

/// TLS 1.3 only: AES-256-GCM is preferred and AES-128-GCM accepted, as Istio's proxies do.
static CLASSICAL: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| {
    Arc::new(CryptoProvider {
        cipher_suites: vec![
            aws_lc_rs::cipher_suite::TLS13_AES_256_GCM_SHA384,
            aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256,
        ],
        kx_groups: vec![
            aws_lc_rs::kx_group::X25519,
            aws_lc_rs::kx_group::SECP256R1,
            aws_lc_rs::kx_group::SECP384R1,
        ],
        ..aws_lc_rs::default_provider()
    })
});

/// The hybrid first, for who records traffic today and breaks it later; a peer that does not know it takes a classical
/// group in the same flight, for the hybrid's X25519 half is offered by itself too.
static PREFERRED: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| {
    let hybrid = std::iter::once(aws_lc_rs::kx_group::X25519MLKEM768);
    Arc::new(CryptoProvider {
        kx_groups: hybrid.chain(CLASSICAL.kx_groups.iter().copied()).collect(),
        ..CryptoProvider::clone(&CLASSICAL)
    })
});

static POST_QUANTUM: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| {
    Arc::new(CryptoProvider {
        kx_groups: vec![aws_lc_rs::kx_group::X25519MLKEM768],
        ..CryptoProvider::clone(&CLASSICAL)
    })
});

pub(crate) fn provider(compliance: Compliance) -> Arc<CryptoProvider> {
    Arc::clone(match compliance {
        Compliance::Preferred => &PREFERRED,
        Compliance::Classical => &CLASSICAL,
        Compliance::PostQuantum => &POST_QUANTUM,
    })
}

/// The same with TLS 1.2 beside it, for peers outside of the mesh: forward-secret key exchange and AEAD ciphers only
/// (RFC 9325 §4.2). The hybrid key exchange exists with TLS 1.3 alone.
static PREFERRED_FOREIGN: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| with_tls12(&PREFERRED));
static CLASSICAL_FOREIGN: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| with_tls12(&CLASSICAL));

fn with_tls12(mesh: &CryptoProvider) -> Arc<CryptoProvider> {
    let mut foreign = mesh.clone();
    foreign.cipher_suites.extend([
        aws_lc_rs::cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
        aws_lc_rs::cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        aws_lc_rs::cipher_suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
        aws_lc_rs::cipher_suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
    ]);
    Arc::new(foreign)
}

/// The cryptography of connections with peers outside of the mesh.
pub(crate) fn foreign(compliance: Compliance) -> Arc<CryptoProvider> {
    Arc::clone(match compliance {
        Compliance::Preferred => &PREFERRED_FOREIGN,
        Compliance::Classical => &CLASSICAL_FOREIGN,
        Compliance::PostQuantum => &POST_QUANTUM,
    })
}

/// The versions of TLS that [`foreign`] has cipher suites of.
pub(crate) fn versions(compliance: Compliance) -> &'static [&'static SupportedProtocolVersion] {
    static BOTH: [&SupportedProtocolVersion; 2] = [&TLS13, &TLS12];
    match compliance {
        Compliance::Preferred | Compliance::Classical => &BOTH,
        // TLS 1.3 alone.
        Compliance::PostQuantum => &BOTH[..1],
    }
}

pub(crate) fn algorithms() -> WebPkiSupportedAlgorithms {
    CLASSICAL.signature_verification_algorithms
}
