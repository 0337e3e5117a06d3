//! Mesh configuration from one YAML document, in the shape that ztunnel reads and dumps. It serves tests, and a proxy without a
//! control plane.
//!
//! The document becomes the resources that a control plane would send, and is checked in the same way.

mod address;
mod authorization;

use std::collections::BTreeMap;

use bytes::Bytes;
use lateen_types::Strng;
use prost::Message;
use serde::Deserialize;

use crate::{Batch, Kind, Kinds, resource_kinds};

/// The resources of a document, by kind and xDS name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mesh {
    resources: BTreeMap<&'static Kind, Resources>,
}

/// Why a document is not used; the text names the line.
#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    /// It is no YAML, or has another shape.
    #[error("{0}")]
    Yaml(#[from] yaml_serde::Error),
    /// Two resources have one name.
    #[error("{0} is there twice; names are unique")]
    Twice(Strng),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Document {
    #[serde(default)]
    workloads: Vec<address::Workload>,
    #[serde(default)]
    services: Vec<address::Service>,
    #[serde(default)]
    policies: Vec<authorization::Policy>,
}

impl Mesh {
    /// Reads a document. What its values mean is checked when the batches are applied.
    ///
    /// # Errors
    /// See [`LocalError`]; an unknown key is one, because it is likely a misspelt one.
    pub fn parse(yaml: &str) -> Result<Self, LocalError> {
        // An empty document is an empty mesh.
        let document: Option<Document> = yaml_serde::from_str(yaml)?;
        let mut mesh = Self::default();
        let Some(document) = document else {
            return Ok(mesh);
        };
        let workloads = document.workloads.into_iter().map(address::Workload::named);
        let services = document.services.into_iter().map(address::Service::named);
        for (name, address) in workloads.chain(services) {
            add(mesh.of(&resource_kinds::ADDRESS), name, &address)?;
        }
        for (name, policy) in document
            .policies
            .into_iter()
            .map(authorization::Policy::named)
        {
            add(mesh.of(&resource_kinds::AUTHORIZATION), name, &policy)?;
        }
        Ok(mesh)
    }

    /// What to apply, in this order, to come from an earlier state to this one; at least one batch of each kind, so that an
    /// empty mesh is known to be that. See [`Kinds::sequence`].
    pub fn since(&self, before: &Self, kinds: &Kinds) -> Vec<Batch> {
        let none = Resources::new();
        kinds.sequence(|kind| {
            let was = before.resources.get(kind).unwrap_or(&none);
            let is = self.resources.get(kind).unwrap_or(&none);
            let mut batch = Batch::new(kind);
            batch.upserts = changed(was, is);
            batch.removals = gone(was, is);
            batch
        })
    }

    fn of(&mut self, kind: &'static Kind) -> &mut Resources {
        self.resources.entry(kind).or_default()
    }
}

type Resources = BTreeMap<Strng, Bytes>;

fn add(to: &mut Resources, name: String, message: &impl Message) -> Result<(), LocalError> {
    let name: Strng = name.into();
    match to.insert(name.clone(), message.encode_to_vec().into()) {
        Some(_) => Err(LocalError::Twice(name)),
        None => Ok(()),
    }
}

fn changed(before: &Resources, after: &Resources) -> Vec<(Strng, Bytes)> {
    after
        .iter()
        .filter(|(name, bytes)| before.get(*name) != Some(*bytes))
        .map(|(name, bytes)| (name.clone(), bytes.clone()))
        .collect()
}

fn gone(before: &Resources, after: &Resources) -> Vec<Strng> {
    before
        .keys()
        .filter(|name| !after.contains_key(*name))
        .cloned()
        .collect()
}
