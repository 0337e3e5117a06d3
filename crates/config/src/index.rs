//! Secondary index: several objects may share a key, and a look-up returns the best of them.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::hash::Hash;
use std::sync::Arc;

use lateen_types::Strng;
use rpds::HashTrieMapSync;

use crate::service::Service;
use crate::workload::{Protocol, Workload};

/// What shares a key, and who comes first.
pub(crate) trait Ranked: Clone {
    /// The order of preference; equal only for versions of one object.
    fn rank(&self, other: &Self) -> Ordering;
}

/// Objects by a key that need not be unique; those of one key in a fixed order, best first, so that an answer never
/// depends on the order of arrival. Cloning costs nothing.
#[derive(Debug, Clone)]
pub(crate) struct Index<K: Hash + Eq, V>(HashTrieMapSync<K, List<V>>);

/// The objects of one key. Most keys have one, which needs no list of its own.
#[derive(Debug, Clone)]
enum List<V> {
    One(Arc<V>),
    Many(Arc<[Arc<V>]>),
}

impl<V> List<V> {
    fn of(objects: Vec<Arc<V>>) -> Option<Self> {
        match <[Arc<V>; 1]>::try_from(objects) {
            Ok([object]) => Some(Self::One(object)),
            Err(objects) => (!objects.is_empty()).then(|| Self::Many(objects.into())),
        }
    }

    fn as_slice(&self) -> &[Arc<V>] {
        match self {
            Self::One(object) => std::slice::from_ref(object),
            Self::Many(objects) => objects,
        }
    }
}

impl<K: Hash + Eq, V> Default for Index<K, V> {
    fn default() -> Self {
        Self(HashTrieMapSync::new_sync())
    }
}

impl<K: Hash + Eq, V: Ranked> Index<K, V> {
    pub(crate) fn insert(&mut self, key: K, value: Arc<V>) {
        let mut list = self.get(&key).to_vec();
        match list.binary_search_by(|known| known.rank(&value)) {
            Ok(at) => list[at] = value,
            Err(at) => list.insert(at, value),
        }
        if let Some(list) = List::of(list) {
            self.0.insert_mut(key, list);
        }
    }

    pub(crate) fn remove(&mut self, key: &K, value: &V)
    where
        K: Clone,
    {
        let rest: Vec<_> = self
            .get(key)
            .iter()
            .filter(|known| known.rank(value) != Ordering::Equal)
            .cloned()
            .collect();
        if let Some(list) = List::of(rest) {
            self.0.insert_mut(key.clone(), list);
        } else {
            self.0.remove_mut(key);
        }
    }

    pub(crate) fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> &[Arc<V>]
    where
        K: Borrow<Q>,
    {
        self.0.get(key).map_or(&[], List::as_slice)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &Arc<V>> {
        self.0.values().flat_map(List::as_slice)
    }
}

/// An index per network or per namespace. Two steps rather than a compound key, so that a look-up borrows its key: the
/// reference count of a shared text is a cache line that all workers would fight for.
#[derive(Debug, Clone)]
pub(crate) struct Grouped<K: Hash + Eq, V>(HashTrieMapSync<Strng, Index<K, V>>);

impl<K: Hash + Eq, V> Default for Grouped<K, V> {
    fn default() -> Self {
        Self(HashTrieMapSync::new_sync())
    }
}

impl<K: Hash + Eq + Clone, V: Ranked> Grouped<K, V> {
    pub(crate) fn insert(&mut self, group: &Strng, key: K, value: Arc<V>) {
        if let Some(index) = self.0.get_mut(group) {
            index.insert(key, value);
        } else {
            let mut index = Index::default();
            index.insert(key, value);
            self.0.insert_mut(group.clone(), index);
        }
    }

    pub(crate) fn remove(&mut self, group: &Strng, key: &K, value: &V) {
        let Some(index) = self.0.get_mut(group) else {
            return;
        };
        index.remove(key, value);
        if index.0.is_empty() {
            self.0.remove_mut(group);
        }
    }

    pub(crate) fn get<Q: Hash + Eq + ?Sized>(&self, group: &str, key: &Q) -> &[Arc<V>]
    where
        K: Borrow<Q>,
    {
        self.0.get(group).map_or(&[], |index| index.get(key))
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &Arc<V>> {
        self.0.values().flat_map(Index::values)
    }
}

impl Ranked for Workload {
    /// Pods first, because what a pod's object says is hard to forge; then what is in the mesh.
    fn rank(&self, other: &Self) -> Ordering {
        let key = |w: &Workload| (!w.is_pod(), w.protocol != Protocol::Hbone);
        key(self)
            .cmp(&key(other))
            .then_with(|| self.uid.cmp(&other.uid))
    }
}

impl Ranked for Service {
    /// Services before entries, the older entry before the younger, so that nobody takes an address over by coming later;
    /// where no age is known, the owner of a hostname first.
    fn rank(&self, other: &Self) -> Ordering {
        fn key(s: &Service) -> impl Ord + '_ {
            let owner = s.entry_created.is_none() && s.canonical;
            let names = (&s.namespace, &s.name, &s.hostname);
            (!s.is_kubernetes, s.entry_created, !owner, names)
        }
        key(self).cmp(&key(other))
    }
}
