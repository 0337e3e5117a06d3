//! Declarations of the kinds of wire resources, and the registry of them. The store, the xds client, local documents and
//! readiness know a kind by its declaration alone.

use std::cmp::Ordering;
use std::fmt;

use bytes::Bytes;
use lateen_types::Strng;

use crate::typed;
use crate::{Batch, Rejection, Resource, Store};

/// The declaration of one kind of wire resource.
pub struct Kind {
    /// The full URL by which the kind is subscribed.
    pub type_url: &'static str,
    /// The kind's name in the log, and its key in the dump.
    pub label: &'static str,
    /// The kind's rank. Kinds of a lower order are subscribed first, so that their resources are in force before others name them.
    pub order: u16,
    /// The type URLs of the kinds whose resources may name resources of this one; they have a higher order. A removal is
    /// applied after the changes of these kinds. Over xDS the control plane keeps this order. Empty: a removal is applied
    /// with the changes of its kind.
    pub removed_after: &'static [&'static str],
    /// Whether resources are asked for by name where the control plane is asked on demand. At most one kind is.
    pub on_demand: bool,
    /// What the store does with the kind's resources.
    pub parser: Parser,
}

/// The way from a kind's bytes into the store and out of it.
#[derive(Debug, Clone, Copy)]
pub struct Parser {
    pub(crate) upsert: Upsert,
    pub(crate) remove: Remove,
}

/// Parses a resource and takes it in. Refused, the version before stays.
pub(crate) type Upsert = fn(&mut Store, &'static Kind, &Strng, &Bytes) -> Result<(), Rejection>;

/// Forgets the resource of a name.
pub(crate) type Remove = fn(&mut Store, &'static Kind, &str);

impl Parser {
    /// Parses resources into `T`s, which [`Snapshot::resource`](crate::Snapshot::resource) finds by kind and name.
    pub const fn of<T: Resource>() -> Self {
        Self {
            upsert: typed::upsert::<T>,
            remove: typed::remove,
        }
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label)
    }
}

impl PartialEq for Kind {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Kind {}

impl PartialOrd for Kind {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// By order, then by type URL.
impl Ord for Kind {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.order, self.type_url).cmp(&(other.order, other.type_url))
    }
}

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
