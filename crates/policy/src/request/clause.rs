//! Rules and clauses in the form in which they are judged.

use std::ops::Range;

use lateen_types::NamespacedName;

use super::atom::AtomId;
use super::bits::Bits;
use super::check::Check;
use super::policy::RequestAction;

/// A policy without its rules.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) name: NamespacedName,
    pub(super) action: RequestAction,
}

/// One rule. Its clauses are numbers within the set.
#[derive(Debug)]
pub(super) struct Rule {
    /// The position of its policy.
    pub(super) policy: u32,
    pub(super) action: RequestAction,
    /// The sources.
    pub(super) from: Range<u32>,
    /// The operations.
    pub(super) to: Range<u32>,
    /// All conditions.
    pub(super) when: u32,
}

/// Comparisons that must all succeed.
#[derive(Debug, Default)]
pub(super) struct Clause {
    /// Those that a peer decides.
    pub(super) peer: Vec<PeerCheck>,
    pub(super) request: Vec<Check>,
}

/// A comparison of one attribute of the peer.
#[derive(Debug)]
pub(super) struct PeerCheck {
    pub(super) any: Box<[AtomId]>,
    pub(super) not: Box<[AtomId]>,
    /// It fails, whoever the peer is.
    pub(super) never: bool,
}

impl PeerCheck {
    /// The comparison of a clause that mentions nothing.
    pub(super) fn never() -> Self {
        Self {
            any: Box::default(),
            not: Box::default(),
            never: true,
        }
    }

    /// True if it succeeds with the atoms that a peer has.
    pub(super) fn succeeds(&self, atoms: &Bits) -> bool {
        let holds = |id: &AtomId| atoms.has(*id);
        !self.never
            && (self.any.is_empty() || self.any.iter().any(holds))
            && !self.not.iter().any(holds)
    }
}
