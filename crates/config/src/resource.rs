//! Parsed resources of kinds that other crates declare. The type of the resource is erased.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use lateen_types::Strng;
use rpds::RedBlackTreeMapSync;
use serde::Serialize;

use crate::Rejection;

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
    /// Erases the type of a resource.
    pub(crate) fn new<T: Resource>(resource: T) -> Self {
        Self {
            value: Arc::new(resource),
            json: |value| {
                let resource = value.downcast_ref::<T>();
                serde_json::to_value(resource).unwrap_or_default()
            },
        }
    }

    /// The resource, if it is a `T`.
    pub(crate) fn get<T: Resource>(&self) -> Option<&T> {
        self.value.downcast_ref()
    }

    /// The resource as the dump shows it.
    pub(crate) fn json(&self) -> serde_json::Value {
        (self.json)(&*self.value)
    }
}
