//! The policies of a set that are judged together: once with a peer, and then with each request.

use std::ops::Range;

use super::atom::{Peer, PeerAtom};
use super::bits::Bits;
use super::check::Request;
use super::clause::{Clause, Head, Rule};
use super::facts::{PeerFacts, RequestFacts};
use super::filing::Files;
use super::index::RuleId;

/// Policies of one attachment point that are judged together.
#[derive(Debug, Default)]
pub(super) struct RuleSet {
    /// By name.
    pub(super) policies: Box<[Head]>,
    /// In the order of their policies.
    pub(super) rules: Box<[Rule]>,
    pub(super) clauses: Box<[Clause]>,
    pub(super) atoms: Box<[PeerAtom]>,
    /// One of the atoms compares the server name.
    pub(super) reads_sni: bool,
    pub(super) files: Files,
}

/// A peer's part of a decision.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Judged {
    /// The clauses whose comparisons with the peer succeed.
    clauses: Bits,
    /// The rules that may match.
    live: Bits,
    /// Rules to judge with every request.
    always: Box<[RuleId]>,
    /// `always` has all rules that may match.
    is_complete: bool,
}

/// With this many rules that may match or fewer, each is judged with every request, which costs less than the look-ups.
const FEW: usize = 4;

impl RuleSet {
    /// Judges a peer.
    pub(super) fn judge(&self, facts: &PeerFacts<'_>) -> Judged {
        if self.rules.is_empty() {
            return Judged::default();
        }
        let peer = Peer::of(facts);
        let atoms = Bits::of(self.atoms.len(), |id| peer.is(&self.atoms[id]));
        let clauses = Bits::of(self.clauses.len(), |id| {
            let checks = &self.clauses[id].peer;
            checks.iter().all(|check| check.succeeds(&atoms))
        });
        let some = |range: &Range<u32>| range.is_empty() || range.clone().any(|id| clauses.has(id));
        let live = Bits::of(self.rules.len(), |id| {
            let rule = &self.rules[id];
            clauses.has(rule.when) && some(&rule.from) && some(&rule.to)
        });
        let all = 0..self.rules.len() as RuleId;
        let is_complete = all.clone().filter(|id| live.has(*id)).nth(FEW).is_none();
        let always = if is_complete {
            all.filter(|id| live.has(*id)).collect()
        } else {
            let unfiled = self.files.unfiled().iter().copied();
            unfiled.filter(|id| live.has(*id)).collect()
        };
        Judged {
            clauses,
            live,
            always,
            is_complete,
        }
    }

    /// Gives the rules that match to `take`, in no order; a rule may be given several times.
    #[inline]
    pub(super) fn matches<F: RequestFacts>(
        &self,
        judged: &Judged,
        request: &Request<'_, F>,
        mut take: impl FnMut(&Rule),
    ) {
        for id in &judged.always {
            let rule = &self.rules[*id as usize];
            if self.covers(rule, judged, request) {
                take(rule);
            }
        }
        if !judged.is_complete {
            self.files.find(request, |id| {
                if judged.live.has(id) {
                    let rule = &self.rules[id as usize];
                    if self.covers(rule, judged, request) {
                        take(rule);
                    }
                }
            });
        }
    }

    fn covers<F: RequestFacts>(
        &self,
        rule: &Rule,
        judged: &Judged,
        request: &Request<'_, F>,
    ) -> bool {
        let holds = |id: u32| {
            judged.clauses.has(id)
                && self.clauses[id as usize]
                    .request
                    .iter()
                    .all(|check| request.is(check, rule.action))
        };
        let some = |range: &Range<u32>| range.is_empty() || range.clone().any(holds);
        holds(rule.when) && some(&rule.to) && some(&rule.from)
    }
}
