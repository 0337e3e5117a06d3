//! Names of objects and of workloads.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

use crate::Strng;

/// The name of a namespaced object; written `namespace/name`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NamespacedName {
    /// The namespace; may be empty for what belongs to the whole mesh.
    pub namespace: Strng,
    /// The name within it.
    pub name: Strng,
}

impl NamespacedName {
    /// Names an object.
    pub fn new(namespace: impl Into<Strng>, name: impl Into<Strng>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }
}

impl fmt::Display for NamespacedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl FromStr for NamespacedName {
    type Err = NameError;

    /// Splits at the first `/`; the name must not be empty.
    fn from_str(text: &str) -> Result<Self, NameError> {
        match text.split_once('/') {
            Some((namespace, name)) if !name.is_empty() => Ok(Self::new(namespace, name)),
            _ => Err(NameError {
                text: text.to_owned(),
            }),
        }
    }
}

impl Serialize for NamespacedName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A text that is not `namespace/name`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a namespaced name; expected NAMESPACE/NAME")]
pub struct NameError {
    text: String,
}

/// The name of a workload across clusters, for a pod `<cluster>//Pod/<namespace>/<name>`; opaque here.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WorkloadUid(pub Strng);

impl WorkloadUid {
    /// The uid as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for WorkloadUid {
    fn from(uid: &str) -> Self {
        Self(uid.into())
    }
}

impl fmt::Display for WorkloadUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for WorkloadUid {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_name_needs_both_parts() {
        assert!("web".parse::<NamespacedName>().is_err());
        assert!("default/".parse::<NamespacedName>().is_err());
        assert_eq!("/web".parse::<NamespacedName>().unwrap().namespace.len(), 0);
    }

    proptest! {
        #[test]
        fn round_trips(namespace in "[^/]{0,10}", name in "\\PC{1,20}") {
            let name = NamespacedName::new(namespace, name);
            prop_assert_eq!(name.to_string().parse::<NamespacedName>().unwrap(), name);
        }
    }
}
