//! Reports as OTLP messages.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use lateen_proto::otlp::collector::logs::v1::ExportLogsServiceRequest;
use lateen_proto::otlp::collector::trace::v1::ExportTraceServiceRequest;
use lateen_proto::otlp::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use lateen_proto::otlp::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use lateen_proto::otlp::resource::v1::Resource;
use lateen_proto::otlp::trace::v1::{ResourceSpans, ScopeSpans, Span, Status};
use lateen_telemetry::{Report, ReportValue, Reporter, Severity};

/// Span kinds of the protocol.
const SERVER: i32 = 2;
const CLIENT: i32 = 3;
/// A status of the protocol.
const ERROR: i32 = 2;
/// W3C's flag of a trace that is sampled.
const SAMPLED: u32 = 1;

fn text(text: impl Into<String>) -> AnyValue {
    AnyValue {
        value: Some(any_value::Value::StringValue(text.into())),
    }
}

pub(crate) fn resource(attributes: &[(String, String)]) -> Resource {
    let attributes = attributes.iter().map(|(key, value)| KeyValue {
        key: key.clone(),
        value: Some(text(value.as_str())),
    });
    Resource {
        attributes: attributes.collect(),
    }
}

fn scope() -> Option<InstrumentationScope> {
    Some(InstrumentationScope {
        name: "lateen".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    })
}

fn attributes(report: &Report) -> Vec<KeyValue> {
    let attributes = report.attributes.iter().map(|(key, value)| KeyValue {
        key: (*key).to_owned(),
        value: Some(match value {
            ReportValue::Text(value) => text(value.as_str()),
            ReportValue::Number(value) => AnyValue {
                value: Some(any_value::Value::IntValue(
                    i64::try_from(*value).unwrap_or(i64::MAX),
                )),
            },
        }),
    });
    attributes.collect()
}

fn nanos(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

fn bytes(id: &[u8]) -> Bytes {
    Bytes::copy_from_slice(id)
}

pub(crate) fn logs(resource: Resource, batch: &[Arc<Report>]) -> ExportLogsServiceRequest {
    let record = |report: &Arc<Report>| {
        let (severity_number, severity_text) = match report.severity {
            Severity::Info => (9, "INFO"),
            Severity::Warn => (13, "WARN"),
            Severity::Error => (17, "ERROR"),
        };
        let trace = report.trace;
        LogRecord {
            time_unix_nano: nanos(report.end),
            observed_time_unix_nano: nanos(report.end),
            severity_number,
            severity_text: severity_text.to_owned(),
            body: Some(text(report.message)),
            attributes: attributes(report),
            flags: trace.map_or(0, |trace| u32::from(trace.sampled) * SAMPLED),
            trace_id: trace
                .map(|trace| bytes(&trace.trace.to_be_bytes()))
                .unwrap_or_default(),
            span_id: trace
                .map(|trace| bytes(&trace.span.to_be_bytes()))
                .unwrap_or_default(),
        }
    };
    ExportLogsServiceRequest {
        resource_logs: vec![ResourceLogs {
            resource: Some(resource),
            scope_logs: vec![ScopeLogs {
                scope: scope(),
                log_records: batch.iter().map(record).collect(),
            }],
        }],
    }
}

pub(crate) fn spans(resource: Resource, batch: &[Arc<Report>]) -> ExportTraceServiceRequest {
    let span = |report: &Arc<Report>| {
        let trace = report.trace?;
        Some(Span {
            trace_id: bytes(&trace.trace.to_be_bytes()),
            span_id: bytes(&trace.span.to_be_bytes()),
            parent_span_id: trace
                .parent
                .map(|parent| bytes(&parent.to_be_bytes()))
                .unwrap_or_default(),
            flags: SAMPLED,
            name: "connection".to_owned(),
            kind: match report.reporter {
                Reporter::Source => CLIENT,
                Reporter::Destination | Reporter::Waypoint => SERVER,
            },
            start_time_unix_nano: nanos(report.start),
            end_time_unix_nano: nanos(report.end),
            attributes: attributes(report),
            status: report.error.as_ref().map(|error| Status {
                message: error.clone(),
                code: ERROR,
            }),
        })
    };
    ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans {
            resource: Some(resource),
            scope_spans: vec![ScopeSpans {
                scope: scope(),
                spans: batch.iter().filter_map(span).collect(),
            }],
        }],
    }
}
