//! Tables of resources whose kinds other crates declare: each keeps what its kind's parser returned, by xDS name.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use lateen_types::Strng;
use rpds::RedBlackTreeMapSync;
use serde::Serialize;

use crate::{Kind, Rejection, Snapshot, Store};

/// A parsed resource. Its [`Serialize`] is its form in the dump.
pub trait Resource: Serialize + Send + Sync + Sized + 'static {
    /// Parses the resource that has this xDS name.
    ///
    /// # Errors
    /// Why the resource is refused; the version before stays in force.
    fn parse(name: &str, bytes: Bytes) -> Result<Self, Rejection>;
}

/// The resources of one kind by name.
pub(crate) type Table = RedBlackTreeMapSync<Strng, Entry>;

/// One resource of a type that the kind's declaration fixes.
#[derive(Clone)]
pub(crate) struct Entry {
    value: Arc<dyn Any + Send + Sync>,
    json: fn(&(dyn Any + Send + Sync)) -> serde_json::Value,
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.json().fmt(f)
    }
}

impl Entry {
    fn new<T: Resource>(resource: T) -> Self {
        Self {
            value: Arc::new(resource),
            json: |value| {
                let resource = value.downcast_ref::<T>();
                serde_json::to_value(resource).unwrap_or_default()
            },
        }
    }

    /// The resource as the dump shows it.
    pub(crate) fn json(&self) -> serde_json::Value {
        (self.json)(&*self.value)
    }
}

pub(crate) fn upsert<T: Resource>(
    store: &mut Store,
    kind: &'static Kind,
    name: &Strng,
    bytes: &Bytes,
) -> Result<(), Rejection> {
    let entry = Entry::new(T::parse(name, bytes.clone())?);
    store.change(|snapshot| {
        let mut table = snapshot.typed.get(kind).cloned().unwrap_or_default();
        table.insert_mut(name.clone(), entry);
        snapshot.typed.insert_mut(kind, table);
        true
    });
    Ok(())
}

pub(crate) fn remove(store: &mut Store, kind: &'static Kind, name: &str) {
    store.change(|snapshot| {
        let table = snapshot.typed.get_mut(kind);
        table.is_some_and(|table| table.remove_mut(name))
    });
}

impl Snapshot {
    /// The resource of this kind and name, for kinds with [`Parser::of::<T>`](crate::Parser::of). A look-up costs a dynamic
    /// cast. Work that is done for each connection or request looks its resources up once a generation and keeps them.
    pub fn resource<T: Resource>(&self, kind: &Kind, name: &str) -> Option<&T> {
        self.typed.get(kind)?.get(name)?.value.downcast_ref()
    }

    /// The resources of this kind by name, for kinds with [`Parser::of::<T>`](crate::Parser::of).
    pub fn resources<T: Resource>(&self, kind: &Kind) -> impl Iterator<Item = (&Strng, &T)> {
        let table = self.typed.get(kind).into_iter().flatten();
        table.filter_map(|(name, entry)| Some((name, entry.value.downcast_ref()?)))
    }
}
