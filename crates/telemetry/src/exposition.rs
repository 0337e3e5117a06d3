//! Encoding of a series' labels for Prometheus.

use std::fmt::{self, Write as _};

use lateen_types::Strng;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue as _, LabelSetEncoder};

use crate::dropped::{Dropped, NAMES};
use crate::labels::{Labels, Party};

/// The labels of one series as a page shows them.
pub(crate) struct Shown<'a> {
    pub(crate) labels: &'a Labels,
    pub(crate) flags: &'static str,
    /// Of a request: protocol, response code, and gRPC status.
    pub(crate) request: Option<(&'static str, &'a str, &'a str)>,
    pub(crate) dropped: Dropped,
}

impl EncodeLabelSet for Shown<'_> {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> Result<(), fmt::Error> {
        let labels = self.labels;
        let mut names = NAMES.iter().enumerate();
        // Values come in the order of the names.
        let mut put = |value: &str| -> fmt::Result {
            let (label, name) = names.next().expect("as many names as values");
            if !self.dropped.shows(label) {
                return Ok(());
            }
            write_label(encoder, name, value)
        };
        put(labels.reporter.as_str())?;
        party(&mut put, &labels.source)?;
        let service = labels.service.as_ref();
        put(or_unknown(service.map(|s| &s.hostname)))?;
        put(or_unknown(service.map(|s| &s.namespace)))?;
        put(or_unknown(service.map(|s| &s.name)))?;
        party(&mut put, &labels.destination)?;
        put(self.request.map_or("tcp", |(protocol, ..)| protocol))?;
        put(self.flags)?;
        put(labels.security.as_str())?;
        if labels.source.locality.is_some() || labels.destination.locality.is_some() {
            for party in [&labels.source, &labels.destination] {
                let (region, zone) = party
                    .locality
                    .as_ref()
                    .map_or((None, None), |(r, z)| (r.as_ref(), z.as_ref()));
                put(or_unknown(region))?;
                put(or_unknown(zone))?;
            }
        }
        if let Some((_, code, grpc_status)) = self.request {
            write_label(encoder, "response_code", code)?;
            write_label(encoder, "grpc_response_status", grpc_status)?;
        }
        Ok(())
    }
}

fn write_label(encoder: &mut LabelSetEncoder<'_>, name: &str, value: &str) -> fmt::Result {
    let mut label = encoder.encode_label();
    let mut key = label.encode_label_key()?;
    key.write_str(name)?;
    let mut encoded = key.encode_label_value()?;
    value.encode(&mut encoded)?;
    encoded.finish()
}

fn party(put: &mut impl FnMut(&str) -> fmt::Result, party: &Party) -> fmt::Result {
    let principal = party.principal.as_ref().map(ToString::to_string);
    put(or_unknown(party.workload.as_ref()))?;
    put(or_unknown(party.canonical_service.as_ref()))?;
    put(or_unknown(party.canonical_revision.as_ref()))?;
    put(or_unknown(party.namespace.as_ref()))?;
    put(principal.as_deref().unwrap_or("unknown"))?;
    put(or_unknown(party.app.as_ref()))?;
    put(or_unknown(party.version.as_ref()))?;
    put(or_unknown(party.cluster.as_ref()))
}

/// Istio's word for what is not known, and for what is empty.
fn or_unknown(value: Option<&Strng>) -> &str {
    value
        .map(AsRef::as_ref)
        .filter(|text: &&str| !text.is_empty())
        .unwrap_or("unknown")
}
