//! Resources that the client holds, by name and version, for the first request after a reconnect.

use std::collections::BTreeMap;

use lateen_config::{Batch, Kind, Refused};
use lateen_proto::discovery::DeltaDiscoveryResponse;
use lateen_types::Strng;

/// Names and versions of one type's resources. The store shares a workload's name.
#[derive(Debug, Default)]
pub(crate) struct Held(BTreeMap<Strng, Box<str>>);

impl Held {
    /// For the first request of a stream.
    pub(crate) fn versions(&self) -> BTreeMap<String, String> {
        let held = self.0.iter();
        held.map(|(name, version)| (name.to_string(), version.to_string()))
            .collect()
    }

    /// Notes what a response brought. A refused resource keeps its earlier version, or stands without one: the control
    /// plane then sends it again after a reconnect, and says so if it is gone.
    pub(crate) fn note(&mut self, batch: &Batch, versions: Vec<String>, refused: &[Refused]) {
        for name in &batch.removals {
            self.0.remove(name);
        }
        for ((name, _), version) in batch.upserts.iter().zip(versions) {
            if refused.iter().any(|refused| refused.name == *name) {
                self.0.entry(name.clone()).or_default();
            } else {
                // An insertion would keep the text of the earlier version's name.
                self.0.remove(name);
                self.0.insert(name.clone(), version.into());
            }
        }
    }
}

/// Splits a response into what the sink takes and the versions, in the order of the upserts.
pub(crate) fn unpack(
    kind: &'static Kind,
    response: DeltaDiscoveryResponse,
) -> (Batch, Vec<String>) {
    let mut versions = Vec::with_capacity(response.resources.len());
    let mut upserts = Vec::with_capacity(response.resources.len());
    for resource in response.resources {
        versions.push(resource.version);
        // Nothing at all is an empty message, which is then refused by name.
        let bytes = resource
            .resource
            .map(|any| any.value.into())
            .unwrap_or_default();
        upserts.push((resource.name.into(), bytes));
    }
    let removals = response
        .removed_resources
        .into_iter()
        .map(Into::into)
        .collect();
    (
        Batch {
            upserts,
            removals,
            ..Batch::new(kind)
        },
        versions,
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use lateen_config::resource_kinds;

    use super::*;

    fn batch(name: &str) -> Batch {
        Batch {
            upserts: vec![(name.into(), Default::default())],
            ..Batch::new(&resource_kinds::ADDRESS)
        }
    }

    #[test]
    fn the_text_of_a_name_is_that_of_the_version_in_force() {
        let mut held = Held::default();
        held.note(&batch("a"), vec!["1".to_owned()], &[]);
        let second = batch("a");
        held.note(&second, vec!["2".to_owned()], &[]);
        let (name, version) = held.0.first_key_value().unwrap();
        assert!(Arc::ptr_eq(name, &second.upserts[0].0));
        assert_eq!(&**version, "2");
    }
}
