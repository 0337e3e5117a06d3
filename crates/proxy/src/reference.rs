//! `lateen-proxy node --reference json`: the variables that the node proxy reads, and its metrics and log fields, from the
//! tables and the registry that it runs with. This module owns the form of that list; `internal/reference` makes the pages of
//! docs/reference from it.

use lateen_telemetry::reference::{self, FIELDS, REQUEST_FIELDS, families};
use serde::Serialize;

use crate::settings::reference::VARIABLES;

#[derive(Serialize)]
struct Reference {
    variables: Vec<Variable>,
    metrics: Vec<Metric>,
    fields: Vec<Field>,
    request_fields: Vec<Field>,
}

#[derive(Serialize)]
struct Variable {
    name: &'static str,
    group: &'static str,
    origin: String,
    form: String,
    default: String,
    meaning: &'static str,
}

#[derive(Serialize)]
struct Metric {
    name: String,
    kind: String,
    help: String,
    labels: Vec<String>,
}

#[derive(Serialize)]
struct Field {
    name: &'static str,
    when: &'static str,
    meaning: &'static str,
}

/// One JSON document with `variables`, `metrics`, and `fields` and `request_fields` of the access log.
#[must_use]
pub fn json() -> String {
    let reference = Reference {
        variables: VARIABLES
            .iter()
            .map(|variable| Variable {
                name: variable.name,
                group: variable.group,
                origin: variable.origin.to_string(),
                form: variable.form.to_string(),
                default: variable.default.to_string(),
                meaning: variable.meaning,
            })
            .collect(),
        metrics: families()
            .into_iter()
            .map(|family| Metric {
                name: family.name,
                kind: family.kind,
                help: family.help,
                labels: family.labels,
            })
            .collect(),
        fields: listed(FIELDS),
        request_fields: listed(REQUEST_FIELDS),
    };
    serde_json::to_string_pretty(&reference).expect("strings and lists have a form in JSON")
}

fn listed(fields: &[reference::Field]) -> Vec<Field> {
    fields
        .iter()
        .map(|field| Field {
            name: field.name,
            when: field.when,
            meaning: field.meaning,
        })
        .collect()
}
