//! A mesh written down in one YAML document, in the shape that ztunnel reads and dumps: for tests and for a proxy without
//! a control plane. It becomes the same resources that a control plane would send, and is checked in the same way.

mod address;
mod authorization;

use std::collections::BTreeMap;

use bytes::Bytes;
use lateen_types::Strng;
use prost::Message;
use serde::Deserialize;

use crate::{Batch, Kind};

/// The resources of a document, by their xDS names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mesh {
    addresses: BTreeMap<Strng, Bytes>,
    authorizations: BTreeMap<Strng, Bytes>,
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
            add(&mut mesh.addresses, name, &address)?;
        }
        for (name, policy) in document
            .policies
            .into_iter()
            .map(authorization::Policy::named)
        {
            add(&mut mesh.authorizations, name, &policy)?;
        }
        Ok(mesh)
    }

    /// What to apply, in this order, to come from an earlier state to this one: policies before the workloads that name
    /// them, and their removal after. At least one batch of each kind, so that an empty mesh is known to be that.
    pub fn since(&self, before: &Self) -> [Batch; 3] {
        let mut policies = Batch::new(Kind::Authorization);
        policies.upserts = changed(&before.authorizations, &self.authorizations);
        let mut addresses = Batch::new(Kind::Address);
        addresses.upserts = changed(&before.addresses, &self.addresses);
        addresses.removals = gone(&before.addresses, &self.addresses);
        let mut departed = Batch::new(Kind::Authorization);
        departed.removals = gone(&before.authorizations, &self.authorizations);
        [policies, addresses, departed]
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
