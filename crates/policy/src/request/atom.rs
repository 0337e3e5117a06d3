//! Atoms of the peer: comparisons that need no request. Equal ones are one atom, across all policies of a set.

use std::collections::HashMap;
use std::net::IpAddr;

use ipnet::IpNet;
use lateen_types::{Identity, VerifiedPeer};

use super::facts::PeerFacts;
use crate::policy::{ServiceAccount, StringMatch};

/// One comparison with the peer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum PeerAtom {
    Principal(StringMatch),
    Namespace(StringMatch),
    ServiceAccount(ServiceAccount),
    TrustDomain(StringMatch),
    SourceIp(IpNet),
    DestinationIp(IpNet),
    DestinationPort(u16),
    Sni(StringMatch),
}

/// The number of an atom within its set.
pub(super) type AtomId = u32;

/// The distinct atoms of a set while it is compiled.
#[derive(Debug, Default)]
pub(super) struct Interner {
    atoms: Vec<PeerAtom>,
    known: HashMap<PeerAtom, AtomId>,
}

impl Interner {
    /// The number of an atom.
    pub(super) fn id(&mut self, atom: PeerAtom) -> AtomId {
        if let Some(id) = self.known.get(&atom) {
            return *id;
        }
        let id = self.atoms.len() as AtomId;
        self.known.insert(atom.clone(), id);
        self.atoms.push(atom);
        id
    }

    /// The atoms by number.
    pub(super) fn finish(self) -> Box<[PeerAtom]> {
        self.atoms.into()
    }
}

/// A peer prepared for its atoms: the principal is spelled out once.
pub(super) struct Peer<'a> {
    identity: Option<&'a Identity>,
    principal: Option<String>,
    source_ip: IpAddr,
    destination_ip: IpAddr,
    destination_port: u16,
    sni: Option<&'a [u8]>,
}

impl<'a> Peer<'a> {
    pub(super) fn of(facts: &PeerFacts<'a>) -> Self {
        let identity = facts.peer.map(VerifiedPeer::identity);
        Self {
            identity,
            principal: identity.map(Identity::principal),
            // An IPv4 address seen through an IPv6 socket is still that IPv4 address.
            source_ip: facts.source_ip.to_canonical(),
            destination_ip: facts.destination.ip().to_canonical(),
            destination_port: facts.destination.port(),
            sni: facts.sni,
        }
    }

    /// True if the comparison succeeds. An attribute that the peer does not have equals nothing.
    pub(super) fn is(&self, atom: &PeerAtom) -> bool {
        let identity = |is: &dyn Fn(&Identity) -> bool| self.identity.is_some_and(is);
        match atom {
            PeerAtom::Principal(pattern) => {
                let principal = self.principal.as_deref();
                principal.is_some_and(|principal| pattern.matches(principal))
            }
            PeerAtom::Namespace(pattern) => identity(&|id| pattern.matches(id.namespace())),
            PeerAtom::TrustDomain(pattern) => identity(&|id| pattern.matches(id.trust_domain())),
            PeerAtom::ServiceAccount(account) => identity(&|id| {
                *id.namespace() == account.namespace && *id.service_account() == account.name
            }),
            PeerAtom::SourceIp(block) => block.contains(&self.source_ip),
            PeerAtom::DestinationIp(block) => block.contains(&self.destination_ip),
            PeerAtom::DestinationPort(port) => *port == self.destination_port,
            PeerAtom::Sni(pattern) => self.sni.is_some_and(|sni| pattern.matches_bytes(sni)),
        }
    }
}
