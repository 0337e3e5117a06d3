//! Siblings of a new workload: they serve a service that it serves. Pods of one Deployment agree in most of their texts, and a
//! mesh has tens of thousands of pods, so equal values are kept once.

use std::sync::Arc;

use lateen_types::{Identity, Strng};

use crate::Workload;

/// A few workloads of one service, whose values a new workload shares where they are equal.
///
/// Values are shared within a service and not within the mesh: workers copy them for each connection, and all of them would
/// write to one reference count.
#[derive(Debug, Default)]
pub(crate) struct Siblings(Vec<Arc<Workload>>);

impl Siblings {
    /// The most siblings that are compared. One would not do: pods of one service are on several nodes and in several zones.
    const MOST: usize = 8;

    /// Takes the first [`Siblings::MOST`] of these workloads.
    pub(crate) fn of<'a>(workloads: impl Iterator<Item = &'a Arc<Workload>>) -> Self {
        Self(workloads.take(Self::MOST).cloned().collect())
    }

    /// Returns a sibling's text that is equal, or a new one.
    pub(crate) fn text(&self, field: fn(&Workload) -> &Strng, text: &str) -> Strng {
        self.find(|workload| Some(field(workload)).filter(|known| ***known == *text))
            .unwrap_or_else(|| text.into())
    }

    /// Returns a sibling's value that is equal, or this one.
    pub(crate) fn value<T: PartialEq>(
        &self,
        field: impl Fn(&Workload) -> Option<&Arc<T>>,
        value: T,
    ) -> Arc<T> {
        self.find(|workload| field(workload).filter(|known| ***known == value))
            .unwrap_or_else(|| Arc::new(value))
    }

    /// Returns a sibling's identity that has these parts: trust domain, namespace and service account.
    pub(crate) fn identity(&self, parts: [&str; 3]) -> Option<Identity> {
        self.find(|Workload { identity, .. }| {
            let known = [
                identity.trust_domain(),
                identity.namespace(),
                identity.service_account(),
            ];
            (known.map(|part| &**part) == parts).then_some(identity)
        })
    }

    /// Calls `get` for one sibling after the other, and copies the first value that it returns.
    pub(crate) fn find<'a, T: Clone + 'a>(
        &'a self,
        get: impl Fn(&'a Workload) -> Option<&'a T>,
    ) -> Option<T> {
        self.0.iter().find_map(|workload| get(workload)).cloned()
    }
}
