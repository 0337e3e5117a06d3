//! Session of a TLS connection: the results of its handshake, kept for the life of the connection.

use std::fmt;
use std::time::SystemTime;

use lateen_types::{Identity, VerifiedPeer};
use rustls::CommonState;

use crate::credentials::{Credentials, not_after};
use crate::error::TlsError;
use crate::revocation::{Revocations, Serial};
use crate::verify::Check;

/// The peer that a handshake authenticated, and facts about the certificates of both sides.
///
/// The authentication holds for the connection's life: a certificate that expires later does not undo it. Callers check
/// [`Session::not_after`] before they open new work on the connection.
#[derive(Debug)]
pub struct Session {
    /// The identity in the peer's certificate, verified.
    peer: VerifiedPeer,
    /// Serial numbers of the certificates that the peer presented, leaf first.
    chain: Box<[Serial]>,
    /// The earlier end of the two leaf certificates' validity.
    not_after: SystemTime,
    /// [`Credentials::generation`] of our side.
    generation: u64,
    /// The group of the key exchange.
    group: Option<rustls::NamedGroup>,
    /// The name of the connection, derived from its secrets.
    binding: Binding,
}

/// Name of a connection that only its two ends know: each derives it from the connection's secrets. A process that finds
/// the same binding at two ends of its own knows that both are ends of one connection. Addresses do not matter for that.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Binding([u8; Self::LENGTH]);

impl Binding {
    /// Length in bytes.
    pub(crate) const LENGTH: usize = 32;

    /// A binding of exported keying material.
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
    /// The session of a handshake that is complete.
    ///
    /// # Errors
    /// The peer presented no certificate, or one without a usable identity.
    pub(crate) fn of(
        own: &Credentials,
        check: &Check,
        state: &CommonState,
        binding: Binding,
    ) -> Result<Self, TlsError> {
        let chain = state.peer_certificates().unwrap_or_default();
        let leaf = chain.first().ok_or(TlsError::NoCertificate)?;
        // The handshake has verified the leaf; this only reads its name again, without any cryptography.
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

    /// The authenticated peer.
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

    /// Generation of our credentials in the handshake, see [`Credentials::generation`].
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The binding of this connection. Only its other end has the same.
    pub fn binding(&self) -> &Binding {
        &self.binding
    }

    /// True if a certificate that the peer presented is revoked now: its leaf or an intermediate.
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
