//! Handshake settings of the operator, beyond the certificates themselves.

use std::str::FromStr;
use std::sync::Arc;

use lateen_types::Strng;

use crate::revocation::Revocations;

/// Which cryptography is allowed (`COMPLIANCE_POLICY`, as ztunnel names it).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Compliance {
    /// Key exchange X25519MLKEM768 (draft-ietf-tls-ecdhe-mlkem) with peers that know it, X25519, P-256 or P-384 with others.
    #[default]
    Preferred,
    /// `classical`: X25519, P-256, P-384 and no other. Every mesh proxy speaks it, in handshakes a kilobyte shorter.
    Classical,
    /// `pqc`: key exchange X25519MLKEM768 and no other. A peer without it is refused.
    PostQuantum,
}

impl Compliance {
    /// The values that can be asked for; leaving it out is the default.
    pub const NAMES: [&'static str; 2] = ["pqc", "classical"];

    /// The name to ask for it by; empty for the default.
    pub fn as_str(self) -> &'static str {
        match self {
            Compliance::Preferred => "",
            Compliance::Classical => "classical",
            Compliance::PostQuantum => "pqc",
        }
    }
}

/// A compliance policy that this build does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("unknown compliance policy; leave it out, or use pqc or classical")]
pub struct UnknownCompliance;

impl FromStr for Compliance {
    type Err = UnknownCompliance;

    fn from_str(text: &str) -> Result<Self, UnknownCompliance> {
        match text {
            "" => Ok(Compliance::Preferred),
            "classical" => Ok(Compliance::Classical),
            "pqc" => Ok(Compliance::PostQuantum),
            _ => Err(UnknownCompliance),
        }
    }
}

/// What every handshake of a process keeps to. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    /// Which cryptography is allowed.
    pub compliance: Compliance,
    /// Trust domains whose peers are accepted beside our own, if their chains end in our roots.
    pub trust_domain_aliases: Arc<[Strng]>,
    /// Certificates that are good no more; may change at any time.
    pub revocations: Revocations,
}
