//! Resources that the client holds, by name and version, for the first request after a reconnect.

use std::collections::BTreeMap;

use lateen_config::{Batch, Kind, Refused};
use lateen_proto::discovery::DeltaDiscoveryResponse;

/// Names and versions of one type's resources.
#[derive(Debug, Default)]
pub(crate) struct Held(BTreeMap<String, String>);

impl Held {
    /// For the first request of a stream.
    pub(crate) fn versions(&self) -> BTreeMap<String, String> {
        self.0.clone()
    }

    /// Notes what a response brought. A refused resource keeps its earlier version, or stands without one: the control
    /// plane then sends it again after a reconnect, and says so if it is gone.
    pub(crate) fn note(&mut self, batch: &Batch, versions: Vec<String>, refused: &[Refused]) {
        for name in &batch.removals {
            self.0.remove(&**name);
        }
        for ((name, _), version) in batch.upserts.iter().zip(versions) {
            if refused.iter().any(|refused| refused.name == *name) {
                self.0.entry(name.to_string()).or_default();
            } else {
                self.0.insert(name.to_string(), version);
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
