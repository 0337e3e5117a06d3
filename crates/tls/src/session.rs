//! Facts of a handshake that are kept for the life of its connection.

use std::fmt;
use std::time::SystemTime;

use lateen_types::{Identity, VerifiedPeer};
use rustls::CommonState;

use crate::credentials::{Credentials, not_after};
use crate::error::TlsError;
use crate::revocation::{Revocations, Serial};
use crate::verify::Check;

/// A peer that proved who it is, and the certificates that both sides did it with.
///
/// The proof holds for the connection's life: TLS authenticates at the handshake, and a certificate that runs out later
/// does not undo it. Whoever opens new work on the connection asks [`Session::not_after`] first.
#[derive(Debug)]
pub struct Session {
    peer: VerifiedPeer,
    /// All that the peer presented, leaf first.
    chain: Box<[Serial]>,
    not_after: SystemTime,
    generation: u64,
    group: Option<rustls::NamedGroup>,
    binding: Binding,
}

/// Names one connection, to its two ends alone: each derives it from the secrets that they share. Who finds that of one
/// end at another end of its own knows that both are ends of the same connection, whatever addresses say.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Binding([u8; Self::LENGTH]);

impl Binding {
    pub(crate) const LENGTH: usize = 32;

    pub(crate) fn new(bytes: [u8; Self::LENGTH]) -> Self {
        Self(bytes)
    }
}

impl fmt::Debug for Binding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Binding(..)")
    }
}

impl Session {
    pub(crate) fn of(
        own: &Credentials,
        check: &Check,
        state: &CommonState,
        binding: Binding,
    ) -> Result<Self, TlsError> {
        let chain = state.peer_certificates().unwrap_or_default();
        let leaf = chain.first().ok_or(TlsError::NoCertificate)?;
        // The handshake has verified it; finding the name again is a walk over the DER without any cryptography.
        let identity = check.identify(leaf).map_err(|_| TlsError::NoIdentity)?;
        let peers = not_after(leaf).ok_or(TlsError::NoIdentity)?;
        Ok(Session {
            peer: VerifiedPeer::by_certificate(identity),
            chain: chain.iter().filter_map(Serial::of).collect(),
            not_after: peers.min(own.not_after()),
            generation: own.generation(),
            group: state
                .negotiated_key_exchange_group()
                .map(|group| group.name()),
            binding,
        })
    }

    /// Who the peer proved to be.
    pub fn peer(&self) -> &VerifiedPeer {
        &self.peer
    }

    /// The peer's identity.
    pub fn identity(&self) -> &Identity {
        self.peer.identity()
    }

    /// Last moment at which both sides' certificates are valid.
    pub fn not_after(&self) -> SystemTime {
        self.not_after
    }

    /// Which of our credentials the connection was made with, see [`Credentials::generation`].
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// What the other end of the same connection has, too, and no other.
    pub fn binding(&self) -> &Binding {
        &self.binding
    }

    /// True if a certificate that the peer presented has been revoked by now: its leaf or one between it and the root.
    pub fn revoked(&self, revocations: &Revocations) -> bool {
        revocations.lists().names(&self.chain)
    }

    /// The group of the key exchange, such as `X25519` or `X25519MLKEM768`.
    pub fn key_exchange(&self) -> &'static str {
        match self.group {
            Some(rustls::NamedGroup::X25519) => "X25519",
            Some(rustls::NamedGroup::secp256r1) => "P-256",
            Some(rustls::NamedGroup::secp384r1) => "P-384",
            Some(rustls::NamedGroup::X25519MLKEM768) => "X25519MLKEM768",
            _ => "unknown",
        }
    }
}

impl fmt::Display for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.peer.fmt(f)
    }
}
