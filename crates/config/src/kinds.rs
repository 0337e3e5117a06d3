//! The registry of the declared kinds: their order, their removal gates, and which of them were listed.

use crate::{Batch, Kind};

/// A registry of kinds, by their order. It is immutable.
#[derive(Debug, Clone)]
pub struct Kinds(Vec<&'static Kind>);

impl Kinds {
    /// A registry of the declared kinds.
    ///
    /// # Panics
    /// If a declaration contradicts another, since declarations are constants of the program.
    pub fn new(kinds: impl IntoIterator<Item = &'static Kind>) -> Self {
        let mut all: Vec<_> = kinds.into_iter().collect();
        all.sort_unstable();
        let kinds = Self(all);
        for (place, kind) in kinds.0.iter().enumerate() {
            let known = kinds.of(kind.type_url).expect("the kind itself is there");
            assert!(
                std::ptr::eq(known, *kind),
                "kind {} is declared twice",
                kind.type_url
            );
            for url in kind.removed_after {
                let place_of = kinds.0.iter().position(|after| after.type_url == *url);
                assert!(
                    place_of.is_some_and(|of| of > place && kinds.0[of].order > kind.order),
                    "removals of {} wait for {url}, which is not a kind of a higher order",
                    kind.type_url
                );
            }
        }
        let on_demand = kinds.0.iter().filter(|kind| kind.on_demand).count();
        assert!(on_demand <= 1, "{on_demand} kinds are asked for by name");
        kinds
    }

    /// The kinds by their order.
    pub fn all(&self) -> &[&'static Kind] {
        &self.0
    }

    /// The kind of a type URL.
    pub fn of(&self, type_url: &str) -> Option<&'static Kind> {
        self.0
            .iter()
            .find(|kind| kind.type_url == type_url)
            .copied()
    }

    /// The kind whose resources are asked for by name where the control plane is asked on demand.
    pub fn on_demand(&self) -> Option<&'static Kind> {
        self.0.iter().find(|kind| kind.on_demand).copied()
    }

    /// The kinds as kinds of which no complete list has arrived.
    pub fn unlisted(&self) -> Unlisted {
        Unlisted(self.0.clone())
    }

    /// The order in which to apply a change of every kind. A kind with a removal gate has a second batch, which holds its
    /// removals: it comes after the batches of all kinds that may name what goes.
    pub fn sequence(&self, mut change: impl FnMut(&'static Kind) -> Batch) -> Vec<Batch> {
        let mut batches = Vec::with_capacity(2 * self.0.len());
        let mut gated = Vec::new();
        for kind in &self.0 {
            let mut batch = change(kind);
            if !kind.removed_after.is_empty() {
                let mut removals = Batch::new(kind);
                removals.removals = std::mem::take(&mut batch.removals);
                gated.push(removals);
            }
            batches.push(batch);
        }
        batches.extend(gated.into_iter().rev());
        batches
    }
}

/// The kinds of which no complete list has arrived yet. A proxy is ready when there are none: with a kind missing, a policy
/// that protects a workload may be unknown.
#[derive(Debug, Clone)]
pub struct Unlisted(Vec<&'static Kind>);

impl Unlisted {
    /// Notes that a kind was listed completely, and returns whether it was the last one missing.
    pub fn listed(&mut self, kind: &'static Kind) -> bool {
        let before = self.0.len();
        self.0.retain(|missing| *missing != kind);
        self.0.is_empty() && before > 0
    }

    /// Whether every kind was listed once.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
